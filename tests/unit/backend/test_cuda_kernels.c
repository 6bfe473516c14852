/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_kernels: which kernel runs which change, and the tables of pieces and chunks for their
 * launches.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/backend/cuda_kernels.h"
#include "core/coll/reduce.h"

static struct kernel_move table;

/* Returns the plan for a change with this prescale and no other factor; there must be one. */
static struct gpu_move plan(enum hvd_dtype from, enum hvd_dtype to, double prescale)
{
    struct gpu_move move;
    struct gpu_change change = {from, to, prescale, 1, 1.0};
    struct err err = {0};
    assert_int_equal(gpu_move_plan(&change, &move, &err), 0);
    return move;
}

static void test_choice(void **state)
{
    struct gpu_move m = plan(HVD_FLOAT32, HVD_FLOAT32, 1.0);
    assert_string_equal(gpu_kernel_names[m.kernel], "hvd_move_bytes");
    assert_int_equal(m.unit, 4);
    assert_int_equal(m.from_bytes, 1);
    m = plan(HVD_FLOAT32, HVD_FLOAT32, 0.5);
    assert_string_equal(gpu_kernel_names[m.kernel], "hvd_move_float32");
    assert_int_equal(m.change.flags, KERNEL_PRESCALE);
    m = plan(HVD_BOOL, HVD_BOOL, 0.5);
    assert_string_equal(gpu_kernel_names[m.kernel], "hvd_move_bool");
    assert_int_equal(m.change.flags, 0);
    m = plan(HVD_FLOAT32, HVD_BFLOAT16, 1.0);
    assert_string_equal(gpu_kernel_names[m.kernel], "hvd_move_float32_bfloat16");
    assert_int_equal(m.from_bytes, 4);
    assert_int_equal(m.to_bytes, 2);
    m = plan(HVD_FLOAT16, HVD_FLOAT32, 1.0);
    assert_string_equal(gpu_kernel_names[m.kernel], "hvd_move_float16_float32");
    for (int t = 0; t < REDUCE_DTYPES; t++) {
        char want[64];
        const char *name = hvd_dtype_name((enum hvd_dtype)t);
        m = plan((enum hvd_dtype)t, (enum hvd_dtype)t, 2.0);
        snprintf(want, sizeof(want), "hvd_move_%s", name);
        assert_string_equal(gpu_kernel_names[m.kernel], want);
    }
}

static void test_no_such_kernel(void **state)
{
    struct gpu_move move;
    struct gpu_change change = {HVD_INT32, HVD_FLOAT16, 1.0, 1, 1.0};
    struct err err = {0};
    assert_int_equal(gpu_move_plan(&change, &move, &err), -ENOTSUP);
    assert_non_null(strstr(err.msg, "float16 of int32"));
}

/* Every element of every piece is in one chunk of the table, in order. */
static void check_table(const struct kernel_move *t)
{
    uint32_t next = 0;
    for (uint32_t p = 0; p < t->pieces; p++) {
        assert_true(t->count[p] > 0);
        assert_int_equal(t->first[p], next);
        next += (uint32_t)((t->count[p] + t->chunk - 1) / t->chunk);
    }
    assert_int_equal(t->chunks, next);
}

static void test_table(void **state)
{
    static char memory[64];
    struct gpu_piece pieces[5] = {{memory, memory + 1, 1},
                                  {memory, memory + 2, 0},
                                  {memory, memory + 3, 4096},
                                  {memory, memory + 4, 4097},
                                  {memory, memory + 5, (size_t)3 << 32}};
    struct gpu_move m = plan(HVD_FLOAT32, HVD_FLOAT16, 1.0);
    assert_int_equal(gpu_move_fill(&m, pieces, 5, &table), 5);
    assert_int_equal(table.pieces, 4);
    assert_int_equal(table.chunk, 4096);
    assert_ptr_equal(table.to[1], memory + 3);
    assert_int_equal(table.first[3], 4);
    assert_int_equal(table.count[3], (uint64_t)3 << 32);
    check_table(&table);
    /* The kernel for bytes counts bytes, not elements. */
    m = plan(HVD_INT64, HVD_INT64, 1.0);
    assert_int_equal(gpu_move_fill(&m, pieces, 4, &table), 4);
    assert_int_equal(table.count[1], 4096 * 8);
    assert_int_equal(table.chunk, KERNEL_CHUNK);
    check_table(&table);
    m = plan(HVD_FLOAT32, HVD_FLOAT32, 1.0);
    assert_int_equal(gpu_move_fill(&m, pieces + 1, 1, &table), 1);
    assert_int_equal(table.pieces, 0);
}

/* More pieces than one launch holds, some of them empty: each is in exactly one launch. */
static void test_many(void **state)
{
    enum { N = 1700 };
    struct gpu_piece *pieces = test_calloc(N, sizeof(*pieces));
    char *memory = test_malloc(N);
    struct gpu_move m = plan(HVD_UINT8, HVD_UINT8, 2.0);
    size_t launches = 0, next = 0, at = 0;
    for (size_t i = 0; i < N; i++)
        pieces[i] = (struct gpu_piece){memory + i, memory + i, i % 7 ? i : 0};
    for (; at < N; launches++) {
        size_t n = gpu_move_fill(&m, pieces + at, N - at, &table);
        assert_true(n > 0);
        check_table(&table);
        for (uint32_t p = 0; p < table.pieces; p++, next++) {
            while (pieces[next].count == 0)
                next++;
            assert_ptr_equal(table.from[p], memory + next);
            assert_int_equal(table.count[p], next);
        }
        at += n;
    }
    assert_int_equal(launches, 3);
    assert_int_equal(next, N);
    test_free(memory);
    test_free(pieces);
}

static void test_aligned(void **state)
{
    static const size_t in[] = {0, 1, 16, 18, 32}, out[] = {0, 16, 16, 32, 32};
    for (int i = 0; i < 5; i++)
        assert_int_equal(gpu_aligned(in[i]), out[i]);
}

static void test_blocks(void **state)
{
    assert_int_equal(gpu_blocks(1, 132), 1);
    assert_int_equal(gpu_blocks(1 << 20, 132), 132 * 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),  cmocka_unit_test(test_no_such_kernel),
        cmocka_unit_test(test_table),   cmocka_unit_test(test_many),
        cmocka_unit_test(test_aligned), cmocka_unit_test(test_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
