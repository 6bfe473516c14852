/* SPDX-License-Identifier: Apache-2.0
 *
 * horovod: the folder with hvd's package of the name horovod (core/python/hvd/names), for ranks of
 * hvdrun --horovod. Any thread.
 */
#ifndef HVD_AGENT_HOROVOD_H
#define HVD_AGENT_HOROVOD_H

#include <stddef.h>

#include "core/base/err.h"

/* The version of Horovod whose interface the package has. */
#define HOROVOD_VERSION "0.28.1"

/* Stores the folder's path. Looks where the Python package is in a checkout, in the bundle, and
 * where make install and pip put it: under the folder above that of this program. -ENOENT: it is in
 * none of these. */
int horovod_folder(char *dst, size_t size, struct err *err);

/* Puts the folder in front of PYTHONPATH in this process's environment, if HVD_HOROVOD is 1 there.
 */
int horovod_apply(struct err *err);

#endif
