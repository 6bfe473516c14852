/* SPDX-License-Identifier: Apache-2.0
 *
 * taints: what keeps pods off a node, and what a pod tolerates of it. Whoever has the struct owns
 * the arrays. Only what forbids counts: NoSchedule and NoExecute.
 */
#ifndef HVD_OPERATOR_OBJECTS_TAINTS_H
#define HVD_OPERATOR_OBJECTS_TAINTS_H

#include <jansson.h>
#include <stdbool.h>

#include "core/base/err.h"

/* A taint, or a toleration: an empty key tolerates all, an empty effect every effect. */
struct taint {
    char *key, *value; /* value: of a toleration NULL where any is tolerated (Exists) */
    char effect[20];
};

struct taints {
    int n;
    struct taint *all;
};

/* From a node's spec.taints and a pod's spec.tolerations; NULL is none. -EINVAL. */
int taints_parse(json_t *list, struct taints *ret, struct err *err);
int tolerations_parse(json_t *list, struct taints *ret, struct err *err);
void taints_fini(struct taints *t);

/* The first taint that is not tolerated, NULL: none. */
const struct taint *taints_refuse(const struct taints *taints, const struct taints *tolerated);

#endif
