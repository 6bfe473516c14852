/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_env: the names of NCCL's variables. Const; any thread.
 */
#ifndef HVD_DIAGNOSTICS_CHECKS_NCCL_ENV_H
#define HVD_DIAGNOSTICS_CHECKS_NCCL_ENV_H

#include <stdbool.h>

/* Returns whether the name is a variable of NCCL 2.4 to 2.30 or of its plugins, or one that begins
 * with NCCL_ and that common images and build systems set. */
bool nccl_env_known(const char *name);

/* The known name nearest to a mistyped one; NULL: none is near. */
const char *nccl_env_nearest(const char *name);

#endif
