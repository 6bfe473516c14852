/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: what is used on each node by the pods that are bound there, kept up as pods come and go.
 * Called by the driver's caches; read when it is asked which gangs fit.
 */
#ifndef HVD_OPERATOR_DRIVER_USAGE_H
#define HVD_OPERATOR_DRIVER_USAGE_H

#include "operator/api/store.h"
#include "operator/objects/resources.h"

struct usage {
    struct store nodes;
};

/* -ENOMEM. What was added is to be taken off later. */
int usage_add(struct usage *u, const char *node, const struct resources *r);
void usage_remove(struct usage *u, const char *node, const struct resources *r);

/* Nothing is used on a node that nobody is bound to. */
void usage_get(const struct usage *u, const char *node, struct resources *ret);

void usage_fini(struct usage *u);

#endif
