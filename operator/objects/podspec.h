/* SPDX-License-Identifier: Apache-2.0
 *
 * podspec: what a pod asks of a node: from the spec of a Pod, or from the template of a job, which
 * nobody has checked before. Whoever has it calls podspec_fini().
 */
#ifndef HVD_OPERATOR_OBJECTS_PODSPEC_H
#define HVD_OPERATOR_OBJECTS_PODSPEC_H

#include "operator/objects/labels.h"
#include "operator/objects/resources.h"
#include "operator/objects/taints.h"

struct podspec {
    struct resources requests; /* one pod is among them */
    struct labels selector;
    struct taints tolerated;
    char scheduler[64];   /* "": the default one */
    const char *unjudged; /* what else decides where it may run, NULL: nothing. Of the program */
};

/* -EINVAL with the field ("containers[0].resources"), -ENOMEM; *ret is untouched then. */
int podspec_parse(json_t *spec, struct resource_kinds *kinds, struct podspec *ret, struct err *err);
void podspec_fini(struct podspec *s);

/* Only the requests, for the cache of pods. Kinds without room are left out. */
int podspec_requests(json_t *spec, bool loose, struct resource_kinds *kinds, struct resources *ret,
                     struct err *err);

#endif
