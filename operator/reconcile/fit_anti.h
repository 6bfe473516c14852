/* SPDX-License-Identifier: Apache-2.0
 *
 * fit_anti: the nodes that the required anti-affinity of pods keeps a job's workers off. Pure,
 * except that fit_anti.nodes is computed when it is first needed.
 */
#ifndef HVD_OPERATOR_RECONCILE_FIT_ANTI_H
#define HVD_OPERATOR_RECONCILE_FIT_ANTI_H

#include "operator/objects/antiaffinity.h"
#include "operator/objects/node.h"
#include "operator/objects/podspec.h"

struct cluster;

/* A node with a pod that keeps other pods away from the node's domain. */
struct fit_keeper {
    int node;        /* index in the cluster */
    const char *pod; /* "namespace/name" */
};

/* A term, and all nodes with a pod that has it. */
struct fit_anti {
    const struct anti_term *term;
    const struct fit_keeper *keepers; /* [n] */
    int n;
    uint64_t *nodes; /* a bit for each node in a domain of a keeper; NULL: not computed. Whoever
                        made the struct frees it */
};

/* The labels of a namespace. */
struct fit_namespace {
    const char *name;
    struct labels labels;
};

/* The nodes that workers are kept off: a bit for each. Sets *ret to NULL if there is none; the
 * caller frees it. -ENOMEM. */
int fit_anti_nodes(const struct cluster *c, const struct podspec *spec, uint64_t **ret);

/* A pod that keeps workers off this node, "namespace/name"; NULL: none does. */
const char *fit_anti_keeper(const struct cluster *c, const struct podspec *spec, int node);

static inline bool fit_anti_has(const uint64_t *nodes, int node)
{
    return nodes && (nodes[node / 64] >> (node % 64) & 1);
}

#endif
