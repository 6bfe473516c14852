/* SPDX-License-Identifier: Apache-2.0
 *
 * program: where this program's siblings are: hvd-agent, hvd-doctor and hvd-probe lie in one
 * folder. Any thread.
 */
#ifndef HVD_BASE_PROGRAM_H
#define HVD_BASE_PROGRAM_H

#include <stddef.h>

#include "core/base/err.h"

/* The path of name in the folder of this program. -ENOENT and the like when it cannot be run. */
int program_beside(char *dst, size_t size, const char *name, struct err *err);

#endif
