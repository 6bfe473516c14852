/* SPDX-License-Identifier: Apache-2.0
 *
 * ask: sends one request to a job's coordinator over its private socket and returns the answer, for
 * hvdrun's commands. Blocks; one thread.
 */
#ifndef HVD_AGENT_ASK_H
#define HVD_AGENT_ASK_H

#include "agent/jobs.h"
#include "core/json/json.h"

/* Sends a POST with a JSON body, or a GET if body is NULL. *ret is the answer, a reference that the
 * caller owns, or NULL for an empty answer. err has a message for the user: -EACCES: wrong token;
 * -EINVAL: the coordinator refused, with its reason; -ECONNREFUSED: nobody listens; -ETIMEDOUT. */
int ask(const struct job_entry *job, const char *path, const char *body, int timeout_ms,
        json_t **ret, struct err *err);

#endif
