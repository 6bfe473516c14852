/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of json/json: messages of parse and shape errors, binary, text that is not UTF-8.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/json/json.h"

static void test_read_and_expect(void **state)
{
    struct err err = {0};
    json_t *keep = (json_t *)&err;
    auto_json json_t *j = NULL;
    const char *text = "{\"a\": 1,\n \"b\": }";
    int a = 0;
    (void)state;
    assert_int_equal(json_read(text, strlen(text), "the answer", &keep, &err), -EINVAL);
    assert_ptr_equal(keep, &err); /* json_read() leaves the pointer unchanged on failure */
    assert_non_null(strstr(err.msg, "the answer: line 2 column"));
    assert_int_equal(json_read("{\"a\": 1}", 8, "x", &j, &err), 0);
    assert_int_equal(json_expect(j, "x", &err, "{s:i}", "a", &a), 0);
    assert_int_equal(a, 1);
    assert_int_equal(json_expect(j, "x", &err, "{s:s}", "a", &text), -EINVAL);
    assert_non_null(strstr(err.msg, "x: "));
}

static void test_bytes(void **state)
{
    uint8_t in[300], out[300];
    size_t n;
    (void)state;
    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (uint8_t)(i * 7);
    for (size_t len = 0; len < sizeof(in); len += 13) {
        auto_json json_t *j = json_bytes(in, len);
        assert_int_equal(json_bytes_read(json_string_value(j), "f", out, len, &n, NULL), 0);
        assert_int_equal(n, len);
        assert_memory_equal(in, out, len);
        if (len)
            assert_int_equal(json_bytes_read(json_string_value(j), "f", out, len - 1, &n, NULL),
                             -EINVAL);
    }
    assert_int_equal(json_bytes_read("AAA", "f", out, 99, &n, NULL), -EINVAL);
    assert_int_equal(json_bytes_read("A A=", "f", out, 99, &n, NULL), -EINVAL);
}

static void test_lossy(void **state)
{
    auto_json json_t *j = json_lossy_string("a\xff", 2), *good = json_lossy_string("\xc3\xa9", 2);
    auto_free char *body = json_error_body("no \"x\"");
    (void)state;
    assert_string_equal(json_string_value(j), "a?");
    assert_string_equal(json_string_value(good), "\xc3\xa9");
    assert_string_equal(body, "{\"error\":\"no \\\"x\\\"\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_and_expect),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_lossy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
