/* SPDX-License-Identifier: Apache-2.0
 *
 * kubernetes: what the checks of pods share.
 */
#ifndef HVD_DIAGNOSTICS_CHECKS_KUBERNETES_H
#define HVD_DIAGNOSTICS_CHECKS_KUBERNETES_H

#include "diagnostics/check.h"

/* Returns whether the machine is a pod. If it is not, sets the result to a skip. */
bool in_pod(const struct view *v, struct result *r);

#endif
