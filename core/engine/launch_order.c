/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_order: see launch_order.h.
 */
#include "core/engine/launch_order.h"

#include "core/backend/device.h"
#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/negotiate/order.h"

#define ON_WAY_NS                                                                                  \
    (1 * CLOCK_S) /* how long messages of a rank that has shut down may be on their way */

static struct order *order_of(const struct circle *c)
{
    return c->engine->circle.order;
}

bool launch_order_takes_part(const struct circle *c)
{
    return order_of(c) && c->size > 1 && c->batches.gpu.joined;
}

/* A rank that has shut down may be the one that writes the order. */
bool launch_order_is_open(const struct circle *c)
{
    struct engine *e = c->engine;
    if (!launch_order_takes_part(c) || e->circle.control.ndeparted > 0)
        return false;
    if (order_is_open(order_of(c)))
        return true;
    order_ask(order_of(c));
    e->circle.next_tick = 0;
    return false;
}

void launch_order_hold(struct engine *e, size_t messages)
{
    if (e->circle.order)
        order_hold(e->circle.order, messages > 0);
}

/* ---- life ----------------------------------------------------------------------------------- */

int launch_order_begin(struct circle *world, struct err *err)
{
    static const struct order_ops ops = {.send = control_send_order};
    const struct settings *set = &world->engine->set;
    const struct control *t = &world->control;
    const struct order_config config = {.rank = world->rank,
                                        .size = world->size,
                                        .parent = t->parent,
                                        .children = t->children,
                                        .nchildren = t->nchildren,
                                        .freeze_after = set->freeze_after};
    return order_create(&config, &ops, world, &world->order, err);
}

void launch_order_end(struct circle *world)
{
    order_destroy(world->order);
    world->order = NULL;
}

/* The same on all ranks of the circle, and used once in an epoch: when ranks come to a set, its
 * next circle has other members. */
static uint64_t group_of(const struct circle *c)
{
    if (c->set == 0)
        return ORDER_WORLD;
    uint64_t h = hash_bytes(c->members, (size_t)c->size * sizeof(*c->members));
    h = hash_mix(h ^ hash_mix((uint64_t)c->set << 32 | c->mesh->epoch));
    return h == ORDER_WORLD ? 1 : h;
}

void launch_order_join(struct circle *c)
{
    struct gpu_lane *l = &c->batches.gpu;
    l->group = group_of(c);
    l->joined = true;
}

void launch_order_leave(struct circle *c)
{
    struct gpu_lane *l = &c->batches.gpu;
    messages_nccl_leave(c);
    if (launch_order_takes_part(c) && c->set != 0)
        order_drop(order_of(c), l->group);
    l->joined = false;
}

/* ---- launches ------------------------------------------------------------------------------- */

/* An operation that the program repeats has the same name. */
static uint64_t key_of(const struct circle *c, const struct batch *batch)
{
    return hash_mix(hash_str(batch->slots[0]->name) ^ c->batches.gpu.group);
}

/* The batch's place among what the program has submitted. */
static hvd_handle submitted(const struct batch *batch)
{
    hvd_handle last = 0;
    for (size_t i = 0; i < batch->n; i++) {
        hvd_handle h = atomic_load_explicit(&batch->slots[i]->handle, memory_order_relaxed);
        last = h > last ? h : last;
    }
    return last;
}

struct overtaking {
    const struct circle *c;
    hvd_handle handle;
    bool found;
};

static void look_for_earlier(void *ctx, struct slot *slot)
{
    struct overtaking *o = ctx;
    if (slot->device < 0 || slot->is_message || slot->announced || slot->set == o->c->set ||
        atomic_load_explicit(&slot->handle, memory_order_relaxed) > o->handle)
        return;
    const struct circle *of = sets_circle(o->c->engine, slot->set);
    o->found =
        o->found || (of && launch_order_takes_part(of) && device_way(of->device) != DEVICE_STAGED);
}

/* Whether the program has submitted an operation of another circle before the batch that is not
 * announced yet. */
static bool has_overtaken(struct circle *c, const struct batch *batch)
{
    struct engine *e = c->engine;
    struct overtaking o = {.c = c, .handle = submitted(batch)};
    struct circle *of;
    bool any = false;
    for (size_t i = 0; !any && (of = engine_circle(e, i)) != NULL; i++)
        any = of != c && of->size > 1 && of->ids.count > 0;
    if (any || queue_has_new(e->queue))
        queue_each(e->queue, look_for_earlier, &o);
    return o.found;
}

/* Whether the announcement was taken. */
static bool announced(struct engine *e, int rc)
{
    e->circle.next_tick = 0;
    if (rc < 0)
        err_set(&e->trouble, -rc, "the order of operations on GPUs: %s",
                rc == -ENOMEM ? "no memory" : "ranks announce different operations");
    return rc == 0;
}

static void announce(struct circle *c)
{
    struct gpu_lane *l = &c->batches.gpu;
    struct batch *batch = l->untold;
    uint64_t key = key_of(c, batch);
    int rc = has_overtaken(c, batch) ? order_ready_early(order_of(c), l->group, c->size, key)
                                     : order_ready(order_of(c), l->group, c->size, key);
    if (!announced(c->engine, rc))
        return;
    for (size_t i = 0; i < batch->n; i++)
        batch->slots[i]->announced = true;
    l->untold = batch->next;
}

/* The circle whose next batch that is not announced was submitted first. */
static struct circle *first_to_announce(struct engine *e)
{
    struct circle *c, *best = NULL;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++) {
        const struct gpu_lane *l = &c->batches.gpu;
        if (l->untold && launch_order_takes_part(c) && batches_may_begin(c, l->untold) &&
            (!best || submitted(l->untold) < submitted(best->batches.gpu.untold)))
            best = c;
    }
    return best;
}

void launch_order_announce(struct engine *e)
{
    struct circle *c;
    while (!e->trouble.code && (c = first_to_announce(e)) != NULL)
        announce(c);
    for (size_t i = 0; !e->trouble.code && (c = engine_circle(e, i)) != NULL; i++)
        if (launch_order_takes_part(c))
            messages_nccl_announce(c);
}

void launch_order_announce_pair(struct engine *e, uint64_t group, uint64_t key)
{
    announced(e, order_ready_early(e->circle.order, group, 2, key));
}

/* Whether NCCL has put the operations of all other circles on the stream. Two communicators do that
 * on threads of their own. */
static bool others_called(const struct circle *c)
{
    struct engine *e = c->engine;
    struct circle *of;
    for (size_t i = 0; (of = engine_circle(e, i)) != NULL; i++)
        if (of != c &&
            (of->batches.gpu.launched > of->batches.gpu.called || of->messages.nccl.uncalled > 0))
            return false;
    return true;
}

bool launch_order_allows(const struct circle *c)
{
    const struct gpu_lane *l = &c->batches.gpu;
    if (!launch_order_takes_part(c))
        return c->size == 1 && others_called(c);
    return l->next != l->untold && order_is_next(order_of(c), l->group) && others_called(c);
}

void launch_order_note(struct circle *c)
{
    if (launch_order_takes_part(c))
        order_launched(order_of(c), c->batches.gpu.group);
}

bool launch_order_has_pair(const struct circle *c, uint64_t group)
{
    return order_of(c) && order_has(order_of(c), group);
}

bool launch_order_next_pair(const struct circle *c, uint64_t *ret_group)
{
    return launch_order_takes_part(c) && order_next(order_of(c), ret_group) && others_called(c);
}

void launch_order_note_pair(struct engine *e, uint64_t group)
{
    order_launched(e->circle.order, group);
}

void launch_order_drop_pair(struct engine *e, uint64_t group)
{
    if (e->circle.order)
        order_drop(e->circle.order, group);
}

/* ---- messages and time ---------------------------------------------------------------------- */

int launch_order_recv(struct circle *world, int from, const void *msg, size_t len, struct err *err)
{
    return order_recv(world->order, from, msg, len, err);
}

/* Whether the GPU has finished what all circles have launched. */
static bool all_landed(struct engine *e)
{
    struct circle *c;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++)
        if (c->batches.gpu.launched > c->batches.gpu.landed || c->messages.nccl.unlanded > 0)
            return false;
    return true;
}

void launch_order_landed(const struct circle *c)
{
    struct engine *e = c->engine;
    if (order_of(c) && order_drains(order_of(c)) && all_landed(e))
        e->circle.next_tick = 0;
}

void launch_order_tick(struct circle *world)
{
    struct order *o = world->order;
    if (order_drains(o) && all_landed(world->engine))
        order_drained(o);
    order_tick(o);
}

bool launch_order_serves(const struct circle *world)
{
    const struct engine *e = world->engine;
    return world->order && !e->failed && !e->boot.elastic && order_is_used(world->order);
}

/* Whether the circle has something to launch that the order does not allow. */
static bool waits(const struct circle *c)
{
    const struct gpu_lane *l = &c->batches.gpu;
    return launch_order_takes_part(c) && (l->next || messages_nccl_waits(c)) &&
           !(l->next && order_is_next(order_of(c), l->group));
}

/* Messages of the order go through rank 0 and this rank's parent. */
void launch_order_check_departed(struct circle *c, uint64_t now)
{
    struct engine *e = c->engine;
    const struct control *t = &e->circle.control;
    struct err err;
    if (t->ndeparted == 0 || !waits(c))
        return;
    int needed = t->parent >= 0 && t->departed[t->parent] ? t->parent : 0;
    uint64_t serves_ns = e->boot.elastic ? 0 : LAUNCH_ORDER_SERVES_MS * CLOCK_MS;
    if (!t->departed[needed] || now - t->departed[needed] < serves_ns + ON_WAY_NS)
        return;
    err_set(&err, ESHUTDOWN,
            "rank %d has shut down, and this rank learns through it in which order to launch the "
            "operations of its sets on its GPU: let all ranks call hvd_shutdown() within ten "
            "minutes",
            needed);
    if (e->boot.elastic) {
        engine_repair(e, &err); /* the next epoch has another order */
        return;
    }
    engine_abort_all(e, err.msg);
    engine_fail_rank(e, &err);
}
