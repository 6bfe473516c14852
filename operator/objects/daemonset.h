/* SPDX-License-Identifier: Apache-2.0
 *
 * daemonset: a projection of a DaemonSet: on which nodes its pods run, and what one takes there.
 * Pure; the caller of daemonset_parse() calls daemonset_fini().
 */
#ifndef HVD_OPERATOR_OBJECTS_DAEMONSET_H
#define HVD_OPERATOR_OBJECTS_DAEMONSET_H

#include "operator/objects/nodeaffinity.h"
#include "operator/objects/pod.h"

struct daemonset {
    char uid[POD_UID_MAX];
    int64_t generation; /* changes with the spec and not with the status */
    bool deleting;
    struct labels selector; /* nodeSelector */
    struct nodeaffinity affinity;
    struct taints tolerated; /* with those tolerations that the DaemonSet controller adds */
    /* From the template; pod.node: its nodeName. What LimitRanges, the RuntimeClass and webhooks
     * add to its pods is not known. */
    struct pod pod;
};

/* -EINVAL, -ENOMEM. A pod that is too large to be judged (see pod_parse()) is read as one without
 * requests. *ret is untouched on failure. */
int daemonset_parse(json_t *j, struct daemonset *ret, struct err *err);
void daemonset_fini(struct daemonset *d);

/* Does the DaemonSet controller keep a pod on this node, and is the pod no larger than the empty
 * node? The controller also creates one that is larger; that one is never bound. */
bool daemonset_runs_on(const struct daemonset *d, const struct node *node);

#endif
