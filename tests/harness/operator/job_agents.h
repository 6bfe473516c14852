/* SPDX-License-Identifier: Apache-2.0
 *
 * job_agents: a job coordinator without a network, whose pods and agents the test plays. Pod i has
 * the uid "p<i>" and the agent "p<i>.x", with one rank. Asserts that each call succeeds. For tests
 * with one thread and one job at a time.
 */
#ifndef HVD_TESTS_HARNESS_JOB_AGENTS_H
#define HVD_TESTS_HARNESS_JOB_AGENTS_H

#include <stdbool.h>

#include "operator/coordinator/plane_private.h"

#define JOB_AGENTS_TERM 3 /* of the coordinator */

/* An elastic job of one slot per worker. */
struct plane_job job_agents_job(int workers, int min, int max);
/* The strings are valid until the next call for the same i < 8. */
struct plane_pod job_agents_pod(int i, bool deleting, bool finished);

/* A job that waits for the agents of its pods; the caller destroys it. */
struct job_coordinator *job_agents_make(int workers, int min, int max);
/* The same, but all agents have joined, and their ranks train in epoch 1. */
struct job_coordinator *job_agents_train(int workers, int min, int max);

/* Posts the body, which it frees, as pod's agent. Returns the HTTP status; *ret_text, if not NULL,
 * is the response, or NULL, and the caller frees it. */
int job_agents_post(struct job_coordinator *c, int pod, const char *path, char *body,
                    char **ret_text);
/* The agent joins, and the coordinator has a tick. Returns the HTTP status. */
int job_agents_join(struct job_coordinator *c, int pod);
/* The agent's rank has started. */
void job_agents_started(struct job_coordinator *c, int pod);
/* The agent's rank has repaired the current epoch in so many ns. */
void job_agents_repaired(struct job_coordinator *c, int pod, uint64_t ns);
/* The agent's rank reports its card. */
void job_agents_card(struct job_coordinator *c, int pod, enum card_why why);

#endif
