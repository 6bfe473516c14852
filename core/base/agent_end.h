/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_end: why an agent in a pod has ended without a failed rank, as the agent tells the operator
 * in its container's termination message: "hvd-agent: operator-away: the operator has not answered
 * for 60 s". The word counts and not the exit code, which a program may choose, too. Pure.
 */
#ifndef HVD_BASE_AGENT_END_H
#define HVD_BASE_AGENT_END_H

#include <stdbool.h>
#include <stddef.h>

enum agent_end {
    AGENT_END_NONE,     /* not an agent's message */
    AGENT_END_AWAY,     /* the operator did not answer for longer than the job allows */
    AGENT_END_REFUSED,  /* the operator does not know the agent, or refused one that had joined */
    AGENT_END_SETTING,  /* a setting of the pod cannot work, such as its token */
    AGENT_END_INTERNAL, /* the agent could not go on, for example for lack of memory */
    AGENT_ENDS,
};

/* Writes the termination message to dst. end is not AGENT_END_NONE. */
void agent_end_write(enum agent_end end, const char *text, char *dst, size_t size);

/* Returns what a container's termination message says; AGENT_END_NONE also for an unknown word. */
enum agent_end agent_end_read(const char *message);

/* Returns whether the end is a disruption of the pod, so that no failure of the job is counted. */
bool agent_end_is_disruption(enum agent_end end);

#endif
