/* SPDX-License-Identifier: Apache-2.0
 *
 * keeper: the parent process of an agent that hvdrun has launched. If the agent is killed (out of
 * memory, kill -9), its ranks die with it (PR_SET_PDEATHSIG), but processes that the ranks started
 * do not. The keeper, a subreaper, becomes their parent and ends them. It uses so little memory
 * that the kernel's OOM killer has no reason to choose it.
 */
#ifndef HVD_AGENT_KEEPER_H
#define HVD_AGENT_KEEPER_H

#include <stdbool.h>

#include "core/base/err.h"

/* Forks. Call it before the agent opens a descriptor.
 *
 * The child becomes the agent: returns 0. The parent becomes the keeper and does not return: it
 * forwards signals to the agent, waits for it, and exits with its status. If fork(2) fails, returns
 * -errno. If the keeper is killed, the agent gets a signal: SIGKILL if local (hvdrun then ends the
 * ranks), else SIGINT (the agent ends its ranks). */
int keeper_fork(bool local, struct err *err);

/* The pid by which hvdrun knows this agent: its keeper's, which leads the ranks' session, or
 * without a keeper the agent's own. */
int keeper_pid(void);

#endif
