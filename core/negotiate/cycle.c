/* SPDX-License-Identifier: Apache-2.0
 *
 * cycle: see cycle.h.
 *
 * The earliest time at which an edge of a cycle was seen is a time at which all of them existed, if
 * there is one. So each edge's time is tried: a depth-first search finds a node on a cycle, a
 * breadth-first search the shortest cycle through it. Each takes as many steps as the graph has
 * nodes and edges.
 */
#include "core/negotiate/cycle.h"

#include <stdbool.h>
#include <string.h>

struct graph {
    const struct cycle_edge *edges;
    int first[CYCLE_NODES]; /* edge from the node; -1: there is none */
    int next[CYCLE_EDGES];  /* of the same node */
    uint64_t at, spread;
};

static void build(struct graph *g, int n)
{
    memset(g->first, -1, sizeof(g->first));
    for (int i = n - 1; i >= 0; i--) {
        g->next[i] = g->first[g->edges[i].from];
        g->first[g->edges[i].from] = i;
    }
}

/* The first edge of the list that existed at the time; -1: there is none. */
static int existing(const struct graph *g, int i)
{
    for (; i >= 0; i = g->next[i]) {
        const struct cycle_edge *e = &g->edges[i];
        if (e->since <= g->at && e->seen >= g->at && e->seen - g->at < g->spread)
            return i;
    }
    return -1;
}

enum visit { NEW, ON_PATH, LEFT };

/* A node on a cycle that can be reached from the root; -1: there is none. */
static int descend(const struct graph *g, int root, enum visit *visits, int *at)
{
    int path[CYCLE_NODES], depth = 1;
    path[0] = root;
    visits[root] = ON_PATH;
    at[root] = existing(g, g->first[root]);
    while (depth > 0) {
        int node = path[depth - 1], edge = at[node];
        if (edge < 0) {
            visits[node] = LEFT;
            depth--;
            continue;
        }
        at[node] = existing(g, g->next[edge]);
        int to = g->edges[edge].to;
        if (visits[to] == ON_PATH)
            return to;
        if (visits[to] == NEW) {
            visits[to] = ON_PATH;
            at[to] = existing(g, g->first[to]);
            path[depth++] = to;
        }
    }
    return -1;
}

static int node_on_cycle(const struct graph *g)
{
    enum visit visits[CYCLE_NODES] = {NEW};
    int at[CYCLE_NODES], found = -1;
    for (int node = 0; node < CYCLE_NODES && found < 0; node++)
        if (visits[node] == NEW && g->first[node] >= 0)
            found = descend(g, node, visits, at);
    return found;
}

/* The shortest cycle through a node that is on one. */
static int shortest(const struct graph *g, int node, int *ret)
{
    int by[CYCLE_NODES], line[CYCLE_NODES], n = 0, last = -1;
    memset(by, -1, sizeof(by));
    line[n++] = node;
    for (int i = 0; i < n && last < 0; i++)
        for (int k = existing(g, g->first[line[i]]); k >= 0; k = existing(g, g->next[k])) {
            int to = g->edges[k].to;
            if (to == node) {
                last = k;
                break;
            }
            if (by[to] < 0) {
                by[to] = k;
                line[n++] = to;
            }
        }
    int length = 0;
    for (int k = last; k >= 0; k = by[g->edges[k].from])
        length++;
    for (int k = last, i = length; k >= 0; k = by[g->edges[k].from])
        ret[--i] = k;
    return length;
}

int cycle_find(const struct cycle_edge *edges, int n, uint64_t spread, int *ret)
{
    struct graph g = {.edges = edges, .spread = spread};
    build(&g, n);
    for (int i = 0; i < n; i++) {
        g.at = edges[i].seen;
        int node = node_on_cycle(&g);
        if (node >= 0)
            return shortest(&g, node, ret);
    }
    return 0;
}
