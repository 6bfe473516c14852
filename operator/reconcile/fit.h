/* SPDX-License-Identifier: Apache-2.0
 *
 * fit: how many equal workers the nodes have room for, and what is missing where they have not.
 * Pure.
 *
 * What decides: readiness, cordons, taints, nodeSelector and requests. What else a pod may ask for
 * (podspec.unjudged) is not looked at: a gang with that may not fit although it seems to.
 */
#ifndef HVD_OPERATOR_RECONCILE_FIT_H
#define HVD_OPERATOR_RECONCILE_FIT_H

#include "operator/objects/node.h"
#include "operator/objects/podspec.h"

/* Nodes and what is used on each: by pods that are there, and by gangs that were let go and are not
 * there yet. The arrays are the caller's. */
struct cluster {
    const struct resource_kinds *kinds;
    int n;
    const struct node *nodes;
    struct resources *used; /* [n] */
};

/* So many workers fit, at most limit. */
int fit_count(const struct cluster *c, const struct podspec *spec, int limit);

/* The same if nothing were running. */
int fit_count_empty(const struct cluster *c, const struct podspec *spec, int limit);

/* Room for n workers is used from now on, as far as there is any. */
void fit_reserve(struct cluster *c, const struct podspec *spec, int n);

/* "2 of 4 workers fit; a worker asks for ...": why not want of them, for people, at most size
 * bytes: what is missing for each resource and node, the most promising nodes first. */
void fit_explain(const struct cluster *c, const struct podspec *spec, int want, char *dst,
                 size_t size);

#endif
