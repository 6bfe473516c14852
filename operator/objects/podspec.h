/* SPDX-License-Identifier: Apache-2.0
 *
 * podspec: what a pod requires of a node, from the spec of a Pod or from a job's template, which
 * nobody has validated. The caller of podspec_parse() calls podspec_fini().
 */
#ifndef HVD_OPERATOR_OBJECTS_PODSPEC_H
#define HVD_OPERATOR_OBJECTS_PODSPEC_H

#include "operator/objects/hostports.h"
#include "operator/objects/labels.h"
#include "operator/objects/resources.h"
#include "operator/objects/taints.h"

struct podspec {
    struct resources requests; /* includes 1 of the resource "pods" */
    char *names;               /* of the other kinds in requests, for resources_name() */
    struct hostports ports;
    struct labels selector;
    struct taints tolerated;
    char scheduler[64]; /* "": the default one */
    /* Namespace and labels that the workers' pods have: other pods' anti-affinity may select them.
     * Not from the spec: podspec_parse() does not set these two fields. */
    char *namespace_;
    struct labels labels;
    /* A field that constrains placement and that fit.h ignores, such as "affinity"; NULL: none. A
     * string constant. */
    const char *unjudged;
};

/* -EINVAL: err names the field ("containers[0].resources"). -E2BIG: more than RESOURCES_OTHERS_MAX
 * kinds of resources, or HOSTPORTS_MAX ports. -ENOMEM. *ret is untouched on failure. */
int podspec_parse(json_t *spec, struct podspec *ret, struct err *err);
void podspec_fini(struct podspec *s);

/* Parses only the requests, 1 of "pods" among them: what kube-scheduler counts (PodRequests in
 * k8s.io/component-helpers/resource). status: of an existing pod, whose containers may be resized
 * in place; NULL: a new pod. names and the return values: as of resources_parse(). The caller
 * passes an empty ret. */
int podspec_requests(json_t *spec, json_t *status, struct buf *names, struct resources *ret,
                     struct err *err);

#endif
