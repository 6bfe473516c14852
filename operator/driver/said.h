/* SPDX-License-Identifier: Apache-2.0
 *
 * said: Events about jobs (events.k8s.io/v1), as kubectl describe shows them. What is said again
 * within ten minutes is counted in the Event that is there. Nobody waits for them, and one that is
 * not taken is lost: what matters stands in the job's status.
 */
#ifndef HVD_OPERATOR_DRIVER_SAID_H
#define HVD_OPERATOR_DRIVER_SAID_H

#include <stdbool.h>

#include "operator/api/api.h"
#include "operator/objects/hvdjob.h"

struct said;

/* instance: who says it, copied. */
int said_open(struct said **ret, struct api *api, const char *instance, struct err *err);

/* note: cut after 1,024 bytes. */
void said_event(struct said *s, const struct hvdjob *job, bool warning, const char *reason,
                const char *note);

/* Nothing more is written: those under way are dropped. */
void said_stop(struct said *s);

/* NULL is fine. */
void said_close(struct said *s);

#endif
