/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor: what one node of the tree knows about a tensor's name, and the table of them all: by
 * name, by cache id, by ticket (the id a submission is known by).
 *
 * An entry lives while it has a cache id, is under way here, or a child has announced it. Owned by
 * negotiate, called under the engine's progress lock.
 */
#ifndef HVD_NEGOTIATE_TENSOR_H
#define HVD_NEGOTIATE_TENSOR_H

#include "core/base/list.h"
#include "core/negotiate/claim.h"
#include "core/negotiate/negotiate.h"

enum tensor_state {
    TENSOR_IDLE,
    TENSOR_SUBMITTED, /* here, not in a batch yet */
    TENSOR_RUNNING,   /* in a batch that was handed out and is not done */
};

struct tensor {
    char *name;
    uint64_t hash;
    struct tensor *next; /* in the bucket of its hash */
    uint32_t index;      /* in the table */

    /* The cache. An id stands for the name and for what every rank said last time; it never
     * changes its meaning: another shape gets another id. 0: not cached. */
    uint64_t id;
    struct signature cached; /* this rank's own */
    int64_t *dim0;           /* [size], allgather and alltoall */
    int64_t *splits;         /* [size * size], alltoall */
    struct list lru;         /* root: in the order of last use */

    /* What this rank has submitted. */
    enum tensor_state state;
    uint64_t ticket;
    struct signature want;
    int64_t *want_splits;  /* [size], alltoall */
    bool by_id;            /* the same as cached */
    struct list mine;      /* negotiate.submitted */
    uint64_t submitted;    /* when */
    uint64_t submit_batch; /* batches done here when it was submitted */

    /* What the node and its children have said to it in this generation. */
    uint64_t *child_ready; /* a bit a child */
    uint64_t *child_by_id; /* those whose whole subtree gave the id */
    uint64_t *child_mixed; /* those of which a part gave the id: see claims */
    uint32_t nready;
    struct claim *claims; /* of the children, beyond child_by_id */
    bool complete;        /* it is here and at all children */
    bool told;            /* and the parent was told so; on the root: judged */
    bool urged;           /* somebody below waits for it */
    bool urge_told;       /* and the parent was told so */
    struct list out;      /* to be announced, or to have its urge told */
    uint64_t since;       /* when it was first heard of here; 0: not under way */
    struct list partial;  /* heard of, not everybody has it; in the order of since */
    uint64_t stall_told;  /* when its stall was last reported */

    uint64_t next_id;  /* root, once judged: what the log will call it; 0: uncached */
    uint64_t round;    /* root: the round it was last seen in */
    uint64_t proposal; /* root: a plan that is thought of has it */
    uint64_t plan;     /* generation of the plan it is in */
    uint64_t wanted;   /* plan.wants while the plan's next batch has it */
};

struct tensors {
    struct tensor **buckets;
    size_t nbuckets, count;
    struct tensor **pool; /* by index */
    uint32_t npool, cap_pool;
    uint32_t *holes; /* free indexes */
    uint32_t nholes;
    struct tensor **slots; /* by the id's slot */
    uint32_t nslots;
    uint32_t capacity; /* most slots there may be */
    uint32_t serial;   /* of tickets */
    int nchildren;
};

int tensors_init(struct tensors *t, uint32_t capacity, int nchildren);
void tensors_fini(struct tensors *t);

struct tensor *tensors_find(const struct tensors *t, const char *name);
struct tensor *tensors_by_ticket(const struct tensors *t, uint64_t ticket);

/* NULL: not in the cache (any more). */
struct tensor *tensors_by_id(const struct tensors *t, uint64_t id);

/* Finds or makes it; NULL when memory is out. */
struct tensor *tensors_get(struct tensors *t, const char *name);

/* A new ticket for it. Never 0. */
uint64_t tensors_ticket(struct tensors *t, struct tensor *e);

/* id's slot is within the capacity and free, or e's own: e has that id now and may lose its old
 * one. -EPROTO, -ENOMEM. */
int tensors_set_id(struct tensors *t, struct tensor *e, uint64_t id);
void tensors_drop_id(struct tensors *t, struct tensor *e);

/* Frees it when nothing keeps it. */
void tensors_release(struct tensors *t, struct tensor *e);

/* id = version << 32 | slot; the version begins at 1, so no id is 0 and none is used twice. */
static inline uint32_t id_slot(uint64_t id)
{
    return (uint32_t)id;
}

static inline bool tensor_child_has(const uint64_t *bits, int child)
{
    return bits[child >> 6] >> (child & 63) & 1;
}

/* Forgets what the children have said. */
void tensor_forget_children(struct tensor *e, int nchildren);

#endif
