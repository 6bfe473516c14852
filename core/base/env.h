/* SPDX-License-Identifier: Apache-2.0
 *
 * env: settings from the environment. A setting NAME is read from HVD_NAME, then HOROVOD_NAME.
 *
 * Absent or empty means the default; a value that does not parse is -EINVAL with the variable, the
 * value and the accepted form in err, never a silent default. Not safe beside setenv().
 */
#ifndef HVD_BASE_ENV_H
#define HVD_BASE_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"

/* The value, owned by the environment; NULL when absent or empty. */
const char *env_get(const char *name);

/* Reads a decimal integer in [min, max]. */
int env_int(const char *name, int64_t def, int64_t min, int64_t max, int64_t *ret, struct err *err);

/* Reads bytes, with an optional suffix K, M or G (powers of 1024). Ignores case and a final B. */
int env_size(const char *name, uint64_t def, uint64_t *ret, struct err *err);

/* Reads one of 1 0 true false yes no on off. */
int env_bool(const char *name, bool def, bool *ret, struct err *err);

/* Reads a finite decimal number in [min, max]. */
int env_double(const char *name, double def, double min, double max, double *ret, struct err *err);

#endif
