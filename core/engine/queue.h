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
    _Atomic hvd_handle
        open;          /* the handle while no thread is in hvd_wait() on it, see queue_claim() */
    _Atomic int done;  /* status and result are final */
    uint32_t index;    /* place in the queue's blocks */
    _Atomic int urged; /* somebody waits for it */
    enum slot_state state; /* the driver's, under the progress lock */
    int status;            /* how it ended: 0 or -errno */
    char *text;            /* why it failed; NULL: nothing to say */
    struct request_facts facts;
    const void *in;
    void *out;
    int device;               /* the GPU they are on, -1: the host's memory */
    struct CUevent_st *ready; /* of a GPU: behind it they are the engine's */
    int64_t *splits;          /* [size] alltoall: rows for each rank */
    int64_t *rows;            /* [size] allgather, alltoall: rows from each rank */
    size_t rows_cap;          /* ranks there is room for in both */
    int ranks;                /* of the world in which it was submitted */
    void *result; /* allgather, alltoall: allocated output, until release; NULL: it is in out */
    struct cuda_memory on_gpu; /* that result's memory is on the GPU */
    int64_t result_rows;
    uint64_t id; /* negotiate's name for it */
    bool has_id;
    bool last;   /* behind it no operation of a user begins in this mesh (batches.held) */
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
    pthread_cond_t opened; /* closed has become false */
    bool closed;           /* see queue_end_world() */
    int rank, size;
    uint32_t world; /* epoch of the world that requests are made for; 0: it never changes */
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

/* From here on requests are checked and marked for this world (epoch; 0: there is only one), and
 * unnamed ones are counted from 0. Operations of the world before may be under way still. Ends what
 * queue_end_world() has begun. */
void queue_set_world(struct queue *q, uint32_t epoch, int rank, int size);

/* A planned change has ended the users' world, and the next one is not agreed on yet. Every
 * operation that was submitted in it and is not done ends with err; none of them is known to
 * negotiation. New ones are refused with -ESTALE until queue_set_world() or queue_open(). */
void queue_end_world(struct queue *q, const struct err *err);

/* The next world does not come: requests are taken again. */
void queue_open(struct queue *q);

/* A request was refused with -ESTALE: waits, without any other lock, until requests are taken. */
void queue_await_open(struct queue *q);

/* Checks all requests and puts them into the inbox; on failure none. now: clock_ns(), for the
 * timeline. -ESTALE: a request was made for another world, or see queue_end_world(). */
int queue_submit(struct queue *q, const struct hvd_request *requests, size_t n, uint64_t now,
                 hvd_handle *ret_handles, struct err *err);

/* The same for a request of the engine's own, which fits every world and is never refused. last:
 * see struct slot. */
int queue_submit_own(struct queue *q, const struct hvd_request *request, bool last, uint64_t now,
                     hvd_handle *ret_handle, struct err *err);

/* Everything in the inbox as a chain over next, in the order of submission; NULL: nothing. */
struct slot *queue_take(struct queue *q);

static inline bool queue_has_new(struct queue *q)
{
    return atomic_load(&q->inbox_count) > 0;
}

/* The slot of a handle, NULL when there is none. It may be released under your eyes by another
 * thread: its handle tells. */
struct slot *queue_find(struct queue *q, hvd_handle handle);

/* One thread at a time waits on a handle and reads the slot: false when another one does, or when
 * the slot is not this handle's any more. The slot is not recycled until queue_unclaim() or
 * queue_release(). Any thread. */
static inline bool queue_claim(struct slot *slot, hvd_handle handle)
{
    return atomic_compare_exchange_strong(&slot->open, &handle, 0);
}

static inline void queue_unclaim(struct slot *slot, hvd_handle handle)
{
    atomic_store(&slot->open, handle);
}

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

/* The slot is free again; the caller has claimed it. -EINVAL when it is not this handle's. */
int queue_release(struct queue *q, struct slot *slot, hvd_handle handle);

#endif
