/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/api/lines and event: a stream that is split anywhere, and parsing of its
 * events.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "operator/api/event.h"
#include "operator/api/lines.h"

struct got {
    char text[256];
    int left; /* lines until the callback ends the feeding; 0: never */
};

static int on_line(void *arg, const char *line, size_t len, struct err *err)
{
    struct got *got = arg;
    size_t have = strlen(got->text);
    memcpy(got->text + have, line, len);
    got->text[have + len] = '|';
    if (got->left && --got->left == 0)
        return err_set(err, EIO, "enough");
    return 0;
}

static void test_split_anywhere(void **state)
{
    static const char text[] = "one\n\ntwo and more\n{\"three\":3}\ntorn";
    (void)state;
    for (size_t step = 1; step < sizeof(text); step++) {
        struct got got = {0};
        struct lines lines = {0};
        for (size_t i = 0; i < sizeof(text) - 1; i += step) {
            size_t n = sizeof(text) - 1 - i < step ? sizeof(text) - 1 - i : step;
            assert_int_equal(lines_feed(&lines, text + i, n, on_line, &got, NULL), 0);
        }
        assert_string_equal(got.text, "one|two and more|{\"three\":3}|");
        lines_fini(&lines);
    }
}

static void test_enough(void **state)
{
    struct got got = {.left = 2};
    struct lines lines = {0};
    struct err err = {0};
    (void)state;
    assert_int_equal(lines_feed(&lines, "a\nb\nc\n", 6, on_line, &got, &err), -EIO);
    assert_string_equal(got.text, "a|b|");
    lines_fini(&lines);
}

static void test_too_long(void **state)
{
    static char big[1 << 16];
    struct got got = {0};
    struct lines lines = {0};
    struct err err = {0};
    int rc = 0;
    (void)state;
    memset(big, 'x', sizeof(big));
    for (int i = 0; i < 100 && rc == 0; i++)
        rc = lines_feed(&lines, big, sizeof(big), on_line, &got, &err);
    assert_int_equal(rc, -EMSGSIZE);
    assert_true(lines.rest.len <= LINES_MAX);
    lines_fini(&lines);
}

static int parse(const char *text, struct event *e, struct err *err)
{
    return event_parse(text, strlen(text), e, err);
}

static void test_events(void **state)
{
    struct event e;
    struct event_meta meta;
    (void)state;
    assert_int_equal(parse("{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"uid\":"
                           "\"u\",\"resourceVersion\":\"7\"},\"spec\":{}}}",
                           &e, NULL),
                     0);
    assert_int_equal(e.type, EVENT_ADDED);
    assert_string_equal(e.version, "7");
    assert_int_equal(event_meta(e.object, &meta, NULL), 0);
    assert_string_equal(meta.namespace, "");
    assert_string_equal(meta.uid, "u");
    event_fini(&e);
    assert_int_equal(
        parse("{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\"}}}", &e,
              NULL),
        0);
    assert_int_equal(e.type, EVENT_BOOKMARK);
    assert_false(e.initial_end);
    event_fini(&e);
    assert_int_equal(parse("{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":"
                           "\"9\",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}",
                           &e, NULL),
                     0);
    assert_true(e.initial_end);
    event_fini(&e);
    assert_int_equal(
        parse("{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":\"old\"}}", &e, NULL), 0);
    assert_int_equal(e.type, EVENT_ERROR);
    assert_int_equal(e.code, 410);
    assert_string_equal(e.message, "old");
    event_fini(&e);
}

static void test_no_events(void **state)
{
    static const char *const cases[] = {
        "",
        "{}",
        "[]",
        "{\"type\":\"ADDED\"}",
        "{\"type\":\"ADDED\",\"object\":[]}",
        "{\"type\":\"ADDED\",\"object\":{}}",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":1,\"resourceVersion\":\"7\"}}}",
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{}}}",
        "{\"type\":\"LATER\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"7\"}}}",
        "{\"type\":\"ERROR\",\"object\":{\"code\":\"410\"}}",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"7\"}}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct event e = {.code = 42};
        struct err err = {0};
        assert_int_equal(parse(cases[i], &e, &err), -EINVAL);
        assert_int_equal(e.code, 42);
        assert_int_not_equal(err.msg[0], '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_anywhere), cmocka_unit_test(test_enough),
        cmocka_unit_test(test_too_long), cmocka_unit_test(test_events),
        cmocka_unit_test(test_no_events)};
    return cmocka_run_group_tests_name("api/lines", tests, NULL, NULL);
}
