/* SPDX-License-Identifier: Apache-2.0
 *
 * program: finds the programs installed beside this one: hvd-agent, hvd-doctor and hvd-probe lie in
 * one folder. Any thread.
 */
#ifndef HVD_BASE_PROGRAM_H
#define HVD_BASE_PROGRAM_H

#include <stddef.h>

#include "core/base/err.h"

/* Stores the path of this program's folder, with / at its end. -errno when it is not known. */
int program_folder(char *dst, size_t size, struct err *err);

/* Stores the path of name in this program's folder. -ENOENT or another -errno when it cannot be
 * run. */
int program_beside(char *dst, size_t size, const char *name, struct err *err);

#endif
