/* SPDX-License-Identifier: Apache-2.0
 *
 * cycle: finds a cycle in a small directed graph of which each edge was seen for some time. Pure.
 */
#ifndef HVD_NEGOTIATE_CYCLE_H
#define HVD_NEGOTIATE_CYCLE_H

#include <stdint.h>

enum {
    CYCLE_NODES = 256,  /* nodes are numbered 0 ... CYCLE_NODES - 1 */
    CYCLE_EDGES = 1024, /* most edges of a graph */
};

struct cycle_edge {
    int from, to;
    uint64_t since, seen; /* the edge existed from `since` to `seen`; nothing is known later */
};

/* Finds edges that form a cycle without a node twice, all of which existed at one time, and were
 * seen within less than `spread` after that time. n: at most CYCLE_EDGES. Returns the number of
 * edges in the cycle; ret ([CYCLE_NODES]) gets their indices in `edges`, in the order of the cycle.
 * 0: there is no such cycle. Of the cycles through one node it finds a shortest one. */
int cycle_find(const struct cycle_edge *edges, int n, uint64_t spread, int *ret);

#endif
