/* SPDX-License-Identifier: Apache-2.0
 *
 * wide: 16-bit floats as float32 and back, for libraries that add no 16-bit floats or round at each
 * step. Pure.
 */
#ifndef HVD_BACKEND_WIDE_H
#define HVD_BACKEND_WIDE_H

#include <stdbool.h>
#include <stddef.h>

#include <hvd.h>

/* float32 for a 16-bit float, else the type itself. */
enum hvd_dtype wide_type(enum hvd_dtype dtype);

static inline bool wide_needed(enum hvd_dtype dtype)
{
    return wide_type(dtype) != dtype;
}

/* Converts n numbers of a 16-bit type to float32, times scale. Any alignment. */
void wide_from(enum hvd_dtype dtype, const void *src, void *dst, size_t n, double scale);

/* Converts n float32 numbers back, rounded to nearest even. */
void wide_to(enum hvd_dtype dtype, const void *src, void *dst, size_t n);

#endif
