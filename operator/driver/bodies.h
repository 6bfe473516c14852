/* SPDX-License-Identifier: Apache-2.0
 *
 * bodies: what the driver sends to the API server for each action, as text. Pure. All of them may
 * be sent twice: a status has the version it was read at, a delete and a patch the uid.
 */
#ifndef HVD_OPERATOR_DRIVER_BODIES_H
#define HVD_OPERATOR_DRIVER_BODIES_H

#include "operator/objects/hvdjob.h"
#include "operator/reconcile/equipment.h"
#include "operator/reconcile/gang.h"

/* free() them; NULL: no memory. */
char *bodies_status(const struct hvdjob *job, const struct hvdjob_status *status);
/* equipment: NULL: the pod is as its template says, without an agent. */
char *bodies_pod(const struct hvdjob *job, const struct gang_ops *gang,
                 const struct equipment *equipment, bool by_key, int worker, int attempt,
                 bool gated);

/* by_key: the agent's token is the job's key, of the Secret that this is. */
char *bodies_key(const struct hvdjob *job, const char *key);
char *bodies_group(const struct hvdjob *job, const struct gang_ops *gang, const char *api);

/* A strategic patch that takes our gate away and leaves others'. */
char *bodies_lift(const char *uid);

/* What is owned goes in the background. */
char *bodies_delete(const char *uid);

/* Its label that says that it leads, or none. A merge patch. */
char *bodies_leader(bool leads);

#endif
