/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of cycle: random graphs, compared with a search that tries every path.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/negotiate/cycle.h"
#include "tests/harness/effort.h"

enum { MOST = 14 };

struct graph {
    struct cycle_edge edges[MOST];
    int n;
    uint64_t spread;
};

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Whether a path from the node `at` back to `start` makes a cycle. since, first, last: of its edges
 * so far, the latest beginning and the earliest and latest time at which one was seen. */
static bool path_exists(const struct graph *g, int start, int at, unsigned nodes, uint64_t since,
                        uint64_t first, uint64_t last)
{
    for (int i = 0; i < g->n; i++) {
        const struct cycle_edge *e = &g->edges[i];
        if (e->from != at || (nodes >> e->to & 1 && e->to != start))
            continue;
        uint64_t b = larger(since, e->since), f = smaller(first, e->seen);
        uint64_t l = larger(last, e->seen);
        if (b > f || l - f >= g->spread)
            continue;
        if (e->to == start || path_exists(g, start, e->to, nodes | 1U << e->to, b, f, l))
            return true;
    }
    return false;
}

static bool cycle_exists(const struct graph *g)
{
    for (int i = 0; i < g->n; i++) {
        int start = g->edges[i].from;
        if (path_exists(g, start, start, 1U << start, 0, UINT64_MAX, 0))
            return true;
    }
    return false;
}

static void check_found(const struct graph *g, const int *ret, int n)
{
    unsigned nodes = 0;
    uint64_t since = 0, first = UINT64_MAX, last = 0;
    for (int i = 0; i < n; i++) {
        const struct cycle_edge *e = &g->edges[ret[i]];
        assert_true(ret[i] >= 0 && ret[i] < g->n);
        assert_int_equal(e->to, g->edges[ret[(i + 1) % n]].from);
        assert_false(nodes >> e->from & 1);
        nodes |= 1U << e->from;
        since = larger(since, e->since);
        first = smaller(first, e->seen);
        last = larger(last, e->seen);
    }
    assert_true(since <= first && last - first < g->spread);
}

static void test_random(void **state)
{
    int found = 0, rounds = (int)effort(200000);
    for (int k = 0; k < rounds; k++) {
        struct graph g = {.n = rand() % (MOST + 1), .spread = (uint64_t)(1 + rand() % 6)};
        int nodes = 1 + rand() % 7, ret[CYCLE_NODES];
        for (int i = 0; i < g.n; i++) {
            uint64_t since = (uint64_t)(rand() % 6), lasts = (uint64_t)(rand() % 6);
            g.edges[i] = (struct cycle_edge){.from = rand() % nodes,
                                             .to = rand() % nodes,
                                             .since = since,
                                             .seen = since + lasts};
        }
        int n = cycle_find(g.edges, g.n, g.spread, ret);
        assert_int_equal(n > 0, cycle_exists(&g));
        if (n > 0)
            check_found(&g, ret, n);
        found += n > 1;
    }
    assert_in_range(found, rounds / 20, rounds * 9 / 10); /* both answers are tested */
}

/* Of the cycles through a node it finds the shortest. */
static void test_short(void **state)
{
    struct cycle_edge edges[CYCLE_NODES + 1];
    int ret[CYCLE_NODES];
    for (int i = 0; i < CYCLE_NODES; i++)
        edges[i] = (struct cycle_edge){.from = i, .to = (i + 1) % CYCLE_NODES, .seen = 9};
    edges[CYCLE_NODES] = (struct cycle_edge){.from = 1, .to = 0, .seen = 9};
    assert_int_equal(cycle_find(edges, CYCLE_NODES, 1, ret), CYCLE_NODES);
    assert_int_equal(cycle_find(edges, CYCLE_NODES - 1, 1, ret), 0);
    assert_int_equal(cycle_find(edges, CYCLE_NODES + 1, 1, ret), 2);
    assert_int_equal(edges[ret[0]].to, edges[ret[1]].from);
}

/* The largest graph without a cycle, each edge seen at another time. */
static void test_large(void **state)
{
    static struct cycle_edge edges[CYCLE_EDGES];
    int ret[CYCLE_NODES];
    for (int i = 0; i < CYCLE_EDGES; i++) {
        int from = rand() % (CYCLE_NODES - 1);
        int to = from + 1 + rand() % (CYCLE_NODES - 1 - from);
        edges[i] = (struct cycle_edge){.from = from, .to = to, .seen = 5000 + (uint64_t)i};
    }
    assert_int_equal(cycle_find(edges, CYCLE_EDGES, 5000, ret), 0);
    edges[CYCLE_EDGES - 1] =
        (struct cycle_edge){.from = edges[0].to, .to = edges[0].from, .seen = 9000};
    assert_true(cycle_find(edges, CYCLE_EDGES, 5000, ret) > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_short),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests_name("negotiate/cycle", tests, NULL, NULL);
}
