/* SPDX-License-Identifier: Apache-2.0
 *
 * reap: processes that nobody else looks after: children, whose subreaper this process is, at the
 * end of its life (the agent's, hvdrun's); and those of an agent that was killed.
 */
#ifndef HVD_AGENT_REAP_H
#define HVD_AGENT_REAP_H

/* From now on orphaned descendants become this process's children. */
void reap_adopt(void);

/* Ends every child this process has, and the children they leave to it: SIGTERM, SIGKILL after
 * grace_ms. Blocks at most grace_ms and two seconds. How many had to be ended. */
int reap_rest(int grace_ms);

/* Kills what is left of the session of a process that has ended just now: later its number may be
 * another one's. */
void reap_session(int sid);

#endif
