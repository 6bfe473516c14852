/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/objects/sanitize: JSON that API servers send and jansson does not parse.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operator/objects/sanitize.h"
#include "tests/unit/operator/jobs.h"

static void test_table(void **state)
{
    static const struct {
        const char *text, *want; /* want NULL: unchanged */
    } rows[] = {
        {"{\"a\":\"x\\u0000y\"}", "{\"a\":\"x\\ufffdy\"}"},
        {"{\"a\\u0000\":1}", "{\"a\\ufffd\":1}"},
        {"[\"\\\\u0000\",\"\\\"\\u0000\"]", "[\"\\\\u0000\",\"\\\"\\ufffd\"]"},
        {"[12345678901234567890]", "[12345678901234567890e0]"},
        {"{\"n\":-9999999999999999999}", "{\"n\":-9999999999999999999e0}"},
        {"[123456789012345678,-123456789012345678,1.2345678901234567890,1e20]", NULL},
        {"{\"a\":\"12345678901234567890\",\"b\":\"[[[\"}", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *text = rows[i].text, *want = rows[i].want ? rows[i].want : text, *why;
        struct buf b = {0};
        json_t *j = NULL;
        assert_int_equal(sanitize(text, strlen(text), &b, &why), 0);
        assert_int_equal(b.len, strlen(want));
        assert_memory_equal(b.data, want, b.len);
        assert_int_equal(why != NULL, rows[i].want != NULL);
        assert_int_equal(sanitize_read(text, strlen(text), "x", &j, &why, NULL), 0);
        assert_int_equal(why != NULL, rows[i].want != NULL);
        json_decref(j);
        buf_fini(&b);
    }
}

/* Values that are nested too deep become null, their neighbours stay. */
static void test_deep(void **state)
{
    static const int depths[] = {SANITIZE_DEPTH - 1, SANITIZE_DEPTH, 3000, 10000};
    (void)state;
    for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
        struct buf b = {0};
        const char *why;
        json_t *j = NULL;
        buf_put(&b, "{\"deep\":", 8);
        for (int k = 0; k < depths[i]; k++)
            buf_put_u8(&b, '[');
        buf_put(&b, "\"]\"", 3);
        for (int k = 0; k < depths[i]; k++)
            buf_put_u8(&b, ']');
        buf_put(&b, ",\"name\":7}", 10);
        assert_int_equal(sanitize_read((const char *)b.data, b.len, "x", &j, &why, NULL), 0);
        assert_int_equal(json_integer_value(json_object_get(j, "name")), 7);
        assert_int_equal(why != NULL, depths[i] >= 2048); /* unchanged if jansson can parse it */
        json_decref(j);
        buf_fini(&b);
    }
}

/* Truncated JSON stays invalid. */
static void test_none(void **state)
{
    static const char *const rows[] = {"",     "{",      "\"",  "\"\\", "{\"a\":\"\\u0000\"",
                                       "[1,]", "\\u000", "]]]", "-",    "99999999999999999999x"};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        json_t *j = NULL;
        const char *why = NULL;
        struct err err = {0};
        assert_int_equal(sanitize_read(rows[i], strlen(rows[i]), "x", &j, &why, &err), -EINVAL);
        assert_null(why);
        assert_null(j);
    }
}

/* A job whose object was changed by sanitizing is refused, and its message says why. */
static void test_job(void **state)
{
    (void)state;
    struct hvdjob job;
    auto_json json_t *j = from_text("{'metadata':{'name':'a','uid':'u'},'spec':{'template':{'spec':"
                                    "{'containers':[{'command':['x']}]}}}}");
    assert_int_equal(sanitize_mark(j, NULL), 0);
    assert_int_equal(hvdjob_parse(j, &job, NULL), 0);
    assert_null(job.refused);
    hvdjob_fini(&job);
    assert_int_equal(sanitize_mark(j, "the character U+0000"), 0);
    assert_int_equal(hvdjob_parse(j, &job, NULL), 0);
    assert_string_equal(
        job.refused,
        "the object contains the character U+0000, which this operator cannot read; remove it");
    hvdjob_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
