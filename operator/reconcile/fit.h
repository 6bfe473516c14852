/* SPDX-License-Identifier: Apache-2.0
 *
 * fit: how many workers of one job fit on the nodes, and what is missing if they do not. Pure.
 *
 * Considers readiness, cordons, taints, nodeSelector, requests, host ports, and the required
 * anti-affinity of pods that have a node. Other constraints (podspec.unjudged: affinity of the
 * job's own template, volumes and so on) are ignored, so a gang with one of them may not fit
 * although fit_count() says so.
 */
#ifndef HVD_OPERATOR_RECONCILE_FIT_H
#define HVD_OPERATOR_RECONCILE_FIT_H

#include "operator/objects/node.h"
#include "operator/objects/podspec.h"
#include "operator/reconcile/fit_anti.h"

/* Nodes and what is used on each: by bound pods, and by reservations for admitted gangs whose pods
 * are not bound yet. The caller owns the arrays and their contents. */
struct cluster {
    int n;
    const struct node *nodes;
    /* [n]; with each other kind that the node's allocatable has, else reservations of that kind are
     * not counted (resources_zero_like()). */
    struct resources *used;
    struct hostports *ports; /* [n] in use; NULL: none, and none are reserved */
    struct fit_anti *anti;   /* [nanti] */
    int nanti;
    const struct fit_namespace
        *namespaces; /* [nnamespaces], by name; of others no label is known */
    int nnamespaces;
};

/* How many workers fit beside what is used, at most limit. */
int fit_count(const struct cluster *c, const struct podspec *spec, int limit);

/* How many would fit if the cluster were empty. */
int fit_count_empty(const struct cluster *c, const struct podspec *spec, int limit);

/* Places up to n workers, without reserving for them: counts[i] is how many node i gets. Returns
 * how many were placed. */
int fit_plan(const struct cluster *c, const struct podspec *spec, int n, int *counts);

/* Reserves resources and host ports on one node for n workers, whether they fit there or not.
 * Without memory for the ports all of the node is reserved. A negative n gives back the resources
 * of so many workers, and not their ports. */
void fit_place(struct cluster *c, int node, const struct podspec *spec, int n);

/* Writes, in the same words, why want workers would not fit if the cluster were empty. False: they
 * would. */
bool fit_never(const struct cluster *c, const struct podspec *spec, int want, char *dst,
               size_t size);

/* Writes why fewer than want workers fit: "2 of 4 workers fit now; a worker asks for ...", then for
 * each node what is missing, nodes that lack only resources first. At most size bytes. */
void fit_explain(const struct cluster *c, const struct podspec *spec, int want, char *dst,
                 size_t size);

#endif
