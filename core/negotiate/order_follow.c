/* SPDX-License-Identifier: Apache-2.0
 *
 * order_follow: messages from the root: what this rank launches by the log and by a pattern, and
 * how it leaves a pattern.
 *
 * Part of order, see order_impl.h.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/negotiate/order_impl.h"

static void move(struct order_op *op, struct list *to, bool planned)
{
    op->planned = planned;
    list_remove(&op->at);
    list_append(to, &op->at);
}

/* ---- the log -------------------------------------------------------------------------------- */

/* The first operation of the group that is neither launched nor in `launch`; NULL: none. Patterns
 * have no part in it: called in the log. */
static struct order_op *first_waiting(const struct order_group *g)
{
    uint64_t skip = g->committed - g->launched;
    list_for_each(at, next, &g->ops)
    {
        if (skip-- == 0)
            return list_entry(at, struct order_op, in_group);
    }
    return NULL;
}

/* -EPROTO: the run leaves a gap, or has what this rank has not announced. */
static int follow_run(struct order *o, struct order_group *g, uint64_t k, uint32_t n)
{
    if (k > g->committed || n > UINT64_MAX - k)
        return -EPROTO;
    if (k + n <= g->committed)
        return 0; /* launched in a pattern before this generation */
    n -= (uint32_t)(g->committed - k);
    if (o->draining || n > g->ready - g->committed)
        return -EPROTO;
    struct order_op *op = first_waiting(g);
    for (; n > 0; n--) {
        struct list *next = op->in_group.next;
        move(op, &o->launch, false);
        g->committed++;
        op = list_entry(next, struct order_op, in_group);
    }
    return 0;
}

int order_follow_log(struct order *o, struct reader *r)
{
    while (r->pos < r->len && !r->failed) {
        uint64_t id = reader_u64(r), k = reader_u64(r);
        uint32_t n = reader_u32(r);
        struct order_group *g = order_find(o, id);
        int rc = g && !r->failed ? follow_run(o, g, k, n) : 0;
        if (rc < 0)
            return rc;
    }
    return reader_ok(r) ? 0 : -EPROTO;
}

/* ---- a pattern ------------------------------------------------------------------------------ */

void order_match(struct order *o, struct order_op *op)
{
    if (o->left)
        return;
    if (o->npattern == 0 || o->pattern[o->at] != op->group || op->early) {
        o->left = o->asked = true;
        return;
    }
    move(op, &o->launch, true);
    o->at = (o->at + 1) % o->npattern;
}

static void begin_generation(struct order *o, bool frozen)
{
    o->generation++;
    o->frozen = frozen;
    o->left = o->asked = o->ask_sent = o->planned_launched = o->has_last = false;
    o->at = 0;
    order_up_clear(&o->up);
    root_reset(&o->root);
}

/* The groups of the pattern in a list: NULL for those that this rank is not in. The log has reached
 * the operation at which the pattern begins, on this rank, too. */
static int read_groups(const struct order *o, struct reader *r, uint32_t n,
                       struct order_group **groups)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t id = reader_u64(r), k = reader_u64(r);
        groups[i] = order_find(o, id);
        if (groups[i] && groups[i]->committed != k)
            return -EPROTO;
    }
    return r->failed ? -EPROTO : 0;
}

/* This rank's part of the sequence. *ret: [*ret_n], owned. */
static int read_part(struct reader *r, struct order_group **groups, uint32_t ngroups,
                     struct order_group ***ret, uint32_t *ret_n)
{
    uint32_t length = reader_u32(r), n = 0;
    if (r->failed || length == 0 || length > ROUNDS_LOG || r->len - r->pos != length * (size_t)4)
        return -EPROTO;
    struct order_group **part = calloc(length, sizeof(struct order_group *));
    if (!part)
        return -ENOMEM;
    for (uint32_t i = 0; i < length; i++) {
        uint32_t index = reader_u32(r);
        if (index >= ngroups) {
            free(part);
            return -EPROTO;
        }
        if (groups[index])
            part[n++] = groups[index];
    }
    *ret = part;
    *ret_n = n;
    return 0;
}

int order_follow_pattern(struct order *o, struct reader *r)
{
    struct order_group **part = NULL, **groups = NULL;
    uint32_t ngroups = reader_u32(r), n = 0;
    if (o->draining || ngroups > ROUNDS_LOG || ngroups > (r->len - r->pos) / 16)
        return -EPROTO;
    groups = calloc((size_t)ngroups + 1, sizeof(struct order_group *));
    if (!groups)
        return -ENOMEM;
    int rc = read_groups(o, r, ngroups, groups);
    if (rc == 0)
        rc = read_part(r, groups, ngroups, &part, &n);
    free(groups);
    if (rc < 0)
        return rc;
    free(o->pattern);
    o->pattern = part;
    o->npattern = n;
    begin_generation(o, true);
    if (o->holds)
        order_ask(o);
    list_for_each(at, next, &o->waiting)
    {
        order_match(o, list_entry(at, struct order_op, at));
    }
    return 0;
}

/* ---- a thaw --------------------------------------------------------------------------------- */

/* Returns the pattern's operations that were not launched, before all others that wait. */
static void take_back(struct order *o)
{
    struct list *at = o->launch.prev;
    while (at != &o->launch) {
        struct order_op *op = list_entry(at, struct order_op, at);
        at = at->prev;
        if (!op->planned)
            continue; /* the log's: they come first */
        op->planned = false;
        list_remove(&op->at);
        list_append(o->waiting.next, &op->at); /* before the first */
    }
}

int order_follow_thaw(struct order *o, const struct reader *r)
{
    if (!reader_ok(r))
        return -EPROTO;
    take_back(o);
    o->draining = o->planned_launched;
    o->npattern = 0;
    o->stats.thaws++;
    begin_generation(o, false);
    return order_announce_begin(o);
}
