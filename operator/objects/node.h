/* SPDX-License-Identifier: Apache-2.0
 *
 * node: a projection of a Node: what decides whether workers fit on it. The caller of node_parse()
 * calls node_fini().
 */
#ifndef HVD_OPERATOR_OBJECTS_NODE_H
#define HVD_OPERATOR_OBJECTS_NODE_H

#include <stdint.h>

#include "operator/objects/labels.h"
#include "operator/objects/resources.h"
#include "operator/objects/taints.h"

struct node {
    char *name;
    int64_t created; /* MOMENT_NONE: not known */
    bool ready, cordoned;
    struct labels labels;
    struct taints taints;
    struct resources allocatable;
};

/* -EINVAL: err names the field. -ENOMEM. *ret is untouched on failure. */
int node_parse(json_t *j, struct node *ret, struct err *err);
void node_fini(struct node *n);

#endif
