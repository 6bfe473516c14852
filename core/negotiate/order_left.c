/* SPDX-License-Identifier: Apache-2.0
 *
 * order_left: operations that some of their ranks have launched in the pattern, and others have
 * not: they are left. When all ranks have said how far they are, the root finds out in which order
 * each rank has launched them. It logs an operation that is left after all those that are left, and
 * that its GPUs have to end before it.
 *
 * An operation that all of its ranks have launched, some of them behind one that is left, has not
 * ended. So it connects what is left before it on one rank with what is left behind it on another.
 *
 * Two operations that are not connected are not ordered: a rank that has launched neither may have
 * to end either of them before it can announce the other one.
 *
 * Part of order, see order_impl.h.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/base/cleanup.h"
#include "core/negotiate/order_impl.h"

/* A rank has launched operations of a group. */
struct member {
    uint32_t rank, group;
    uint64_t committed;
};

/* A rank has launched the operation. */
struct launch {
    uint32_t rank, op;
    uint64_t place; /* in the pattern */
};

struct left {
    struct root *root;
    struct member *members; /* [nmembers] sorted by rank */
    size_t nmembers;
    uint64_t *from; /* [ranks] a rank's launches from this place on have not ended; UINT64_MAX: all
                       may have */
    struct launch *launches; /* [nlaunches] */
    size_t nlaunches;
};

static int by_rank(const void *left, const void *right)
{
    const struct member *a = left, *b = right;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static int by_rank_and_place(const void *left, const void *right)
{
    const struct launch *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

/* Whether the group was in the pattern and all of its ranks still have it. If a rank has not sent
 * an INIT, it has dropped the group or uses it for the first time. */
static bool counts(const struct root *root, const struct root_group *g)
{
    return !g->dead && g->ninit == g->size && plan_has(&root->plan, g->id);
}

static int list_members(struct left *l)
{
    const struct root *root = l->root;
    size_t n = 0;
    for (uint32_t i = 0; i < root->ngroups; i++)
        n += root->groups[i].ninit;
    l->members = calloc(n + 1, sizeof(*l->members));
    if (!l->members)
        return -ENOMEM;
    for (uint32_t i = 0; i < root->ngroups; i++) {
        const struct root_group *g = &root->groups[i];
        for (uint32_t r = 0; counts(root, g) && r < g->ninit; r++)
            l->members[l->nmembers++] = (struct member){
                .rank = g->inits[r].rank, .group = i, .committed = g->inits[r].committed};
    }
    qsort(l->members, l->nmembers, sizeof(*l->members), by_rank);
    return 0;
}

/* The first operation of the group from this place on. */
static struct order_ref first_from(const struct left *l, const struct member *m, uint64_t place)
{
    const struct root_group *g = &l->root->groups[m->group];
    return (struct order_ref){.group = g->id, .k = plan_from(&l->root->plan, g->id, place)};
}

/* Of a rank that has launched what others have not, the first such operation. Returns whether there
 * is any rank. -EPROTO: the pattern does not have it. */
static int begin(struct left *l)
{
    int some = 0;
    for (size_t i = 0; i < l->nmembers; i++) {
        const struct member *m = &l->members[i];
        const struct root_group *g = &l->root->groups[m->group];
        struct order_ref ref = {.group = g->id, .k = g->next};
        uint64_t place;
        if (m->committed <= g->next)
            continue;
        if (!plan_place(&l->root->plan, ref, &place))
            return -EPROTO;
        l->from[m->rank] = place < l->from[m->rank] ? place : l->from[m->rank];
        some = 1;
    }
    return some;
}

/* The operation has not ended: nor has what its ranks have launched behind it. */
static bool spread(struct left *l, const struct member *m, struct order_ref ref)
{
    const struct root_group *g = &l->root->groups[m->group];
    uint64_t place;
    bool changed = false;
    if (ref.k >= m->committed || !plan_place(&l->root->plan, ref, &place))
        return false;
    for (uint32_t r = 0; r < g->ninit; r++) {
        if (g->inits[r].committed <= ref.k || l->from[g->inits[r].rank] <= place)
            continue;
        l->from[g->inits[r].rank] = place;
        changed = true;
    }
    return changed;
}

static void spread_all(struct left *l)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < l->nmembers; i++) {
            const struct member *m = &l->members[i];
            uint64_t from = l->from[m->rank];
            if (from != UINT64_MAX)
                changed = spread(l, m, first_from(l, m, from)) || changed;
        }
    }
}

static int count(struct left *l, size_t most)
{
    for (size_t i = 0; i < l->nmembers; i++) {
        const struct member *m = &l->members[i];
        if (l->from[m->rank] == UINT64_MAX)
            continue;
        uint64_t first = first_from(l, m, l->from[m->rank]).k;
        uint64_t n = m->committed > first ? m->committed - first : 0;
        if (n > most - l->nlaunches)
            return -EPROTO;
        l->nlaunches += (size_t)n;
    }
    return 0;
}

static int list_launches(struct left *l)
{
    size_t n = 0;
    l->launches = calloc(l->nlaunches + 1, sizeof(*l->launches));
    if (!l->launches)
        return -ENOMEM;
    for (size_t i = 0; i < l->nmembers; i++) {
        const struct member *m = &l->members[i];
        if (l->from[m->rank] == UINT64_MAX)
            continue;
        struct order_ref ref = first_from(l, m, l->from[m->rank]);
        for (; ref.k < m->committed; ref.k++) {
            struct launch *launch = &l->launches[n++];
            launch->rank = m->rank;
            if (!plan_place(&l->root->plan, ref, &launch->place) ||
                l->root->op_index.n >= ORDER_OPS_MAX)
                return -EPROTO;
            launch->op = root_op_get(l->root, ref);
            if (launch->op == PAIRS_NONE)
                return -ENOMEM;
        }
    }
    qsort(l->launches, n, sizeof(*l->launches), by_rank_and_place);
    return 0;
}

static int block(struct root *root, uint32_t first, uint32_t then)
{
    struct root_op *op = &root->ops[first];
    uint32_t *more = realloc(op->next, (op->nnext + 1) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    op->next = more;
    op->next[op->nnext++] = then;
    root->ops[then].blocked++;
    return 0;
}

/* Connects what each rank has launched. What all ranks have launched need not be logged. */
static int connect(struct left *l)
{
    struct root *root = l->root;
    for (size_t i = 1; i < l->nlaunches; i++) {
        const struct launch *a = &l->launches[i - 1], *b = &l->launches[i];
        int rc = a->rank == b->rank ? block(root, a->op, b->op) : 0;
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; i < l->nlaunches; i++) {
        uint32_t op = l->launches[i].op;
        struct order_ref ref = root->ops[op].said.ref;
        if (!root->ops[op].used || root->ops[op].gone)
            continue;
        if (ref.k < root->groups[pairs_get(&root->group_index, ref.group, 0)].next)
            root_op_remove(root, op);
    }
    return 0;
}

static int find(struct order *o, struct left *l)
{
    for (int r = 0; r < o->config.size; r++)
        l->from[r] = UINT64_MAX;
    int rc = begin(l);
    if (rc <= 0)
        return rc;
    spread_all(l);
    rc = count(l, ORDER_LEFT_MAX * (size_t)o->config.size);
    if (rc == 0)
        rc = list_launches(l);
    return rc < 0 ? rc : connect(l);
}

/* After a pattern that was left soon, the log must repeat itself longer before the next one. */
static void back_off(struct order *o)
{
    struct root *root = &o->root;
    uint64_t need = (uint64_t)o->config.freeze_after << root->backoff;
    if (o->generation <= 1)
        return; /* the pattern was the first one, which was not found by repetition */
    if (plan_rounds(root) >= 8 * need)
        root->backoff = 0;
    else
        root->backoff += root->backoff < ORDER_BACKOFF_MAX;
}

int left_begin(struct order *o)
{
    struct left l = {.root = &o->root};
    back_off(o);
    int rc = list_members(&l);
    if (rc == 0)
        l.from = calloc((size_t)o->config.size, sizeof(*l.from));
    if (rc == 0)
        rc = l.from ? find(o, &l) : -ENOMEM;
    free(l.members);
    free(l.from);
    free(l.launches);
    return rc;
}
