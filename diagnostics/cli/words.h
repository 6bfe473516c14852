/* SPDX-License-Identifier: Apache-2.0
 *
 * words: names of the profiles. Pure.
 */
#ifndef HVD_DIAGNOSTICS_CLI_WORDS_H
#define HVD_DIAGNOSTICS_CLI_WORDS_H

#include <stddef.h>

#include "core/json/json.h"

/* The name of the i-th profile and its bit; NULL at the end. */
const char *words_profile(size_t i, unsigned *bit);

/* "cpu,gpu"; "" for none. Returns dst. */
char *words_profiles(unsigned profiles, char *dst, size_t size);

/* ["cpu", "gpu"]; the caller owns the reference. */
json_t *words_profiles_json(unsigned profiles);

#endif
