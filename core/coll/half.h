/* SPDX-License-Identifier: Apache-2.0
 *
 * half: float16 and bfloat16 from and to float32, one number at a time and without special
 * instructions. Rounds to nearest even; a NaN becomes a quiet NaN with the upper bits of its
 * payload, as in F16C, so that vector code gives the same bits. Any thread.
 */
#ifndef HVD_COLL_HALF_H
#define HVD_COLL_HALF_H

#include <stdint.h>
#include <string.h>

static inline float half_bits_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static inline uint32_t half_float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static inline float half_to_float(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
    uint32_t exponent = magnitude & 0x0f800000;
    uint32_t bits = magnitude + (112u << 23); /* converts between the exponent biases */
    if (exponent == 0x0f800000) {
        bits += 112u << 23;
        if (magnitude & 0x007fe000)
            bits |= 0x00400000;
    } else if (exponent == 0) {
        /* Subnormal: computed as if it had the implicit one, which is subtracted again. */
        bits = half_float_bits(half_bits_float(bits + (1u << 23)) - half_bits_float(113u << 23));
    }
    return half_bits_float(bits | (uint32_t)(h & 0x8000) << 16);
}

static inline uint16_t half_from_float(float f)
{
    uint32_t bits = half_float_bits(f);
    uint32_t sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x3ff));
    if (bits >= 0x47800000) /* 65536 and more */
        return (uint16_t)(sign | 0x7c00);
    if (bits < 0x38800000) /* subnormal: beside 0.5 the last bit is that of a subnormal half */
        return (uint16_t)(sign | (half_float_bits(half_bits_float(bits) + 0.5f) - 0x3f000000));
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | ((bits - (112u << 23)) >> 13));
}

static inline float bfloat_to_float(uint16_t b)
{
    return half_bits_float((uint32_t)b << 16);
}

static inline uint16_t bfloat_from_float(float f)
{
    uint32_t bits = half_float_bits(f);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

#endif
