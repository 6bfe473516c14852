/* SPDX-License-Identifier: Apache-2.0
 *
 * circle: see circle.h.
 */
#include "core/engine/circle.h"

#include "core/engine/engine.h"
#include "core/engine/launch_order.h"
#include "core/engine/meet.h"
#include "core/engine/turn.h"
#include "core/negotiate/cycles.h"

static int create_negotiation(struct circle *c, struct err *err)
{
    const struct settings *set = &c->engine->set;
    struct negotiate_config config = {
        .rank = c->rank,
        .size = c->size,
        .names = c->world_ranks,
        .parent = c->control.parent,
        .children = c->control.children,
        .nchildren = c->control.nchildren,
        .fusion_bytes = set->fusion_bytes,
        .cycle_ns = set->cycle_ns,
        .cache_capacity = set->cache_capacity,
        .freeze_after = set->freeze_after,
        .thaws_max = MESH_GENERATION_MAX - 1,
        .stall_ns = set->stall_ns,
        .stall_shutdown_ns = set->stall_shutdown_ns,
        .join_sums = !set->join_all,
    };
    return negotiate_create(&config, &turn_negotiate_ops, c, &c->neg, err);
}

static int create_rendezvous(struct circle *c, struct err *err)
{
    static const struct rendezvous_ops ops = {.send = control_send_rendezvous, .end = meet_end};
    const struct control *t = &c->control;
    return rendezvous_create(c->size, c->rank, t->parent, t->children, t->nchildren,
                             c->engine->sets.claims.serial, &ops, c, &c->rendezvous, err);
}

int circle_negotiate(struct circle *c, struct err *err)
{
    int rc = control_init(c, err);
    if (rc == 0)
        rc = whole_begin(c, c->batches.gpu.finished, err);
    if (rc == 0)
        rc = create_negotiation(c, err);
    if (rc == 0 && c->set == 0)
        rc = create_rendezvous(c, err);
    if (rc == 0 && c->set == 0)
        rc = launch_order_begin(c, err);
    if (rc == 0)
        launch_order_join(c);
    if (rc == 0)
        join_go_on(c);
    if (rc == 0)
        rc = messages_resume(c, err);
    c->next_tick = 0;
    c->spin = mesh_may_spin(c->mesh);
    return rc;
}

void circle_dissolve(struct circle *c)
{
    launch_order_leave(c);
    if (c->neg)
        negotiate_destroy(c->neg);
    c->neg = NULL;
    messages_suspend(c);
    rendezvous_destroy(c->rendezvous);
    c->rendezvous = NULL;
    launch_order_end(c);
    cycles_destroy(c->cycles);
    c->cycles = NULL;
    control_fini(&c->control);
}

void circle_keep_counters(struct circle *c)
{
    struct engine_counters *sum = &c->engine->counters;
    struct negotiate_stats s = {0};
    if (c->neg)
        negotiate_get_stats(c->neg, &s);
    counter_add(&sum->negotiated, s.negotiated);
    counter_add(&sum->cached, s.cached);
    counter_add(&sum->frozen, s.frozen);
    counter_add(&sum->thaws, s.thaws);
    counter_add(&sum->refused, mesh_refused(c->mesh));
    counter_add(&sum->allocations, c->ids.allocations);
}

void circle_fini(struct circle *c)
{
    messages_fini(c);
    remains_fini(c);
    batches_fini(c);
    ids_fini(&c->ids);
    coll_destroy(c->coll);
    mesh_destroy(c->mesh);
    world_map_fini(&c->map);
    world_map_fini(&c->map_previous);
}

int circle_map(struct circle *c, struct err *err)
{
    const struct engine *e = c->engine;
    int rc = world_map_init(&c->map, e->world, c->mesh, err);
    if (rc == 0 && e->previous)
        rc = world_map_init(&c->map_previous, e->previous, c->mesh, err);
    return rc;
}

const struct world_map *circle_map_of(const struct circle *c, const struct signature *sig)
{
    const struct engine *e = c->engine;
    bool now = sig->world == 0 || sig->world == e->world->epoch || !e->previous;
    return now ? &c->map : &c->map_previous;
}

/* ---- all circles of an engine --------------------------------------------------------------- */

int circles_fd(const struct engine *e)
{
    if (e->broken)
        return -1; /* nothing is read from any mesh any more */
    return e->sets.ncircles > 0 ? e->sets.epoll_fd : mesh_fd(e->circle.mesh);
}

void circles_sleep_begin(struct engine *e)
{
    struct circle *c;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++)
        mesh_sleep_begin(c->mesh);
}

void circles_sleep_end(struct engine *e)
{
    struct circle *c;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++)
        mesh_sleep_end(c->mesh);
}

bool circles_idle(struct engine *e)
{
    struct circle *c;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++)
        if (!batches_idle(&c->batches) || messages_busy(c))
            return false;
    return true;
}

uint64_t circles_next_tick(struct engine *e)
{
    uint64_t next = UINT64_MAX;
    struct circle *c;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++)
        next = c->next_tick < next ? c->next_tick : next;
    return next;
}
