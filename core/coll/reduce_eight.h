/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce_eight: eight float32 numbers in vector registers, from and to float16. Private to
 * reduce_template.h.
 *
 * F16C where the compiler's flags allow it; NEON where the including file defines KERNELS_NEON, as
 * every aarch64 compiler has NEON and the scalar table is to do without these conversions. Defines
 * REDUCE_EIGHT where there is either. Each function gives the bits of core/coll/half.h and of the
 * loops in reduce_template.h.
 */
#ifndef HVD_COLL_REDUCE_EIGHT_H
#define HVD_COLL_REDUCE_EIGHT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__F16C__)
#define REDUCE_EIGHT
#include <immintrin.h>

typedef __m256 eight;

static inline eight eight_load_half(const void *src, size_t i)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)((const char *)src + i * 2)));
}

static inline void eight_store_half(void *dst, size_t i, eight v)
{
    _mm_storeu_si128((void *)((char *)dst + i * 2),
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline eight eight_load(const void *src, size_t i)
{
    return _mm256_loadu_ps((const void *)((const char *)src + i * 4));
}

static inline void eight_store(void *dst, size_t i, eight v)
{
    _mm256_storeu_ps((void *)((char *)dst + i * 4), v);
}

static inline eight eight_sum(eight a, eight b)
{
    return _mm256_add_ps(a, b);
}

static inline eight eight_product(eight a, eight b)
{
    return _mm256_mul_ps(a, b);
}

/* a where a < b (or >) or a is a NaN, else b */
static inline eight eight_min(eight a, eight b)
{
    return _mm256_blendv_ps(
        b, a, _mm256_or_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ), _mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
}

static inline eight eight_max(eight a, eight b)
{
    return _mm256_blendv_ps(
        b, a, _mm256_or_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ), _mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
}

#elif defined(KERNELS_NEON)
#define REDUCE_EIGHT
#include <arm_neon.h>

typedef float32x4x2_t eight;

/* Through bytes: the elements may have any alignment. */
static inline eight eight_load_half(const void *src, size_t i)
{
    float16x8_t h = vreinterpretq_f16_u8(vld1q_u8((const uint8_t *)src + i * 2));
    return (eight){{vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)}};
}

static inline void eight_store_half(void *dst, size_t i, eight v)
{
    float16x8_t h = vcvt_high_f16_f32(vcvt_f16_f32(v.val[0]), v.val[1]);
    vst1q_u8((uint8_t *)dst + i * 2, vreinterpretq_u8_f16(h));
}

static inline eight eight_load(const void *src, size_t i)
{
    const uint8_t *from = (const uint8_t *)src + i * 4;
    return (eight){
        {vreinterpretq_f32_u8(vld1q_u8(from)), vreinterpretq_f32_u8(vld1q_u8(from + 16))}};
}

static inline void eight_store(void *dst, size_t i, eight v)
{
    uint8_t *to = (uint8_t *)dst + i * 4;
    vst1q_u8(to, vreinterpretq_u8_f32(v.val[0]));
    vst1q_u8(to + 16, vreinterpretq_u8_f32(v.val[1]));
}

static inline eight eight_sum(eight a, eight b)
{
    return (eight){{vaddq_f32(a.val[0], b.val[0]), vaddq_f32(a.val[1], b.val[1])}};
}

static inline eight eight_product(eight a, eight b)
{
    return (eight){{vmulq_f32(a.val[0], b.val[0]), vmulq_f32(a.val[1], b.val[1])}};
}

/* a where `closer` says so or a is a NaN, else b. FMIN and FMAX would pick another NaN and order
 * the zeros by sign. */
static inline float32x4_t four_choose(uint32x4_t closer, float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vorrq_u32(closer, vmvnq_u32(vceqq_f32(a, a))), a, b);
}

static inline eight eight_min(eight a, eight b)
{
    return (eight){{four_choose(vcltq_f32(a.val[0], b.val[0]), a.val[0], b.val[0]),
                    four_choose(vcltq_f32(a.val[1], b.val[1]), a.val[1], b.val[1])}};
}

static inline eight eight_max(eight a, eight b)
{
    return (eight){{four_choose(vcgtq_f32(a.val[0], b.val[0]), a.val[0], b.val[0]),
                    four_choose(vcgtq_f32(a.val[1], b.val[1]), a.val[1], b.val[1])}};
}

#endif

#endif
