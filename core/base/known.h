/* SPDX-License-Identifier: Apache-2.0
 *
 * known: the names of all settings, HVD_NAME, to detect misspelt ones. hvdrun checks its
 * environment; without hvdrun, libhvd in rank 0 does. Any thread; not safe beside setenv().
 */
#ifndef HVD_BASE_KNOWN_H
#define HVD_BASE_KNOWN_H

#include <stdbool.h>
#include <stddef.h>

/* Returns true, with one sentence in dst, if this variable ("HVD_FUSION_TRESHOLD=1M"; the part from
 * = on is ignored) is not a setting, but close to one. */
bool known_misspelt(const char *variable, char *dst, size_t size);

/* Returns whether value is valid for HVD_SIMD. */
bool known_simd(const char *value);

#define KNOWN_SIMD "scalar, avx2, avx512 or neon"

#endif
