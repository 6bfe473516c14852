/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce_kernels: the inner loops of reduce(), one table for each instruction set.
 *
 * Private to reduce*.c. The tables are made from one source text (reduce_template.h), compiled with
 * different flags. None may use fused multiply-add (-ffp-contract=off), so that all give the same
 * bits. Pointers have any alignment; dst may be a or b.
 */
#ifndef HVD_COLL_REDUCE_KERNELS_H
#define HVD_COLL_REDUCE_KERNELS_H

#include <stddef.h>

#include <hvd.h>

#include "core/coll/reduce.h"

enum reduce_op {
    REDUCE_SUM,
    REDUCE_MIN,
    REDUCE_MAX,
    REDUCE_PRODUCT,
    REDUCE_AND, /* from here on: integers and bool only */
    REDUCE_OR,
    REDUCE_XOR,
    REDUCE_OPS,
};

typedef void reduce_combine_f(void *dst, const void *a, const void *b, size_t n);
typedef void reduce_convert_f(void *dst, const void *src, size_t n);
typedef void reduce_scale_f(void *dst, const void *src, double factor, size_t n);
typedef void reduce_divide_f(void *dst, const void *src, int divisor, size_t n);

struct reduce_kernels {
    const char *name;
    /* dst = a op b; 16-bit floats: in float32, rounded; NULL where there is no such op */
    reduce_combine_f *combine[REDUCE_DTYPES][REDUCE_OPS];
    /* 16-bit floats only: dst and a are float32, b has the 16-bit type */
    reduce_combine_f *fold[REDUCE_DTYPES][REDUCE_OPS];
    reduce_convert_f *widen[REDUCE_DTYPES];  /* to float32 */
    reduce_convert_f *narrow[REDUCE_DTYPES]; /* from float32 */
    /* NULL for 16-bit floats (float32 is used) and bool */
    reduce_scale_f *scale[REDUCE_DTYPES];
    reduce_divide_f *divide[REDUCE_DTYPES];
    reduce_convert_f *copy, *stream; /* of n bytes; stream: past the cache, the caller
                                        fences */
};

extern const struct reduce_kernels reduce_scalar_kernels;
#if defined(__x86_64__)
extern const struct reduce_kernels reduce_avx2_kernels;
extern const struct reduce_kernels reduce_avx512_kernels;
#elif defined(__aarch64__)
extern const struct reduce_kernels reduce_neon_kernels;
#endif

#endif
