/* SPDX-License-Identifier: Apache-2.0
 *
 * termination: writes the termination message of the container in which an agent runs (Kubernetes:
 * terminationMessagePath).
 */
#ifndef HVD_AGENT_TERMINATION_H
#define HVD_AGENT_TERMINATION_H

#include "core/base/agent_end.h"

/* The variable that names the container's terminationMessagePath. Not set: TERMINATION_PATH, which
 * is Kubernetes' default. */
#define TERMINATION_VARIABLE "HVD_TERMINATION_MESSAGE_PATH"
#define TERMINATION_PATH     "/dev/termination-log"

/* Returns the path of the container's termination message, as a new string; NULL: no memory. Call
 * before podconfig_read(), which removes the variable. */
char *termination_path(void);

/* Writes why the agent ends to path, a file that the kubelet has made; does nothing where there is
 * none. */
void termination_write(const char *path, enum agent_end end, const char *text);

#endif
