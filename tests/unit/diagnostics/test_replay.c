/* SPDX-License-Identifier: Apache-2.0
 *
 * test_replay: every captured machine under tests/fixtures/machines, read with --root, against its
 * expected.json (diagnostics/cli/expected.h). HVD_UPDATE=1 (make test UPDATE=1) rewrites these
 * files.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "core/base/fd.h"
#include "diagnostics/cli/expected.h"
#include "diagnostics/cli/save.h"
#include "diagnostics/cli/session.h"
#include "diagnostics/report/json.h"

#define MACHINES "tests/fixtures/machines"

static bool update(void)
{
    const char *value = getenv("HVD_UPDATE");
    return value && strcmp(value, "1") == 0;
}

static void save(const char *path, const struct buf *text)
{
    struct err err = {0};
    if (save_file(path, text, &err) < 0)
        fail_msg("%s", err.msg);
    chmod(path, 0644);
}

/* Every machine renders in each format, without bytes that are not UTF-8, and has an exit code. */
static void render_all(const struct session *s, const struct report *report)
{
    struct buf json = {0};
    struct err err = {0};
    json_t *j;
    struct json_origin origin = session_origin(s);
    report_json(report, &origin, &json);
    assert_false(json.failed);
    if (json_read((char *)json.data, json.len, "the report", &j, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(json_array_size(json_object_get(j, "checks")), report->n);
    json_decref(j);
    buf_fini(&json);
    int code = report_exit_code(report, &s->choice);
    assert_true(code == 0 || code == 1 || code == 3);
}

/* Prints the differences and returns their number. */
static size_t replay(const char *name)
{
    char dir[512], path[600];
    auto_free char *text = NULL;
    size_t len = 0, bad = 0;
    struct cli cli = {.command = CLI_CHECK, .root = dir, .job.gpus = -1};
    struct session s;
    struct report report = {0};
    struct err err = {0};
    struct buf out = {0};
    snprintf(dir, sizeof(dir), MACHINES "/%s", name);
    snprintf(path, sizeof(path), "%s/expected.json", dir);
    if (session_open(&s, &cli, &err) < 0 || session_run(&s, NULL, NULL, &report, &err) < 0)
        fail_msg("%s: %s", name, err.msg);
    render_all(&s, &report);
    if (update()) {
        expected_put(&report, &out);
        save(path, &out);
    } else if (fd_read_file(path, 1 << 20, &text, &len) < 0) {
        print_error("%s: no expected.json; make test UPDATE=1 writes it\n", name);
        bad = 1;
    } else {
        bad = expected_compare(&report, text, len, &out);
        if (bad)
            print_error("%s:\n%.*s", name, (int)out.len, (char *)out.data);
    }
    buf_fini(&out);
    report_fini(&report);
    session_close(&s);
    return bad;
}

static int not_hidden(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void test_machines(void **state)
{
    struct dirent **names;
    size_t bad = 0;
    int n = scandir(MACHINES, &names, not_hidden, alphasort);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        bad += replay(names[i]->d_name);
        free(names[i]);
    }
    free(names);
    if (bad)
        fail_msg("%zu differences; if they are right: make test UPDATE=1", bad);
}

/* The comparison finds a difference. */
static void test_compare(void **state)
{
    static const struct check checks[] = {{.id = "one", .code = "HVD1"},
                                          {.id = "two", .code = "HVD2"},
                                          {.id = "three", .code = "HVD3"}};
    struct result results[3] = {
        {.check = &checks[0]}, {.check = &checks[1]}, {.check = &checks[2]}};
    struct report report = {.results = results, .n = 3, .verdict = VERDICT_WARN};
    struct buf out = {0};
    result_pass(&results[0], "good \"quoted\"");
    result_warn(&results[1], "odd");
    result_skip(&results[2], "not here");
    expected_put(&report, &out);
    buf_put_u8(&out, 0);
    auto_free char *text = strdup((char *)out.data);
    buf_reset(&out);
    assert_non_null(strstr(text, "\"one\": [\"pass\", \"good \\\"quoted\\\"\"]"));
    assert_null(strstr(text, "three"));
    assert_int_equal(expected_compare(&report, text, strlen(text), &out), 0);
    result_fail(&results[2], "new");
    assert_int_equal(expected_compare(&report, text, strlen(text), &out), 1);
    result_pass(&results[2], "new");
    assert_int_equal(expected_compare(&report, text, strlen(text), &out), 0);
    result_pass(&results[1], "odd");
    assert_int_equal(expected_compare(&report, text, strlen(text), &out), 1);
    result_warn(&results[1], "odd");
    result_pass(&results[0], "other words");
    assert_int_equal(expected_compare(&report, text, strlen(text), &out), 1);
    result_pass(&results[0], "good \"quoted\"");
    report.n = 1;
    assert_int_equal(expected_compare(&report, text, strlen(text), &out), 1);
    report.n = 3;
    report.verdict = VERDICT_FAIL;
    assert_int_equal(expected_compare(&report, text, strlen(text), &out), 1);
    assert_int_equal(expected_compare(&report, "{", 1, &out), 1);
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_machines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
