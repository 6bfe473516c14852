/* SPDX-License-Identifier: Apache-2.0
 *
 * podconfig: an agent's configuration in a pod, read from the environment, since there is no hvdrun
 * (operator/README.md has the variables). Called once by main_hvd-agent.c.
 */
#ifndef HVD_AGENT_PODCONFIG_H
#define HVD_AGENT_PODCONFIG_H

#include "agent/config.h"

/* argv: the command of a rank, NULL-terminated. Removes from the environment the variables that
 * ranks do not need. -EINVAL names the variable; free *ret with config_fini(). */
int podconfig_read(char *const *argv, struct agent_config *ret, struct err *err);

#endif
