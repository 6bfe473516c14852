/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor: what one node of the tree knows about a tensor's name, and the table of all entries: by
 * name, by cache id, by ticket (the id of a submission). An entry exists while it has a cache id,
 * is in flight on this rank, or was announced by a child. Owned by negotiate, called under the
 * engine's progress lock.
 */
#ifndef HVD_NEGOTIATE_TENSOR_H
#define HVD_NEGOTIATE_TENSOR_H

#include "core/base/list.h"
#include "core/negotiate/claim.h"
#include "core/negotiate/negotiate.h"

enum tensor_state {
    TENSOR_IDLE,
    TENSOR_SUBMITTED, /* on this rank, not in a batch yet */
    TENSOR_OWED,      /* submitted, and in a batch of the queue: owed.h */
    TENSOR_RUNNING,   /* in a batch that was handed out and is not finished */
};

struct tensor {
    char *name;
    uint64_t hash;
    struct tensor *next; /* next entry in the bucket of its hash */
    uint32_t index;      /* index in the table */

    /* The cache. An id stands for the name and for every rank's last request. Its meaning never
     * changes: another shape gets another id. 0: not cached. */
    uint64_t id;
    struct signature cached; /* this rank's last request */
    int64_t *dim0;           /* [size], allgather */
    struct list lru;         /* root: list of cached tensors in the order of last use */

    /* What this rank has submitted. */
    enum tensor_state state;
    uint64_t ticket;
    struct signature want;
    bool by_id;            /* the request equals the cached one */
    struct list mine;      /* negotiate.submitted */
    uint64_t submitted;    /* time of its submission */
    bool waited;           /* a caller on this rank waits for the tensor */
    uint64_t submit_batch; /* negotiate.done_to at its submission */

    /* What this rank and its children have announced in this generation. */
    uint64_t *child_ready; /* one bit per child */
    uint64_t *child_by_id; /* children whose complete subtree announced by the id */
    uint64_t *child_mixed; /* children of which a part announced by the id: see claims */
    uint32_t nready;
    struct claim *claims; /* claims of the children, except those in child_by_id */
    bool complete;        /* this rank and all children have announced the tensor */
    bool told; /* the tensor was announced to the parent; on the root: its requests were compared */
    bool prioritized;    /* a rank at or below this node waits for the tensor */
    bool priority_told;  /* the parent has been told of prioritized */
    struct list out;     /* to be announced or prioritized */
    uint64_t since;      /* when this node first knew of the tensor; 0: not in flight */
    struct list partial; /* known, but not complete; in the order of since */
    uint64_t stall_told; /* when its stall was last reported */

    uint64_t next_id;  /* root, once compared: the id for the log; 0: not cached */
    uint64_t round;    /* root: the round in which the tensor was last seen */
    uint64_t proposal; /* root: number of a considered plan that has it */
    bool owed;         /* a batch of the queue has it: owed.h */
    bool bound;        /* its last batch, or the last plan's, was bound */
    uint64_t plan;     /* generation of the plan that has the tensor */
    uint64_t wanted;   /* plan.wants while the plan's next batch has it */

    /* This rank has joined, and is asked for its neutral element, at once or when the batch that
     * has the name is done (join.c). NULL: it is not asked, or has submitted it. */
    struct signature *asked;
};

struct tensors {
    struct tensor **buckets;
    size_t nbuckets, count;
    struct tensor **pool; /* by index */
    uint32_t npool, cap_pool;
    uint32_t *holes; /* free indexes */
    uint32_t nholes;
    struct tensor **slots; /* indexed by the id's slot */
    uint32_t nslots;
    uint32_t capacity; /* the most slots */
    uint32_t serial;   /* number of the last ticket */
    int nchildren;
};

int tensors_init(struct tensors *t, uint32_t capacity, int nchildren);
void tensors_fini(struct tensors *t);

struct tensor *tensors_find(const struct tensors *t, const char *name);
struct tensor *tensors_by_ticket(const struct tensors *t, uint64_t ticket);

/* NULL: not in the cache, or not any more. */
struct tensor *tensors_by_id(const struct tensors *t, uint64_t id);

/* Finds or creates an entry; NULL: no memory. */
struct tensor *tensors_get(struct tensors *t, const char *name);

/* Gives e a new ticket. Never 0. */
uint64_t tensors_ticket(struct tensors *t, struct tensor *e);

/* Gives e this id; e may lose its old one. The id's slot must be within the capacity, and free
 * or e's own. -EPROTO, -ENOMEM. */
int tensors_set_id(struct tensors *t, struct tensor *e, uint64_t id);
void tensors_drop_id(struct tensors *t, struct tensor *e);

/* Frees the entry unless something still needs it. */
void tensors_release(struct tensors *t, struct tensor *e);

/* id = version << 32 | slot. Versions begin at 1, so that no id is 0 and none is used twice. */
static inline uint32_t id_slot(uint64_t id)
{
    return (uint32_t)id;
}

static inline bool tensor_child_has(const uint64_t *bits, int child)
{
    return bits[child >> 6] >> (child & 63) & 1;
}

/* Forgets the children's announcements. */
void tensor_forget_children(struct tensor *e, int nchildren);

#endif
