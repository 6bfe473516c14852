/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce: the arithmetic of collectives on plain memory. Any thread, no state.
 *
 * dst[i] = src[0][i] op src[1][i] op ... in the order of src, whatever the alignment, the vector
 * width of the machine and the way a tensor is cut: AVX2, AVX-512, NEON and scalar code give the
 * same bits. float16 and bfloat16 accumulate in float32 and are rounded (to nearest even) once, at
 * the end. Integers wrap; scaled ones are clamped to their range (NaN becomes 0). bool as hvd.h
 * says. min and max propagate NaN: one NaN among the sources is a NaN in the
 * result; of -0 and +0 the later source is taken. Which payload a NaN has is not defined.
 */
#ifndef HVD_COLL_REDUCE_H
#define HVD_COLL_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include <hvd.h>

/* Types whose elements can be combined have the numbers below this one; the others are only moved.
 */
#define REDUCE_DTYPES HVD_FLOAT8_E4M3FN

/* Of types whose elements can be combined. */
bool reduce_is_float(enum hvd_dtype dtype);

/* Whether elements of this type can be combined so. False for adasum, which is computed elsewhere.
 */
bool reduce_possible(enum hvd_dtype dtype, enum hvd_op op);

/* Whether the result may be scaled. False for bool and for bitwise operations. */
bool reduce_scales(enum hvd_dtype dtype, enum hvd_op op);

struct reduce_plan {
    enum hvd_dtype dtype;
    enum hvd_op op;   /* AVERAGE reduces like SUM */
    double prescale;  /* each source is multiplied by this first (float32 arithmetic for 16-bit
                         floats; the tensor's own type for float32 and float64; double, truncated,
                         for integers); 1.0: none. See reduce() for sources that carry it already */
    int divisor;      /* > 1: the sum divided by this (average); integers truncate toward zero */
    double postscale; /* then times this; 1.0: none */
};

/* n elements. prescaled: bit i set means that source i is a partial result: prescale skips it;
 * NULL: none is. stream: dst leaves the cache (non-temporal stores where that pays). dst may be one
 * of the sources. finish: apply divisor and postscale; partial sums between hosts do not. */
void reduce(const struct reduce_plan *plan, void *dst, const void *const *src, int nsrc, size_t n,
            const bool *prescaled, bool finish, bool stream);

/* memcpy, with non-temporal stores if stream is set. */
void reduce_copy(void *dst, const void *src, size_t bytes, bool stream);

/* Call after non-temporal stores of this thread, before telling another thread about them. */
void reduce_fence(void);

/* The instruction set in use: "avx512", "avx2", "neon", "scalar". HVD_SIMD forces a lower one. */
const char *reduce_simd(void);

#endif
