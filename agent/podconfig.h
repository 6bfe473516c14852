/* SPDX-License-Identifier: Apache-2.0
 *
 * podconfig: an agent's configuration in a pod: from the environment, where hvdrun is not there to
 * tell (operator/README.md has the variables). Called once by main_hvd-agent.c.
 */
#ifndef HVD_AGENT_PODCONFIG_H
#define HVD_AGENT_PODCONFIG_H

#include "agent/config.h"

/* argv: of a rank, NULL-terminated. What was read is taken out of the environment: ranks do not
 * need it. -EINVAL with the variable; ret goes to config_fini(). */
int podconfig_read(char *const *argv, struct agent_config *ret, struct err *err);

#endif
