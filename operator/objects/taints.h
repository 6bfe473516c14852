/* SPDX-License-Identifier: Apache-2.0
 *
 * taints: the taints of a node and the tolerations of a pod. Only the effects NoSchedule and
 * NoExecute count, because PreferNoSchedule does not forbid anything. The struct owns its array.
 */
#ifndef HVD_OPERATOR_OBJECTS_TAINTS_H
#define HVD_OPERATOR_OBJECTS_TAINTS_H

#include <jansson.h>
#include <stdbool.h>

#include "core/base/err.h"

/* A taint or a toleration. A toleration with an empty key and value NULL tolerates all taints, one
 * with an empty effect every effect. */
struct taint {
    char *key, *value; /* value NULL in a toleration: any value (operator Exists) */
    char effect[20];
};

struct taints {
    int n;
    struct taint *all;
};

/* From a node's spec.taints or a pod's spec.tolerations; list NULL: none. -EINVAL, -ENOMEM. */
int taints_parse(json_t *list, struct taints *ret, struct err *err);
int tolerations_parse(json_t *list, struct taints *ret, struct err *err);
void taints_fini(struct taints *t);

/* Adds copies of all of more. -ENOMEM: t is untouched. */
int taints_append(struct taints *t, const struct taints *more);

/* The first taint that is not tolerated; NULL: all are. */
const struct taint *taints_refuse(const struct taints *taints, const struct taints *tolerated);

#endif
