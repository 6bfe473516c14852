/* SPDX-License-Identifier: Apache-2.0
 *
 * reap: children that nobody else looks after: this process is their subreaper. Called by the agent
 * and by hvdrun, at the end of their lives.
 */
#ifndef HVD_AGENT_REAP_H
#define HVD_AGENT_REAP_H

/* From now on orphaned descendants become this process's children. */
void reap_adopt(void);

/* Ends every child this process has, and the children they leave to it: SIGTERM, SIGKILL after
 * grace_ms. Blocks at most grace_ms and two seconds. How many had to be ended. */
int reap_rest(int grace_ms);

#endif
