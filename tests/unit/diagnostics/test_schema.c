/* SPDX-License-Identifier: Apache-2.0
 *
 * test_schema: reads the schema in diagnostics/README.md and validates real reports against it:
 * those of captured machines, and one with a result of every kind. The validator knows only the
 * keywords of JSON Schema that the document uses; another keyword fails the test.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/fd.h"
#include "core/json/json.h"
#include "diagnostics/cli/session.h"
#include "diagnostics/report/json.h"
#include "diagnostics/report/jsonl.h"

#define MACHINES "tests/fixtures/machines"

static json_t *schema;

/* ---- a small validator: appends "where: what" to wrong, returns true if the value is valid -- */

static struct buf wrong;

static void complain(const char *where, const char *what)
{
    buf_put(&wrong, where, strlen(where));
    buf_put(&wrong, ": ", 2);
    buf_put(&wrong, what, strlen(what));
    buf_put(&wrong, "\n", 1);
}

static bool is_type(json_t *value, const char *type)
{
    return strcmp(type, "object") == 0    ? json_is_object(value)
           : strcmp(type, "array") == 0   ? json_is_array(value)
           : strcmp(type, "string") == 0  ? json_is_string(value)
           : strcmp(type, "integer") == 0 ? json_is_integer(value)
           : strcmp(type, "number") == 0  ? json_is_number(value)
           : strcmp(type, "null") == 0    ? json_is_null(value)
                                          : false;
}

static bool any_of(json_t *list, json_t *value, bool types)
{
    json_t *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        if (types ? is_type(value, json_string_value(one)) : json_equal(one, value))
            return true;
    }
    return false;
}

static void validate(json_t *s, json_t *value, const char *where);

static void validate_object(json_t *s, json_t *value, const char *where)
{
    json_t *properties = json_object_get(s, "properties"), *one, *name;
    const char *key;
    char path[256];
    size_t i;
    json_array_foreach(json_object_get(s, "required"), i, name)
    {
        if (!json_object_get(value, json_string_value(name)))
            complain(where, json_string_value(name));
    }
    json_object_foreach(value, key, one)
    {
        snprintf(path, sizeof(path), "%s.%s", where, key);
        json_t *rule = json_object_get(properties, key);
        if (rule)
            validate(rule, one, path);
        else if (json_is_false(json_object_get(s, "additionalProperties")))
            complain(path, "not in the schema");
    }
}

static void validate_array(json_t *s, json_t *value, const char *where)
{
    json_t *items = json_object_get(s, "items"), *one;
    char path[256];
    size_t i;
    json_array_foreach(value, i, one)
    {
        snprintf(path, sizeof(path), "%s[%zu]", where, i);
        if (items)
            validate(items, one, path);
    }
}

static void validate(json_t *s, json_t *value, const char *where)
{
    static const char *const known[] = {
        "$schema",  "title",      "type",        "additionalProperties",
        "required", "properties", "description", "items",
        "const",    "enum",       "minimum",     "$ref",
        "$defs"};
    const char *word;
    json_t *rule;
    json_object_foreach(s, word, rule)
    {
        size_t k = 0;
        while (k < sizeof(known) / sizeof(known[0]) && strcmp(known[k], word) != 0)
            k++;
        if (k == sizeof(known) / sizeof(known[0]))
            fail_msg("the schema has a keyword that this validator lacks: %s", word);
        bool good = true;
        if (strcmp(word, "type") == 0)
            good = json_is_array(rule) ? any_of(rule, value, true)
                                       : is_type(value, json_string_value(rule));
        else if (strcmp(word, "const") == 0)
            good = json_equal(rule, value);
        else if (strcmp(word, "enum") == 0)
            good = any_of(rule, value, false);
        else if (strcmp(word, "minimum") == 0)
            good = json_number_value(value) >= json_number_value(rule);
        else if (strcmp(word, "$ref") == 0)
            validate(json_object_get(json_object_get(schema, "$defs"),
                                     json_string_value(rule) + strlen("#/$defs/")),
                     value, where);
        if (!good)
            complain(where, word);
    }
    if (json_is_object(value))
        validate_object(s, value, where);
    if (json_is_array(value))
        validate_array(s, value, where);
}

static void expect_valid(json_t *j)
{
    buf_reset(&wrong);
    validate(schema, j, "report");
    if (wrong.len)
        fail_msg("%.*s", (int)wrong.len, (char *)wrong.data);
}

static void expect_invalid(json_t *j)
{
    buf_reset(&wrong);
    validate(schema, j, "report");
    assert_true(wrong.len > 0);
    json_decref(j);
}

/* ---- reports -------------------------------------------------------------------------------- */

static json_t *json_of(const struct report *report, const struct json_origin *origin)
{
    struct buf out = {0};
    struct err err = {0};
    json_t *j;
    report_json(report, origin, &out);
    assert_false(out.failed);
    if (json_read((char *)out.data, out.len, "the report", &j, &err) < 0)
        fail_msg("%s", err.msg);
    buf_fini(&out);
    return j;
}

/* A report with each status, silenced and not, with texts that are not UTF-8, and empty texts. */
static json_t *report_of_all(void)
{
    static const struct check check = {.id = "shm-size",
                                       .code = "HVD3001",
                                       .group = GROUP_MEMORY,
                                       .level = 1,
                                       .title = "size of /dev/shm",
                                       .why = "ranks end with SIGBUS",
                                       .fix = {"--shm-size=1g", NULL, "mount -o remount"},
                                       .action = ACTION_CONTAINER_OPTION,
                                       .refs = {"https://example.org/"}};
    static const struct check bare = {.id = "bare", .code = "HVD9999", .level = 1, .title = ""};
    struct result results[2 * (CHECK_ERROR + 1)] = {0};
    struct report report = {
        .results = results,
        .n = sizeof(results) / sizeof(results[0]),
        .verdict = VERDICT_FAIL,
        .setting = {
            .profiles = PROFILE_GPU | PROFILE_K8S, .local_ranks = 1, .gpus = -1, .level = 1}};
    const struct json_origin origin = {.host = "h\xff", .time = 1700000000};
    for (size_t i = 0; i < report.n; i++) {
        struct result *r = &results[i];
        r->check = i % 2 ? &check : &bare;
        r->status = (enum check_status)(i / 2);
        snprintf(r->summary, sizeof(r->summary), "\xc3( not UTF-8 \"quoted\"");
        r->silenced = i % 3 == 0;
        r->action = i % 2 ? ACTION_REBOOT : ACTION_NONE;
    }
    return json_of(&report, &origin);
}

static void test_all_kinds(void **state)
{
    auto_json json_t *j = report_of_all();
    expect_valid(j);
    json_t *check = json_array_get(json_object_get(j, "checks"), 2 * CHECK_FAIL + 1);
    assert_string_equal(json_string_value(json_object_get(check, "action")), "reboot");
    assert_int_equal(json_array_size(json_object_get(check, "fix")), 2);
    check = json_array_get(json_object_get(j, "checks"), 2 * CHECK_PASS + 1);
    assert_int_equal(json_array_size(json_object_get(check, "fix")), 0);
    assert_string_equal(json_string_value(json_object_get(check, "why")), "");
}

/* The validator refuses invalid reports. */
static void test_wrong(void **state)
{
    json_t *j = report_of_all();
    json_object_set_new(j, "verdict", json_string("good"));
    expect_invalid(j);
    j = report_of_all();
    json_object_del(j, "host");
    expect_invalid(j);
    j = report_of_all();
    json_object_set_new(j, "more", json_true());
    expect_invalid(j);
    j = report_of_all();
    json_object_set_new(json_object_get(j, "setting"), "gpus", json_integer(-2));
    expect_invalid(j);
    j = report_of_all();
    json_object_set_new(json_array_get(json_object_get(j, "checks"), 0), "silenced", json_true());
    expect_invalid(j);
}

static int not_hidden(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void one_machine(const char *name)
{
    char dir[512];
    struct cli cli = {.command = CLI_CHECK, .root = dir, .job.gpus = -1};
    struct session s;
    struct report report = {0};
    struct err err = {0};
    snprintf(dir, sizeof(dir), MACHINES "/%s", name);
    if (session_open(&s, &cli, &err) < 0 || session_run(&s, NULL, NULL, &report, &err) < 0)
        fail_msg("%s: %s", name, err.msg);
    struct json_origin origin = session_origin(&s);
    auto_json json_t *j = json_of(&report, &origin);
    expect_valid(j);
    report_fini(&report);
    session_close(&s);
}

static void test_machines(void **state)
{
    struct dirent **names;
    int n = scandir(MACHINES, &names, not_hidden, alphasort);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        one_machine(names[i]->d_name);
        free(names[i]);
    }
    free(names);
}

/* The lines of --jsonl together are the document of --json. */
static void test_jsonl(void **state)
{
    static const struct check check = {
        .id = "a", .code = "HVD1", .level = 1, .title = "t", .why = "w"};
    struct result r = {.check = &check, .status = CHECK_WARN, .summary = "s"};
    struct report report = {
        .results = &r, .n = 1, .verdict = VERDICT_WARN, .setting.local_ranks = 1};
    const struct json_origin origin = {.host = "h", .time = 0};
    struct buf line = {0};
    struct err err = {0};
    json_t *row, *head;
    report.setting.level = 1;
    report.setting.gpus = -1;
    report_jsonl_result(&r, &line);
    assert_int_equal(json_read((char *)line.data, line.len, "a line", &row, &err), 0);
    assert_ptr_equal(memchr(line.data, '\n', line.len), line.data + line.len - 1);
    buf_reset(&line);
    report_jsonl_end(&report, &origin, &line);
    assert_int_equal(json_read((char *)line.data, line.len, "a line", &head, &err), 0);
    assert_string_equal(json_string_value(json_object_get(row, "type")), "check");
    assert_string_equal(json_string_value(json_object_get(head, "type")), "report");
    json_object_del(row, "type");
    json_object_del(head, "type");
    json_object_set_new(head, "checks", json_pack("[o]", row));
    auto_json json_t *whole = json_of(&report, &origin);
    assert_true(json_equal(whole, head));
    expect_valid(head);
    json_decref(head);
    buf_fini(&line);
}

static int setup(void **state)
{
    auto_free char *text = NULL;
    size_t len;
    struct err err = {0};
    if (fd_read_file("diagnostics/README.md", 1 << 20, &text, &len) < 0)
        return -1;
    const char *start = strstr(text, "```json\n"), *end = start ? strstr(start + 8, "\n```") : NULL;
    if (!end)
        return -1;
    int rc = json_read(start + 8, (size_t)(end - start - 8), "README.md", &schema, &err);
    if (rc < 0)
        print_error("%s\n", err.msg);
    return rc;
}

static int teardown(void **state)
{
    json_decref(schema);
    buf_fini(&wrong);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_kinds),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_machines),
        cmocka_unit_test(test_jsonl),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
