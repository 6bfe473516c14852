/* SPDX-License-Identifier: Apache-2.0
 *
 * priority: settings with which hvdrun and hvd-agent serve hundreds of ranks: sooner scheduling and
 * a higher limit of descriptors. Call at the start, on the main thread. Children do not inherit the
 * scheduling; a rank gets the user's limit of descriptors back (spawn.c).
 */
#ifndef HVD_AGENT_PRIORITY_H
#define HVD_AGENT_PRIORITY_H

void priority_raise(void);

/* Moves this process to a session of its own. Linux shares processors between sessions first
 * (autogroup): inside the ranks' session the agent waits behind every rank, whatever its nice
 * value. Measured with 512 ranks on two busy cores: an agent that needed 0.6 s of processor time
 * waited 12 s for it there, and 5 s in a session of its own. No effect if this process already
 * leads its session. */
void priority_new_session(void);

#endif
