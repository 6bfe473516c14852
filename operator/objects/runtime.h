/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime: what a RuntimeClass adds to each pod that names it: a projection. Pure; the caller of
 * runtime_parse() calls runtime_fini().
 */
#ifndef HVD_OPERATOR_OBJECTS_RUNTIME_H
#define HVD_OPERATOR_OBJECTS_RUNTIME_H

#include "operator/objects/labels.h"
#include "operator/objects/resources.h"
#include "operator/objects/taints.h"

struct runtime {
    struct resources overhead; /* overhead.podFixed */
    char *names;               /* of its other kinds, for resources_name(); NULL: none */
    struct labels selector;    /* scheduling.nodeSelector */
    struct taints tolerated;   /* scheduling.tolerations */
};

/* -EINVAL, -E2BIG, -ENOMEM. *ret is untouched on failure. */
int runtime_parse(json_t *j, struct runtime *ret, struct err *err);
void runtime_fini(struct runtime *r);

#endif
