/* SPDX-License-Identifier: Apache-2.0
 *
 * nodeaffinity: the nodes that the required node affinity of a pod selects. Pure; the caller of
 * nodeaffinity_parse() calls nodeaffinity_fini().
 */
#ifndef HVD_OPERATOR_OBJECTS_NODEAFFINITY_H
#define HVD_OPERATOR_OBJECTS_NODEAFFINITY_H

#include "operator/objects/node.h"
#include "operator/objects/selector.h"

/* A node matches a term if it matches both selectors. */
struct node_term {
    struct selector labels, fields;
};

struct nodeaffinity {
    bool required; /* false: every node matches */
    int n;
    struct node_term *any; /* [n], one of which must match */
};

/* spec: of a pod. -ENOMEM. */
int nodeaffinity_parse(json_t *spec, struct nodeaffinity *ret);
void nodeaffinity_fini(struct nodeaffinity *a);

bool nodeaffinity_matches(const struct nodeaffinity *a, const struct node *node);

#endif
