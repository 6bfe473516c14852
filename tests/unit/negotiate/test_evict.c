/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of an eviction that crosses announcements: rank 0 on top, rank 1 under it, ranks 2 and 3
 * under rank 1. The cache has room for one id. Messages are delivered by hand, so that the root
 * evicts an id which the inner node or a leaf has just announced.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/negotiate/negotiate.h"

enum { RANKS = 4, QUEUE = 64, LOG = 16 };

static const int parent_of[RANKS] = {-1, 0, 1, 1};

struct message {
    size_t len;
    void *data;
};

struct node {
    struct world *world;
    int rank;
    struct negotiate *n;
    char log[LOG][32]; /* the tensors of each batch; '!' before a batch that failed */
    size_t nlog;
    uint64_t number;   /* of the last batch */
    int64_t rows[LOG]; /* sum of the row counts of that batch */
    struct {
        uint64_t id;
        char name[32];
    } asked[LOG];
    size_t nasked;
};

struct world {
    struct node nodes[RANKS];
    struct message queue[RANKS][RANKS][QUEUE];
    size_t got[RANKS][RANKS], taken[RANKS][RANKS];
    uint64_t now;
};

static int on_send(void *ctx, int to, const struct buf *msg)
{
    struct node *node = ctx;
    struct world *w = node->world;
    int peer = to == NEGOTIATE_PARENT ? parent_of[node->rank] : to;
    assert_true(w->got[node->rank][peer] < QUEUE);
    struct message *m = &w->queue[node->rank][peer][w->got[node->rank][peer]++];
    m->len = msg->len;
    m->data = test_malloc(msg->len);
    memcpy(m->data, msg->data, msg->len);
    return 0;
}

static const char *name_of(const struct node *node, uint64_t id)
{
    for (size_t i = 0; i < node->nasked; i++)
        if (node->asked[i].id == id)
            return node->asked[i].name;
    return "?";
}

static void on_batch(void *ctx, const struct negotiate_batch *batch)
{
    struct node *node = ctx;
    for (size_t i = 0; i < batch->n; i++) {
        const struct negotiate_tensor *t = &batch->tensors[i];
        assert_true(node->nlog < LOG);
        for (int r = 0; t->dim0 && r < RANKS; r++)
            node->rows[node->nlog] += t->dim0[r];
        strcpy(node->log[node->nlog++], name_of(node, t->id));
    }
    node->number = batch->number;
}

static void on_fail(void *ctx, uint64_t id, const struct err *err)
{
    fail_msg("rank %d: %s: %s", ((struct node *)ctx)->rank, name_of(ctx, id), err->msg);
}

static void on_dropped(void *ctx, uint64_t number)
{
}

static void on_thawed(void *ctx)
{
}

static void on_stalled(void *ctx, const char *text)
{
}

static void on_waiting_in(void *ctx, char *text, size_t size)
{
}

static int setup(void **state)
{
    static const struct negotiate_ops ops = {
        .send = on_send,
        .batch = on_batch,
        .fail = on_fail,
        .dropped = on_dropped,
        .thawed = on_thawed,
        .stalled = on_stalled,
        .waiting_in = on_waiting_in,
    };
    static const int top[] = {1}, inner[] = {2, 3};
    struct world *w = calloc(1, sizeof(*w));
    if (!w)
        return -1;
    w->now = 1;
    for (int r = 0; r < RANKS; r++) {
        struct negotiate_config c = {.rank = r,
                                     .size = RANKS,
                                     .parent = parent_of[r],
                                     .children = r == 0 ? top : inner,
                                     .nchildren = r == 0   ? 1
                                                  : r == 1 ? 2
                                                           : 0,
                                     .fusion_bytes = 1,
                                     .cycle_ns = 1000,
                                     .cache_capacity = 1};
        w->nodes[r] = (struct node){.world = w, .rank = r};
        if (negotiate_create(&c, &ops, &w->nodes[r], &w->nodes[r].n, NULL) < 0)
            return -1;
    }
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    for (int r = 0; r < RANKS; r++) {
        negotiate_destroy(w->nodes[r].n);
        for (int q = 0; q < RANKS; q++)
            while (w->taken[r][q] < w->got[r][q])
                test_free(w->queue[r][q][w->taken[r][q]++].data);
    }
    free(w);
    return 0;
}

/* Submits an allgather of so many rows. A rank with as many rows as last time announces the id. */
static void submit(struct world *w, int rank, const char *name, int64_t rows)
{
    struct node *node = &w->nodes[rank];
    struct signature sig = {.kind = HVD_ALLGATHER,
                            .dtype = HVD_FLOAT32,
                            .ndim = 1,
                            .device = -1,
                            .prescale = 1,
                            .postscale = 1,
                            .shape = {rows}};
    uint64_t id;
    assert_int_equal(negotiate_submit(node->n, name, &sig, w->now, &id, NULL), 0);
    assert_true(node->nasked < LOG);
    node->asked[node->nasked].id = id;
    strcpy(node->asked[node->nasked++].name, name);
    negotiate_prioritize(node->n, id, true, w->now);
}

static void tick(struct world *w, int rank)
{
    negotiate_tick(w->nodes[rank].n, w->now);
}

/* Delivers all messages from one node to the other. The receiver answers at its next tick. */
static bool deliver(struct world *w, int from, int to)
{
    bool any = false;
    while (w->taken[from][to] < w->got[from][to]) {
        struct message *m = &w->queue[from][to][w->taken[from][to]++];
        struct err err = {0};
        int who = parent_of[to] == from ? NEGOTIATE_PARENT : from;
        int rc = negotiate_recv(w->nodes[to].n, who, m->data, m->len, w->now, &err);
        test_free(m->data);
        if (rc < 0)
            fail_msg("%d to %d: %s", from, to, err.msg);
        any = true;
    }
    return any;
}

static void settle(struct world *w)
{
    for (bool moved = true; moved;) {
        moved = false;
        w->now += 2000;
        for (int r = 0; r < RANKS; r++)
            tick(w, r);
        for (int from = 0; from < RANKS; from++)
            for (int to = 0; to < RANKS; to++)
                moved = deliver(w, from, to) || moved;
    }
}

/* Every rank has run these batches, in this order, since the last call. rows: of the last batch. */
static void expect_ran(struct world *w, const char *first, const char *second, int64_t rows)
{
    for (int r = 0; r < RANKS; r++) {
        struct node *node = &w->nodes[r];
        assert_int_equal(node->nlog, second ? 2 : 1);
        assert_string_equal(node->log[0], first);
        if (second)
            assert_string_equal(node->log[1], second);
        assert_int_equal(node->rows[node->nlog - 1], rows);
        for (size_t i = 0; i < node->nlog; i++)
            negotiate_done(node->n, node->number - i);
        memset(node->rows, 0, sizeof(node->rows));
        node->nlog = node->nasked = 0;
    }
}

/* Runs "a" until it has the only id. */
static void cache_a(struct world *w)
{
    for (int r = 0; r < RANKS; r++)
        submit(w, r, "a", 1);
    settle(w);
    expect_ran(w, "a", NULL, RANKS);
    for (int r = 0; r < RANKS; r++)
        submit(w, r, "a", 1);
    settle(w);
    expect_ran(w, "a", NULL, RANKS);
    struct negotiate_stats stats;
    negotiate_get_stats(w->nodes[2].n, &stats);
    assert_int_equal(stats.cached, 1);
}

static void submit_b(struct world *w)
{
    for (int r = 0; r < RANKS; r++)
        submit(w, r, "b", 5);
}

/* One leaf has announced "a" by its id to the inner node; no other rank has submitted "a". */
static void test_inner_has_heard_of_one(void **state)
{
    struct world *w = *state;
    cache_a(w);
    submit(w, 2, "a", 1);
    tick(w, 2);
    assert_true(deliver(w, 2, 1));
    submit_b(w);
    settle(w); /* "b" takes the id */
    submit(w, 3, "a", 1);
    submit(w, 1, "a", 1);
    submit(w, 0, "a", 1);
    settle(w);
    expect_ran(w, "b", "a", RANKS);
}

/* Both leaves announce the id, and the inner node has other rows, so its combined announcement
 * is mixed. crosses: this announcement goes up while the eviction comes down. */
static void inner_differs(struct world *w, bool crosses)
{
    cache_a(w);
    submit(w, 2, "a", 1);
    submit(w, 3, "a", 1);
    submit_b(w);
    for (int r = RANKS - 1; r > 1; r--) {
        tick(w, r);
        assert_true(deliver(w, r, 1));
    }
    tick(w, 1);
    assert_true(deliver(w, 1, 0)); /* all ranks have announced "b"; "a" lacks the inner node */
    if (crosses) {
        submit(w, 1, "a", 7);
        tick(w, 1);
    }
    tick(w, 0); /* evicts "a" */
    if (crosses)
        assert_true(deliver(w, 1, 0));
    else
        submit(w, 1, "a", 7);
    assert_true(deliver(w, 0, 1));
    tick(w, 1);
    submit(w, 0, "a", 1);
    settle(w);
    expect_ran(w, "b", "a", 7 + 3);
}

static void test_inner_differs(void **state)
{
    inner_differs(*state, false);
}

static void test_inner_differs_and_crosses(void **state)
{
    inner_differs(*state, true);
}

/* The leaf's announcement by id arrives when the inner node has evicted the id. */
static void test_leaf_crosses(void **state)
{
    struct world *w = *state;
    cache_a(w);
    submit_b(w);
    for (int r = RANKS - 1; r > 0; r--) {
        tick(w, r);
        if (r == 1)
            break;
        assert_true(deliver(w, r, 1));
    }
    assert_true(deliver(w, 1, 0));
    tick(w, 0); /* evicts "a" */
    submit(w, 2, "a", 1);
    tick(w, 2); /* announces the id: the leaf does not know of the eviction */
    assert_true(deliver(w, 0, 1));
    assert_true(deliver(w, 2, 1));
    for (int r = 0; r < RANKS; r++)
        if (r != 2)
            submit(w, r, "a", 1);
    settle(w);
    expect_ran(w, "b", "a", RANKS);
}

/* The inner node has announced the id for its whole subtree, and this crosses the eviction. */
static void test_inner_crosses(void **state)
{
    struct world *w = *state;
    cache_a(w);
    submit_b(w);
    for (int r = RANKS - 1; r > 1; r--) {
        tick(w, r);
        assert_true(deliver(w, r, 1));
    }
    tick(w, 1);
    assert_true(deliver(w, 1, 0));
    for (int r = 1; r < RANKS; r++)
        submit(w, r, "a", 1);
    for (int r = RANKS - 1; r > 1; r--) {
        tick(w, r);
        assert_true(deliver(w, r, 1));
    }
    tick(w, 1); /* "a" is on its way up */
    tick(w, 0); /* the eviction on its way down */
    assert_true(deliver(w, 1, 0));
    assert_true(deliver(w, 0, 1));
    submit(w, 0, "a", 1);
    settle(w);
    expect_ran(w, "b", "a", RANKS);
}

/* The inner node has evicted the id, its leaves do not know yet: one leaf has announced the id,
 * the other announces the full request. */
static void test_leaves_differ(void **state)
{
    struct world *w = *state;
    cache_a(w);
    submit(w, 2, "a", 1);
    submit(w, 1, "a", 1);
    tick(w, 2);
    assert_true(deliver(w, 2, 1));
    submit_b(w);
    settle(w);
    submit(w, 3, "a", 4);
    submit(w, 0, "a", 1);
    settle(w);
    expect_ran(w, "b", "a", 4 + 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_inner_has_heard_of_one, setup, teardown),
        cmocka_unit_test_setup_teardown(test_inner_differs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_inner_differs_and_crosses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_leaf_crosses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_inner_crosses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_leaves_differ, setup, teardown),
    };
    return cmocka_run_group_tests_name("negotiate/evict", tests, NULL, NULL);
}
