/* SPDX-License-Identifier: Apache-2.0
 *
 * ask: one request to a job's coordinator over its private socket, and the answer, for hvdrun's
 * commands. Blocks; one thread.
 */
#ifndef HVD_AGENT_ASK_H
#define HVD_AGENT_ASK_H

#include "agent/jobs.h"
#include "core/json/json.h"

/* POST with a JSON body, GET without (NULL). *ret is what it answered, the caller's reference, NULL
 * when that is nothing. err says what went wrong in words for a user: -EACCES the token is not
 * taken, -EINVAL it refuses with a reason (its own words), -ECONNREFUSED nobody listens any more,
 * -ETIMEDOUT. */
int ask(const struct job_entry *job, const char *path, const char *body, int timeout_ms,
        json_t **ret, struct err *err);

#endif
