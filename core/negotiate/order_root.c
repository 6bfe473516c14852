/* SPDX-License-Identifier: Apache-2.0
 *
 * order_root: the root adds up the announcements and writes the log. Nothing is logged before all
 * ranks have sent their INITs, because only then does the root know what is left from the pattern
 * before the thaw.
 *
 * Part of order, see order_impl.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/negotiate/order_impl.h"

/* ---- life ----------------------------------------------------------------------------------- */

int root_init(struct order *o)
{
    rounds_init(&o->root.rounds);
    return plan_first(o);
}

static void free_op(struct root_op *op)
{
    free(op->said.before);
    free(op->next);
    *op = (struct root_op){.used = false};
}

void root_reset(struct root *root)
{
    for (uint32_t i = 0; i < root->ngroups; i++)
        free(root->groups[i].inits);
    for (uint32_t i = 0; i < root->nops; i++)
        free_op(&root->ops[i]);
    pairs_clear(&root->group_index);
    pairs_clear(&root->op_index);
    root->ngroups = root->nops = root->nfree = root->ntouched = root->first_touched = 0;
    root->begun = root->drained = 0;
    root->jumped = 0;
}

void root_fini(struct root *root)
{
    root_reset(root);
    for (uint32_t i = 0; root->history && i < ROUNDS_LOG; i++)
        free(root->history[i].before);
    rounds_fini(&root->rounds);
    plan_fini_root(&root->plan);
    pairs_fini(&root->group_index);
    pairs_fini(&root->op_index);
    pairs_fini(&root->seen_index);
    buf_fini(&root->log);
    free(root->groups);
    free(root->ops);
    free(root->free_ops);
    free(root->touched);
    free(root->history);
    free(root->seen);
}

/* ---- groups and operations ------------------------------------------------------------------ */

/* `touched` begins at its start whenever INITs are taken. */
static int grow_groups(struct root *root)
{
    uint32_t cap = root->cap_groups ? 2 * root->cap_groups : 16;
    struct root_group *groups = realloc(root->groups, cap * sizeof(*groups));
    if (!groups)
        return -ENOMEM;
    root->groups = groups;
    uint32_t *touched = realloc(root->touched, cap * sizeof(*touched));
    if (!touched)
        return -ENOMEM;
    root->touched = touched;
    root->cap_groups = cap;
    return 0;
}

static int add_group(struct root *root, uint64_t id, uint32_t size, uint32_t *ret)
{
    if (root->ngroups >= ORDER_GROUPS_MAX)
        return -EPROTO;
    if (root->ngroups == root->cap_groups && grow_groups(root) < 0)
        return -ENOMEM;
    if (pairs_put(&root->group_index, id, 0, root->ngroups) < 0)
        return -ENOMEM;
    root->groups[root->ngroups] = (struct root_group){.id = id, .size = size};
    *ret = root->ngroups++;
    return 0;
}

void root_touch(struct root *root, uint32_t group)
{
    struct root_group *g = &root->groups[group];
    if (!g->touched) /* so there is room */
        root->touched[(root->first_touched + root->ntouched++) % root->cap_groups] = group;
    g->touched = true;
}

static int grow_ops(struct root *root)
{
    uint32_t cap = root->cap_ops ? 2 * root->cap_ops : 64;
    struct root_op *ops = realloc(root->ops, cap * sizeof(*ops));
    if (!ops)
        return -ENOMEM;
    root->ops = ops;
    uint32_t *stack = realloc(root->free_ops, cap * sizeof(*stack));
    if (!stack)
        return -ENOMEM;
    root->free_ops = stack;
    root->cap_ops = cap;
    return 0;
}

uint32_t root_op_get(struct root *root, struct order_ref ref)
{
    uint32_t i = pairs_get(&root->op_index, ref.group, ref.k);
    if (i != PAIRS_NONE)
        return i;
    if (root->nfree == 0 && root->nops == root->cap_ops && grow_ops(root) < 0)
        return PAIRS_NONE;
    i = root->nfree ? root->free_ops[root->nfree - 1] : root->nops;
    if (pairs_put(&root->op_index, ref.group, ref.k, i) < 0)
        return PAIRS_NONE;
    if (root->nfree)
        root->nfree--;
    else
        root->nops++;
    root->ops[i] = (struct root_op){.said.ref = ref, .used = true};
    uint32_t group = pairs_get(&root->group_index, ref.group, 0);
    root->groups[group].open++; /* callers name a group that is there */
    return i;
}

/* Frees an operation that is gone and not blocked, and lets those go on that it blocks. One that is
 * dropped and blocked itself blocks the others further. */
static void release(struct root *root, uint32_t first)
{
    root->ops[first].link = PAIRS_NONE;
    while (first != PAIRS_NONE) {
        uint32_t i = first;
        struct root_op *op = &root->ops[i];
        first = op->link;
        for (uint32_t n = 0; n < op->nnext; n++) {
            struct root_op *then = &root->ops[op->next[n]];
            if (--then->blocked > 0)
                continue;
            if (!then->gone) {
                root_touch(root, pairs_get(&root->group_index, then->said.ref.group, 0));
                continue;
            }
            then->link = first;
            first = op->next[n];
        }
        free_op(op);
        root->free_ops[root->nfree++] = i;
    }
}

/* The operation is logged now, or of a group that is dead. */
void root_op_remove(struct root *root, uint32_t i)
{
    struct root_op *op = &root->ops[i];
    uint32_t group = pairs_get(&root->group_index, op->said.ref.group, 0);
    root->groups[group].open--;
    root->jumped -= op->jumped;
    op->jumped = 0;
    pairs_remove(&root->op_index, op->said.ref.group, op->said.ref.k);
    op->gone = true;
    if (op->blocked == 0)
        release(root, i);
}

/* ---- announcements -------------------------------------------------------------------------- */

#define COMMITTED_MAX ((uint64_t)1 << 48) /* places of a pattern are less than 64 bits */

static int take_init(struct order *o, struct reader *r)
{
    struct root *root = &o->root;
    reader_u8(r);
    uint32_t rank = reader_u32(r);
    uint64_t id = reader_u64(r);
    uint32_t size = reader_u32(r);
    uint64_t committed = reader_u64(r);
    uint32_t i = pairs_get(&root->group_index, id, 0);
    if (size < 2 || size > (uint32_t)o->config.size || rank >= (uint32_t)o->config.size ||
        committed > COMMITTED_MAX)
        return -EPROTO;
    int rc = i == PAIRS_NONE ? add_group(root, id, size, &i) : 0;
    if (rc < 0)
        return rc;
    struct root_group *g = &root->groups[i];
    if (g->size != size || g->ninit >= size)
        return -EPROTO;
    if (g->ninit == g->cap) {
        uint32_t cap = g->cap ? 2 * g->cap : 4;
        struct root_init *more = realloc(g->inits, cap * sizeof(*more));
        if (!more)
            return -ENOMEM;
        g->inits = more;
        g->cap = cap;
    }
    g->next = g->ninit == 0 || committed < g->next ? committed : g->next;
    g->top = committed > g->top ? committed : g->top;
    g->inits[g->ninit++] = (struct root_init){.rank = rank, .committed = committed};
    root_touch(root, i);
    return 0;
}

static int add_before(struct order_announced *to, const struct order_announced *said)
{
    struct order_ref *more =
        realloc(to->before, ((size_t)to->nbefore + said->nbefore) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    memcpy(more + to->nbefore, said->before, said->nbefore * sizeof(*more));
    to->before = more;
    to->nbefore += said->nbefore;
    return 0;
}

static int take_op(struct root *root, const struct order_announced *said)
{
    uint32_t group = pairs_get(&root->group_index, said->ref.group, 0);
    if (group == PAIRS_NONE || root->groups[group].dead)
        return 0; /* dropped by a rank, whose operations are not waited for */
    struct root_group *g = &root->groups[group];
    if (said->ref.k < g->next || said->count > g->ninit || root->op_index.n >= ORDER_OPS_MAX)
        return -EPROTO;
    uint32_t i = root_op_get(root, said->ref);
    if (i == PAIRS_NONE)
        return -ENOMEM;
    struct root_op *op = &root->ops[i];
    if (op->said.count && op->said.key != said->key)
        return -EPROTO;
    if (said->count > g->size - op->said.count)
        return -EPROTO;
    if (said->nbefore && add_before(&op->said, said) < 0)
        return -ENOMEM;
    op->said.key = said->key;
    op->said.count += said->count;
    op->said.early = op->said.early || said->early;
    root_touch(root, group);
    return 0;
}

static void take_drop(struct root *root, struct reader *r)
{
    reader_u8(r);
    uint64_t id = reader_u64(r);
    uint32_t i = pairs_get(&root->group_index, id, 0);
    if (i == PAIRS_NONE)
        return;
    struct root_group *g = &root->groups[i];
    g->dead = true;
    g->ndrop++;
    for (uint32_t k = 0; g->open && k < root->nops; k++)
        if (root->ops[k].used && !root->ops[k].gone && root->ops[k].said.ref.group == id)
            root_op_remove(root, k);
}

static int take_announced(struct order *o)
{
    struct root *root = &o->root;
    struct order_up *u = &o->up;
    struct reader inits = reader_over(u->inits.data, u->inits.len);
    struct reader drops = reader_over(u->drops.data, u->drops.len);
    int rc = 0;
    while (rc == 0 && inits.pos < inits.len)
        rc = take_init(o, &inits);
    uint32_t size = (uint32_t)o->config.size;
    if (u->begun > size - root->begun || u->drained > size - root->drained)
        return -EPROTO;
    bool all = root->begun < size && root->begun + u->begun == size;
    root->begun += u->begun;
    root->drained += u->drained;
    for (uint32_t i = 0; rc == 0 && i < u->nops; i++)
        rc = take_op(root, &u->ops[i]);
    if (rc == 0 && all)
        rc = left_begin(o);
    while (rc == 0 && drops.pos < drops.len)
        take_drop(root, &drops);
    return rc;
}

/* ---- the log -------------------------------------------------------------------------------- */

static void put_run(struct root *root)
{
    if (root->nrun == 0)
        return;
    buf_put_u64(&root->log, root->run.group);
    buf_put_u64(&root->log, root->run.k);
    buf_put_u32(&root->log, root->nrun);
    root->nrun = 0;
}

static void put_log(struct root *root, struct order_ref ref)
{
    if (root->nrun && root->run.group == ref.group && root->run.k + root->nrun == ref.k) {
        root->nrun++;
        return;
    }
    put_run(root);
    root->run = ref;
    root->nrun = 1;
}

enum { SEEN_MAX = 1 << 16 }; /* different operations of the log that are remembered */

/* Where rounds remembers an id; NULL: no memory. */
static uint64_t *seen(struct root *root, uint64_t id)
{
    if (root->nseen >= SEEN_MAX) {
        pairs_clear(&root->seen_index);
        root->nseen = 0;
        rounds_reset(&root->rounds);
        root->looked_at = 0;
    }
    uint32_t i = pairs_get(&root->seen_index, id, 0);
    if (i != PAIRS_NONE)
        return &root->seen[i];
    if (root->nseen == root->cap_seen) {
        uint32_t cap = root->cap_seen ? 2 * root->cap_seen : 64;
        uint64_t *more = realloc(root->seen, cap * sizeof(*more));
        if (!more)
            return NULL;
        root->seen = more;
        root->cap_seen = cap;
    }
    if (pairs_put(&root->seen_index, id, 0, root->nseen) < 0)
        return NULL;
    root->seen[root->nseen] = 0;
    return &root->seen[root->nseen++];
}

static int by_ref(const void *left, const void *right)
{
    const struct order_ref *a = left, *b = right;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    return a->k < b->k ? -1 : a->k > b->k;
}

/* Children may have sent the same: keeps each once. */
static void unify(struct order_announced *a)
{
    uint32_t n = 0;
    if (a->nbefore == 0)
        return;
    qsort(a->before, a->nbefore, sizeof(*a->before), by_ref);
    for (uint32_t i = 0; i < a->nbefore; i++)
        if (i == 0 || by_ref(&a->before[i], &a->before[n - 1]) != 0)
            a->before[n++] = a->before[i];
    struct order_ref *less = realloc(a->before, n * sizeof(*less));
    a->before = less ? less : a->before;
    a->nbefore = n;
}

/* Records the operation for plan_propose(). Takes op->said.before over. */
static int record(struct root *root, struct root_op *op)
{
    unify(&op->said);
    uint64_t id = op->said.key * 0x9e3779b97f4a7c15ULL ^ op->said.ref.group;
    uint64_t *at = seen(root, id ? id : 1);
    if (!root->history)
        root->history = calloc(ROUNDS_LOG, sizeof(*root->history));
    if (!at || !root->history)
        return -ENOMEM;
    rounds_arrive(&root->rounds, id ? id : 1, at);
    struct root_logged *entry = &root->history[root->rounds.nlog & (ROUNDS_LOG - 1)];
    free(entry->before);
    *entry = (struct root_logged){.ref = op->said.ref,
                                  .early = op->said.early,
                                  .before = op->said.before,
                                  .nbefore = op->said.nbefore};
    op->said.before = NULL;
    const struct log_entry logged = {.id = id ? id : 1};
    return rounds_log(&root->rounds, &logged);
}

/* Counts what some ranks announced before this operation and is not in the log yet. */
static void count_jumped(struct root *root, const struct root_op *op)
{
    for (uint32_t i = 0; i < op->said.nbefore; i++) {
        uint32_t b = pairs_get(&root->op_index, op->said.before[i].group, op->said.before[i].k);
        if (b == PAIRS_NONE)
            continue;
        root->ops[b].jumped++;
        root->jumped++;
    }
}

/* The group's next operation, if all ranks have announced or launched it; PAIRS_NONE: they have
 * not. -EPROTO: more ranks than there are. */
static int next_ready(const struct root *root, const struct root_group *g, uint32_t *ret)
{
    uint32_t i = pairs_get(&root->op_index, g->id, g->next);
    *ret = PAIRS_NONE;
    if (g->dead || g->ninit < g->size || i == PAIRS_NONE || root->ops[i].blocked)
        return 0;
    uint32_t launched = 0;
    for (uint32_t n = 0; g->next < g->top && n < g->ninit; n++)
        launched += g->inits[n].committed > g->next;
    if (root->ops[i].said.count > g->size - launched)
        return -EPROTO;
    if (root->ops[i].said.count == g->size - launched)
        *ret = i;
    return 0;
}

static int log_ready(struct order *o)
{
    struct root *root = &o->root;
    while (root->ntouched) {
        uint32_t i, group = root->touched[root->first_touched];
        root->first_touched = (root->first_touched + 1) % root->cap_groups;
        root->ntouched--;
        root->groups[group].touched = false;
        for (;;) {
            struct root_group *g = &root->groups[group];
            int rc = next_ready(root, g, &i);
            if (rc < 0)
                return rc;
            if (i == PAIRS_NONE)
                break;
            put_log(root, root->ops[i].said.ref);
            count_jumped(root, &root->ops[i]);
            rc = o->config.freeze_after ? record(root, &root->ops[i]) : 0;
            if (rc < 0)
                return rc;
            g->next++;
            root_op_remove(root, i);
        }
    }
    root->first_touched = 0;
    return 0;
}

/* Frees groups that all of their ranks have dropped: ids are not used again. */
static void remove_dead(struct root *root)
{
    for (uint32_t i = root->ngroups; i-- > 0;) {
        struct root_group *g = &root->groups[i];
        if (!g->dead || g->ndrop < g->ninit)
            continue;
        pairs_remove(&root->group_index, g->id, 0);
        free(g->inits);
        *g = root->groups[--root->ngroups];
        if (i < root->ngroups)
            pairs_put(&root->group_index, g->id, 0, i); /* it is there: no allocation */
    }
}

static int send_log(struct order *o)
{
    struct root *root = &o->root;
    put_run(root);
    if (root->log.failed)
        return -ENOMEM;
    order_send_down(o, &root->log);
    struct reader r = reader_over(root->log.data, root->log.len);
    reader_u8(&r);
    reader_u64(&r);
    return order_follow_log(o, &r);
}

int root_take(struct order *o)
{
    struct root *root = &o->root;
    bool drops = o->up.drops.len > 0;
    int rc = take_announced(o);
    if (rc < 0)
        return rc;
    order_up_clear(&o->up);
    if (root->begun < (uint32_t)o->config.size)
        return 0;
    order_begin(o, &root->log, ORDER_LOG);
    rc = log_ready(o);
    if (rc == 0 && drops)
        remove_dead(root);
    if (rc == 0 && root->nrun)
        rc = send_log(o);
    return rc < 0 ? rc : plan_propose(o);
}
