/* SPDX-License-Identifier: Apache-2.0
 *
 * blocked: see blocked.h.
 */
#include "core/engine/blocked.h"

#include <errno.h>
#include <stdio.h>

#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "core/engine/messages.h"
#include "core/negotiate/cycles.h"

enum { QUESTIONS = 16 }; /* about messages of one circle, in one stall period */

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

static bool is_blocked_in(const struct slot *slot)
{
    bool begun = slot->state == SLOT_NEGOTIATING || slot->state == SLOT_BATCHED;
    return begun &&
           atomic_load_explicit(&slot->prioritized, memory_order_relaxed) == PRIORITY_WAITED;
}

static void tell_that(struct finding *f, const struct circle *c, const struct slot *slot,
                      const char *name)
{
    f->blocked.since_ns = f->now - slot->taken_ns;
    fill(&f->blocked.waits, c, name);
    tell(&f->engine->circle, &f->blocked, f->now);
}

/* No inquiry says for which ranks a rendezvous waits. */
static void tell_operation(void *ctx, struct slot *slot)
{
    struct finding *f = ctx;
    const struct circle *c = sets_circle(f->engine, slot->set);
    if (c && !slot->meet && !slot->is_message && is_blocked_in(slot))
        tell_that(f, c, slot, slot->name);
}

/* The message as this rank asks about it. False: it may come from any rank. */
static bool describe(const struct circle *c, const struct slot *slot, struct asked *ret)
{
    const struct p2p_op *op = &slot->message;
    if (op->peer == P2P_ANY)
        return false;
    *ret = (struct asked){.set = c->set,
                          .asker = circle_world_rank(c, c->rank),
                          .peer = circle_world_rank(c, op->peer),
                          .sends = op->sends,
                          .tag = op->tag};
    return true;
}

static void tell_message(void *ctx, struct slot *slot)
{
    struct finding *f = ctx;
    const struct circle *c = sets_circle(f->engine, slot->set);
    struct asked a;
    char name[80];
    if (!c || !is_blocked_in(slot) || !describe(c, slot, &a))
        return;
    asked_name(&a, name, sizeof(name));
    tell_that(f, c, slot, name);
}

/* This rank lacks an operation of the circle: tells where its callers are blocked. */
static void tell_all(struct circle *c, const char *name)
{
    struct engine *e = c->engine;
    struct finding f = {.engine = e, .blocked.rank = e->circle.rank, .now = clock_ns()};
    struct circle *of;
    if (!circle_works(c) || atomic_load(&e->queue->joined))
        return;
    fill(&f.blocked.lacks, c, name);
    if (e->fast_busy)
        tell_operation(&f, &e->fast);
    queue_each(e->queue, tell_operation, &f);
    for (size_t i = 0; (of = engine_circle(e, i)) != NULL; i++)
        messages_each(of, tell_message, &f);
}

void blocked_lacks(void *ctx, const char *name)
{
    tell_all(ctx, name);
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

/* ---- questions about messages ---------------------------------------------------------------- */

struct search {
    const struct circle *c;
    const struct asked *asked;
    bool found;
};

static void compare(void *ctx, struct slot *slot)
{
    struct search *s = ctx;
    const struct p2p_op *op = &slot->message;
    bool fits = op->peer == P2P_ANY || circle_world_rank(s->c, op->peer) == s->asked->asker;
    s->found |= fits && op->sends != s->asked->sends && op->tag == s->asked->tag;
}

/* If this rank has the other end of the message, the message moves, or soon does. */
static void answer(struct circle *c, const struct asked *a)
{
    struct search s = {.c = c, .asked = a};
    char name[80];
    messages_each(c, compare, &s);
    if (s.found)
        return;
    asked_name(a, name, sizeof(name));
    tell_all(c, name);
}

/* Passes a question on to the rank that is asked: down, if it is below this one. */
static int pass(struct circle *world, const struct asked *a, bool from_above)
{
    const struct control *t = &world->control;
    struct circle *c = sets_circle(world->engine, a->set);
    struct buf msg = {0};
    int to = NEGOTIATE_PARENT;
    if (a->peer == world->rank) {
        if (c)
            answer(c, a);
        return 0;
    }
    for (int i = 0; i < t->nchildren; i++)
        to = is_below(world, t->children[i], a->peer) ? t->children[i] : to;
    if (to == NEGOTIATE_PARENT && (from_above || t->parent < 0))
        return -EPROTO;
    asked_write(a, &msg);
    if (!msg.failed)
        control_send_asked(world, to, &msg);
    buf_fini(&msg);
    return 0;
}

int blocked_recv_asked(struct circle *c, int from, struct reader *r)
{
    struct asked a;
    bool from_above = from == c->control.nchildren;
    if (c->set != 0 || asked_read(r, c->size, &a) < 0 ||
        (!from_above && !is_below(c, c->control.children[from], a.asker)))
        return -EPROTO;
    return pass(c, &a, from_above);
}

struct questions {
    struct circle *c;
    uint64_t now;
    int n;
};

static void ask(void *ctx, struct slot *slot)
{
    struct questions *q = ctx;
    struct engine *e = q->c->engine;
    struct asked a;
    bool waits = is_blocked_in(slot) && q->now - slot->taken_ns >= e->set.stall_ns / 2;
    if (!waits || q->n == QUESTIONS || !describe(q->c, slot, &a))
        return;
    q->n++;
    pass(&e->circle, &a, false);
}

void blocked_ask(struct circle *c, uint64_t now)
{
    struct questions q = {.c = c, .now = now};
    messages_each(c, ask, &q);
}

/* ---- reports -------------------------------------------------------------------------------- */

static void say(void *ctx, const char *text)
{
    struct circle *c = ctx;
    negotiate_say(c->neg, text);
}

uint64_t blocked_tick(struct circle *c, uint64_t now)
{
    return c->cycles ? cycles_tick(c->cycles, now, say, c) : UINT64_MAX;
}
