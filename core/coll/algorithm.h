/* SPDX-License-Identifier: Apache-2.0
 *
 * algorithm: the interface between coll.c and algorithms. For the algorithms of core/coll, in this
 * folder, and those of core/backend, which come before them (coll_add_algorithms). Everything runs
 * under the engine's progress lock. An algorithm keeps its state in zeroed memory of state_size
 * bytes that lives as long as the coll.
 */
#ifndef HVD_COLL_ALGORITHM_H
#define HVD_COLL_ALGORITHM_H

#include "core/coll/coll.h"
#include "core/coll/guard.h"
#include "core/coll/reduce.h"

struct coll_work {
    uint8_t *data;
    size_t cap;
};

struct shm_pieces;

struct algorithm {
    const char *name;
    const char *(*name_of)(const void *state); /* replaces name for algorithms with variants */
    size_t state_size;
    /* Whether the algorithm can run this operation: the same answer on every rank. The first
     * algorithm of the table that applies is used. */
    bool (*applies)(const struct mesh *mesh, const struct coll_op *op);
    /* The algorithm cannot be cancelled once it has begun. So start is called only when every rank
     * has entered the operation: coll makes a barrier of its own first, after which no rank cancels
     * the operation. */
    bool together;
    /* Called once; coll->backend is the state of its back end, NULL: an algorithm of coll's own.
     * May be NULL. */
    int (*init)(struct coll *coll, void *state, struct err *err);
    void (*fini)(void *state);
    /* As coll_start, coll_progress, coll_cancel. cancel may be NULL. */
    int (*start)(struct coll *coll, void *state, struct err *err);
    int (*progress)(struct coll *coll, void *state);
    void (*cancel)(struct coll *coll, void *state);
    /* As coll_standing() and coll_settle(). NULL: survivors cannot finish the operation; see
     * guard.h. */
    void (*standing)(struct coll *coll, void *state, struct coll_standing *ret);
    int (*settle)(struct coll *coll, void *state, const uint32_t *final, struct coll_rest *rest);
    /* As coll_restore() and coll_stop(). May be NULL. */
    void (*restore)(struct coll *coll, void *state);
    /* stop and cancel may set coll->abandoned. */
    void (*stop)(struct coll *coll, void *state);
};

#define COLL_MAX_ALGORITHMS 40

struct coll_entry {
    const struct algorithm *alg;
    void *state;
};

/* An operation and the algorithm that runs it. */
struct coll_run {
    const struct coll_op *op;
    const struct algorithm *alg;
    void *alg_state;
};

struct coll {
    struct mesh *mesh;
    struct shm_pieces *pieces;   /* NULL where no memory is shared */
    const struct coll_op *op;    /* the operation in flight; NULL: none */
    const struct algorithm *alg; /* the algorithm of the current operation, or of the last one */
    void *alg_state;
    enum coll_wait wait; /* set by a progress function that returns 1, unless it is COLL_WAKES */
    uint64_t seq; /* operations completed: equal on all ranks at the same position of the log */
    int turn;     /* index of the current operation's work buffer */
    struct coll_work work[2];
    bool elastic;
    struct guard guard;
    uint32_t *final;       /* [seats], for coll_standing() */
    struct err why;        /* see coll_why() */
    const char *abandoned; /* see coll_abandoned() */
    /* the operation that waits for all ranks to enter (algorithm.together); NULL: none */
    const struct coll_op *gathering;
    void *backend; /* see struct algorithm, init */
    /* While the operation runs: its part (coll_part_start()); while the part runs: the
     * operation. */
    struct coll_run other;
    bool by_parts; /* the current operation has had parts */
    /* The algorithms of back ends, then coll's own. */
    struct coll_entry list[COLL_MAX_ALGORITHMS];
    int n, nbackend;
};

/* Coll's own algorithms; the list ends with NULL. */
extern const struct algorithm *const coll_algorithms[];

/* Memory for the current operation, 64-byte aligned. Later calls of the same operation for no
 * more bytes return the same memory. NULL: no memory. The earlier content is lost. */
uint8_t *coll_work(struct coll *coll, size_t bytes);

/* For an algorithm that uses other algorithms for a part of its work: runs an operation on host
 * memory within its own progress, from start to end. One part at a time; all ranks run the same
 * parts. Results as of coll_start, coll_progress and coll_cancel. part must stay valid until the
 * end. */
int coll_part_start(struct coll *coll, const struct coll_op *part, struct err *err);
int coll_part_progress(struct coll *coll);
void coll_part_cancel(struct coll *coll);

/* The tag of a message of the current operation. */
static inline uint64_t coll_tag(const struct coll *coll, unsigned step, size_t block)
{
    return coll->seq << 40 | (uint64_t)(step & 0xffff) << 24 | (block & 0xffffff);
}

static inline struct link *coll_link(struct coll *coll, int peer)
{
    return mesh_link(coll->mesh, peer, LINK_DATA);
}

/* The plan of reduce() for this operation. */
static inline struct reduce_plan coll_reduce_plan(const struct coll_op *op)
{
    return (struct reduce_plan){
        .dtype = op->dtype,
        .op = op->op == HVD_AVERAGE ? HVD_SUM : op->op,
        .prescale = op->prescale,
        .divisor = op->op == HVD_AVERAGE ? op->contributors : 1,
        .postscale = op->postscale,
    };
}

/* Records why the current operation has failed, for coll_why(). Returns the code. */
int coll_failed(struct coll *coll, const struct err *why);

/* Appends a range; joins it with its neighbour if possible. -ENOMEM. */
int coll_rest_add(struct coll_rest *rest, const struct coll_tensor *tensor, size_t elem);

/* The number of elements of all tensors together. */
size_t coll_count(const struct coll_op *op);

/* Returns whether the operation moves no data (as a barrier): ranks then only wait for each
 * other. */
bool coll_is_empty(const struct mesh *mesh, const struct coll_op *op);

/* One message in one direction, and whether it is in flight. message_send() and message_recv()
 * return as xfer_send() and xfer_recv() do. */
struct message {
    struct xfer x;
    bool active;
};

static inline void message_start(struct message *m, struct link *link, uint64_t tag, void *data,
                                 size_t len)
{
    /* Arithmetic on a null pointer is undefined, even where there is nothing to move. */
    xfer_start(&m->x, link, tag, data ? data : m, len);
    m->active = true;
}

static inline int message_send(struct message *m, size_t ready)
{
    int rc = xfer_send(&m->x, ready);
    m->active = rc == 1;
    return rc;
}

static inline int message_recv(struct message *m)
{
    int rc = xfer_recv(&m->x);
    m->active = rc == 1;
    return rc;
}

static inline void message_cancel_send(struct message *m)
{
    if (m->active)
        xfer_cancel_send(&m->x);
    m->active = false;
}

static inline void message_cancel_recv(struct message *m)
{
    if (m->active)
        xfer_cancel_recv(&m->x);
    m->active = false;
}

#endif
