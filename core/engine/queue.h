/* SPDX-License-Identifier: Apache-2.0
 *
 * queue: the operations that this process has submitted, each in a slot from submission to release.
 *
 * Any thread may submit, look up and release, under a short lock of the queue's own. The driver
 * takes new slots from the inbox and finishes them, under the progress lock. A slot's fields belong
 * to its submitter until it is in the inbox, then to the driver until it is done, then to the
 * waiter. Slots are reused and never freed before queue_destroy(), so that the steady state
 * allocates nothing.
 */
#ifndef HVD_ENGINE_QUEUE_H
#define HVD_ENGINE_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <hvd.h>

#include "core/base/err.h"
#include "core/engine/gpu_events.h"
#include "core/engine/meet.h"
#include "core/engine/request.h"
#include "core/p2p/op.h"

enum slot_state {
    SLOT_FREE,
    SLOT_INBOX,       /* not yet seen by the driver */
    SLOT_NEGOTIATING, /* given to negotiation */
    SLOT_BATCHED,     /* in a batch */
    SLOT_DONE,
};

/* How urgent an operation is: no caller asks for it, one has polled it, one waits for it. */
enum priority { PRIORITY_NONE, PRIORITY_POLLED, PRIORITY_WAITED };

struct slot {
    _Atomic hvd_handle handle; /* 0: free */
    _Atomic hvd_handle
        open; /* the handle, or 0 while a thread is in hvd_wait() on it; see queue_claim() */
    _Atomic int done;        /* status and result are final */
    uint32_t index;          /* index in the queue's blocks */
    int set;                 /* the set whose ranks take part; 0: the world */
    _Atomic int prioritized; /* enum priority */
    enum slot_state state;   /* owned by the driver, under the progress lock */
    int status;              /* how the operation ended: 0 or -errno */
    char *text;              /* why the operation failed; NULL: no text */
    struct request_facts facts;
    const void *in;
    void *out;
    int device;               /* GPU of both buffers, -1: host memory */
    struct CUevent_st *ready; /* GPU: event after which the engine may use both buffers */
    /* GPU: the operation that NCCL runs, and whether its completion event is recorded: then a
     * stream can wait for it. In an elastic job aloft stays 0. */
    struct nccl_flight *flight;
    bool announced; /* launch_order.h */
    _Atomic int aloft;
    int64_t *splits; /* [ranks] alltoall: rows for each rank */
    int64_t *rows;   /* [ranks] allgather, alltoall: rows from each rank */
    size_t rows_cap; /* allocated length of splits and of rows */
    int ranks;       /* size of the set, or of the world in which the operation was submitted */
    void *result;    /* allgather, alltoall: allocated output, until release; NULL: it is in out */
    struct cuda_memory on_gpu; /* GPU memory of result */
    int64_t result_rows;
    uint64_t id; /* negotiation's id for the operation */
    bool has_id;
    struct meet *meet; /* the rendezvous that the slot stands for; NULL: an operation */
    struct meeting meeting;
    bool is_message; /* it stands for a message between two ranks: */
    struct p2p_op message;
    bool opened;                 /* on a GPU: the event `ready` has passed */
    bool may_fly;                /* NCCL may move it, or does: messages_nccl.h */
    struct hvd_arrival *arrival; /* of a receive: what the caller is told; may be NULL */
    bool last;   /* after this operation no user operation begins in this mesh (batches.held) */
    bool waited; /* hvd_wait() returned 0; the result is kept until release */
    uint64_t submit_ns, batch_ns, start_ns;
    uint64_t taken_ns;      /* when the driver took it from the inbox */
    struct slot *next;      /* next slot in the inbox or in the free list */
    struct slot *name_next; /* next slot in the table of names */
    uint64_t hash;          /* hash of the name */
    char name[HVD_MAX_NAME + 1];
};

#define QUEUE_BLOCK      256 /* slots per allocation */
#define QUEUE_MAX_BLOCKS 4096
#define QUEUE_NAMES      4096

/* A set as the queue knows it: what a request is checked against. */
struct queue_set {
    int number;
    int size;
    int rank;    /* this rank's number in the set; -1: it is not in the set */
    bool closed; /* it is being made or removed */
    uint64_t unnamed[HVD_KINDS];
};

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t opened;  /* signalled when closed becomes false */
    bool closed;            /* see queue_end_world() */
    struct queue_set *sets; /* [nsets] by number; the first is the world */
    size_t nsets;
    /* Epoch of the world that requests are made for; 0: the world never changes. */
    uint32_t world;
    bool by_host; /* an Adasum is one of the hosts' averages; set before the first request */
    struct gpu_events gpu_events;
    struct slot *_Atomic blocks[QUEUE_MAX_BLOCKS];
    size_t nblocks;
    struct slot *free;
    struct slot *inbox, **inbox_end;
    _Atomic size_t inbox_count;
    struct slot *names[QUEUE_NAMES]; /* hash table of operations in flight */
    _Atomic size_t in_flight;        /* operations that were submitted and are not done */
    /* Operations submitted so far, including those of the fast path (engine/fast). */
    _Atomic uint64_t submitted;
    uint64_t messages; /* submitted so far */
    uint64_t seq;      /* the last sequence number used in a handle */
    /* The last submitted slot, for stall reports; its name stays until the slot is reused. */
    const struct slot *last_slot;
    _Atomic uint64_t allocations;
    bool abandoned;      /* see queue_abandon() */
    _Atomic bool joined; /* a thread is in hvd_join(): see queue_join() */
};

/* first_seq: queue.seq of the previous queue of this process, so that no handle value is used
 * twice. */
int queue_create(int rank, int size, uint64_t first_seq, struct queue **ret, struct err *err);
void queue_destroy(struct queue *q);

/* Whether an operation is in flight. Messages are none: they outlive a world. */
bool queue_has_operations(struct queue *q);

/* Around queue_set_world() and queue_change_set(): a request sees all of their changes or none. */
void queue_lock(struct queue *q);
void queue_unlock(struct queue *q);

/* From here on requests are checked against and tagged with this world (epoch 0: the only one), and
 * unnamed operations are counted from 0. Operations of the previous world may still be in flight.
 * open: ends the state that queue_end_world() began; otherwise requests are refused until
 * queue_open(). */
void queue_set_world(struct queue *q, uint32_t epoch, int rank, int size, bool open);

/* A planned change has ended the user's world and the next one is not agreed on yet. Every
 * unfinished operation of that world ends with err, but those of sets and messages do not;
 * negotiation must know none of them. New requests are refused with -ESTALE until queue_set_world()
 * or queue_open(). */
void queue_end_world(struct queue *q, const struct err *err);

/* The change to the next world has failed: the queue accepts requests again. */
void queue_open(struct queue *q);

/* Call after a request was refused with -ESTALE. Blocks until the queue accepts requests again. The
 * caller must hold no lock. */
void queue_await_open(struct queue *q);

/* Adds set number `set` (> 0) of size ranks, closed. rank: this rank's number in the set, or -1.
 * -ENOMEM. */
int queue_add_set(struct queue *q, int set, int rank, int size, struct err *err);

/* How many operations of the set are in flight. */
size_t queue_pending(struct queue *q, int set);

/* Refuses new requests for the set. */
void queue_close_set(struct queue *q, int set);

/* Lets requests for the set in. */
void queue_open_set(struct queue *q, int set);

/* From here on requests are checked against this rank and size of the set. */
void queue_change_set(struct queue *q, int set, int rank, int size);

/* The same, and operations without a name are counted from 0: other ranks of its new group have
 * made another number of them. */
void queue_move_set(struct queue *q, int set, int rank, int size);

/* Ends the set's operations that negotiation or a batch has and that were submitted before this
 * world (UINT32_MAX: all of them), with err; its messages, too, or not. */
void queue_fail_set(struct queue *q, int set, uint32_t world, bool messages, const struct err *err);

/* The same for operations that were submitted in an older world than this one. */
void queue_end_stale(struct queue *q, int set, uint32_t world, const struct err *err);

/* Forgets the set, of which no operation is in flight. Nothing happens if it is unknown, or 0. */
void queue_drop_set(struct queue *q, int set);

/* Checks all requests and puts them into the inbox; on failure none of them. now: clock_ns(), for
 * the timeline. -ESTALE: a request was made for another world, or queue_end_world() is in force. */
int queue_submit(struct queue *q, const struct hvd_request *requests, size_t n, uint64_t now,
                 hvd_handle *ret_handles, struct err *err);

/* Like queue_submit(), for a request of the engine itself, which belongs to no world and is refused
 * by no closed world or set. last: see struct slot. */
int queue_submit_own(struct queue *q, const struct hvd_request *request, bool last, uint64_t now,
                     hvd_handle *ret_handle, struct err *err);

/* Like queue_submit_own(), for what a rank that has joined contributes: its signature is sig. */
int queue_submit_neutral(struct queue *q, const struct hvd_request *request,
                         const struct signature *sig, uint64_t now, hvd_handle *ret_handle,
                         struct err *err);

/* Puts a rendezvous (engine/meet.h) into the inbox; its name is m->what. *m must stay as it is
 * until the slot is done. -EEXIST: one of this name is in flight. */
int queue_submit_meet(struct queue *q, struct meet *m, hvd_handle *ret_handle, struct err *err);

/* Checks n messages and puts them into the inbox; on failure none of them. */
int queue_submit_messages(struct queue *q, const struct hvd_message *messages, size_t n,
                          hvd_handle *ret_handles, struct err *err);

/* Checks a message in a set of so many ranks, and fills in the caller's part of its operation. Any
 * thread that holds the queue's lock or the progress lock. */
int queue_check_message(struct queue *q, const struct hvd_message *m, int size, struct p2p_op *ret,
                        struct err *err);

/* From here to queue_joined() requests of the program are refused. -EBUSY: another thread is in
 * hvd_join(). queue_joined() counts unnamed operations from 0 again, since ranks have made
 * different numbers of them. */
int queue_join(struct queue *q, struct err *err);
void queue_joined(struct queue *q);

/* This rank's number in the set, and the set's size; -1: it is not in it. */
int queue_place(struct queue *q, int set, int *ret_size);

/* The number of the GPU on which this rank has tensors; -1: it had none yet. */
int queue_gpu(struct queue *q);

/* Empties the inbox. Returns its slots linked by next, in the order of submission; NULL when it was
 * empty. */
struct slot *queue_take(struct queue *q);

static inline bool queue_has_new(struct queue *q)
{
    return atomic_load(&q->inbox_count) > 0;
}

/* The slot of a handle, NULL when there is none. Another thread may release the slot at any time:
 * compare slot->handle again after reading. */
struct slot *queue_find(struct queue *q, hvd_handle handle);

/* Only one thread at a time may wait on a handle and read its slot. Returns false when another
 * thread has claimed it, or when the slot has another handle by now. A claimed slot is not recycled
 * until queue_unclaim() or queue_release(). Any thread. */
static inline bool queue_claim(struct slot *slot, hvd_handle handle)
{
    return atomic_compare_exchange_strong(&slot->open, &handle, 0);
}

static inline void queue_unclaim(struct slot *slot, hvd_handle handle)
{
    atomic_store(&slot->open, handle);
}

/* Ends the operation; the slot belongs to the waiter from here on. err NULL: success. */
void queue_finish(struct queue *q, struct slot *slot, const struct err *err);

/* Ends every unfinished operation with err, those in the inbox too. */
void queue_fail_all(struct queue *q, const struct err *err);

/* After this call results in host memory are not freed, because a communication library may still
 * write to them. */
void queue_abandon(struct queue *q);

bool queue_abandoned(struct queue *q);

/* Calls f for every slot that is in flight (inbox, negotiating or batched), in no order. */
void queue_each(struct queue *q, void (*f)(void *ctx, struct slot *slot), void *ctx);

/* Allocates the slot's result on the device of its tensors, in place of an earlier result; 0 bytes:
 * only frees that one. -ENOMEM. */
int queue_make_result(struct queue *q, struct slot *slot, size_t bytes, struct err *err);

/* Writes kind and name of the last submitted operation, "" when there was none. */
void queue_last(struct queue *q, char *text, size_t size);

/* How the operation has ended: 0 or -errno with its text. */
int queue_status(const struct slot *slot, struct err *err);

/* Frees a slot that the caller has claimed. -EINVAL when it does not have this handle. */
int queue_release(struct queue *q, struct slot *slot, hvd_handle handle);

#endif
