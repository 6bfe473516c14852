/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce_neon: the kernels for aarch64 with NEON's conversions of float16. The compiler turns the
 * other loops into NEON in the scalar table as well.
 */
#if defined(__aarch64__)

#define KERNELS      reduce_neon_kernels
#define KERNELS_NAME "neon"
#define KERNELS_NEON

#include "core/coll/reduce_template.h"

#endif
