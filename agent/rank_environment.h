/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_environment: the environment variables of the ranks that an agent starts.
 */
#ifndef HVD_AGENT_RANK_ENVIRONMENT_H
#define HVD_AGENT_RANK_ENVIRONMENT_H

#include "agent/config.h"
#include "core/member/protocol.h"

/* Sets what all ranks share in this process: the variables of the configuration, and the agent's
 * folder at the end of PATH, so that ranks find hvd-doctor, and for programs that import horovod
 * (HVD_HOROVOD=1) the folder of horovod.h. -ENOMEM; -ENOENT: there is no such folder. */
int rank_environment_apply(const struct agent_config *config, struct err *err);

/* This process's environment with the variables of one rank. Pass *ret_own to strings_free(), *ret
 * to free(). -ENOMEM. */
int rank_environment_make(const struct agent_config *config, const struct welcome_body *welcome,
                          const struct assignment *assignment, int agent_fd, char ***ret_own,
                          char ***ret);

#endif
