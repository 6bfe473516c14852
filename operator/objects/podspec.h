/* SPDX-License-Identifier: Apache-2.0
 *
 * podspec: what a pod requires of a node, from the spec of a Pod or from a job's template, which
 * nobody has validated. The caller of podspec_parse() calls podspec_fini().
 */
#ifndef HVD_OPERATOR_OBJECTS_PODSPEC_H
#define HVD_OPERATOR_OBJECTS_PODSPEC_H

#include "operator/objects/labels.h"
#include "operator/objects/resources.h"
#include "operator/objects/taints.h"

struct podspec {
    struct resources requests; /* includes 1 of the resource "pods" */
    struct labels selector;
    struct taints tolerated;
    char scheduler[64]; /* "": the default one */
    /* A field that constrains placement and that fit.h ignores, such as "affinity"; NULL: none. A
     * string constant. */
    const char *unjudged;
};

/* -EINVAL: err names the field ("containers[0].resources"). -ENOSPC: too many kinds of resources.
 * -ENOMEM. *ret is untouched on failure. */
int podspec_parse(json_t *spec, struct resource_kinds *kinds, struct podspec *ret, struct err *err);
void podspec_fini(struct podspec *s);

/* Parses only the requests, for the cache of pods. Resource kinds beyond RESOURCES_MAX are ignored
 * if loose, else -ENOSPC. */
int podspec_requests(json_t *spec, bool loose, struct resource_kinds *kinds, struct resources *ret,
                     struct err *err);

#endif
