/* SPDX-License-Identifier: Apache-2.0
 *
 * test_codes: for every type and operation, codes_verify() names the set of ranks that the engine
 * has summed. A contribution that is doubled, misplaced or of another operation, a wrong divisor
 * and foreign rows are reported as bad. Every process makes the same plan.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/coll/reduce.h"
#include "tests/chaos/codes.h"
#include "tests/chaos/plan.h"

enum { COUNT = 100, SIZE = CODES_MAX_RANKS, ALL = (1 << SIZE) - 1 };

static const uint64_t salt = 77777777;
static char parts[SIZE][COUNT * 8], result[COUNT * 8];

static void sum_of(enum hvd_dtype dtype, enum hvd_op op, uint32_t mask, int divisor)
{
    const void *src[SIZE];
    int n = 0;
    for (int r = 0; r < SIZE; r++) {
        if (mask >> r & 1) {
            codes_fill(parts[r], dtype, op, COUNT, r, salt);
            src[n++] = parts[r];
        }
    }
    struct reduce_plan plan = {
        .dtype = dtype, .op = op, .prescale = 1, .divisor = divisor, .postscale = 1};
    reduce(&plan, result, src, n, COUNT, NULL, true, false);
}

static struct codes_verdict look(enum hvd_dtype dtype, enum hvd_op op, uint64_t with)
{
    struct codes_verdict v;
    codes_verify(result, dtype, op, COUNT, SIZE, with, &v);
    return v;
}

static void every_set(enum hvd_dtype dtype, enum hvd_op op)
{
    for (uint32_t mask = 1; mask <= ALL; mask++) {
        int n = op == HVD_AVERAGE ? __builtin_popcount(mask) : 1;
        sum_of(dtype, op, mask, n);
        struct codes_verdict v = look(dtype, op, salt);
        assert_int_equal(v.bad, 0);
        if (op == HVD_MIN || op == HVD_MAX)
            continue;
        assert_int_equal(v.nsets, 1);
        assert_int_equal(v.sets[0].mask, mask);
        assert_int_equal(v.sets[0].divisor, n);
        assert_int_equal(v.sets[0].count, COUNT);
    }
}

static void test_every_set_is_read(void **unused)
{
    int tried = 0;
    for (int dtype = 0; dtype < HVD_DTYPES; dtype++) {
        for (int op = 0; op < HVD_OPS; op++) {
            if (!codes_can(dtype, op))
                continue;
            every_set(dtype, op);
            tried++;
        }
    }
    assert_int_equal(tried, 10 * 3 + 2);
}

static void test_two_sets_in_one_tensor(void **unused)
{
    sum_of(HVD_FLOAT32, HVD_SUM, 0x0f, 1);
    char first[COUNT * 8];
    memcpy(first, result, sizeof(first));
    sum_of(HVD_FLOAT32, HVD_SUM, 0x0d, 1);
    memcpy(result, first, 40 * sizeof(float));
    struct codes_verdict v = look(HVD_FLOAT32, HVD_SUM, salt);
    assert_int_equal(v.nsets, 2);
    assert_int_equal(v.sets[0].mask, 0x0f);
    assert_int_equal(v.sets[0].count, 40);
    assert_int_equal(v.sets[1].mask, 0x0d);
    assert_int_equal(v.sets[1].count, COUNT - 40);
    assert_int_equal(v.bad, 0);
}

/* If one rank's contribution is summed twice, codes_verify() must report bad elements. */
static void test_doubled(void **unused)
{
    static const enum hvd_dtype dtypes[] = {HVD_FLOAT32, HVD_FLOAT64, HVD_INT32,
                                            HVD_INT64,   HVD_INT16,   HVD_UINT16};
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        struct reduce_plan plan = {
            .dtype = dtypes[i], .op = HVD_SUM, .prescale = 1, .divisor = 1, .postscale = 1};
        codes_fill(parts[0], dtypes[i], HVD_SUM, COUNT, 0, salt);
        codes_fill(parts[1], dtypes[i], HVD_SUM, COUNT, 3, salt);
        const void *src[] = {parts[0], parts[1], parts[1]};
        reduce(&plan, result, src, 3, COUNT, NULL, true, false);
        assert_true(look(dtypes[i], HVD_SUM, salt).bad > 0);
    }
}

static void test_of_another_operation(void **unused)
{
    sum_of(HVD_FLOAT32, HVD_SUM, ALL, 1);
    assert_true(look(HVD_FLOAT32, HVD_SUM, salt + 1).bad > COUNT / 3);
    /* One element has the value of its neighbour. */
    int found = 0;
    for (int i = 1; i < COUNT; i++) {
        sum_of(HVD_FLOAT32, HVD_SUM, 0x07, 1);
        memcpy(result + 4 * (size_t)i, result + 4 * (size_t)(i - 1), 4);
        found += look(HVD_FLOAT32, HVD_SUM, salt).bad == 1;
    }
    assert_true(found > COUNT / 3);
}

static void test_garbage(void **unused)
{
    static const unsigned char bytes[] = {0x00, 0x33, 0x5a, 0xa5, 0xff};
    static const enum hvd_dtype dtypes[] = {HVD_FLOAT32, HVD_FLOAT64, HVD_INT32, HVD_INT64};
    for (size_t i = 0; i < sizeof(bytes); i++) {
        memset(result, bytes[i], sizeof(result));
        for (size_t d = 0; d < 4; d++) {
            assert_int_equal(look(dtypes[d], HVD_SUM, salt).bad, COUNT);
            assert_int_equal(look(dtypes[d], HVD_MAX, salt).bad, COUNT);
        }
        assert_int_equal(look(HVD_FLOAT32, HVD_AVERAGE, salt).bad, COUNT);
    }
    struct codes_verdict v = look(HVD_FLOAT64, HVD_SUM, salt);
    assert_int_equal(v.first_bad, 0);
    assert_int_equal(v.nsets, 0);
}

/* The sum of three ranks is divided by 4: codes_verify() reports bad elements, or a set whose
 * divisor is not its number of ranks. */
static void test_divisor(void **unused)
{
    sum_of(HVD_FLOAT32, HVD_AVERAGE, 0x0b, 4);
    struct codes_verdict v = look(HVD_FLOAT32, HVD_AVERAGE, salt);
    if (v.bad == 0) {
        assert_int_equal(v.nsets, 1);
        assert_int_not_equal(v.sets[0].divisor, __builtin_popcount(v.sets[0].mask));
    }
}

static void test_rows(void **unused)
{
    int64_t all[SIZE * 3 * 5], n = 0;
    for (int skip = -1; skip < SIZE; skip++) {
        n = 0;
        for (int r = 0; r < SIZE; r++) {
            if (r == skip)
                continue;
            codes_fill_rows(all + n * 5, 5, r, salt);
            n += codes_rows(r, salt);
        }
        struct codes_verdict v;
        codes_verify_rows(all, n, 5, SIZE, salt, &v);
        assert_int_equal(v.bad, 0);
        assert_int_equal(v.sets[0].mask, skip < 0 ? ALL : ALL & ~(1 << skip));
        codes_verify_rows(all, n, 5, SIZE, salt + 3, &v);
        assert_true(v.bad > 0);
        all[n * 5 - 1]++;
        codes_verify_rows(all, n, 5, SIZE, salt, &v);
        assert_int_equal(v.bad, 1);
        assert_int_equal(v.first_bad, n * 5 - 1);
        codes_verify_rows(all, n - 1, 5, SIZE, salt, &v);
        assert_true(v.bad > 0 || v.sets[0].mask != (uint32_t)ALL);
    }
}

static void test_plan(void **unused)
{
    static struct plan a, b, next;
    int steady = 0, kinds[HVD_KINDS] = {0}, modes[3] = {0};
    for (uint64_t step = 0; step < 2000; step++) {
        plan_step(&a, 5, step, 1 << 20);
        plan_step(&b, 5, step, 1 << 20);
        assert_memory_equal(&a, &b, sizeof(a));
        assert_in_range(a.nops, 1, PLAN_MAX_OPS);
        for (int i = 0; i < a.nops; i++) {
            const struct plan_op *op = &a.ops[i];
            kinds[op->kind]++;
            modes[op->mode]++;
            assert_true(op->count >= 0);
            assert_true((size_t)op->count * hvd_dtype_size(op->dtype) <= 1 << 20);
            if (op->kind == HVD_ALLREDUCE)
                assert_true(codes_can(op->dtype, op->op));
            if (i > 0)
                assert_in_range(op->burst, op[-1].burst, op[-1].burst + 1);
        }
        plan_step(&next, 5, step + 1, 1 << 20);
        steady += strcmp(a.ops[0].name, next.ops[0].name) == 0 && a.nops == next.nops;
    }
    assert_true(steady > 900);
    assert_true(kinds[HVD_ALLREDUCE] > 1000 && kinds[HVD_ALLGATHER] && kinds[HVD_BROADCAST] &&
                kinds[HVD_BARRIER]);
    assert_true(modes[PLAN_CALL] && modes[PLAN_ASYNC] && modes[PLAN_GROUP]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_set_is_read),
        cmocka_unit_test(test_two_sets_in_one_tensor),
        cmocka_unit_test(test_doubled),
        cmocka_unit_test(test_of_another_operation),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_divisor),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
