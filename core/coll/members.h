/* SPDX-License-Identifier: Apache-2.0
 *
 * members: all ranks in an order in which neighbours are on one host where possible: by host, then
 * by local rank. Rings over all ranks go this way round, so that a host is entered once.
 */
#ifndef HVD_COLL_MEMBERS_H
#define HVD_COLL_MEMBERS_H

#include "core/transport/mesh.h"

struct members {
    int n, place; /* this rank's place */
    int *ranks;   /* [n] */
};

int members_init(struct members *m, const struct mesh *mesh);
void members_fini(struct members *m);

#endif
