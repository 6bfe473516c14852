/* SPDX-License-Identifier: Apache-2.0
 *
 * drive_spin: how long a driver spins and yields before it sleeps. See drive.h.
 */
#include <sched.h>

#include "core/base/clock.h"
#include "core/base/pause.h"
#include "core/engine/engine.h"
#include "core/engine/messages.h"

/* How long to spin (only where every rank of the host has a processor of its own), and how often to
 * yield before sleeping, by enum coll_wait.
 *
 * - COLL_WAKES: the peer wakes us. Sleeping soon gives it our processor, if it needs it.
 * - COLL_MOVES: all ranks are inside the operation, and each poll advances it: spin long.
 * - COLL_ASKS: nothing wakes us. An operation that outlasts the spin loses little by a short sleep.
 *   This and the next are the only cases in which a rank spins that shares memory with no peer.
 * - COLL_NAPS: the same, but only if a caller waits for the result. */
static const uint64_t spin_ns[] = {[COLL_WAKES] = 5000,
                                   [COLL_MOVES] = 10 * CLOCK_MS,
                                   [COLL_ASKS] = 2 * CLOCK_MS,
                                   [COLL_NAPS] = 2 * CLOCK_MS};
static const int yields[] = {
    [COLL_WAKES] = 8, [COLL_MOVES] = 20000, [COLL_ASKS] = 8, [COLL_NAPS] = 8};

static enum coll_wait wait_of(const struct circle *c)
{
    enum coll_wait wait = coll_wait(c->coll), on_gpu = gpu_lane_wait(c);
    if (wait == COLL_WAKES && messages_move(c))
        return COLL_MOVES;
    return wait != COLL_WAKES || on_gpu == COLL_WAKES ? wait : on_gpu;
}

/* Whether it is worth to spin for an operation of the circle. Spinning for messages between hosts
 * is not: network latency is too long. */
static bool spins_for(const struct circle *c, enum coll_wait wait)
{
    return c->spin && (c->mesh->shm || wait >= COLL_ASKS);
}

enum coll_wait drive_wait_kind(struct engine *e)
{
    enum coll_wait kind = COLL_WAKES;
    struct circle *c;
    for (size_t i = 0; kind == COLL_WAKES && (c = engine_circle(e, i)) != NULL; i++)
        kind = wait_of(c);
    return kind == COLL_WAKES ? messages_gpu_wait(e) : kind;
}

/* Whether a rank of a circle in which this rank has work may be spun for. With work in none, the
 * world decides. */
static bool may_spin(struct engine *e, enum coll_wait wait)
{
    struct circle *c;
    bool idle = true;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++) {
        if (batches_idle(&c->batches) && c->ids.count == 0 && !messages_busy(c))
            continue;
        if (spins_for(c, wait))
            return true;
        idle = false;
    }
    return idle && spins_for(&e->circle, wait);
}

bool drive_pause(struct engine *e, struct spin_state *p)
{
    enum coll_wait wait = drive_wait_kind(e);
    if (p->patient && wait == COLL_NAPS)
        return false;
    if (p->yields == 0 && may_spin(e, wait)) {
        uint64_t now = clock_ns();
        if (p->since == 0)
            p->since = now;
        if (now - p->since < spin_ns[wait]) {
            cpu_pause();
            return true;
        }
    }
    if (p->yields++ >= yields[wait])
        return false;
    sched_yield();
    return true;
}
