/* SPDX-License-Identifier: Apache-2.0
 *
 * bodies: request bodies for the driver's writes. Pure. Each may be sent twice without harm: a
 * status has the resourceVersion at which the job was read, a delete has the uid.
 */
#ifndef HVD_OPERATOR_DRIVER_BODIES_H
#define HVD_OPERATOR_DRIVER_BODIES_H

#include "operator/objects/hvdjob.h"
#include "operator/reconcile/drain.h"
#include "operator/reconcile/injection.h"
#include "operator/reconcile/gang.h"

/* The caller frees the text with free(). NULL: no memory. */
char *bodies_status(const struct hvdjob *job, const struct hvdjob_status *status);
/* injection NULL: the pod is as its template says, without an agent. by_key: the agent's token
 * comes from the Secret of bodies_key(). drains: nodes that the pod avoids; NULL: none. */
char *bodies_pod(const struct hvdjob *job, const struct gang_ops *gang,
                 const struct injection *injection, const struct drains *drains, bool by_key,
                 int worker, int attempt);

/* The Secret with the job's key. */
char *bodies_key(const struct hvdjob *job, const char *key);
char *bodies_group(const struct hvdjob *job, const struct gang_ops *gang, const char *api);

/* DeleteOptions with the uid as precondition and background propagation. */
char *bodies_delete(const char *uid);

/* A merge patch that sets or removes the leader's label; with a version it fails if the pod has
 * another resourceVersion. */
char *bodies_leader(bool leads, const char *version);

#endif
