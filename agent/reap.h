/* SPDX-License-Identifier: Apache-2.0
 *
 * reap: ends processes that nobody else waits for: orphaned descendants of this subreaper (the
 * agent or hvdrun) at the end of its life, and those of an agent that was killed.
 */
#ifndef HVD_AGENT_REAP_H
#define HVD_AGENT_REAP_H

/* Makes this process a subreaper: orphaned descendants become its children. */
void reap_adopt(void);

/* Ends all children of this process, and children that they leave to it: SIGTERM, after grace_ms
 * SIGKILL. Blocks at most grace_ms and two seconds. Returns how many children it had to end. */
int reap_rest(int grace_ms);

/* Kills all processes of the session that process sid led. Call right after that process has ended:
 * later its number may be reused. */
void reap_session(int sid);

#endif
