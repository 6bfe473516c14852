/* SPDX-License-Identifier: Apache-2.0
 *
 * ranklist: lists survive a message, groups of a grid of ranks are short in it, malformed lists are
 * refused, texts.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/negotiate/ranklist.h"
#include "tests/harness/rank.h"

#define MOST 64

static size_t round_trip(const int *ranks, int n, int size)
{
    struct buf b = {.data = NULL};
    int *back = NULL;
    ranklist_write(ranks, n, &b);
    assert_false(b.failed);
    size_t len = b.len;
    struct reader r = reader_over(b.data, b.len);
    assert_int_equal(ranklist_read(&r, size, &back), n);
    assert_true(reader_ok(&r));
    assert_memory_equal(back, ranks, (size_t)n * sizeof(*ranks));
    free(back);
    buf_fini(&b);
    return len;
}

static void test_round_trip(void **state)
{
    uint64_t random = 1;
    int order[MOST];
    for (int i = 0; i < 2000; i++) {
        int size = 1 + (int)(rank_random(&random) % MOST);
        rank_shuffle(order, size, &random);
        round_trip(order, 1 + (int)(rank_random(&random) % (uint64_t)size), size);
    }
}

/* 10,000 ranks as 8 x 25 x 50: all groups along an axis, up and down. */
static void test_grids(void **state)
{
    int *ranks = calloc(10000, sizeof(*ranks));
    assert_non_null(ranks);
    const int lengths[] = {10000, 8, 25, 50, 2, 1}, steps[] = {1, 1250, 50, 1, 9999, 1};
    for (size_t g = 0; g < sizeof(lengths) / sizeof(lengths[0]); g++) {
        for (int i = 0; i < lengths[g]; i++)
            ranks[i] = i * steps[g];
        assert_true(round_trip(ranks, lengths[g], 10000) <= 16);
        for (int i = 0; i < lengths[g]; i++)
            ranks[i] = (lengths[g] - 1 - i) * steps[g];
        assert_true(round_trip(ranks, lengths[g], 10000) <= 16);
    }
    free(ranks);
}

static int read_words(const uint32_t *words, size_t n, int size)
{
    int *ranks = NULL;
    struct buf b = {.data = NULL};
    for (size_t i = 0; i < n; i++)
        buf_put_u32(&b, words[i]);
    struct reader r = reader_over(b.data, b.len);
    int rc = ranklist_read(&r, size, &ranks);
    free(ranks);
    buf_fini(&b);
    return rc;
}

static void test_malformed(void **state)
{
    const uint32_t none[] = {0}, cut[] = {1, 0, 1}, far[] = {1, 3, 1, 2}, below[] = {1, 0, -1U, 2},
                   long_run[] = {1, 0, 0, 5}, empty_run[] = {1, 0, 1, 0}, many[] = {1U << 31, 0},
                   over[] = {2, 0, 1, 4, 0, 1, 1}, huge[] = {1, 0, 1, -1U}, good[] = {1, 0, 1, 4};
    assert_int_equal(read_words(none, 1, 4), -EPROTO);
    assert_int_equal(read_words(cut, 3, 4), -EPROTO);
    assert_int_equal(read_words(far, 4, 4), -EPROTO);
    assert_int_equal(read_words(below, 4, 4), -EPROTO);
    assert_int_equal(read_words(long_run, 4, 4), -EPROTO);
    assert_int_equal(read_words(empty_run, 4, 4), -EPROTO);
    assert_int_equal(read_words(many, 2, 4), -EPROTO);
    assert_int_equal(read_words(over, 7, 4), -EPROTO);
    assert_int_equal(read_words(huge, 4, 4), -EPROTO);
    assert_int_equal(read_words(good, 4, 4), 4);
}

static void test_text(void **state)
{
    char text[64];
    int ranks[MOST] = {3, 1};
    ranklist_text(ranks, 1, text, sizeof(text));
    assert_string_equal(text, "rank 3");
    ranklist_text(ranks, 2, text, sizeof(text));
    assert_string_equal(text, "ranks 3, 1");
    for (int i = 0; i < MOST; i++)
        ranks[i] = i;
    ranklist_text(ranks, MOST, text, sizeof(text));
    assert_string_equal(text, "ranks 0, 1, 2, 3, 4, 5, 6 and 57 more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_grids),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
