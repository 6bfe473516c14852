/* SPDX-License-Identifier: Apache-2.0
 *
 * members: the order of ranks for rings over all ranks: by host, then by local rank. Neighbours are
 * on one host where possible, so that data enters each host only once.
 */
#ifndef HVD_COLL_MEMBERS_H
#define HVD_COLL_MEMBERS_H

#include "core/transport/mesh.h"

struct members {
    int n, place; /* place: this rank's index */
    int *ranks;   /* [n] */
};

int members_init(struct members *m, const struct mesh *mesh);
void members_fini(struct members *m);

#endif
