/* SPDX-License-Identifier: Apache-2.0
 *
 * order_plan: the root makes a pattern. It has the operations of the log's last period, in an order
 * in which all ranks have announced them. The log itself has another order where a rank was late.
 *
 * Part of order, see order_impl.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/negotiate/order_impl.h"

/* ---- the last pattern ------------------------------------------------------------------------ */

void plan_fini_root(struct root_plan *p)
{
    pairs_fini(&p->index);
    free(p->groups);
    free(p->places);
    *p = (struct root_plan){.groups = NULL};
}

static int plan_alloc(struct root_plan *p, uint32_t ngroups, uint32_t length)
{
    p->groups = calloc((size_t)ngroups + 1, sizeof(*p->groups));
    p->places = calloc((size_t)length + 1, sizeof(*p->places));
    p->ngroups = ngroups;
    p->length = length;
    return p->groups && p->places ? 0 : -ENOMEM;
}

/* Fills count and places. sequence: [length] indexes of groups. */
static void plan_sort(struct root_plan *p, const uint32_t *sequence)
{
    uint32_t *places = p->places;
    for (uint32_t i = 0; i < p->length; i++)
        p->groups[sequence[i]].count++;
    for (uint32_t g = 0; g < p->ngroups; g++) {
        p->groups[g].places = places;
        places += p->groups[g].count;
        p->groups[g].count = 0;
    }
    for (uint32_t i = 0; i < p->length; i++) {
        struct root_planned *g = &p->groups[sequence[i]];
        g->places[g->count++] = i;
    }
}

int plan_first(struct order *o)
{
    struct root_plan *p = &o->root.plan;
    const uint32_t sequence[] = {0};
    if (plan_alloc(p, 1, 1) < 0 || pairs_put(&p->index, ORDER_WORLD, 0, 0) < 0)
        return -ENOMEM;
    p->groups[0].id = ORDER_WORLD;
    plan_sort(p, sequence);
    return 0;
}

bool plan_has(const struct root_plan *p, uint64_t group)
{
    return pairs_get(&p->index, group, 0) != PAIRS_NONE;
}

uint64_t plan_from(const struct root_plan *p, uint64_t group, uint64_t place)
{
    const struct root_planned *g = &p->groups[pairs_get(&p->index, group, 0)];
    uint32_t n = 0, at = (uint32_t)(place % p->length);
    while (n < g->count && g->places[n] < at)
        n++;
    return g->begin + place / p->length * g->count + n;
}

bool plan_place(const struct root_plan *p, struct order_ref ref, uint64_t *ret)
{
    uint32_t i = pairs_get(&p->index, ref.group, 0);
    if (i == PAIRS_NONE || ref.k < p->groups[i].begin)
        return false;
    uint64_t k = ref.k - p->groups[i].begin;
    *ret = k / p->groups[i].count * p->length + p->groups[i].places[k % p->groups[i].count];
    return true;
}

uint64_t plan_rounds(const struct root *root)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < root->plan.ngroups; i++) {
        const struct root_planned *p = &root->plan.groups[i];
        uint32_t at = pairs_get(&root->group_index, p->id, 0);
        if (at == PAIRS_NONE || root->groups[at].top < p->begin)
            continue;
        uint64_t rounds = (root->groups[at].top - p->begin) / p->count;
        most = rounds > most ? rounds : most;
    }
    return most;
}

/* ---- the order of a period ------------------------------------------------------------------ */

/* The last operations of the log. */
struct period {
    const struct root *root;
    uint64_t start;
    uint32_t n;
    struct pairs index; /* (group, k) to the place in the period */
    uint8_t *state;     /* [n] 0: new, 1: in the stack, 2: in the order */
    uint32_t *tried;    /* [n] how many of root_logged.before were looked at */
    uint32_t *stack;    /* [n] */
    uint32_t *order;    /* [n] result: places in the period */
    uint32_t norder;
};

static void period_fini(struct period *p)
{
    pairs_fini(&p->index);
    free(p->state);
    free(p->tried);
    free(p->stack);
    free(p->order);
}

static const struct root_logged *logged(const struct period *p, uint32_t i)
{
    return &p->root->history[(p->start + i) & (ROUNDS_LOG - 1)];
}

static int period_init(struct period *p)
{
    p->state = calloc(p->n, sizeof(*p->state));
    p->tried = calloc(p->n, sizeof(*p->tried));
    p->stack = calloc(p->n, sizeof(*p->stack));
    p->order = calloc(p->n, sizeof(*p->order));
    if (!p->state || !p->tried || !p->stack || !p->order)
        return -ENOMEM;
    for (uint32_t i = 0; i < p->n; i++)
        if (pairs_put(&p->index, logged(p, i)->ref.group, logged(p, i)->ref.k, i) < 0)
            return -ENOMEM;
    return 0;
}

/* The next operation of the period that a rank announced just before i, and that was not looked at.
 * PAIRS_NONE: there is none. */
static uint32_t next_before(struct period *p, uint32_t i)
{
    const struct root_logged *e = logged(p, i);
    while (p->tried[i] < e->nbefore) {
        const struct order_ref *ref = &e->before[p->tried[i]++];
        uint32_t b = pairs_get(&p->index, ref->group, ref->k);
        if (b != PAIRS_NONE && p->state[b] != 2)
            return b;
    }
    return PAIRS_NONE;
}

/* Appends i behind all that has to come before it. false: two ranks contradict each other. */
static bool place(struct period *p, uint32_t i)
{
    uint32_t depth = 0;
    if (p->state[i] == 2)
        return true;
    p->stack[depth++] = i;
    p->state[i] = 1;
    while (depth) {
        uint32_t top = p->stack[depth - 1], b = next_before(p, top);
        if (b == PAIRS_NONE) {
            p->state[top] = 2;
            p->order[p->norder++] = top;
            depth--;
            continue;
        }
        if (p->state[b] == 1)
            return false;
        p->state[b] = 1;
        p->stack[depth++] = b;
    }
    return true;
}

/* ---- the pattern ---------------------------------------------------------------------------- */

/* Whether the pattern has all groups of which operations are announced and not logged, and none
 * that was dropped. */
static bool covers(struct root *root, const struct period *p)
{
    bool all = true;
    for (uint32_t i = 0; i < root->ngroups; i++)
        root->groups[i].planned = false;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t g = pairs_get(&root->group_index, logged(p, i)->ref.group, 0);
        if (g == PAIRS_NONE || root->groups[g].dead)
            return false;
        root->groups[g].planned = true;
    }
    for (uint32_t i = 0; i < root->ngroups; i++)
        all = all && (root->groups[i].planned || root->groups[i].open == 0);
    return all;
}

/* Makes root.plan from the period. sequence: [n], filled. */
static int make(struct root *root, const struct period *p, uint32_t *sequence)
{
    struct root_plan plan = {.groups = NULL};
    int rc = plan_alloc(&plan, p->n, p->n);
    plan.ngroups = 0;
    for (uint32_t i = 0; rc == 0 && i < p->n; i++) {
        uint64_t id = logged(p, p->order[i])->ref.group;
        uint32_t at = pairs_get(&plan.index, id, 0);
        if (at == PAIRS_NONE) {
            at = plan.ngroups++;
            uint64_t next = root->groups[pairs_get(&root->group_index, id, 0)].next;
            plan.groups[at] = (struct root_planned){.id = id, .begin = next};
            rc = pairs_put(&plan.index, id, 0, at);
        }
        sequence[i] = at;
    }
    if (rc < 0) {
        plan_fini_root(&plan);
        return rc;
    }
    plan_sort(&plan, sequence);
    plan_fini_root(&root->plan);
    root->plan = plan;
    return 0;
}

/* ORDER_PATTERN: u32 groups, of each u64 id, u64 k at which the pattern begins; u32 length, and
 * as many times the u32 index of a group. */
static int send_pattern(struct order *o, const uint32_t *sequence)
{
    const struct root_plan *p = &o->root.plan;
    struct buf *b = &o->msg;
    o->generation++;
    order_begin(o, b, ORDER_PATTERN);
    o->generation--;
    buf_put_u32(b, p->ngroups);
    for (uint32_t i = 0; i < p->ngroups; i++) {
        buf_put_u64(b, p->groups[i].id);
        buf_put_u64(b, p->groups[i].begin);
    }
    buf_put_u32(b, p->length);
    for (uint32_t i = 0; i < p->length; i++)
        buf_put_u32(b, sequence[i]);
    if (b->failed)
        return -ENOMEM;
    order_send_down(o, b);
    struct reader r = reader_over(b->data, b->len);
    reader_u8(&r);
    reader_u64(&r);
    int rc = order_follow_pattern(o, &r);
    rounds_reset(&o->root.rounds);
    o->root.looked_at = 0;
    return rc;
}

static int propose(struct order *o, struct period *p)
{
    int rc = period_init(p);
    if (rc < 0)
        return rc;
    if (!covers(&o->root, p))
        return 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (logged(p, i)->early || !place(p, i))
            return 0;
    auto_free uint32_t *sequence = calloc((size_t)p->n + 1, sizeof(*sequence));
    if (!sequence)
        return -ENOMEM;
    rc = make(&o->root, p, sequence);
    return rc < 0 ? rc : send_pattern(o, sequence);
}

int plan_propose(struct order *o)
{
    struct root *root = &o->root;
    uint64_t times = (uint64_t)o->config.freeze_after << root->backoff;
    if (times == 0 || root->rounds.nlog == root->looked_at)
        return 0;
    /* What is left is in the log, and for each rank the log has the first of its announcements. */
    if (root->drained < (uint32_t)o->config.size || root->jumped)
        return 0;
    root->looked_at = root->rounds.nlog;
    struct period p = {.root = root};
    p.n = rounds_period(&root->rounds, times < UINT32_MAX ? (uint32_t)times : UINT32_MAX);
    p.start = root->rounds.nlog - p.n;
    int rc = p.n ? propose(o, &p) : 0;
    period_fini(&p);
    return rc;
}
