/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_env: the names of NCCL's variables. Const; any thread.
 */
#ifndef HVD_DIAGNOSTICS_CHECKS_NCCL_ENV_H
#define HVD_DIAGNOSTICS_CHECKS_NCCL_ENV_H

#include <stdbool.h>

/* Of NCCL 2.4 to 2.30, of its plugins and of what images and builds set under this prefix. */
bool nccl_env_known(const char *name);

/* The known name that is nearest to a mistyped one, NULL: none is near. */
const char *nccl_env_nearest(const char *name);

#endif
