/* SPDX-License-Identifier: Apache-2.0
 *
 * known: the names of all settings, HVD_NAME, so that a misspelt one can be told. hvdrun looks at
 * its environment, libhvd in rank 0 of a job without it. Any thread; not safe beside setenv().
 */
#ifndef HVD_BASE_KNOWN_H
#define HVD_BASE_KNOWN_H

#include <stdbool.h>
#include <stddef.h>

/* A variable ("HVD_FUSION_TRESHOLD=1M"; what follows = does not count) that is close to a setting
 * and none: one sentence in dst. false: it is a setting, or somebody else's. */
bool known_misspelt(const char *variable, char *dst, size_t size);

/* A value of HVD_SIMD. */
bool known_simd(const char *value);

#define KNOWN_SIMD "scalar, avx2, avx512 or neon"

#endif
