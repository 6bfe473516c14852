/* SPDX-License-Identifier: Apache-2.0
 *
 * blocked: see blocked.h.
 */
#include "core/engine/blocked.h"

#include <errno.h>
#include <stdio.h>

#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "core/negotiate/cycles.h"

/* On rank 0. Without memory the report is lost, and nothing else. */
static void keep(struct circle *world, const struct blocked *b, uint64_t now)
{
    if (!world->cycles)
        world->cycles = cycles_create(world->engine->set.stall_ns);
    if (!world->cycles)
        return;
    cycles_add(world->cycles, b, now);
    world->next_tick = 0;
}

static void tell(struct circle *world, const struct blocked *b, uint64_t now)
{
    struct buf msg = {0};
    if (world->rank == 0) {
        keep(world, b, now);
        return;
    }
    blocked_write(b, &msg);
    if (!msg.failed)
        control_send_blocked(world, &msg);
    buf_fini(&msg);
}

/* ---- this rank ------------------------------------------------------------------------------ */

struct finding {
    struct engine *engine;
    struct blocked blocked;
    uint64_t now;
};

static void fill(struct blocked_in *in, const struct circle *c, const char *name)
{
    in->set = c->set;
    snprintf(in->group, sizeof(in->group), "%s", c->name ? c->name : "");
    snprintf(in->name, sizeof(in->name), "%s", name);
}

/* A rendezvous and a message are waited for, too, but no inquiry says for which ranks. */
static void tell_of(void *ctx, struct slot *slot)
{
    struct finding *f = ctx;
    int priority = atomic_load_explicit(&slot->prioritized, memory_order_relaxed);
    bool negotiated = slot->state == SLOT_NEGOTIATING || slot->state == SLOT_BATCHED;
    const struct circle *in = sets_circle(f->engine, slot->set);
    if (priority != PRIORITY_WAITED || !negotiated || slot->meet || slot->is_message || !in)
        return;
    f->blocked.since_ns = f->now - slot->taken_ns;
    fill(&f->blocked.waits, in, slot->name);
    tell(&f->engine->circle, &f->blocked, f->now);
}

void blocked_lacks(void *ctx, const char *name)
{
    struct circle *c = ctx;
    struct engine *e = c->engine;
    struct finding f = {.engine = e, .blocked.rank = e->circle.rank, .now = clock_ns()};
    if (c->state != CIRCLE_WORKS || atomic_load(&e->queue->joined))
        return;
    fill(&f.blocked.lacks, c, name);
    if (e->fast_busy)
        tell_of(&f, &e->fast);
    queue_each(e->queue, tell_of, &f);
}

/* ---- other ranks ---------------------------------------------------------------------------- */

/* Whether the rank is a child, or below it in the tree. */
static bool is_below(const struct circle *c, int child, int rank)
{
    const struct mesh *m = c->mesh;
    return rank == child || (m->host_of[child] != m->host && m->host_of[rank] == m->host_of[child]);
}

int blocked_recv(struct circle *c, int from, struct reader *r)
{
    struct blocked b;
    if (c->set != 0 || from >= c->control.nchildren || blocked_read(r, c->size, &b) < 0 ||
        !is_below(c, c->control.children[from], b.rank))
        return -EPROTO;
    tell(c, &b, clock_ns());
    return 0;
}

static void say(void *ctx, const char *text)
{
    struct circle *c = ctx;
    negotiate_say(c->neg, text);
}

uint64_t blocked_tick(struct circle *c, uint64_t now)
{
    return c->cycles ? cycles_tick(c->cycles, now, say, c) : UINT64_MAX;
}
