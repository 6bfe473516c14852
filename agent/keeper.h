/* SPDX-License-Identifier: Apache-2.0
 *
 * keeper: the parent process of an agent that hvdrun has launched. If the agent is killed (out of
 * memory, kill -9), its ranks die with it (PR_SET_PDEATHSIG), but processes that the ranks have
 * started do not. They become children of the keeper, a subreaper, which ends them. It uses next to
 * no memory, so that the kernel has no reason to choose it when memory is out.
 */
#ifndef HVD_AGENT_KEEPER_H
#define HVD_AGENT_KEEPER_H

#include <stdbool.h>

#include "core/base/err.h"

/* Called before the agent has opened anything. Forks: returns 0 in the child, which is to be the
 * agent. The parent does not return: it passes signals on to the agent, outlives it, and ends as
 * the agent has ended. If the keeper is killed, the agent gets SIGKILL where local (hvdrun ends
 * what is left), else SIGINT, on which it ends its ranks. */
int keeper_fork(bool local, struct err *err);

/* The process that stands for this agent: its keeper, whose session the ranks are in; without one
 * the agent itself. */
int keeper_pid(void);

#endif
