/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous: random programs on random trees, with messages that take random times. Each rank
 * forms sets with random other ranks, in an order in which all of them can end; in some programs
 * ranks stay away or shut down. All ranks of a list get the same end, with everybody's bytes.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/negotiate/negotiate.h"
#include "core/negotiate/ranklist.h"
#include "core/negotiate/rendezvous.h"
#include "tests/harness/rank.h"

#define RANKS    16
#define GROUPS   24
#define MESSAGES 4096
#define LIMIT    (10 * CLOCK_S)

/* What one program asks for. */
struct group {
    char name[16];
    int ranks[RANKS], n;
    bool lacks; /* one of its ranks does not enter */
    int ends;   /* how many ranks know that it has ended */
    struct err err;
    uint32_t serial;
};

struct node {
    struct world *w;
    int rank, parent, children[RANKS], nchildren;
    struct rendezvous *v;
    int at;     /* the group that the rank enters next */
    bool waits; /* in the group at `at` */
    bool gone;  /* it has shut down */
};

struct message {
    int from, to;
    bool farewell;
    int departed;
    struct buf bytes;
};

struct world {
    int size;
    struct node nodes[RANKS];
    struct group groups[GROUPS];
    int ngroups;
    struct message queue[MESSAGES]; /* in the order in which they were sent */
    int nqueue, ends;
    uint64_t now, random;
    int leaver, leaves_at; /* the rank that shuts down after so many groups; -1: none */
};

static void put(struct world *w, struct message m)
{
    assert_true(w->nqueue < MESSAGES);
    w->queue[w->nqueue++] = m;
}

static int on_send(void *ctx, int to, const struct buf *msg)
{
    struct node *n = ctx;
    struct message m = {.from = n->rank, .to = to == NEGOTIATE_PARENT ? n->parent : to};
    buf_put(&m.bytes, msg->data, msg->len);
    put(n->w, m);
    return 0;
}

static void text_of(int rank, int group, char *text, size_t size)
{
    snprintf(text, size, "%*d of %d", rank % 5 + 1, rank, group);
}

static void on_end(void *ctx, void *caller, const struct rendezvous_end *end)
{
    struct node *n = ctx;
    struct group *g = caller;
    char text[64];
    assert_true(n->waits && g == &n->w->groups[n->at]);
    n->waits = false;
    n->at++;
    n->w->ends++;
    if (g->ends++ == 0) {
        g->err = end->err;
        g->serial = end->serial;
    }
    /* A rank that is cut off from rank 0 may be told something else. */
    if (n->w->leaver < 0)
        assert_int_equal(end->err.code, g->err.code);
    if (end->err.code)
        return;
    if (!g->err.code)
        assert_int_equal(end->serial, g->serial);
    assert_int_equal(end->n, g->n);
    for (int i = 0; i < g->n; i++) {
        text_of(g->ranks[i], (int)(g - n->w->groups), text, sizeof(text));
        assert_int_equal(end->of[i].len, strlen(text));
        assert_memory_equal(end->of[i].data, text, strlen(text));
    }
}

/* Rank 0, the first ranks of other hosts below it, and the hosts' other ranks. */
static void build(struct world *w)
{
    static const struct rendezvous_ops ops = {.send = on_send, .end = on_end};
    struct err err = {.code = 0};
    int first = 0;
    for (int r = 0; r < w->size; r++) {
        struct node *n = &w->nodes[r];
        bool leads = r == 0 || rank_random(&w->random) % 3 == 0;
        first = leads ? r : first;
        *n = (struct node){.w = w, .rank = r, .parent = r == 0 ? -1 : leads ? 0 : first};
        if (r > 0) {
            struct node *p = &w->nodes[n->parent];
            p->children[p->nchildren++] = r;
        }
    }
    for (int r = 0; r < w->size; r++) {
        struct node *n = &w->nodes[r];
        assert_int_equal(rendezvous_create(w->size, r, n->parent, n->children, n->nchildren, 0,
                                           &ops, n, &n->v, &err),
                         0);
    }
}

static void fill_groups(struct world *w, bool lacking)
{
    w->ngroups = 1 + (int)(rank_random(&w->random) % GROUPS);
    for (int i = 0; i < w->ngroups; i++) {
        struct group *g = &w->groups[i];
        int order[RANKS];
        *g = (struct group){.lacks = lacking && rank_random(&w->random) % 4 == 0};
        snprintf(g->name, sizeof(g->name), "%d", (int)(rank_random(&w->random) % 3));
        rank_shuffle(order, w->size, &w->random);
        g->n = 1 + (int)(rank_random(&w->random) % (uint64_t)w->size);
        memcpy(g->ranks, order, sizeof(order));
    }
}

static bool enters(const struct node *n, const struct group *g)
{
    int i = ranklist_find(g->ranks, g->n, n->rank);
    return i >= 0 && !(g->lacks && i == g->n - 1);
}

static void leave(struct node *n)
{
    n->gone = true;
    if (n->rank == 0) {
        rendezvous_departed(n->v, 0);
        for (int i = 0; i < n->nchildren; i++)
            put(n->w, (struct message){.to = n->children[i], .farewell = true});
        return;
    }
    put(n->w,
        (struct message){.from = n->rank, .to = n->parent, .farewell = true, .departed = n->rank});
}

/* The rank's program goes on. Returns whether it can. */
static bool step(struct node *n)
{
    struct world *w = n->w;
    char text[64];
    struct err err = {.code = 0};
    if (n->gone || n->waits)
        return false;
    if (n->rank == w->leaver && n->at >= w->leaves_at) {
        leave(n);
        return true;
    }
    while (n->at < w->ngroups && !enters(n, &w->groups[n->at]))
        n->at++;
    if (n->at == w->ngroups)
        return false;
    struct group *g = &w->groups[n->at];
    const struct rendezvous_point point = {
        .name = g->name, .round = (uint8_t)n->at, .ranks = g->ranks, .n = g->n};
    text_of(n->rank, n->at, text, sizeof(text));
    n->waits = true;
    int rc = rendezvous_enter(n->v, &point, text, strlen(text), LIMIT, w->now, g, &err);
    if (rc == 0)
        return true;
    assert_int_equal(rc, -ESHUTDOWN);
    const struct rendezvous_end end = {.err = err};
    on_end(n, g, &end);
    return true;
}

/* A farewell goes up to rank 0, and from there to all. */
static void forward(struct node *n, const struct message *m)
{
    if (n->parent >= 0 && m->from != n->parent) {
        put(n->w, (struct message){
                      .from = n->rank, .to = n->parent, .farewell = true, .departed = m->departed});
        return;
    }
    for (int i = 0; i < n->nchildren; i++)
        put(n->w,
            (struct message){
                .from = n->rank, .to = n->children[i], .farewell = true, .departed = m->departed});
    rendezvous_departed(n->v, m->departed);
}

/* Delivers the oldest message of a random pair of ranks. */
static void deliver(struct world *w)
{
    int i = (int)(rank_random(&w->random) % (uint64_t)w->nqueue);
    for (int k = 0; k < i; k++)
        if (w->queue[k].from == w->queue[i].from && w->queue[k].to == w->queue[i].to)
            i = k;
    struct message m = w->queue[i];
    struct node *n = &w->nodes[m.to];
    struct err err = {.code = 0};
    memmove(&w->queue[i], &w->queue[i + 1], (size_t)(--w->nqueue - i) * sizeof(m));
    if (m.farewell)
        forward(n, &m);
    else if (rendezvous_recv(n->v, m.from == n->parent ? NEGOTIATE_PARENT : m.from, m.bytes.data,
                             m.bytes.len, w->now, &err) < 0)
        fail_msg("%s", err.msg);
    buf_fini(&m.bytes);
}

/* When nothing else happens, time passes. */
static void run(struct world *w)
{
    uint64_t due = 0;
    while (due != UINT64_MAX) {
        bool moved = w->nqueue > 0;
        for (int r = 0; r < w->size; r++)
            if (w->nqueue == 0 || rank_random(&w->random) % 2)
                moved = step(&w->nodes[r]) || moved;
        if (w->nqueue > 0)
            deliver(w);
        int ends = w->ends;
        due = rendezvous_tick(w->nodes[0].v, w->now);
        if (moved || w->nqueue > 0 || w->ends > ends)
            due = 0;
        else if (due != UINT64_MAX)
            w->now = due;
    }
    for (int r = 0; r < w->size; r++)
        assert_true(w->nodes[r].gone || w->nodes[r].at == w->ngroups);
}

/* lacking: a rank may be late for one group because it waits in another one. */
static void check(const struct world *w, bool lacking)
{
    for (int i = 0; i < w->ngroups; i++) {
        const struct group *g = &w->groups[i];
        int n = 0;
        for (int r = 0; r < w->size; r++)
            n += enters(&w->nodes[r], g);
        assert_int_equal(g->ends, n);
        if (!lacking || g->err.code == 0)
            assert_false(g->err.code || (g->lacks && n > 0));
        else
            assert_non_null(strstr(g->err.msg, " not called it within 10 s"));
    }
}

static void simulate(uint64_t seed, bool lacking, bool leaving)
{
    static struct world w;
    memset(&w, 0, sizeof(w));
    w.random = seed;
    w.now = 1;
    w.size = 1 + (int)(rank_random(&w.random) % RANKS);
    w.leaver = leaving ? (int)(rank_random(&w.random) % (uint64_t)w.size) : -1;
    fill_groups(&w, lacking);
    w.leaves_at = (int)(rank_random(&w.random) % (uint64_t)w.ngroups);
    build(&w);
    run(&w);
    if (!leaving)
        check(&w, lacking);
    for (int r = 0; r < w.size; r++)
        rendezvous_destroy(w.nodes[r].v);
}

static void test_all_come(void **state)
{
    for (uint64_t seed = 1; seed <= 2000; seed++)
        simulate(seed, false, false);
}

static void test_some_stay_away(void **state)
{
    for (uint64_t seed = 1; seed <= 2000; seed++)
        simulate(seed, true, false);
}

static void test_one_leaves(void **state)
{
    for (uint64_t seed = 1; seed <= 2000; seed++)
        simulate(seed, seed % 2, true);
}

/* Rank 2, which rank 1 connects to rank 0, enters and is cut off by the end of rank 1. Rank 0,
 * which comes later, must not go on with what it has of rank 2. */
static void test_cut_off(void **state)
{
    static const struct rendezvous_ops ops = {.send = on_send, .end = on_end};
    static struct world w;
    struct err err = {.code = 0};
    w = (struct world){.size = 3, .now = 1, .random = 1, .ngroups = 1, .leaver = 1, .leaves_at = 1};
    w.groups[0] = (struct group){.name = "a", .ranks = {0, 2}, .n = 2};
    for (int r = 0; r < 3; r++) {
        struct node *n = &w.nodes[r];
        *n = (struct node){.w = &w, .rank = r, .parent = r - 1};
        n->children[0] = r + 1;
        n->nchildren = r < 2;
        assert_int_equal(
            rendezvous_create(3, r, n->parent, n->children, n->nchildren, 0, &ops, n, &n->v, &err),
            0);
    }
    assert_true(step(&w.nodes[2]));
    while (w.nqueue > 0)
        deliver(&w);
    leave(&w.nodes[1]);
    while (w.nqueue > 0)
        deliver(&w);
    assert_int_equal(w.groups[0].err.code, -ESHUTDOWN);
    assert_true(step(&w.nodes[0]));
    assert_true(w.nodes[0].waits);
    w.now += LIMIT;
    rendezvous_tick(w.nodes[0].v, w.now);
    assert_false(w.nodes[0].waits);
    for (int r = 0; r < 3; r++)
        rendezvous_destroy(w.nodes[r].v);
}

/* A second thread of this rank, at the same point. */
static void test_busy(void **state)
{
    struct node n = {.parent = -1, .children = {1}, .nchildren = 1};
    const struct rendezvous_ops ops = {.send = on_send, .end = on_end};
    const int ranks[] = {0, 1};
    const struct rendezvous_point point = {.name = "a", .ranks = ranks, .n = 2};
    struct err err = {.code = 0};
    assert_int_equal(rendezvous_create(2, 0, -1, n.children, 1, 0, &ops, &n, &n.v, &err), 0);
    assert_int_equal(rendezvous_enter(n.v, &point, "", 0, LIMIT, 1, &n, &err), 0);
    assert_int_equal(rendezvous_enter(n.v, &point, "", 0, LIMIT, 1, &n, &err), -EBUSY);
    assert_int_equal(rendezvous_failed(n.v), 0);
    rendezvous_destroy(n.v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_come),   cmocka_unit_test(test_some_stay_away),
        cmocka_unit_test(test_one_leaves), cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
