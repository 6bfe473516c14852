/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce: see reduce.h. Chooses the kernels once, when the library is loaded. Work that needs more
 * than one pass is cut into blocks whose accumulators stay in the L1 cache.
 */
#include "core/coll/reduce.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "core/base/env.h"
#include "core/coll/reduce_kernels.h"

#define BLOCK 1024 /* elements */

static const struct reduce_kernels *kernels = &reduce_scalar_kernels;

#if defined(__x86_64__)
/* Not every compiler's __builtin_cpu_supports() knows F16C. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

/* Runs while the library is being loaded, before any of its functions can be called. */
__attribute__((constructor)) static void choose_kernels(void)
{
    const char *limit = env_get("SIMD");
    if (limit && strcmp(limit, "scalar") == 0)
        return;
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && has_f16c();
    bool avx512 = avx2 && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (avx2)
        kernels = &reduce_avx2_kernels;
    if (avx512 && !(limit && strcmp(limit, "avx2") == 0))
        kernels = &reduce_avx512_kernels;
#elif defined(__aarch64__)
    kernels = &reduce_neon_kernels;
#endif
}

const char *reduce_simd(void)
{
    return kernels->name;
}

static bool is_bitwise(enum hvd_op op)
{
    return op == HVD_BAND || op == HVD_BOR || op == HVD_BXOR;
}

bool reduce_is_float(enum hvd_dtype dtype)
{
    return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 || dtype == HVD_FLOAT32 ||
           dtype == HVD_FLOAT64;
}

bool reduce_possible(enum hvd_dtype dtype, enum hvd_op op)
{
    if (dtype >= REDUCE_DTYPES)
        return false;
    if (is_bitwise(op))
        return !reduce_is_float(dtype);
    return op != HVD_ADASUM && !(op == HVD_AVERAGE && dtype == HVD_BOOL);
}

bool reduce_scales(enum hvd_dtype dtype, enum hvd_op op)
{
    return dtype != HVD_BOOL && !is_bitwise(op);
}

static enum reduce_op op_of(enum hvd_op op)
{
    switch (op) {
    case HVD_MIN:
        return REDUCE_MIN;
    case HVD_MAX:
        return REDUCE_MAX;
    case HVD_PRODUCT:
        return REDUCE_PRODUCT;
    case HVD_BAND:
        return REDUCE_AND;
    case HVD_BOR:
        return REDUCE_OR;
    case HVD_BXOR:
        return REDUCE_XOR;
    default:
        return REDUCE_SUM;
    }
}

/* The constants of one call. */
struct job {
    const struct reduce_plan *plan;
    enum hvd_dtype dtype; /* the type of the computation: float32 for 16-bit floats */
    bool sixteen;
    bool prescale;
    bool finish;
    bool stream;
    enum reduce_op op;
    size_t size; /* bytes of an element in memory */
    const bool *prescaled;
};

/* Applies divisor and postscale to n numbers of job->dtype. */
static void finish_block(const struct job *job, void *acc, size_t n)
{
    int divisor = job->plan->divisor;
    reduce_scale_f *scale = kernels->scale[job->dtype];
    if (!scale)
        return; /* bool */
    if (divisor > 1) {
        bool exact = (divisor & (divisor - 1)) == 0 &&
                     (job->dtype == HVD_FLOAT32 || job->dtype == HVD_FLOAT64);
        if (exact) /* multiplying by the inverse of a power of two gives the same bits as dividing
                    */
            scale(acc, acc, 1.0 / divisor, n);
        else
            kernels->divide[job->dtype](acc, acc, divisor, n);
    }
    if (job->plan->postscale != 1.0)
        scale(acc, acc, job->plan->postscale, n);
}

/* Returns source s with its prescale, as numbers of job->dtype: in place, or converted into tmp. */
static const void *load_block(const struct job *job, const uint8_t *src, int s, size_t n, void *tmp)
{
    bool scaled = job->prescale && !(job->prescaled && job->prescaled[s]);
    const void *from = src;
    if (job->sixteen) {
        kernels->widen[job->plan->dtype](tmp, src, n);
        from = tmp;
    }
    if (scaled) {
        kernels->scale[job->dtype](tmp, from, job->plan->prescale, n);
        from = tmp;
    }
    return from;
}

static void store_block(const struct job *job, uint8_t *dst, const void *acc, size_t n)
{
    _Alignas(64) uint8_t half[BLOCK * 2];
    if (job->stream) {
        if (job->sixteen)
            kernels->narrow[job->plan->dtype](half, acc, n);
        kernels->stream(dst, job->sixteen ? half : acc, n * job->size);
    } else if (job->sixteen)
        kernels->narrow[job->plan->dtype](dst, acc, n);
    else
        memcpy(dst, acc, n * job->size);
}

static void general_block(const struct job *job, uint8_t *dst, const void *const *src, size_t at,
                          int nsrc, size_t n)
{
    _Alignas(64) uint8_t acc[BLOCK * 8], tmp[BLOCK * 8];
    reduce_combine_f *combine = kernels->combine[job->dtype][job->op];
    reduce_combine_f *fold = kernels->fold[job->plan->dtype][job->op];
    const void *first = load_block(job, (const uint8_t *)src[0] + at, 0, n, acc);
    if (nsrc == 1 && first != (const void *)acc) {
        memcpy(acc, first, n * job->size);
        first = acc;
    }
    for (int s = 1; s < nsrc; s++) {
        const uint8_t *from = (const uint8_t *)src[s] + at;
        if (job->sixteen && !job->prescale)
            fold(acc, first, from, n);
        else
            combine(acc, first, load_block(job, from, s, n, tmp), n);
        first = acc;
    }
    if (job->dtype == HVD_BOOL && nsrc == 1)
        kernels->combine[HVD_BOOL][REDUCE_OR](acc, acc, acc, n); /* 0 or 1 */
    if (job->finish)
        finish_block(job, acc, n);
    store_block(job, dst + at, acc, n);
}

/* For sources that need no conversion: the last combination writes to dst, unless dst is to be
 * written past the cache. */
static void plain_block(const struct job *job, uint8_t *dst, const void *const *src, size_t at,
                        int nsrc, size_t n)
{
    _Alignas(64) uint8_t acc[BLOCK * 8];
    reduce_combine_f *combine = kernels->combine[job->dtype][job->op];
    const void *sum = (const uint8_t *)src[0] + at;
    for (int s = 1; s < nsrc - 1; s++) {
        combine(acc, sum, (const uint8_t *)src[s] + at, n);
        sum = acc;
    }
    combine(job->stream ? acc : dst + at, sum, (const uint8_t *)src[nsrc - 1] + at, n);
    if (job->stream)
        kernels->stream(dst + at, acc, n * job->size);
}

void reduce_fence(void)
{
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
}

/* The kernels are built without the thread sanitizer, which would check each vector and so take
 * most of a test's time. Here it sees what they read and write: the first byte, and each byte whose
 * address is a multiple of EACH. */
#if defined(__SANITIZE_THREAD__)
#define SHOW 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHOW 1
#endif
#endif
#ifndef SHOW
#define SHOW 0
#endif
#define EACH ((uintptr_t)256)

static size_t to_next_shown(const volatile uint8_t *p)
{
    return EACH - (uintptr_t)p % EACH;
}

static void show_read(const volatile uint8_t *p, size_t bytes)
{
    for (size_t i = 0; SHOW && i < bytes; i += to_next_shown(p + i))
        (void)p[i];
}

static void show_write(volatile uint8_t *p, size_t bytes)
{
    for (size_t i = 0; SHOW && i < bytes; i += to_next_shown(p + i))
        p[i] = p[i];
}

void reduce(const struct reduce_plan *plan, void *dst, const void *const *src, int nsrc, size_t n,
            const bool *prescaled, bool finish, bool stream)
{
    struct job job = {
        .plan = plan,
        .dtype = plan->dtype,
        .sixteen = plan->dtype == HVD_FLOAT16 || plan->dtype == HVD_BFLOAT16,
        .prescale = plan->prescale != 1.0 && plan->dtype != HVD_BOOL,
        .finish = finish && (plan->divisor > 1 || plan->postscale != 1.0),
        .op = op_of(plan->op),
        .size = hvd_dtype_size(plan->dtype),
        .prescaled = prescaled,
        .stream = stream,
    };
    bool plain = !job.prescale && !job.finish;
    if (n == 0)
        return;
    if (plain && nsrc == 1 && plan->dtype != HVD_BOOL) {
        if (dst != src[0])
            reduce_copy(dst, src[0], n * job.size, stream);
        return;
    }
    for (int i = 0; i < nsrc; i++)
        show_read(src[i], n * job.size);
    show_write(dst, n * job.size);
    if (plain && nsrc == 2 && !stream) {
        kernels->combine[plan->dtype][job.op](dst, src[0], src[1], n);
        return;
    }
    if (job.sixteen && !(plain && nsrc == 2))
        job.dtype = HVD_FLOAT32;
    for (size_t done = 0; done < n; done += BLOCK) {
        size_t some = n - done < BLOCK ? n - done : BLOCK;
        if (plain && (nsrc == 2 || (!job.sixteen && nsrc > 1)))
            plain_block(&job, dst, src, done * job.size, nsrc, some);
        else
            general_block(&job, dst, src, done * job.size, nsrc, some);
    }
}

void reduce_copy(void *dst, const void *src, size_t bytes, bool stream)
{
    show_read(src, bytes);
    show_write(dst, bytes);
    (stream ? kernels->stream : kernels->copy)(dst, src, bytes);
}
