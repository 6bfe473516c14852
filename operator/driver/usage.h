/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: the sum of the requests of the pods bound to each node. The driver's caches add and remove
 * pods; driver_queue.c reads it to find out which gangs fit.
 */
#ifndef HVD_OPERATOR_DRIVER_USAGE_H
#define HVD_OPERATOR_DRIVER_USAGE_H

#include "operator/api/store.h"
#include "operator/objects/resources.h"

struct usage {
    struct store nodes;
};

/* -ENOMEM: nothing is added. The caller removes the same amounts when the pod leaves the node. */
int usage_add(struct usage *u, const char *node, const struct resources *r);
void usage_remove(struct usage *u, const char *node, const struct resources *r);

/* All zero for a node to which no pod is bound. */
void usage_get(const struct usage *u, const char *node, struct resources *ret);

void usage_fini(struct usage *u);

#endif
