/* SPDX-License-Identifier: Apache-2.0
 *
 * wide: see wide.h.
 */
#include "core/backend/wide.h"

#include <string.h>

#include "core/coll/half.h"

enum hvd_dtype wide_type(enum hvd_dtype dtype)
{
    return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 ? HVD_FLOAT32 : dtype;
}

void wide_from(enum hvd_dtype dtype, const void *src, void *dst, size_t n, double scale)
{
    const uint8_t *from = src;
    uint8_t *to = dst;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, from + 2 * i, sizeof(h));
        float f = dtype == HVD_FLOAT16 ? half_to_float(h) : bfloat_to_float(h);
        f = scale == 1.0 ? f : f * (float)scale;
        memcpy(to + 4 * i, &f, sizeof(f));
    }
}

void wide_to(enum hvd_dtype dtype, const void *src, void *dst, size_t n)
{
    const uint8_t *from = src;
    uint8_t *to = dst;
    for (size_t i = 0; i < n; i++) {
        float f;
        memcpy(&f, from + 4 * i, sizeof(f));
        uint16_t h = dtype == HVD_FLOAT16 ? half_from_float(f) : bfloat_from_float(f);
        memcpy(to + 2 * i, &h, sizeof(h));
    }
}
