/* SPDX-License-Identifier: Apache-2.0
 *
 * order_sim: see order_sim.h.
 */
#include "tests/harness/order_sim_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sim_wrong(struct sim *s, const char *fmt, ...)
{
    char *why = s->result->why;
    if (why[0])
        return;
    int n = snprintf(why, sizeof(s->result->why), "kind %d, seed %llu: ", (int)s->kind,
                     (unsigned long long)s->seed);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why + n, sizeof(s->result->why) - (size_t)n, fmt, ap);
    va_end(ap);
}

/* ---- the job -------------------------------------------------------------------------------- */

static int on_send(void *ctx, int to, const struct buf *msg)
{
    struct node *n = ctx;
    struct node *peer = &n->sim->nodes[to == NEGOTIATE_PARENT ? n->parent : to];
    struct message *m = calloc(1, sizeof(*m));
    buf_put(&m->bytes, msg->data, msg->len);
    *peer->in_end[n->rank] = m;
    peer->in_end[n->rank] = &m->next;
    if (n->sim->nmarks == n->sim->size)
        n->sim->result->late++;
    return 0;
}

/* Rank 0, the first ranks of other hosts below it, and the hosts' other ranks. */
static void build(struct sim *s)
{
    static const struct order_ops ops = {.send = on_send};
    struct order_config config = {.size = s->size, .freeze_after = 1 + (uint32_t)sim_chance(s, 3)};
    int first = 0;
    for (int r = 0; r < s->size; r++) {
        struct node *n = &s->nodes[r];
        bool leads = r == 0 || sim_chance(s, 3) == 0;
        first = leads ? r : first;
        n->sim = s;
        n->rank = r;
        n->parent = r == 0 ? -1 : leads ? 0 : first;
        if (r > 0)
            s->nodes[n->parent].children[s->nodes[n->parent].nchildren++] = r;
        for (int k = 0; k < s->size; k++)
            n->in_end[k] = &n->in[k];
    }
    for (int r = 0; r < s->size; r++) {
        struct node *n = &s->nodes[r];
        config.rank = r;
        config.parent = n->parent;
        config.children = n->children;
        config.nchildren = n->nchildren;
        if (order_create(&config, &ops, n, &n->o, NULL) < 0)
            sim_wrong(s, "no memory");
    }
}

/* ---- a rank --------------------------------------------------------------------------------- */

static void push(struct queue *q, int group, uint64_t k)
{
    q->items[(q->first + q->n++) % OPS] = (struct item){.group = group, .k = k};
}

/* Removes the item at `at`. */
static struct item take(struct queue *q, uint32_t at)
{
    struct item item = q->items[(q->first + at) % OPS];
    for (; at > 0; at--)
        q->items[(q->first + at) % OPS] = q->items[(q->first + at - 1) % OPS];
    q->first = (q->first + 1) % OPS;
    q->n--;
    return item;
}

static bool negotiated(const struct sim *s, const struct item *item)
{
    const struct group *g = &s->groups[item->group];
    for (int r = 0; r < s->size && g->negotiated; r++)
        if (g->member[r] && s->nodes[r].submitted[item->group] <= item->k)
            return false;
    return true;
}

/* Announces the operation at `at` of those that are submitted, if that is possible. */
static bool announce(struct node *n, uint32_t at)
{
    struct sim *s = n->sim;
    if (at >= n->unannounced.n)
        return false;
    struct item item = n->unannounced.items[(n->unannounced.first + at) % OPS];
    struct group *g = &s->groups[item.group];
    if (!negotiated(s, &item) || item.k != n->announced[item.group])
        return false;
    take(&n->unannounced, at);
    n->announced[item.group]++;
    int rc = at == 0 ? order_ready(n->o, g->id, g->size, g->keys[item.k])
                     : order_ready_early(n->o, g->id, g->size, g->keys[item.k]);
    if (rc < 0)
        sim_wrong(s, "rank %d: order_ready: %d", n->rank, rc);
    return true;
}

static bool program_step(struct node *n)
{
    struct sim *s = n->sim;
    if (n->at == n->nsteps)
        return false;
    const struct step *step = &n->steps[n->at];
    switch (step->what) {
    case SUBMIT:
        push(&n->unannounced, step->group, n->submitted[step->group]++);
        if (!s->groups[step->group].negotiated)
            announce(n, n->unannounced.n - 1);
        break;
    case WAIT:
        if (n->ended[step->group] < step->count)
            return false;
        break;
    case DROP:
        order_drop(n->o, s->groups[step->group].id);
        break;
    case MARK:
        s->nmarks++;
        break;
    }
    n->at++;
    return true;
}

static bool launch(struct node *n)
{
    struct sim *s = n->sim;
    uint64_t id;
    int g = 0;
    if (!order_next(n->o, &id))
        return false;
    while (g < s->ngroups && (s->groups[g].id != id || !s->groups[g].member[n->rank]))
        g++;
    if (g == s->ngroups || n->launched[g] >= n->announced[g] || !order_is_next(n->o, id)) {
        sim_wrong(s, "rank %d may launch what it has not announced", n->rank);
        return false;
    }
    push(&n->stream, g, n->launched[g]++);
    order_launched(n->o, id);
    s->result->launched++;
    return true;
}

static bool is_first(const struct node *n, struct item item)
{
    const struct item *first = &n->stream.items[n->stream.first];
    return n->stream.n && first->group == item.group && first->k == item.k;
}

/* The first operation of the stream ends, on all ranks. */
static bool end(struct node *n)
{
    struct sim *s = n->sim;
    if (n->stream.n == 0)
        return false;
    struct item item = n->stream.items[n->stream.first];
    const struct group *g = &s->groups[item.group];
    for (int r = 0; r < s->size; r++)
        if (g->member[r] && !is_first(&s->nodes[r], item))
            return false;
    for (int r = 0; r < s->size; r++)
        if (g->member[r]) {
            take(&s->nodes[r].stream, 0);
            s->nodes[r].ended[item.group]++;
        }
    return true;
}

static bool drain(struct node *n)
{
    if (!order_drains(n->o) || n->stream.n)
        return false;
    order_drained(n->o);
    return true;
}

static bool deliver(struct node *n, int from)
{
    struct message *m = n->in[from];
    struct err err = {.code = 0};
    if (!m)
        return false;
    n->in[from] = m->next;
    if (!m->next)
        n->in_end[from] = &n->in[from];
    int as = from == n->parent ? NEGOTIATE_PARENT : from;
    if (order_recv(n->o, as, m->bytes.data, m->bytes.len, &err) < 0)
        sim_wrong(n->sim, "rank %d: %s", n->rank, err.msg);
    buf_fini(&m->bytes);
    free(m);
    return true;
}

/* ---- running -------------------------------------------------------------------------------- */

static void step_once(struct sim *s)
{
    struct node *n = &s->nodes[sim_chance(s, (uint64_t)s->size)];
    switch (sim_chance(s, 7)) {
    case 0:
        deliver(n, (int)sim_chance(s, (uint64_t)s->size));
        break;
    case 1:
        program_step(n);
        break;
    case 2:
        order_tick(n->o);
        break;
    case 3:
        launch(n);
        break;
    case 4:
        end(n);
        break;
    case 5:
        drain(n);
        break;
    case 6:
        announce(n, n->unannounced.n ? (uint32_t)sim_chance(s, n->unannounced.n) : 0);
        break;
    }
}

/* Every rank does all that it can. Returns whether there was something to do. */
static bool settle(struct sim *s)
{
    bool did = false;
    for (int r = 0; r < s->size; r++) {
        struct node *n = &s->nodes[r];
        for (int from = 0; from < s->size; from++)
            did = deliver(n, from) || did;
        did = program_step(n) || did;
        for (uint32_t i = 0; i < n->unannounced.n; i++)
            did = announce(n, i) || did;
        order_tick(n->o);
        if (order_failed(n->o))
            sim_wrong(s, "rank %d: order_failed: %d", r, order_failed(n->o));
        did = launch(n) || did;
        did = end(n) || did;
        did = drain(n) || did;
        for (int i = 0; i < s->size; i++)
            did = did || n->in[i] || s->nodes[i].in[r];
    }
    return did;
}

static bool finished(const struct sim *s)
{
    for (int r = 0; r < s->size; r++)
        if (s->nodes[r].at < s->nodes[r].nsteps || s->nodes[r].stream.n ||
            s->nodes[r].unannounced.n || !list_empty(&s->nodes[r].o->launch) ||
            !list_empty(&s->nodes[r].o->waiting))
            return false;
    return true;
}

static void describe(struct sim *s)
{
    for (int r = 0; r < s->size; r++) {
        const struct node *n = &s->nodes[r];
        if (n->at == n->nsteps)
            continue;
        sim_wrong(s, "stuck: rank %d at step %d of %d (%d of group %d), frozen %d drains %d", r,
                  n->at, n->nsteps, (int)n->steps[n->at].what, n->steps[n->at].group, n->o->frozen,
                  n->o->draining);
    }
    sim_wrong(s, "stuck: the programs are at their end, operations are not");
}

static void finish(struct sim *s)
{
    s->result->all_frozen = true;
    for (int r = 0; r < s->size; r++) {
        struct node *n = &s->nodes[r];
        struct order_stats stats;
        order_get_stats(n->o, &stats);
        s->result->logged += stats.logged;
        s->result->frozen += stats.frozen;
        s->result->thaws += r == 0 ? stats.thaws : 0;
        s->result->all_frozen = s->result->all_frozen && n->o->frozen;
        order_destroy(n->o);
        for (int from = 0; from < s->size; from++)
            while (n->in[from]) {
                struct message *m = n->in[from];
                n->in[from] = m->next;
                buf_fini(&m->bytes);
                free(m);
            }
    }
}

void order_sim_run(uint64_t seed, enum order_sim_kind kind, struct order_sim_result *ret)
{
    struct sim *s = calloc(1, sizeof(*s));
    if (!s)
        abort();
    *ret = (struct order_sim_result){.late = 0};
    s->seed = seed;
    s->random = seed * 1000003 + 7;
    s->kind = kind;
    s->result = ret;
    s->size = 2 + (int)sim_chance(s, RANKS - 1);
    sim_fill_groups(s);
    sim_fill_programs(s);
    build(s);
    /* Some ranks may be slower than others: a burst of steps of any ranks, then all go on. */
    while (!ret->why[0] && !finished(s)) {
        uint64_t burst = sim_chance(s, 2) ? 0 : sim_chance(s, 200);
        for (uint64_t i = 0; i < burst && !ret->why[0]; i++)
            step_once(s);
        if (sim_chance(s, 4) == 0 && !ret->why[0] && !settle(s) && !settle(s) && !finished(s))
            describe(s);
    }
    finish(s);
    free(s);
}
