/* SPDX-License-Identifier: Apache-2.0
 *
 * gang: the ways to have all workers of a job scheduled or none, behind one table of functions.
 * With *gates* we decide when a gang goes (queue.h); with the others the scheduler does, by a
 * PodGroup that is there before the pods.
 */
#ifndef HVD_OPERATOR_RECONCILE_GANG_H
#define HVD_OPERATOR_RECONCILE_GANG_H

#include <jansson.h>

#include "operator/objects/hvdjob.h"

struct gang_ops {
    enum gang_backend backend;
    const char *name;     /* as in spec.gang.backend */
    const char *group;    /* API group of its PodGroup, NULL: it has none */
    const char *versions; /* of that group which we can write, the best first: "v1beta1 v1alpha2" */
    const char *condition; /* of the PodGroup, which says why it waits; NULL: none */

    /* The spec of the PodGroup. NULL: no memory. */
    json_t *(*spec)(const struct hvdjob *job);
    /* Makes a pod one of the gang. -ENOMEM. */
    int (*join)(const struct hvdjob *job, json_t *pod);
};

/* Which API versions the server has: "scheduling.k8s.io/v1alpha2 ...", blanks between them. The
 * back end that the job asks for, or the one for auto: Volcano where the template names its
 * scheduler, native where it is served, else gates. NULL: what it asks for is not there, err says
 * what is missing. *ret_api: of the PodGroup, "" for gates; size bytes. */
const struct gang_ops *gang_choose(const struct hvdjob *job, const char *served, char *ret_api,
                                   size_t size, struct err *err);

/* The PodGroup, owned by the job and named like it. NULL: no memory. */
json_t *gang_group(const struct gang_ops *ops, const struct hvdjob *job, const char *api);

/* Why the scheduler lets it wait, as its PodGroup says; NULL: it does not. Borrowed from group. */
const char *gang_waits(const struct gang_ops *ops, json_t *group);

#endif
