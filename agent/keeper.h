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

/* Call before the agent opens anything. Forks: returns 0 in the child, which becomes the agent. The
 * parent does not return: it forwards signals to the agent, waits for its end, and ends with the
 * same status. If the keeper is killed, the agent gets SIGKILL if local (hvdrun then ends what is
 * left), else SIGINT, on which it ends its ranks. */
int keeper_fork(bool local, struct err *err);

/* The process to name for this agent: its keeper, who leads the ranks' session, or the agent itself
 * without a keeper. */
int keeper_pid(void);

#endif
