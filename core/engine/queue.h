/* SPDX-License-Identifier: Apache-2.0
 *
 * queue: the operations this process has submitted, each in a slot from submit to release.
 *
 * Any thread may submit, look up and release (a short lock of its own); the driver of the engine
 * takes new slots from the inbox and finishes them, under the progress lock. A slot's fields are
 * its submitter's until it is in the inbox, then the driver's until done, then the waiter's. Slots
 * are reused and never freed before queue_destroy(): the steady state allocates nothing.
 */
#ifndef HVD_ENGINE_QUEUE_H
#define HVD_ENGINE_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <hvd.h>

#include "core/base/err.h"
#include "core/engine/marks.h"
#include "core/engine/request.h"

enum slot_state {
    SLOT_FREE,
    SLOT_INBOX,       /* not yet seen by the driver */
    SLOT_NEGOTIATING, /* given to negotiate */
    SLOT_BATCHED,     /* in a batch */
    SLOT_DONE,
};

struct slot {
    _Atomic hvd_handle handle; /* 0: free */
    _Atomic int done;          /* status and result are final */
    uint32_t index;            /* place in the queue's blocks */
    _Atomic int urged;         /* somebody waits for it */
    enum slot_state state;     /* the driver's, under the progress lock */
    int status;                /* how it ended: 0 or -errno */
    char *text;                /* why it failed; NULL: nothing to say */
    struct request_facts facts;
    const void *in;
    void *out;
    int device;               /* the GPU they are on, -1: the host's memory */
    struct CUevent_st *ready; /* of a GPU: behind it they are the engine's */
    int64_t *splits;          /* [size] alltoall: rows for each rank */
    int64_t *rows;            /* [size] allgather, alltoall: rows from each rank */
    size_t rows_cap;          /* ranks there is room for in both */
    void *result; /* allgather, alltoall: allocated output, until release; NULL: it is in out */
    struct cuda_memory on_gpu; /* that result's memory is on the GPU */
    int64_t result_rows;
    uint64_t id; /* negotiate's name for it */
    bool has_id;
    bool waited; /* hvd_wait() returned 0 and the result stays */
    uint64_t submit_ns, batch_ns, start_ns;
    struct slot *next;      /* in the inbox, the free list */
    struct slot *name_next; /* in the table of names */
    uint64_t hash;          /* of the name */
    char name[HVD_MAX_NAME + 1];
};

#define QUEUE_BLOCK      256 /* slots that are allocated together */
#define QUEUE_MAX_BLOCKS 4096
#define QUEUE_NAMES      4096

struct queue {
    pthread_mutex_t lock;
    int rank, size;
    struct marks marks;
    struct slot *_Atomic blocks[QUEUE_MAX_BLOCKS];
    size_t nblocks;
    struct slot *free;
    struct slot *inbox, **inbox_end;
    _Atomic size_t inbox_count;
    struct slot *names[QUEUE_NAMES]; /* of operations under way */
    _Atomic size_t under_way;        /* submitted and not done */
    _Atomic uint64_t submitted;      /* so far, also past the queue (engine/fast) */
    uint64_t seq;                    /* the last one in a handle */
    uint64_t unnamed[HVD_KINDS];
    const struct slot *last_slot; /* the last one submitted; its name stays there for a while */
    _Atomic uint64_t allocations;
    bool left; /* see queue_leave() */
};

/* first_seq: queues of one process hand it on (queue.seq), so that no handle comes twice. */
int queue_create(int rank, int size, uint64_t first_seq, struct queue **ret, struct err *err);
void queue_destroy(struct queue *q);

/* From here on requests are checked for this world, and unnamed ones are counted from 0. No
 * operation is under way. */
void queue_set_world(struct queue *q, int rank, int size);

/* Checks all requests and puts them into the inbox; on failure none. now: clock_ns(), for the
 * timeline. */
int queue_submit(struct queue *q, const struct hvd_request *requests, size_t n, uint64_t now,
                 hvd_handle *ret_handles, struct err *err);

/* Everything in the inbox as a chain over next, in the order of submission; NULL: nothing. */
struct slot *queue_take(struct queue *q);

static inline bool queue_has_new(struct queue *q)
{
    return atomic_load(&q->inbox_count) > 0;
}

/* The slot of a handle, NULL when there is none. It may be released under your eyes by another
 * thread: its handle tells. */
struct slot *queue_find(struct queue *q, hvd_handle handle);

/* The operation is over; the slot is the waiter's from here on. err NULL: good. */
void queue_finish(struct queue *q, struct slot *slot, const struct err *err);

/* Every operation that is not done ends with err, those in the inbox too. */
void queue_fail_all(struct queue *q, const struct err *err);

/* Results in the host's memory are not freed any more: a library may write to them still. */
void queue_leave(struct queue *q);

/* Calls f for every slot that is under way (negotiating or batched), in no order. */
void queue_each(struct queue *q, void (*f)(void *ctx, struct slot *slot), void *ctx);

/* Memory for the result of this slot, where its tensors are, in the place of what it had; 0 bytes:
 * none. -ENOMEM. */
int queue_make_result(struct queue *q, struct slot *slot, size_t bytes, struct err *err);

/* What was submitted last, "" when nothing was. */
void queue_last(struct queue *q, char *text, size_t size);

/* -EINVAL when it is not this handle's any more. */
int queue_release(struct queue *q, struct slot *slot, hvd_handle handle);

#endif
