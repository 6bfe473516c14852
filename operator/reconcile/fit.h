/* SPDX-License-Identifier: Apache-2.0
 *
 * fit: how many workers of one job fit on the nodes, and what is missing if they do not. Pure.
 *
 * Considers readiness, cordons, taints, nodeSelector and requests. Other constraints
 * (podspec.unjudged: affinity, volumes and so on) are ignored, so a gang with one of them may not
 * fit although fit_count() says so.
 */
#ifndef HVD_OPERATOR_RECONCILE_FIT_H
#define HVD_OPERATOR_RECONCILE_FIT_H

#include "operator/objects/node.h"
#include "operator/objects/podspec.h"

/* Nodes and what is used on each: requests of bound pods, and reservations for admitted gangs whose
 * pods are not bound yet. The caller owns the arrays. */
struct cluster {
    const struct resource_kinds *kinds;
    int n;
    const struct node *nodes;
    struct resources *used; /* [n] */
};

/* How many workers fit beside what is used, at most limit. */
int fit_count(const struct cluster *c, const struct podspec *spec, int limit);

/* How many would fit if the cluster were empty. */
int fit_count_empty(const struct cluster *c, const struct podspec *spec, int limit);

/* Reserves resources for n workers, or for as many as fit. */
void fit_reserve(struct cluster *c, const struct podspec *spec, int n);

/* The same for one node. fit_place() also reserves there where the workers do not fit now. */
int fit_count_on(const struct cluster *c, int node, const struct podspec *spec, int limit);
void fit_place(struct cluster *c, int node, const struct podspec *spec, int n);
void fit_release(struct cluster *c, int node, const struct podspec *spec, int n);

/* Writes why fewer than want workers fit: "2 of 4 workers fit now; a worker asks for ...", then for
 * each node what is missing, nodes that lack only resources first. At most size bytes. */
void fit_explain(const struct cluster *c, const struct podspec *spec, int want, char *dst,
                 size_t size);

#endif
