/* SPDX-License-Identifier: Apache-2.0
 *
 * test_reduce: every dtype, operation, number of sources, alignment, and count around the vector
 * widths, compared with a loop over single elements. Every instruction set of this machine gives
 * the same bits.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/coll/half.h"
#include "core/coll/reduce.h"
#include "core/coll/reduce_kernels.h"

enum { SOURCES = 8, MOST = 2100, SLACK = 64 };

static uint64_t seed = 1;

static uint64_t next_random(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 16;
}

/* ---- the reference --------------------------------------------------------------------------- */

static bool is_float(enum hvd_dtype d)
{
    return d == HVD_FLOAT16 || d == HVD_BFLOAT16 || d == HVD_FLOAT32 || d == HVD_FLOAT64;
}

static int64_t load_integer(enum hvd_dtype d, const void *p)
{
    uint64_t bits = 0;
    memcpy(&bits, p, hvd_dtype_size(d)); /* little endian */
    switch (d) {
    case HVD_INT8:
        return (int8_t)bits;
    case HVD_INT16:
        return (int16_t)bits;
    case HVD_INT32:
        return (int32_t)bits;
    case HVD_BOOL:
        return bits != 0;
    default:
        return (int64_t)bits;
    }
}

static int64_t wrap(enum hvd_dtype d, uint64_t v)
{
    return load_integer(d, &v);
}

static double load_float(enum hvd_dtype d, const void *p)
{
    uint16_t h;
    float f;
    double v;
    memcpy(&h, p, 2);
    if (d == HVD_FLOAT16)
        return half_to_float(h);
    if (d == HVD_BFLOAT16)
        return bfloat_to_float(h);
    if (d == HVD_FLOAT32) {
        memcpy(&f, p, 4);
        return f;
    }
    memcpy(&v, p, 8);
    return v;
}

/* Rounds to the type in which dtype d is computed. noinline keeps the compiler from fusing two
 * roundings. */
__attribute__((noinline)) static double rounded(enum hvd_dtype d, double v)
{
    return d == HVD_FLOAT64 ? v : (double)(float)v;
}

static void store_float(enum hvd_dtype d, void *p, double v)
{
    float f = (float)v;
    uint16_t h = d == HVD_FLOAT16 ? half_from_float(f) : bfloat_from_float(f);
    if (d == HVD_FLOAT64)
        memcpy(p, &v, 8);
    else if (d == HVD_FLOAT32)
        memcpy(p, &f, 4);
    else
        memcpy(p, &h, 2);
}

static double float_op(enum hvd_dtype d, enum hvd_op op, double a, double b)
{
    switch (op) {
    case HVD_MIN:
        return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
    case HVD_MAX:
        return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
    case HVD_PRODUCT:
        return rounded(d, a * b);
    default:
        return rounded(d, a + b);
    }
}

static int64_t integer_op(enum hvd_dtype d, enum hvd_op op, int64_t a, int64_t b)
{
    if (op == HVD_BAND || op == HVD_BOR || op == HVD_BXOR)
        return op == HVD_BAND ? a & b : op == HVD_BOR ? a | b : a ^ b;
    if (d == HVD_BOOL)
        return op == HVD_SUM || op == HVD_MAX ? a | b : a & b;
    switch (op) {
    case HVD_MIN:
        return a < b ? a : b;
    case HVD_MAX:
        return a > b ? a : b;
    case HVD_PRODUCT:
        return wrap(d, (uint64_t)a * (uint64_t)b);
    default:
        return wrap(d, (uint64_t)a + (uint64_t)b);
    }
}

static int64_t scaled_integer(enum hvd_dtype d, int64_t v, double factor)
{
    double x = (double)v * factor;
    int bits = (int)hvd_dtype_size(d) * 8;
    bool is_unsigned = d == HVD_UINT8 || d == HVD_UINT16;
    double low = is_unsigned ? 0 : -ldexp(1, bits - 1);
    double high = is_unsigned ? ldexp(1, bits) : ldexp(1, bits - 1);
    if (d == HVD_BOOL || factor == 1.0)
        return v;
    return isnan(x)    ? 0
           : x <= low  ? (int64_t)low
           : x >= high ? (int64_t)((uint64_t)high - 1)
                       : wrap(d, (uint64_t)(int64_t)x);
}

struct instance {
    struct reduce_plan plan;
    int nsrc;
    const void *src[SOURCES];
    const bool *prescaled;
    bool finish;
};

static void expect_float(const struct instance *t, size_t i, void *ret)
{
    enum hvd_dtype d = t->plan.dtype;
    double acc = 0;
    for (int s = 0; s < t->nsrc; s++) {
        double v = load_float(d, (const uint8_t *)t->src[s] + i * hvd_dtype_size(d));
        if (t->plan.prescale != 1.0 && !(t->prescaled && t->prescaled[s]))
            v = rounded(d, v * rounded(d, t->plan.prescale));
        acc = s == 0 ? v : float_op(d, t->plan.op, acc, v);
    }
    if (t->finish && t->plan.divisor > 1)
        acc = rounded(d, acc / t->plan.divisor);
    if (t->finish && t->plan.postscale != 1.0)
        acc = rounded(d, acc * rounded(d, t->plan.postscale));
    store_float(d, ret, acc);
}

static void expect_integer(const struct instance *t, size_t i, void *ret)
{
    enum hvd_dtype d = t->plan.dtype;
    int64_t acc = 0;
    for (int s = 0; s < t->nsrc; s++) {
        int64_t v = load_integer(d, (const uint8_t *)t->src[s] + i * hvd_dtype_size(d));
        if (!(t->prescaled && t->prescaled[s]))
            v = scaled_integer(d, v, t->plan.prescale);
        acc = s == 0 ? v : integer_op(d, t->plan.op, acc, v);
    }
    if (t->finish && t->plan.divisor > 1 && d != HVD_BOOL)
        acc = wrap(d, (uint64_t)(acc / t->plan.divisor));
    if (t->finish)
        acc = scaled_integer(d, acc, t->plan.postscale);
    memcpy(ret, &acc, hvd_dtype_size(d));
}

static bool same(enum hvd_dtype d, const void *a, const void *b)
{
    if (is_float(d) && isnan(load_float(d, a)) && isnan(load_float(d, b)))
        return true;
    return memcmp(a, b, hvd_dtype_size(d)) == 0;
}

static void check(const struct instance *t, const uint8_t *got, size_t n, const char *what)
{
    size_t size = hvd_dtype_size(t->plan.dtype);
    for (size_t i = 0; i < n; i++) {
        uint64_t want = 0;
        if (is_float(t->plan.dtype))
            expect_float(t, i, &want);
        else
            expect_integer(t, i, &want);
        if (!same(t->plan.dtype, got + i * size, &want))
            fail_msg("%s: %s %s nsrc %d n %zu element %zu", what, hvd_dtype_name(t->plan.dtype),
                     hvd_op_name(t->plan.op), t->nsrc, n, i);
    }
}

/* ---- cases ---------------------------------------------------------------------------------- */

static uint8_t memory[SOURCES][MOST * 8 + SLACK], result[MOST * 8 + SLACK];

static void fill_random(void)
{
    for (int s = 0; s < SOURCES; s++)
        for (size_t i = 0; i < sizeof(memory[s]); i += 4) {
            uint32_t bits = (uint32_t)next_random();
            memcpy(memory[s] + i, &bits, 4);
        }
}

static void run_case(struct instance *t, size_t n, unsigned shift, const char *what)
{
    size_t bytes = n * hvd_dtype_size(t->plan.dtype);
    uint8_t guard = 0x5a;
    for (int s = 0; s < t->nsrc; s++)
        t->src[s] = memory[s] + (shift * (unsigned)(s + 1)) % 33;
    uint8_t *dst = result + shift % 31;
    memset(result, guard, sizeof(result));
    reduce(&t->plan, dst, t->src, t->nsrc, n, t->prescaled, t->finish, shift % 2);
    check(t, dst, n, what);
    for (uint8_t *p = result; p < dst; p++)
        assert_int_equal(*p, guard);
    for (uint8_t *p = dst + bytes; p < dst + bytes + 16; p++)
        assert_int_equal(*p, guard);
}

static const size_t counts[] = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129};
static const enum hvd_op ops[] = {HVD_SUM,  HVD_MIN, HVD_MAX, HVD_PRODUCT,
                                  HVD_BAND, HVD_BOR, HVD_BXOR};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static struct reduce_plan plan_of(int dtype, enum hvd_op op)
{
    return (struct reduce_plan){
        .dtype = (enum hvd_dtype)dtype, .op = op, .prescale = 1.0, .divisor = 1, .postscale = 1.0};
}

static void test_all(void **state)
{
    (void)state;
    fill_random();
    for (int d = 0; d < REDUCE_DTYPES; d++)
        for (size_t o = 0; o < COUNT(ops); o++)
            for (int nsrc = 1; nsrc <= SOURCES && reduce_possible(d, ops[o]); nsrc++)
                for (size_t c = 0; c < COUNT(counts); c++) {
                    struct instance t = {.plan = plan_of(d, ops[o]), .nsrc = nsrc};
                    run_case(&t, counts[c], 0, "aligned");
                    run_case(&t, counts[c], (unsigned)(c * 7 + 1), "unaligned");
                }
}

static void test_blocks(void **state)
{
    (void)state;
    fill_random();
    for (int d = 0; d < REDUCE_DTYPES; d++)
        for (int nsrc = 1; nsrc <= 4; nsrc++)
            for (size_t n = 1023; n <= 2049; n += n == 1025 ? 1022 : 1) {
                struct instance t = {.plan = plan_of(d, HVD_SUM), .nsrc = nsrc};
                run_case(&t, n, 3, "blocks");
            }
}

static void test_scales(void **state)
{
    (void)state;
    static const bool prescaled[SOURCES] = {false, true, false, true};
    static const int divisors[] = {1, 2, 3, 4, 7};
    static const double factors[] = {1.0, 0.5, 3.0, -0.3, 1e10};
    fill_random();
    for (int d = 0; d < REDUCE_DTYPES; d++)
        for (size_t f = 0; f < COUNT(factors) * COUNT(factors); f++)
            for (size_t k = 0; k < COUNT(divisors) * 4; k++) {
                struct instance t = {.plan = plan_of(d, ops[k % 4 == 3 ? 3 : 0]),
                                     .nsrc = 1 + (int)k % 4,
                                     .finish = f % 3 != 0,
                                     .prescaled = k % 2 ? prescaled : NULL};
                t.plan.divisor = divisors[k / 4];
                t.plan.prescale = factors[f % COUNT(factors)];
                t.plan.postscale = factors[f / COUNT(factors)];
                run_case(&t, 37, (unsigned)k, "scaled");
            }
}

/* dst is one of the sources, each in turn. */
static void test_in_place(void **state)
{
    (void)state;
    for (int d = 0; d < REDUCE_DTYPES; d++)
        for (int nsrc = 1; nsrc <= 5; nsrc++)
            for (int place = 0; place < nsrc; place++) {
                static uint8_t saved[MOST * 8 + SLACK];
                struct instance t = {.plan = plan_of(d, HVD_SUM), .nsrc = nsrc};
                t.plan.divisor = place % 2 ? 3 : 1;
                t.finish = true;
                fill_random();
                memcpy(saved, memory[place], sizeof(saved));
                for (int s = 0; s < nsrc; s++)
                    t.src[s] = memory[s] + 5;
                reduce(&t.plan, memory[place] + 5, t.src, nsrc, 1500, NULL, true, false);
                t.src[place] = saved + 5;
                check(&t, memory[place] + 5, 1500, "in place");
            }
}

static void test_nan(void **state)
{
    (void)state;
    for (size_t n = 1; n < 40; n++)
        for (int place = 0; place < 3; place++)
            for (int o = 1; o <= 2; o++) {
                float v[3][40];
                for (size_t i = 0; i < 3 * 40; i++)
                    v[i / 40][i % 40] = (float)i;
                v[place][n - 1] = NAN;
                const void *src[] = {v[0], v[1], v[2]};
                struct reduce_plan plan = plan_of(HVD_FLOAT32, ops[o]);
                reduce(&plan, v[0], src, 3, n, NULL, true, false);
                assert_true(isnan(v[0][n - 1]));
                for (size_t i = 0; i + 1 < n; i++)
                    assert_true(v[0][i] == (float)(o == 1 ? i : i + 80));
            }
}

static void test_copy(void **state)
{
    (void)state;
    fill_random();
    for (size_t n = 0; n < 1000; n += n < 300 ? 1 : 13)
        for (size_t shift = 0; shift < 70; shift += 23) {
            memset(result, 0, sizeof(result));
            reduce_copy(result + shift % 64, memory[0] + shift, n, true);
            assert_memory_equal(result + shift % 64, memory[0] + shift, n);
            assert_int_equal(result[shift % 64 + n], 0);
        }
}

/* ---- instruction sets ----------------------------------------------------------------------- */

static bool same_all(int dtype, const uint8_t *a, const uint8_t *b, size_t n)
{
    size_t size = hvd_dtype_size((enum hvd_dtype)dtype);
    for (size_t i = 0; i < n; i++)
        if (!same((enum hvd_dtype)dtype, a + i * size, b + i * size))
            return false;
    return true;
}

static void compare_kernels(const struct reduce_kernels *k)
{
    static uint8_t a[MOST * 8], b[MOST * 8];
    const struct reduce_kernels *scalar = &reduce_scalar_kernels;
    for (int d = 0; d < REDUCE_DTYPES; d++)
        for (size_t n = 0; n < 70; n++) {
            const uint8_t *x = memory[0] + n % 9, *y = memory[1] + n % 5;
            for (int op = 0; op < REDUCE_OPS && scalar->combine[d][op]; op++) {
                k->combine[d][op](a, x, y, n);
                scalar->combine[d][op](b, x, y, n);
                assert_true(same_all(d, a, b, n));
                if (!k->fold[d][op])
                    continue;
                k->fold[d][op](a, x, y, n);
                scalar->fold[d][op](b, x, y, n);
                assert_true(same_all(HVD_FLOAT32, a, b, n));
            }
            if (k->widen[d]) {
                k->widen[d](a, x, n);
                scalar->widen[d](b, x, n);
                assert_memory_equal(a, b, n * 4);
                k->narrow[d](a, x, n);
                scalar->narrow[d](b, x, n);
                assert_memory_equal(a, b, n * 2);
            }
            if (k->scale[d]) {
                k->scale[d](a, x, 0.3, n);
                scalar->scale[d](b, x, 0.3, n);
                assert_true(same_all(d, a, b, n));
                k->divide[d](a, x, 3, n);
                scalar->divide[d](b, x, 3, n);
                assert_true(same_all(d, a, b, n));
            }
        }
}

static void test_kernels(void **state)
{
    (void)state;
    const char *simd = reduce_simd();
    if (getenv("HVD_TEST_CHILD"))
        return;
    if (strcmp(simd, "scalar") == 0) {
        printf("SKIP: reduce/kernels: AVX2 or NEON: this run or machine is scalar\n");
        skip();
    }
#if defined(__x86_64__)
    for (int round = 0; round < 20; round++) {
        fill_random();
        compare_kernels(&reduce_avx2_kernels);
        if (strcmp(simd, "avx512") == 0)
            compare_kernels(&reduce_avx512_kernels);
    }
    if (strcmp(simd, "avx512") != 0)
        printf("SKIP: reduce/kernels-avx512: AVX-512: this run or machine has %s\n", simd);
#elif defined(__aarch64__)
    for (int round = 0; round < 20; round++) {
        fill_random();
        compare_kernels(&reduce_neon_kernels);
    }
#endif
}

/* Runs the whole test again with a lower instruction set. */
static void test_forced(void **state)
{
    (void)state;
#if defined(__aarch64__)
    static const char *const levels[] = {"scalar", "neon"};
#else
    static const char *const levels[] = {"scalar", "avx2"};
#endif
    if (getenv("HVD_TEST_CHILD"))
        return;
    for (size_t i = 0; i < COUNT(levels); i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            setenv("HVD_SIMD", levels[i], 1);
            setenv("HVD_TEST_CHILD", "1", 1);
            alarm(280);
            execl("/proc/self/exe", "test_reduce", (char *)NULL);
            _exit(127);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

static void test_forced_name(void **state)
{
    (void)state;
    const char *want = getenv("HVD_SIMD");
    if (want && strcmp(want, "scalar") == 0)
        assert_string_equal(reduce_simd(), "scalar");
    else if (want)
        assert_string_not_equal(reduce_simd(), "avx512");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),     cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_scales),  cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_nan),     cmocka_unit_test(test_copy),
        cmocka_unit_test(test_kernels), cmocka_unit_test(test_forced_name),
        cmocka_unit_test(test_forced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
