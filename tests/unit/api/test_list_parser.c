/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/api/list_parser: pages that are split anywhere, invalid lists, limits.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "operator/api/list_parser.h"

struct got {
    char text[512];
    int n, fail_at;
};

static int on_item(void *arg, const char *text, size_t len, struct err *err)
{
    struct got *got = arg;
    if (got->fail_at && ++got->n == got->fail_at)
        return err_set(err, EIO, "enough");
    size_t have = strlen(got->text);
    assert_true(have + len + 2 < sizeof(got->text));
    memcpy(got->text + have, text, len);
    got->text[have + len] = '|';
    return 0;
}

static int cut(const char *text, size_t step, struct got *got, struct page *page, struct err *err)
{
    struct list_parser c;
    size_t n = strlen(text);
    int rc = 0;
    list_parser_init(&c, on_item, got);
    for (size_t i = 0; i < n && rc == 0; i += step)
        rc = list_parser_feed(&c, text + i, n - i < step ? n - i : step, err);
    if (rc == 0)
        rc = list_parser_finish(&c, page, err);
    list_parser_fini(&c);
    return rc;
}

static const char page_text[] =
    "{\"kind\":\"PodList\",\"metadata\":{\"items\":[1,2],\"resourceVersion\":\"12\",\"continue\":"
    "\"to\\\"ken\"},\n \"items\" : [ {\"a\":\"}]\\\\\"} ,{\"b\":[{},{\"c\":\"\\\"{\"}]},\n{}]  ,"
    "\"x\":{\"items\":[{\"no\":1}]}}\n";

static void test_split_anywhere(void **state)
{
    (void)state;
    for (size_t step = 1; step < sizeof(page_text); step++) {
        struct got got = {0};
        struct page page = {0};
        struct err err = {0};
        assert_int_equal(cut(page_text, step, &got, &page, &err), 0);
        assert_string_equal(got.text, "{\"a\":\"}]\\\\\"}|{\"b\":[{},{\"c\":\"\\\"{\"}]}|{}|");
        assert_string_equal(page.version, "12");
        assert_string_equal(page.next, "to\"ken");
    }
}

static void test_ends_too_early(void **state)
{
    char text[sizeof(page_text)];
    (void)state;
    /* The last byte is a newline, which is optional. */
    for (size_t n = 0; n < sizeof(page_text) - 2; n++) {
        struct got got = {0};
        struct page page = {.version = "as it was"};
        struct err err = {0};
        memcpy(text, page_text, n);
        text[n] = '\0';
        assert_int_equal(cut(text, 7, &got, &page, &err), -EINVAL);
        assert_string_equal(page.version, "as it was");
        assert_non_null(strstr(err.msg, "list"));
    }
}

static void test_no_items(void **state)
{
    struct got got = {0};
    struct page page;
    (void)state;
    assert_int_equal(
        cut("{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[]}", 3, &got, &page, NULL), 0);
    assert_string_equal(page.next, "");
    assert_int_equal(
        cut("{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":null}", 3, &got, &page, NULL), 0);
    assert_string_equal(got.text, "");
}

static void test_no_list(void **state)
{
    static const char *const cases[] = {
        "[]",
        "nonsense",
        "{\"metadata\":{\"resourceVersion\":\"1\"}}",
        "{\"metadata\":{\"resourceVersion\":\"\"},\"items\":[]}",
        "{\"metadata\":{},\"items\":[]}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[{},]}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[,{}]}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[{},,{}]}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[{}{}]}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[1]}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[[]]}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[\"a\"]}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[{}],\"items\":[{}]}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"it\\u0065ms\":[{}]}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[]}}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[]}{}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":{\"a\":[{}]}}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct got got = {0};
        struct page page;
        struct err err = {0};
        assert_int_equal(cut(cases[i], 5, &got, &page, &err), -EINVAL);
        assert_int_not_equal(err.msg[0], '\0');
    }
}

static void test_callback_ends_it(void **state)
{
    struct got got = {.fail_at = 2};
    struct page page;
    struct err err = {0};
    (void)state;
    assert_int_equal(cut(page_text, 11, &got, &page, &err), -EIO);
    assert_string_equal(err.msg, "enough");
}

/* Memory does not grow with the length of the list, and stays below the limits. */
static void test_bounds(void **state)
{
    static char big[1 << 16];
    struct got got = {0};
    struct list_parser c;
    struct err err = {0};
    int rc = 0;
    (void)state;
    memset(big, ' ', sizeof(big));
    list_parser_init(&c, on_item, &got);
    assert_int_equal(list_parser_feed(&c, "{\"items\":[{\"a\":\"", 15, &err), 0);
    for (int i = 0; i < 100 && rc == 0; i++)
        rc = list_parser_feed(&c, big, sizeof(big), &err);
    assert_int_equal(rc, -EMSGSIZE);
    assert_true(c.item.len <= LIST_PARSER_ITEM_MAX);
    list_parser_fini(&c);

    rc = 0;
    list_parser_init(&c, on_item, &got);
    assert_int_equal(list_parser_feed(&c, "{\"x\":[", 6, &err), 0);
    for (int i = 0; i < 100 && rc == 0; i++)
        rc = list_parser_feed(&c, big, sizeof(big), &err);
    assert_int_equal(rc, -EMSGSIZE);
    list_parser_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_anywhere),   cmocka_unit_test(test_ends_too_early),
        cmocka_unit_test(test_no_items),         cmocka_unit_test(test_no_list),
        cmocka_unit_test(test_callback_ends_it), cmocka_unit_test(test_bounds)};
    return cmocka_run_group_tests_name("api/list_parser", tests, NULL, NULL);
}
