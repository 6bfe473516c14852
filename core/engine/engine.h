/* SPDX-License-Identifier: Apache-2.0
 *
 * engine: everything behind hvd.h between hvd_init() and hvd_shutdown(). One object per process.
 *
 * Fields and functions marked (lock) belong to the holder of the progress lock, the driver.
 * engine.c creates and ends the engine, failure.c fails or repairs it, drive.c decides which thread
 * drives, turn.c is one turn of work. What belongs to one group of ranks in one epoch is in a
 * circle (circle.h).
 */
#ifndef HVD_ENGINE_ENGINE_H
#define HVD_ENGINE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <hvd.h>

#include "core/backend/backends.h"
#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/boot/boot.h"
#include "core/coll/coll.h"
#include "core/engine/circle.h"
#include "core/engine/drive.h"
#include "core/engine/join.h"
#include "core/engine/messages_gpu.h"
#include "core/negotiate/negotiate.h"
#include "core/engine/queue.h"
#include "core/engine/repair.h"
#include "core/engine/sets.h"
#include "core/engine/settings.h"
#include "core/engine/timeline.h"
#include "core/engine/world.h"
#include "core/transport/mesh.h"

/* Counters that any thread may read; only the driver writes. */
struct engine_counters {
    _Atomic uint64_t ops, batches, bytes;
    _Atomic uint64_t allocations;
    _Atomic uint64_t stalls;
    _Atomic uint64_t messages_nccl;
    /* Totals of older epochs. Negotiation and mesh count for the current epoch. */
    _Atomic uint64_t negotiated, cached, frozen, thaws, refused;
};

struct engine {
    struct settings set;
    struct boot boot;
    pthread_mutex_t world_lock; /* protects world for readers without the progress lock */
    struct world *world;        /* the user's world as of the last boundary; see engine_world() */
    _Atomic uint32_t epoch;     /* the mesh's epoch; any thread */
    /* number of the last planned change that the mesh contains; any thread */
    _Atomic uint32_t applied;
    /* the driver is in a repair and may hold the lock for long; any thread */
    _Atomic int repairing;
    struct timeline_ref timeline; /* any thread */
    struct queue *queue;
    struct drive drive;
    struct engine_counters counters;

    /* (lock) */
    struct circle circle; /* of the world */
    struct sets sets;
    struct join join;     /* has a lock of its own */
    bool entered;         /* hvd_init() has finished */
    _Atomic int newcomer; /* this rank has joined a job that had begun */
    /* worlds of later epochs, the user's world, its predecessor; newest first */
    struct world *worlds;
    /* The user's world before the last boundary: operations that were submitted in it may still be
     * in flight. NULL: there can be none. */
    struct world *previous;
    struct repair repair;
    struct backends backends;
    struct messages_gpu messages_gpu;
    /* set by a callback that failed; the turn then ends with engine_fail() */
    struct err trouble;
    /* This rank or another one cannot run what others have begun on their GPUs (owed.h): an elastic
     * job begins it anew, in the next epoch. Code 0: no. */
    struct err conflict;
    bool failed;
    bool broken;        /* the mesh has failed too: nothing can be sent */
    bool said_bye;      /* the agent was told that this rank takes part in no further operation */
    struct err failure; /* the error that every operation gets from now on */
    /* batches that the members had finished when this rank joined */
    _Atomic uint64_t batches_before;
    /* time of the last progress report to the agent; below: the count in it */
    uint64_t progress_told_ns;
    uint64_t progress_told;
    uint64_t last_active_ns; /* when a caller last drove, exact to a few milliseconds */

    /* A synchronous operation on the fast path (engine/fast): it is not in the queue. */
    struct slot fast;
    bool fast_busy;
    bool fast_last; /* it is the newest operation: nothing was submitted after it */
};

/* Joins the world. The engine thread runs when this returns 0.
 *
 * - boot: open. Taken over on 0; otherwise it stays the caller's. boot.cancel, if set, ends the
 *   wait.
 * - first_seq: see queue_create().
 * - Returns 1 when this rank is a joiner and other ranks train: boot.numbers is set. To be
 * admitted, call again with boot.why = CTL_ENTER. */
int engine_create(struct boot *boot, const struct settings *set, uint64_t first_seq,
                  struct engine **ret, struct err *err);

/* Ends the engine: operations in flight fail with -ESHUTDOWN. Waits at most 5 s for the other
 * ranks, or 7 s if a back end cannot cancel operations. */
void engine_close(struct engine *e);

/* Called repeatedly after engine_close() until no other thread is inside a call: fails operations
 * that such a thread has submitted since. */
void engine_refuse(struct engine *e);

/* No other thread may be inside a call. */
void engine_destroy(struct engine *e);

/* Copies the user's world, without its members and without older worlds. Any thread; never blocks
 * for long. */
void engine_world(struct engine *e, struct world *ret);

/* Copies at most n of the places of the user's world, by rank. Returns how many there are. Any
 * thread; never blocks for long. */
int engine_places(struct engine *e, int *ret_places, int n);

/* (lock) Makes w, one of e->worlds, the user's world. The previous one becomes e->previous, older
 * ones are freed. New requests belong to w. */
int engine_enter_world(struct engine *e, struct world *w, struct err *err);

/* Any thread. Does not wait for a repair. */
void engine_stats(struct engine *e, struct hvd_stats *ret);

/* As hvd_backend(). Any thread. */
int engine_backend(struct engine *e, const char *name, struct hvd_backend *ret, struct err *err);

/* (lock) Called in a new epoch: creates a new negotiation and submits every unfinished operation to
 * it. */
int engine_negotiate_anew(struct engine *e, struct err *err);

/* Replaces the timeline (NULL: none) and closes the previous one. */
void engine_swap_timeline(struct engine *e, struct timeline *fresh);

/* (lock) Ends unfinished operations of the user's world with -ESTALE. New requests are refused
 * until the user enters the next world. */
void engine_end_world(struct engine *e);

/* (lock) Puts this rank's number into the prefix of log lines. */
void engine_set_tag(const struct engine *e);

/* (lock) Whether this rank has joined in this epoch. Notes it in e->newcomer. */
bool engine_is_newcomer(struct engine *e);

/* In the child after fork(2): closes all descriptors. Async-signal-safe. */
void engine_after_fork(struct engine *e);

/* (lock) For a loop over all circles, the world's first: number i of them. NULL: there are no more.
 */
static inline struct circle *engine_circle(struct engine *e, size_t i)
{
    return i == 0 ? &e->circle : i <= e->sets.ncircles ? e->sets.circles[i - 1] : NULL;
}

static inline void counter_add(_Atomic uint64_t *counter, uint64_t n)
{
    /* One writer at a time: no locked instruction is needed. */
    uint64_t v = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, v + n, memory_order_relaxed);
}

#endif
