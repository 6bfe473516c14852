/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of rankset: sets, ranges on the wire and in texts, invalid input.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/negotiate/rankset.h"

enum { SIZE = 150 };

static void fill(struct rankset *s, const char *ranks)
{
    rankset_clear(s);
    for (const char *p = ranks; *p; p += *p == ',') {
        char *end;
        long first = strtol(p, &end, 10), last = first;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (; first <= last; first++)
            rankset_add(s, (int)first);
        p = end;
    }
}

static void test_text_and_wire(void **state)
{
    static const char *const sets[] = {
        "", "0", "149", "0-149", "1,3,5-7,63-64,100", "62-65,127-128"};
    struct rankset a, b;
    assert_int_equal(rankset_init(&a, SIZE), 0);
    assert_int_equal(rankset_init(&b, SIZE), 0);
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        char text[100];
        struct buf buf = {0};
        fill(&a, sets[i]);
        rankset_text(&a, NULL, text, sizeof(text));
        assert_string_equal(text, sets[i]);
        rankset_write(&a, &buf);
        struct reader r = reader_over(buf.data, buf.len);
        rankset_add(&b, 77); /* the copy overwrites it */
        rankset_read(&b, &r);
        assert_true(reader_ok(&r));
        assert_true(rankset_equal(&a, &b));
        for (size_t cut = 0; cut < buf.len; cut++) {
            r = reader_over(buf.data, cut);
            rankset_read(&b, &r);
            assert_true(r.failed);
        }
        buf_fini(&buf);
    }
    rankset_fini(&a);
    rankset_fini(&b);
}

static void test_text_is_cut(void **state)
{
    struct rankset a;
    char text[12];
    assert_int_equal(rankset_init(&a, SIZE), 0);
    fill(&a, "1,3,5,7,9,11,13,15");
    rankset_text(&a, NULL, text, sizeof(text));
    assert_string_equal(text, "1,3,5,7...");
    rankset_fini(&a);
}

static void test_nonsense(void **state)
{
    static const uint32_t bad[][5] = {
        {1, 5, 4}, {1, 0, SIZE}, {2, 4, 6, 6, 7}, {2, 8, 9, 0, 1}, {1, UINT32_MAX, UINT32_MAX}};
    struct rankset a;
    assert_int_equal(rankset_init(&a, SIZE), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct buf buf = {0};
        for (uint32_t k = 0; k < 1 + 2 * bad[i][0]; k++)
            buf_put_u32(&buf, bad[i][k]);
        struct reader r = reader_over(buf.data, buf.len);
        rankset_read(&a, &r);
        assert_true(r.failed);
        buf_fini(&buf);
    }
    rankset_fini(&a);
}

static void test_sets(void **state)
{
    struct rankset a, b;
    assert_int_equal(rankset_init(&a, SIZE), 0);
    assert_int_equal(rankset_init(&b, SIZE), 0);
    fill(&a, "1-3,70");
    fill(&b, "3,70,140");
    assert_true(rankset_overlap(&a, &b));
    assert_false(rankset_within(&a, &b));
    assert_int_equal(rankset_count(&a), 4);
    assert_int_equal(rankset_next(&a, 4), 70);
    assert_int_equal(rankset_next(&a, 71), -1);
    rankset_union(&a, &b);
    assert_true(rankset_within(&b, &a));
    rankset_subtract(&a, &b);
    assert_int_equal(rankset_count(&a), 2);
    assert_false(rankset_overlap(&a, &b));
    rankset_fini(&a);
    rankset_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_and_wire),
        cmocka_unit_test(test_text_is_cut),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
