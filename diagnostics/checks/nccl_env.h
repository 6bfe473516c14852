/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_env: the names of NCCL's variables. Const; any thread.
 */
#ifndef HVD_DIAGNOSTICS_CHECKS_NCCL_ENV_H
#define HVD_DIAGNOSTICS_CHECKS_NCCL_ENV_H

#include <stdbool.h>

/* The name is one of NCCL 2.4 to 2.30 or of its plugins, or one with this prefix that common
 * images and build systems set. */
bool nccl_env_known(const char *name);

/* The known name nearest to a mistyped one; NULL: none is near. */
const char *nccl_env_nearest(const char *name);

#endif
