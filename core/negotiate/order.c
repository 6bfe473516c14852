/* SPDX-License-Identifier: Apache-2.0
 *
 * order: see order.h. The calls, and this rank's operations.
 *
 * An announced operation is in one of two lists. `waiting` has those for which neither the log nor
 * the pattern has a place yet, in the order in which they were announced; `launch` has the others,
 * in the order in which they are launched.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/negotiate/order_impl.h"

/* ---- groups and operations ----------------------------------------------------------------- */

struct order_group *order_find(const struct order *o, uint64_t id)
{
    uint32_t i = pairs_get(&o->group_index, id, 0);
    return i == PAIRS_NONE ? NULL : o->groups[i];
}

static struct order_group *add_group(struct order *o, uint64_t id, int size)
{
    if (o->ngroups == o->cap_groups) {
        uint32_t cap = o->cap_groups ? 2 * o->cap_groups : 16;
        struct order_group **more = realloc(o->groups, cap * sizeof(struct order_group *));
        if (!more)
            return NULL;
        o->groups = more;
        o->cap_groups = cap;
    }
    struct order_group *g = calloc(1, sizeof(*g));
    if (!g || pairs_put(&o->group_index, id, 0, o->ngroups) < 0) {
        free(g);
        return NULL;
    }
    *g = (struct order_group){.id = id, .size = size, .index = o->ngroups};
    list_init(&g->ops);
    return o->groups[o->ngroups++] = g;
}

static void put_back(struct order *o, struct order_op *op)
{
    list_remove(&op->in_group);
    list_remove(&op->at);
    list_append(&o->spare, &op->at);
}

static void remove_group(struct order *o, struct order_group *g)
{
    list_for_each(at, next, &g->ops)
    {
        put_back(o, list_entry(at, struct order_op, in_group));
    }
    pairs_remove(&o->group_index, g->id, 0);
    struct order_group *last = o->groups[--o->ngroups];
    if (last != g) {
        o->groups[g->index] = last;
        last->index = g->index;
        pairs_put(&o->group_index, last->id, 0, last->index); /* it is there: no allocation */
    }
    free(g);
}

static struct order_op *new_op(struct order *o)
{
    struct order_op *op = list_first(&o->spare, struct order_op, at);
    if (list_empty(&o->spare))
        return calloc(1, sizeof(*op));
    list_remove(&op->at);
    return op;
}

/* ---- life ----------------------------------------------------------------------------------- */

int order_create(const struct order_config *config, const struct order_ops *ops, void *ctx,
                 struct order **ret, struct err *err)
{
    struct order *o = calloc(1, sizeof(*o));
    if (!o)
        return err_set(err, ENOMEM, "no memory for the order of launches");
    *o = (struct order){.config = *config,
                        .ops = *ops,
                        .ctx = ctx,
                        .nchildren = config->nchildren,
                        .is_root = config->parent < 0,
                        .frozen = true};
    list_init(&o->launch);
    list_init(&o->waiting);
    list_init(&o->spare);
    o->children = calloc((size_t)o->nchildren + 1, sizeof(*o->children));
    o->pattern = calloc(1, sizeof(struct order_group *));
    struct order_group *world = add_group(o, ORDER_WORLD, config->size);
    if (!o->children || !o->pattern || !world || (o->is_root && root_init(o) < 0)) {
        order_destroy(o);
        return err_set(err, ENOMEM, "no memory for the order of launches");
    }
    if (o->nchildren)
        memcpy(o->children, config->children, (size_t)o->nchildren * sizeof(*o->children));
    o->config.children = o->children;
    o->pattern[0] = world;
    o->npattern = 1;
    *ret = o;
    return 0;
}

void order_destroy(struct order *o)
{
    if (!o)
        return;
    while (o->ngroups)
        remove_group(o, o->groups[0]);
    list_for_each(at, next, &o->spare)
    {
        free(list_entry(at, struct order_op, at));
    }
    order_up_fini(&o->up);
    root_fini(&o->root);
    pairs_fini(&o->group_index);
    buf_fini(&o->msg);
    free(o->groups);
    free(o->pattern);
    free(o->children);
    free(o);
}

int order_failed(const struct order *o)
{
    return o->failed;
}

void order_get_stats(const struct order *o, struct order_stats *ret)
{
    *ret = o->stats;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static int add_op(struct order *o, uint64_t group, int size, uint64_t key, bool early)
{
    struct order_group *g = order_find(o, group);
    if (!g)
        g = add_group(o, group, size);
    struct order_op *op = g ? new_op(o) : NULL;
    if (!op)
        return -ENOMEM;
    *op = (struct order_op){.group = g, .k = g->ready++, .key = key, .early = early};
    list_append(&g->ops, &op->in_group);
    list_append(&o->waiting, &op->at);
    if (o->frozen)
        order_match(o, op);
    else if (!o->draining)
        return order_announce_op(o, op);
    return 0;
}

static int ready(struct order *o, uint64_t group, int size, uint64_t key, bool early)
{
    int rc = add_op(o, group, size, key, early);
    o->failed = o->failed ? o->failed : rc;
    return o->failed;
}

int order_ready(struct order *o, uint64_t group, int size, uint64_t key)
{
    return ready(o, group, size, key, false);
}

int order_ready_early(struct order *o, uint64_t group, int size, uint64_t key)
{
    return ready(o, group, size, key, true);
}

bool order_next(const struct order *o, uint64_t *ret_group)
{
    if (list_empty(&o->launch))
        return false;
    *ret_group = list_first(&o->launch, struct order_op, at)->group->id;
    return true;
}

bool order_is_next(const struct order *o, uint64_t group)
{
    uint64_t next;
    return order_next(o, &next) && next == group;
}

bool order_has(const struct order *o, uint64_t group)
{
    list_for_each(at, next, &o->launch)
    {
        if (list_entry(at, struct order_op, at)->group->id == group)
            return true;
    }
    return false;
}

void order_launched(struct order *o, uint64_t group)
{
    if (!order_is_next(o, group))
        return;
    struct order_op *op = list_first(&o->launch, struct order_op, at);
    op->group->launched++;
    if (op->planned) {
        op->group->committed++;
        o->planned_launched = true;
        o->stats.frozen += o->generation > 0;
    } else {
        o->stats.logged++;
    }
    put_back(o, op);
}

bool order_drains(const struct order *o)
{
    return o->draining;
}

void order_drained(struct order *o)
{
    if (!o->draining)
        return;
    o->draining = false;
    if (order_announce_drained(o) < 0)
        o->failed = -ENOMEM;
}

bool order_is_used(const struct order *o)
{
    return o->generation > 0;
}

bool order_is_open(const struct order *o)
{
    return !o->frozen && !o->draining;
}

void order_hold(struct order *o, bool holds)
{
    o->holds = holds;
}

void order_ask(struct order *o)
{
    if (o->frozen)
        o->left = o->asked = true;
}

void order_drop(struct order *o, uint64_t group)
{
    struct order_group *g = order_find(o, group);
    if (!g)
        return;
    for (uint32_t i = 0; o->frozen && i < o->npattern; i++)
        if (o->pattern[i] == g) {
            o->npattern = 0;
            o->left = o->asked = true;
        }
    if (!o->frozen && order_announce_drop(o, g) < 0)
        o->failed = -ENOMEM;
    remove_group(o, g);
}

/* ---- messages ------------------------------------------------------------------------------- */

int order_begin(struct order *o, struct buf *b, enum order_message type)
{
    buf_reset(b);
    buf_put_u8(b, (uint8_t)type);
    buf_put_u64(b, o->generation);
    return b->failed ? -ENOMEM : 0;
}

void order_send_down(struct order *o, const struct buf *msg)
{
    for (int i = 0; i < o->nchildren; i++)
        o->ops.send(o->ctx, o->children[i], msg);
}

static int recv_up(struct order *o, uint8_t type, uint64_t generation, struct reader *r)
{
    if (r->failed || generation > o->generation)
        return -EPROTO;
    if (generation < o->generation)
        return 0; /* stale */
    if (type == ORDER_UP && !o->frozen)
        return order_up_recv(o, r);
    if (type != ORDER_ASK || !o->frozen || !reader_ok(r))
        return -EPROTO;
    o->asked = true;
    return 0;
}

/* whole: the message, which the children get before this rank follows it. */
static int recv_down(struct order *o, uint8_t type, uint64_t generation, const struct buf *whole,
                     struct reader *r)
{
    uint64_t follows = o->generation + (type != ORDER_LOG);
    if (r->failed || generation != follows || o->frozen != (type == ORDER_THAW))
        return -EPROTO;
    if (type != ORDER_LOG && type != ORDER_PATTERN && type != ORDER_THAW)
        return -EPROTO;
    order_send_down(o, whole);
    if (type == ORDER_LOG)
        return order_follow_log(o, r);
    return type == ORDER_PATTERN ? order_follow_pattern(o, r) : order_follow_thaw(o, r);
}

static bool is_child(const struct order *o, int rank)
{
    for (int i = 0; i < o->nchildren; i++)
        if (o->children[i] == rank)
            return true;
    return false;
}

int order_recv(struct order *o, int from, const void *msg, size_t len, struct err *err)
{
    const struct buf whole = {.data = (uint8_t *)(uintptr_t)msg, .len = len, .cap = len};
    struct reader r = reader_over(msg, len);
    uint8_t type = reader_u8(&r);
    uint64_t generation = reader_u64(&r);
    int rc = -EPROTO;
    if (from == NEGOTIATE_PARENT && !o->is_root)
        rc = recv_down(o, type, generation, &whole, &r);
    else if (is_child(o, from))
        rc = recv_up(o, type, generation, &r);
    if (rc == 0)
        rc = o->failed;
    return rc < 0 ? err_set(err, -rc, "%s of the order of launches (type %u, %zu bytes)",
                            rc == -ENOMEM ? "out of memory at a message" : "bad message", type, len)
                  : 0;
}

static int ask(struct order *o)
{
    int rc = 0;
    if (o->is_root) {
        struct reader none = reader_over(NULL, 0);
        o->generation++;
        rc = order_begin(o, &o->msg, ORDER_THAW);
        o->generation--;
        if (rc < 0)
            return rc;
        order_send_down(o, &o->msg);
        return order_follow_thaw(o, &none);
    }
    if (o->ask_sent)
        return 0;
    o->ask_sent = true;
    rc = order_begin(o, &o->msg, ORDER_ASK);
    if (rc == 0)
        o->ops.send(o->ctx, NEGOTIATE_PARENT, &o->msg);
    return rc;
}

void order_tick(struct order *o)
{
    int rc = o->failed;
    if (rc == 0 && o->frozen && o->asked)
        rc = ask(o);
    if (rc == 0 && !o->frozen)
        rc = o->is_root ? root_take(o) : order_up_send(o);
    o->failed = rc;
}
