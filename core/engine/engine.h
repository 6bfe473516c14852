/* SPDX-License-Identifier: Apache-2.0
 *
 * engine: everything behind hvd.h between hvd_init() and hvd_shutdown(), and who works when.
 *
 * One object a process. What is marked (lock) belongs to whoever holds the progress lock: the
 * driver. engine.c makes and ends it, drive.c decides who drives, turn.c is one turn of work,
 * batches.c runs the log, control.c speaks with parent and children.
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
#include "core/engine/batches.h"
#include "core/engine/control.h"
#include "core/engine/drive.h"
#include "core/engine/ids.h"
#include "core/negotiate/negotiate.h"
#include "core/engine/queue.h"
#include "core/engine/reform.h"
#include "core/engine/settings.h"
#include "core/engine/timeline.h"
#include "core/engine/world.h"
#include "core/transport/mesh.h"

/* Counters that any thread may read; only the driver writes. */
struct engine_counters {
    _Atomic uint64_t ops, batches, bytes;
    _Atomic uint64_t allocations;
    _Atomic uint64_t stalls;
    /* Of former epochs; the epoch's own are the negotiation's and the mesh's. */
    _Atomic uint64_t negotiated, cached, frozen, thaws, refused;
};

struct engine {
    struct settings set;
    struct boot boot;
    pthread_mutex_t world_lock;     /* of world, for those without the progress lock */
    struct world *world;            /* the user's, as of the last boundary; see engine_world() */
    _Atomic uint32_t epoch;         /* of the mesh; any thread */
    _Atomic uint32_t applied;       /* the last planned change that is in it; any thread */
    _Atomic int repairing;          /* the driver is in a repair, and may be for long; any thread */
    struct timeline_place timeline; /* any thread */
    struct queue *queue;
    struct drive drive;
    struct engine_counters counters;
    bool spin; /* every rank of this host has a processor of its own: mesh_may_spin() */

    /* (lock) */
    int rank, size; /* in the mesh: these may be fewer than the world's */
    struct mesh *mesh;
    bool entered;         /* hvd_init() is through */
    struct world *worlds; /* those of later epochs, the user's, the one before; the newest first */
    struct world_map map; /* mesh and world */
    /* The user's world before the last boundary, and its map: operations that were submitted in it
     * may be under way still. NULL: none can be. */
    struct world *before;
    struct world_map map_before;
    struct reform reform;
    uint64_t done; /* collective operations finished: the same at the same place of the log */
    struct coll *coll;
    struct backends backends;
    struct negotiate *neg;
    struct control control;
    struct ids ids;
    struct batches batches;
    uint64_t next_tick; /* when negotiate wants to be called; 0: at once */
    uint64_t urges_seen;
    struct slot *submitting; /* in negotiate_submit() now */
    struct err trouble;      /* a callback failed: the turn ends with engine_fail() */
    bool failed;
    bool broken;                     /* the mesh too: nothing can be sent any more */
    bool said_bye;                   /* the agent knows that this rank takes part in nothing more */
    struct err failure;              /* what every operation gets from now on */
    _Atomic uint64_t batches_before; /* of the others, when this rank came into the world */
    uint64_t progress_told_ns;       /* what the agent knows, and since when */
    uint64_t progress_told;
    uint64_t last_active_ns; /* when a caller last drove; exact to a few milliseconds */

    /* A synchronous operation that went past negotiation: not in the queue. */
    struct slot fast;
    bool fast_busy;
    bool fast_last; /* nothing was submitted since */
};

/* Joins the world; the engine thread runs when it returns. boot is open; it is taken over, but
 * where this does not return 0 it is the caller's again. boot.cancel, if any, ends the wait. 1:
 * others train, boot.place is set: again, with boot.why CTL_ENTER, to come in. first_seq: see
 * queue_create(). */
int engine_create(struct boot *boot, const struct settings *set, uint64_t first_seq,
                  struct engine **ret, struct err *err);

/* Ends everything: what is under way fails with -ESHUTDOWN; waits at most 5 s for the others. */
void engine_close(struct engine *e);

/* After engine_close(), until no other thread is inside a call: ends what one of them has submitted
 * since. */
void engine_refuse(struct engine *e);

/* No other thread may be inside a call. */
void engine_destroy(struct engine *e);

/* The user's world, without its members and the older ones. Any thread, never waits for long. */
void engine_world(struct engine *e, struct world *ret);

/* (lock) From here on the user's world is this one of worlds, and the one until now is before;
 * older ones are forgotten. Requests are made for it from here on. */
int engine_enter_world(struct engine *e, struct world *w, struct err *err);

/* Any thread; does not wait for a repair. */
void engine_stats(struct engine *e, struct hvd_stats *ret);

/* As hvd_backend(). Any thread. */
int engine_backend(struct engine *e, const char *name, struct hvd_backend *ret, struct err *err);

/* (lock) Every operation, now and later, fails with err. Only the first call counts. */
void engine_fail(struct engine *e, const struct err *err);

/* (lock) The mesh or a collective is broken: finds out why. In an elastic job the engine is in the
 * next epoch when this returns, all of its parts are others then; else, or when that cannot be, it
 * has failed. */
void engine_lost(struct engine *e, const char *what, int rc);

/* (lock) The same, when it is known that a rank is lost, and why. */
void engine_recover(struct engine *e, const struct err *why);

/* (lock) This rank cannot go on, for this reason: nothing can be sent any more. In an elastic job
 * its agent hears that the others are to do without it. */
void engine_break_off(struct engine *e, const struct err *why);

/* (lock) In a new epoch: a fresh negotiation, and everything that is not done is submitted to it.
 */
int engine_negotiate_anew(struct engine *e, struct err *err);

/* Another timeline, NULL: none; the one before is closed. */
void engine_swap_timeline(struct engine *e, struct timeline *fresh);

/* (lock) The world that an operation was submitted in, and its map. */
static inline const struct world *engine_world_of(const struct engine *e,
                                                  const struct signature *sig)
{
    return sig->world == 0 || sig->world == e->world->epoch || !e->before ? e->world : e->before;
}

static inline const struct world_map *engine_map_of(const struct engine *e,
                                                    const struct signature *sig)
{
    return engine_world_of(e, sig) == e->world ? &e->map : &e->map_before;
}

/* (lock) The mesh is another one: both maps follow. */
int engine_map_worlds(struct engine *e, struct err *err);

/* (lock) Operations that were submitted in the user's world and are not done end with -ESTALE, and
 * none is taken, until the user is in the next one. */
void engine_end_world(struct engine *e);

/* (lock) Lines of the log say which rank this is. */
void engine_set_tag(const struct engine *e);

/* In the child after fork(2): closes all descriptors. Async-signal-safe. */
void engine_after_fork(struct engine *e);

static inline void counter_add(_Atomic uint64_t *counter, uint64_t n)
{
    /* One writer at a time: no locked instruction is needed. */
    uint64_t v = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, v + n, memory_order_relaxed);
}

#endif
