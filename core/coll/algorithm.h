/* SPDX-License-Identifier: Apache-2.0
 *
 * algorithm: what an algorithm is to coll.c, and what coll.c has for it.
 *
 * For core/coll, whose own algorithms are in this folder, and core/backend, which puts others in
 * front of them (coll_add_algorithms). Everything runs under the engine's progress lock. An
 * algorithm keeps its state in zeroed memory of state_size bytes that lives as long as the coll.
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
    const char *(*name_of)(const void *state); /* instead of name where there are variants */
    size_t state_size;
    /* The first of the table that applies is taken: must be the same on every rank. */
    bool (*applies)(const struct mesh *mesh, const struct coll_op *op);
    bool across; /* may be asked for sums across hosts, too (struct coll_op) */
    /* It cannot be cancelled once it has begun: start is called when every rank has come to the
     * operation (a barrier of the coll's own lies before it), so nobody takes it back. */
    bool together;
    /* May be NULL. init: once; coll->backend is whose algorithm it is, NULL: the coll's own. */
    int (*init)(struct coll *coll, void *state, struct err *err);
    void (*fini)(void *state);
    /* As coll_start, coll_progress, coll_cancel. cancel may be NULL. */
    int (*start)(struct coll *coll, void *state, struct err *err);
    int (*progress)(struct coll *coll, void *state);
    void (*cancel)(struct coll *coll, void *state);
    /* As coll_standing() and coll_settle(). NULL: others cannot finish it, see guard.h. */
    void (*standing)(struct coll *coll, void *state, struct coll_standing *ret);
    int (*settle)(struct coll *coll, void *state, const uint32_t *final, struct coll_rest *rest);
    /* As coll_restore() and coll_stop(). May be NULL. */
    void (*restore)(struct coll *coll, void *state);
    /* It, and cancel, may set coll->left. */
    void (*stop)(struct coll *coll, void *state);
};

#define COLL_MAX_ALGORITHMS 40

struct coll_entry {
    const struct algorithm *alg;
    void *state;
};

/* An operation and who runs it. */
struct coll_run {
    const struct coll_op *op;
    const struct algorithm *alg;
    void *alg_state;
};

struct coll {
    struct mesh *mesh;
    struct shm_pieces *pieces;   /* NULL where no memory is shared */
    const struct coll_op *op;    /* under way, else NULL */
    const struct algorithm *alg; /* of the operation under way or the last one */
    void *alg_state;
    enum coll_wait wait; /* set by progress that returns 1, where it is not COLL_WAKES */
    uint64_t seq;        /* operations completed: the same at the same place of the log */
    int turn;            /* the work buffer of the operation under way */
    struct coll_work work[2];
    bool elastic;
    struct guard guard;
    uint32_t *final;  /* [seats], for coll_standing() */
    struct err why;   /* see coll_why() */
    const char *left; /* see coll_left() */
    /* Before an operation that wants all ranks together; NULL: none is waiting. */
    const struct coll_op *gathering;
    void *backend; /* see struct algorithm, init */
    /* See coll_part_start(): while the whole works, its part, and the other way round. */
    struct coll_run other;
    bool by_parts; /* the operation under way has had parts */
    /* Those of back ends, then the coll's own. */
    struct coll_entry list[COLL_MAX_ALGORITHMS];
    int n, nbackend;
};

/* The coll's own; ends with NULL. */
extern const struct algorithm *const coll_algorithms[];

/* Memory for this operation, 64-byte aligned, the same at every call of one operation that asks for
 * no more; NULL when memory is out. Its former content is lost. */
uint8_t *coll_work(struct coll *coll, size_t bytes);

/* For an algorithm that has others do a part of its work: an operation on the host's memory inside
 * of its own, from start to end within its own progress; one at a time, the same ones on every
 * rank. They answer as coll_start, coll_progress and coll_cancel (of which there need be none).
 * part must stay until the end. */
int coll_part_start(struct coll *coll, const struct coll_op *part, struct err *err);
int coll_part_progress(struct coll *coll);
void coll_part_cancel(struct coll *coll);

/* The tag of a message of the operation under way. */
static inline uint64_t coll_tag(const struct coll *coll, unsigned step, size_t block)
{
    return coll->seq << 40 | (uint64_t)(step & 0xffff) << 24 | (block & 0xffffff);
}

static inline struct link *coll_link(struct coll *coll, int peer)
{
    return mesh_link(coll->mesh, peer, LINK_DATA);
}

/* What reduce() is to do for this operation. */
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

/* The operation under way has failed with these words, for coll_why(). Returns the code. */
int coll_failed(struct coll *coll, const struct err *why);

/* One more of them; neighbours become one. -ENOMEM. */
int coll_rest_add(struct coll_rest *rest, const struct coll_tensor *tensor, size_t elem);

/* Elements of all tensors together. */
size_t coll_count(const struct coll_op *op);

/* A barrier, or an operation that moves nothing: all there is to do is to wait for the others. */
bool coll_is_empty(const struct mesh *mesh, const struct coll_op *op);

/* One message in one direction with the question whether it is under way; the three calls answer
 * as xfer_send() and xfer_recv(). */
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
