/* SPDX-License-Identifier: Apache-2.0
 *
 * ahead: what hvdrun and hvd-agent need to serve hundreds of ranks: a processor soon, and enough
 * descriptors. Called at their start, on the main thread. Processes that they start do not inherit
 * the former; a rank gets the limit of descriptors back that the user had (spawn.c).
 */
#ifndef HVD_AGENT_AHEAD_H
#define HVD_AGENT_AHEAD_H

void ahead_of_ranks(void);

/* Leaves the session of the ranks that run by now. Linux shares the processors between sessions
 * first (autogroup): in the ranks' session the agent waits behind each of them, whatever its nice
 * value. With 512 ranks on two busy cores an agent that needed 0.6 s of processor waited 12 s for
 * it there, and 5 s in a session of its own. Nothing happens where this process leads its session.
 */
void ahead_of_group(void);

#endif
