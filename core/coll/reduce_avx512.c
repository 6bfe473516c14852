/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce_avx512: the kernels for AVX-512 (F, BW, VL, DQ); flags as in the Makefile.
 */
#if defined(__AVX512BW__)

#define KERNELS      reduce_avx512_kernels
#define KERNELS_NAME "avx512"

#include "core/coll/reduce_template.h"

#endif
