/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/coll/layout.h"

#define MAX_BYTES 4096

/* The pieces of a tensor are in order, cover it, and differ by one element at most. */
static void test_pieces_are_even(void **state)
{
    for (size_t count = 0; count < 40; count++) {
        for (size_t pieces = 1; pieces < 12; pieces++) {
            assert_int_equal(layout_begin(count, pieces, 0), 0);
            assert_int_equal(layout_begin(count, pieces, pieces), count);
            for (size_t k = 0; k < pieces; k++) {
                size_t n = layout_begin(count, pieces, k + 1) - layout_begin(count, pieces, k);
                assert_in_range(n, count / pieces, count / pieces + 1);
                assert_true(k == 0 || n <= layout_begin(count, pieces, k) -
                                               layout_begin(count, pieces, k - 1));
            }
        }
    }
}

static const size_t counts[] = {5, 0, 1, 130, 64, 3};
#define TENSORS (sizeof(counts) / sizeof(counts[0]))

static void fill(struct coll_tensor *t, uint8_t *in, uint8_t *out, size_t elem)
{
    for (size_t i = 0; i < TENSORS; i++) {
        t[i] = (struct coll_tensor){in, out, counts[i]};
        in += counts[i] * elem;
        out += counts[i] * elem;
    }
}

/* Whatever the limit of a run is, a walk over all pieces returns every element once, in order. */
static void test_walks_cover_everything(void **state)
{
    static uint8_t in[MAX_BYTES], seen[MAX_BYTES];
    struct coll_tensor t[TENSORS];
    for (size_t pieces = 1; pieces < 9; pieces++) {
        for (size_t max = 1; max < 140; max = max * 3 + 1) {
            struct layout l = {t, TENSORS, 4, pieces};
            fill(t, in, seen, 4);
            memset(seen, 0, sizeof(seen));
            for (size_t k = 0; k < pieces; k++) {
                struct layout_walk w = layout_walk(k);
                struct layout_run run;
                size_t bytes = 0;
                while (layout_next(&l, &w, max, &run)) {
                    assert_in_range(run.count, 1, max);
                    assert_ptr_equal(run.in - in, run.out - seen);
                    for (size_t i = 0; i < run.count * 4; i++)
                        run.out[i]++;
                    bytes += run.count * 4;
                }
                assert_int_equal(bytes, layout_piece_bytes(&l, k));
            }
            for (size_t i = 0; i < sizeof(seen); i++)
                assert_int_equal(seen[i], i < 203 * 4);
        }
    }
}

/* The piece of an element does not depend on the tensors that are fused with its tensor. */
static void test_fusion_moves_nothing(void **state)
{
    static uint8_t in[MAX_BYTES], out[MAX_BYTES];
    struct coll_tensor t[TENSORS];
    fill(t, in, out, 2);
    for (size_t i = 0; i < TENSORS; i++) {
        struct layout fused = {t, TENSORS, 2, 6}, alone = {&t[i], 1, 2, 6};
        for (size_t k = 0; k < 6; k++) {
            struct layout_walk wf = layout_walk(k), wa = layout_walk(k);
            struct layout_run a, f = {0};
            if (!layout_next(&alone, &wa, SIZE_MAX, &a))
                continue;
            while (layout_next(&fused, &wf, SIZE_MAX, &f) && f.in != a.in)
                ;
            assert_ptr_equal(f.in, a.in);
            assert_int_equal(f.count, a.count);
        }
    }
}

static void test_nothing(void **state)
{
    struct layout l = {NULL, 0, 4, 3};
    struct layout_walk w = layout_walk(1);
    struct layout_run run;
    assert_int_equal(layout_piece_bytes(&l, 1), 0);
    assert_false(layout_next(&l, &w, 1, &run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_are_even),
        cmocka_unit_test(test_walks_cover_everything),
        cmocka_unit_test(test_fusion_moves_nothing),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests_name("unit/coll/layout", tests, NULL, NULL);
}
