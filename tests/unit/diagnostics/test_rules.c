/* SPDX-License-Identifier: Apache-2.0
 *
 * test_rules: every built-in rule matches at its bounds and not beyond, needs each of its
 * conditions, and uses facts that exist. Invalid files are refused with line and field.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "diagnostics/facts.h"
#include "diagnostics/rules.h"

static bool all_hold(void *arg, const char *fact)
{
    return true;
}

/* All facts hold except this one. */
static bool but_one(void *arg, const char *fact)
{
    return strcmp(fact, arg) != 0;
}

static bool hits(const struct rule *r, const char *version, const struct rule_facts *facts)
{
    const struct rule *list[64];
    size_t n = rules_hits(rules_builtin(), r->component, version, facts, list, 64);
    assert_true(n < 64);
    for (size_t i = 0; i < n; i++) {
        if (list[i] == r)
            return true;
        if (i && list[i]->severity > list[i - 1]->severity)
            fail_msg("rules.conf:%d: this rule is worse than the one before it", list[i]->line);
    }
    return false;
}

static void want(const struct rule *r, const char *version, bool hit)
{
    const struct rule_facts facts = {.holds = all_hold};
    if (hits(r, version, &facts) != hit)
        fail_msg("rules.conf:%d: %s %s: %s %s", r->line, r->component, r->range,
                 hit ? "does not match" : "matches", version);
}

/* Tests both sides of each bound. Writes a version that matches to dst. */
static void walk_range(const struct rule *r, char dst[80])
{
    char range[256], above[80], below[80], *save;
    snprintf(range, sizeof(range), "%s", r->range);
    for (char *word = strtok_r(range, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        const char *x = word + strspn(word, "<>=");
        snprintf(above, sizeof(above), "%.60s.0.1", x);
        snprintf(below, sizeof(below), "%.60src1", x);
        if (strcmp(word, "or") == 0)
            continue;
        if (strcmp(word, "*") == 0) {
            want(r, "1.0", true);
            snprintf(dst, 80, "1.0");
        } else if (strncmp(word, "<=", 2) == 0) {
            want(r, x, true);
            want(r, above, false);
            snprintf(dst, 80, "%s", x);
        } else if (strncmp(word, ">=", 2) == 0) {
            want(r, x, true);
            want(r, below, false);
            snprintf(dst, 80, "%s", x);
        } else if (*word == '<') {
            want(r, below, true);
            want(r, x, false);
            snprintf(dst, 80, "%s", below);
        } else if (*word == '>') {
            want(r, above, true);
            want(r, x, false);
            snprintf(dst, 80, "%s", above);
        } else {
            want(r, x, true);
            want(r, above, false);
            want(r, below, false);
            snprintf(dst, 80, "%s", x);
        }
    }
}

static void walk_conditions(const struct rule *r, const char *version)
{
    char text[256], *save;
    const struct rule_facts nobody = {.holds = NULL};
    if (strcmp(r->conditions, "-") == 0) {
        assert_true(hits(r, version, &nobody));
        return;
    }
    assert_false(hits(r, version, &nobody));
    assert_false(hits(r, version, NULL));
    snprintf(text, sizeof(text), "%s", r->conditions);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        const struct rule_facts facts = {.holds = but_one, .arg = word};
        if (strcmp(word, "and") == 0)
            continue;
        if (!facts_known(word))
            fail_msg("rules.conf:%d: there is no fact \"%s\"", r->line, word);
        if (hits(r, version, &facts))
            fail_msg("rules.conf:%d: matches without \"%s\"", r->line, word);
    }
}

static void test_builtin(void **state)
{
    static const char *const components[] = {"nccl",  "nccl-build", "driver", "openmpi",
                                             "hwloc", "pmix",       "ucx",    "libfabric",
                                             "glibc", "python"};
    int seen[10] = {0};
    const struct rules *rules = rules_builtin();
    assert_true(rules_count(rules) >= 50);
    for (size_t i = 0; i < rules_count(rules); i++) {
        const struct rule *r = rules_at(rules, i);
        char version[80] = "";
        walk_range(r, version);
        walk_conditions(r, version);
        assert_true(strncmp(r->reference, "https://", 8) == 0);
        assert_null(strstr(r->fix, "2.8.3")); /* 2.8.3 itself lacks fixes */
        for (size_t c = 0; c < 10; c++)
            seen[c] += strcmp(components[c], r->component) == 0;
    }
    for (size_t c = 0; c < 10; c++)
        assert_true(seen[c] > 0);
    assert_null(rules_at(rules, rules_count(rules)));
}

/* The versions that the advice recommends have no problems themselves. */
static void test_advice(void **state)
{
    static const char *const good[][2] = {
        {"nccl", "2.28.9"}, {"openmpi", "4.1.6"},    {"openmpi", "5.0.7"},   {"hwloc", "2.9.0"},
        {"ucx", "1.15.0"},  {"libfabric", "1.22.0"}, {"pmix", "4.2.6"},      {"pmix", "5.0.1"},
        {"glibc", "2.36"},  {"python", "3.11"},      {"driver", "580.65.06"}};
    const struct rule_facts none = {.holds = NULL};
    const struct rule *list[8];
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        size_t n = rules_hits(rules_builtin(), good[i][0], good[i][1], &none, list, 8);
        if (n)
            fail_msg("%s %s: %s", good[i][0], good[i][1], list[0]->text);
    }
    assert_int_equal(rules_hits(rules_builtin(), "nccl", "unknown", &none, list, 8), 0);
    assert_int_equal(rules_hits(rules_builtin(), "nccl", "", &none, list, 8), 0);
    assert_int_equal(rules_hits(rules_builtin(), "nccl", NULL, &none, list, 8), 0);
    assert_int_equal(rules_hits(rules_builtin(), "nobody", "1", &none, list, 8), 0);
    assert_int_equal(rules_hits(rules_builtin(), "nccl", "2.4.2", &none, list, 3), 3);
}

static void refused(const char *text, const char *message)
{
    struct rules *rules = NULL;
    struct err err = {0};
    assert_int_equal(rules_parse(text, strlen(text), "my.conf", &rules, &err), -EINVAL);
    assert_null(rules);
    if (!strstr(err.msg, message))
        fail_msg("\"%s\" lacks \"%s\"", err.msg, message);
}

static void test_wrong(void **state)
{
    refused("a | <1 | - | warn | text | fix\n", "my.conf:1: 6 fields");
    refused("\n# x\na | <1 | - | warn | text | fix | ref | more", "my.conf:3: more than 7");
    refused("a | 1 | - | warn | t | f | r", "range: \"1\"");
    refused("a | <1 or | - | warn | t | f | r", "range");
    refused("a | or <1 | - | warn | t | f | r", "range");
    refused("a | <<1 | - | warn | t | f | r", "range");
    refused("a | <1 | and | warn | t | f | r", "conditions");
    refused("a | <1 | x y | warn | t | f | r", "conditions");
    refused("a | <1 | x and | warn | t | f | r", "conditions");
    refused("a | <1 | - | bad | t | f | r", "severity: \"bad\"");
    refused("a | <1 | - | warn | | f | r", "field 5 is empty");
    struct rules *rules = NULL;
    struct err err = {0};
    assert_int_equal(rules_parse("a\0b", 3, "x", &rules, &err), -EINVAL);
    assert_int_equal(rules_parse("", 0, "x", &rules, &err), 0);
    assert_int_equal(rules_count(rules), 0);
    rules_destroy(rules);
    rules_destroy(NULL);
    assert_int_equal(rules_read("/nonexistent/rules", &rules, &err), -ENOENT);
}

static void test_file(void **state)
{
    char path[] = "/tmp/hvd-rules-XXXXXX";
    static const char text[] =
        "# mine\r\n\n  x | >=1 <2 or =7 | gpus>1 and y | fail | t | f | r  \n"
        "x | * | - | info | t2 | f2 | r2";
    struct rules *rules = NULL;
    struct err err = {0};
    const struct rule *list[4];
    const struct rule_facts facts = {.holds = all_hold};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    close(fd);
    assert_int_equal(rules_read(path, &rules, &err), 0);
    unlink(path);
    assert_int_equal(rules_count(rules), 2);
    assert_int_equal(rules_at(rules, 0)->line, 3);
    assert_string_equal(rules_at(rules, 0)->reference, "r");
    assert_int_equal(rules_hits(rules, "x", "1.5", &facts, list, 4), 2);
    assert_string_equal(list[0]->text, "t");
    assert_int_equal(rules_hits(rules, "x", "7.0", &facts, list, 4), 2);
    assert_int_equal(rules_hits(rules, "x", "2", &facts, list, 4), 1);
    assert_string_equal(list[0]->text, "t2");
    rules_destroy(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builtin),
        cmocka_unit_test(test_advice),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
