/* SPDX-License-Identifier: Apache-2.0
 *
 * test_compare: hvd-doctor diff: two reports side by side, and input that is no report.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "diagnostics/cli/compare.h"

#define HEAD                                                                                       \
    "{\"schema\": \"hvd-doctor/1\", \"version\": \"1\", \"time\": \"t\", \"host\": \"%s\", "       \
    "\"verdict\": \"ok\", \"setting\": {\"ranks\": %d}, \"checks\": [%s]}"

static void row(char *dst, size_t size, const char *id, const char *status, const char *observed)
{
    size_t n = strlen(dst);
    snprintf(dst + n, size - n,
             "%s{\"id\": \"%s\", \"code\": \"HVD1\", \"group\": \"host\", \"status\": \"%s\", "
             "\"summary\": \"%s is %s\", \"observed\": \"%s\"}",
             n ? ", " : "", id, status, id, observed, observed);
}

static json_t *report(const char *host, int ranks, const char *rows)
{
    char text[4096];
    struct err err = {0};
    json_t *j;
    snprintf(text, sizeof(text), HEAD, host, ranks, rows);
    if (compare_read(text, strlen(text), host, &j, &err) < 0)
        fail_msg("%s", err.msg);
    return j;
}

static const char *change(json_t *diff, const char *id)
{
    json_t *one;
    size_t i;
    json_array_foreach(json_object_get(diff, "changes"), i, one)
    {
        if (strcmp(json_string_value(json_object_get(one, "id")), id) == 0)
            return json_string_value(json_object_get(one, "change"));
    }
    return NULL;
}

static void test_changes(void **state)
{
    char a[2048] = "", b[2048] = "";
    struct buf text = {0};
    row(a, sizeof(a), "same", "warn", "1"), row(b, sizeof(b), "same", "warn", "1");
    row(a, sizeof(a), "worse", "warn", "1"), row(b, sizeof(b), "worse", "fail", "1");
    row(a, sizeof(a), "better", "error", "1"), row(b, sizeof(b), "better", "pass", "1");
    row(a, sizeof(a), "status", "pass", "1"), row(b, sizeof(b), "status", "info", "1");
    row(a, sizeof(a), "seen", "pass", "1"), row(b, sizeof(b), "seen", "pass", "2");
    row(a, sizeof(a), "gone", "pass", "1");
    row(a, sizeof(a), "gone-skip", "skip", "");
    row(b, sizeof(b), "new-skip", "skip", "");
    row(b, sizeof(b), "new", "fail", "1");
    auto_json json_t *ja = report("left", 1, a), *jb = report("right", 2, b);
    auto_json json_t *diff = compare_reports(ja, jb);
    assert_null(change(diff, "same"));
    assert_string_equal(change(diff, "worse"), "worse");
    assert_string_equal(change(diff, "better"), "better");
    assert_string_equal(change(diff, "status"), "status");
    assert_string_equal(change(diff, "seen"), "observed");
    assert_string_equal(change(diff, "gone"), "only-a");
    assert_string_equal(change(diff, "new"), "only-b");
    assert_null(change(diff, "gone-skip"));
    assert_null(change(diff, "new-skip"));
    assert_true(json_is_false(json_object_get(diff, "equal")));
    compare_text(diff, false, false, &text);
    buf_put_u8(&text, 0);
    const char *t = (const char *)text.data;
    assert_non_null(strstr(t, "a: left, t, hvd-doctor 1: ok\n"));
    assert_non_null(strstr(t, "the two reports are for different settings: ranks: 1, 2\n"));
    assert_non_null(strstr(t, "worse     worse\n  a  warn   worse is 1\n  b  fail   worse is 1\n"));
    assert_non_null(strstr(t, "only-a    gone\n  a  pass   gone is 1\n  b  not in that report\n"));
    assert_non_null(strstr(t, "\n1 worse, 1 better, 1 with another status, 1 with another value, "
                              "2 in one report only\n"));
    assert_null(strchr(t, '\033'));
    buf_fini(&text);
}

static void test_equal(void **state)
{
    char a[512] = "";
    struct buf text = {0};
    row(a, sizeof(a), "same", "warn", "1");
    auto_json json_t *j = report("h", 1, a), *diff = compare_reports(j, j);
    assert_true(json_is_true(json_object_get(diff, "equal")));
    compare_text(diff, true, true, &text);
    assert_int_equal(text.len, strlen("no difference\n"));
    buf_fini(&text);
}

/* Terminals act on escape sequences: those in a foreign report are replaced. */
static void test_escapes(void **state)
{
    char a[512] = "", b[512] = "";
    struct buf text = {0};
    row(a, sizeof(a), "x\\u001b[2J", "pass", "\\n1"), row(b, sizeof(b), "x\\u001b[2J", "warn", "2");
    auto_json json_t *ja = report("h\\u001b]0;\\u009b2J", 1, a), *jb = report("h", 1, b);
    auto_json json_t *diff = compare_reports(ja, jb);
    compare_text(diff, false, false, &text);
    assert_null(memchr(text.data, '\033', text.len));
    assert_null(memmem(text.data, text.len, "\xc2\x9b", 2));
    buf_fini(&text);
}

static void test_bad(void **state)
{
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"", "a.json: line 1 column 0: '[' or '{' expected"},
        {"{", "a.json: line 1"},
        {"[]", "a.json: schema: want \"hvd-doctor/1\" (hvd-doctor --json)"},
        {"{}", "a.json: schema: want"},
        {"{\"schema\": \"hvd-doctor/2\"}", "a.json: schema: want"},
        {"{\"schema\": 1}", "a.json: schema: want"},
        {"{\"schema\": \"hvd-doctor/1\"}", "a.json: "},
        {"{\"schema\": \"hvd-doctor/1\", \"version\": \"1\", \"time\": \"t\", \"host\": \"h\", "
         "\"verdict\": \"ok\", \"setting\": {}, \"checks\": {}}",
         "a.json: checks: wrong type"},
        {"{\"schema\": \"hvd-doctor/1\", \"version\": \"1\", \"time\": \"t\", \"host\": \"h\", "
         "\"verdict\": \"ok\", \"setting\": [], \"checks\": []}",
         "a.json: setting: wrong type"},
        {"{\"schema\": \"hvd-doctor/1\", \"version\": \"1\", \"time\": \"t\", \"host\": \"h\", "
         "\"verdict\": \"ok\", \"setting\": {}, \"checks\": [7]}",
         "a.json: checks[0]: "},
        {"{\"schema\": \"hvd-doctor/1\", \"version\": \"1\", \"time\": \"t\", \"host\": \"h\", "
         "\"verdict\": \"ok\", \"setting\": {}, \"checks\": [{\"id\": \"x\", \"code\": \"\", "
         "\"group\": \"\", \"status\": \"good\", \"summary\": \"\", \"observed\": \"\"}]}",
         "a.json: checks[0]: status: \"good\""},
        {"{\"schema\": \"hvd-doctor/1\", \"version\": \"1\", \"time\": \"t\", \"host\": \"h\", "
         "\"verdict\": \"ok\", \"setting\": {}, \"checks\": [{\"id\": \"x\", \"code\": \"\", "
         "\"group\": \"\", \"status\": \"pa\\nss\", \"summary\": \"\", \"observed\": \"\"}]}",
         "a.json: checks[0]: status: \"pa ss\""}, /* a message has one line; found by fuzz_doctor */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err err = {0};
        json_t *j = NULL;
        int rc = compare_read(rows[i].text, strlen(rows[i].text), "a.json", &j, &err);
        if (rc >= 0 || !strstr(err.msg, rows[i].words))
            fail_msg("%zu: %d \"%s\"", i, rc, err.msg);
        assert_null(strchr(err.msg, '\n'));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_equal),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
