/* SPDX-License-Identifier: Apache-2.0
 *
 * demand: what one worker of a job demands of nodes and quotas, and its priority: from the pod that
 * the API server returned for a dry run, with the server's defaults (LimitRange, RuntimeClass,
 * PriorityClass, webhooks), or else from the job's template. Pure. The caller of demand_parse()
 * calls demand_fini().
 */
#ifndef HVD_OPERATOR_OBJECTS_DEMAND_H
#define HVD_OPERATOR_OBJECTS_DEMAND_H

#include "operator/objects/podspec.h"

struct demand {
    struct podspec spec;
    struct resources limits;
    int priority;  /* of the pod's PriorityClass; 0: none */
    bool preempts; /* its preemptionPolicy is not Never */
    char priority_class[64];
    bool best_effort; /* QoS class: no request and no limit of cpu or memory */
    bool terminating; /* spec.activeDeadlineSeconds is set */
};

/* spec: of a Pod. like: the template's podspec, which has the pod's namespace and labels; NULL:
 * none are known. Errors as for podspec_parse(). */
int demand_parse(json_t *spec, const struct podspec *like, struct demand *ret, struct err *err);
void demand_fini(struct demand *d);

#endif
