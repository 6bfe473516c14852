/* SPDX-License-Identifier: Apache-2.0
 *
 * gang: back ends of gang scheduling, behind one table of functions. With "gates" the operator
 * admits a gang (queue.h) and creates its pods then. With the others a scheduler
 * admits the gang, by a PodGroup that is created before the pods.
 */
#ifndef HVD_OPERATOR_RECONCILE_GANG_H
#define HVD_OPERATOR_RECONCILE_GANG_H

#include <jansson.h>

#include "operator/objects/hvdjob.h"

struct gang_ops {
    enum gang_backend backend;
    const char *name;     /* as in spec.gang.backend */
    const char *group;    /* API group of its PodGroup, NULL: it has none */
    const char *versions; /* versions that this program can write, best first: "v1beta1 v1alpha2" */
    const char *
        condition; /* condition of the PodGroup whose message says why the gang waits; NULL: none */

    /* The spec of the PodGroup. NULL: no memory. */
    json_t *(*spec)(const struct hvdjob *job);
    /* Adds to a pod what makes it a member of the PodGroup. -ENOMEM. */
    int (*join)(const struct hvdjob *job, json_t *pod);
};

/* Returns the back end of a job: the one that it names, or for auto Volcano where the template
 * names its scheduler, native where the cluster serves it, else gates. served: the cluster's API
 * versions, "scheduling.k8s.io/v1alpha2 ...". ret_api (size bytes): apiVersion of the PodGroup, ""
 * for gates. NULL: the cluster does not serve it, err says what is missing. */
const struct gang_ops *gang_choose(const struct hvdjob *job, const char *served, char *ret_api,
                                   size_t size, struct err *err);

/* The job's PodGroup: has the job's name and is owned by it. NULL: no memory. */
json_t *gang_group(const struct gang_ops *ops, const struct hvdjob *job, const char *api);

/* The scheduler's message why the gang is pending, from the PodGroup's condition; NULL: it is not
 * pending. Borrowed from group. */
const char *gang_pending(const struct gang_ops *ops, json_t *group);

#endif
