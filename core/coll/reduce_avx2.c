/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce_avx2: the kernels for AVX2 with F16C; compiled with -mavx2 -mf16c (Makefile).
 */
#if defined(__AVX2__) && defined(__F16C__)

#define KERNELS      reduce_avx2_kernels
#define KERNELS_NAME "avx2"

#include "core/coll/reduce_template.h"

#endif
