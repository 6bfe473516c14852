/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/findings: reports are read back as they were written, foreign bytes are refused,
 * and which findings are current.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "core/member/findings.h"
#include "core/member/roster.h"

static struct finding make(const char *source, const char *id, enum finding_status status)
{
    struct finding f = {.status = status, .code = "HVD3001"};
    snprintf(f.source, sizeof(f.source), "%s", source);
    snprintf(f.id, sizeof(f.id), "%s", id);
    snprintf(f.summary, sizeof(f.summary), "%s is bad", id);
    return f;
}

static void test_there_and_back(void **state)
{
    struct findings_body in = {.agent = "a", .seq = 4}, out;
    struct finding one = make("watch", "cgroup-oom-kill", FINDING_FAIL);
    (void)state;
    one.cleared = true;
    memcpy(one.fix, "limits:\n  memory: 8Gi \xff", 24);
    assert_int_equal(findings_add(&in.findings, &one), 0);
    auto_free char *text = findings_write(&in);
    assert_non_null(text);
    assert_int_equal(findings_read(text, strlen(text), &out, NULL), 0);
    assert_int_equal(out.seq, 4);
    assert_int_equal(out.findings.n, 1);
    assert_string_equal(out.findings.list[0].id, "cgroup-oom-kill");
    assert_string_equal(out.findings.list[0].code, "HVD3001");
    assert_string_equal(out.findings.list[0].fix, "limits:\n  memory: 8Gi ?");
    assert_int_equal(out.findings.list[0].status, FINDING_FAIL);
    assert_true(out.findings.list[0].cleared);
    findings_body_fini(&in);
    findings_body_fini(&out);
}

static void test_foreign_bytes(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"{", "findings: line 1"},
        {"{\"agent\":\"a\",\"seq\":1}", "findings: Object item not found: findings"},
        {"{\"agent\":\"a\",\"seq\":1,\"findings\":7}", "want a list"},
        {"{\"agent\":\"a\",\"seq\":1,\"findings\":[{\"source\":\"watch\",\"id\":\"x\","
         "\"status\":\"sad\"}]}",
         "unknown status \"sad\""},
        {"{\"agent\":\"a\",\"seq\":1,\"findings\":[{\"source\":\"a source that is too long\","
         "\"id\":\"x\",\"status\":\"warn\"}]}",
         "source: longer than 15 bytes"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct findings_body body;
        struct err err = {0};
        assert_int_equal(findings_read(cases[i].text, strlen(cases[i].text), &body, &err), -EINVAL);
        if (!strstr(err_text(&err), cases[i].words))
            fail_msg("%s: %s", cases[i].text, err_text(&err));
    }
}

/* Two findings with the same source and id are one entry. It is logged once, and again if it
 * gets worse. A cleared finding is removed. */
static void test_what_stands(void **state)
{
    struct findings f = {0};
    struct finding warn = make("watch", "shm-free", FINDING_WARN);
    struct finding fail = make("watch", "shm-free", FINDING_FAIL);
    struct finding other = make("preflight", "shm-free", FINDING_WARN);
    (void)state;
    assert_int_equal(findings_apply(&f, &warn), 0);
    assert_int_equal(findings_apply(&f, &other), 0);
    assert_int_equal(f.n, 2);
    f.list[0].told = true;
    findings_apply(&f, &warn);
    assert_int_equal(f.n, 2);
    assert_true(f.list[0].told);
    findings_apply(&f, &fail);
    assert_false(f.list[0].told);
    assert_int_equal(f.list[0].status, FINDING_FAIL);
    fail.cleared = true;
    findings_apply(&f, &fail);
    findings_apply(&f, &fail);
    assert_int_equal(f.n, 1);
    assert_string_equal(f.list[0].source, "preflight");
    findings_fini(&f);
}

static void test_bounded(void **state)
{
    struct findings f = {0};
    (void)state;
    for (int i = 0; i < FINDINGS_MAX; i++) {
        char id[16];
        snprintf(id, sizeof(id), "id-%d", i);
        struct finding one = make("watch", id, FINDING_WARN);
        assert_int_equal(findings_apply(&f, &one), 0);
    }
    struct finding one = make("watch", "one-more", FINDING_WARN);
    assert_int_equal(findings_apply(&f, &one), -E2BIG);
    assert_int_equal(f.n, FINDINGS_MAX);
    findings_fini(&f);
}

/* roster_findings() applies a findings report once, and only if its agent has joined. */
static void test_roster(void **state)
{
    static const uint8_t key[MEMBER_KEY_SIZE] = {1};
    const struct roster_host hosts[] = {{"a0", "h0", 1, 0}, {"a1", "h1", 1, 0}};
    struct roster r;
    struct join_body join = {.agent = "a1", .pid = 1};
    struct findings_body body = {.agent = "a1", .seq = 1};
    struct finding one = make("preflight", "shm-size", FINDING_FAIL);
    (void)state;
    assert_int_equal(findings_add(&body.findings, &one), 0);
    assert_int_equal(roster_init(&r, "job", key, hosts, 2, NULL), 0);
    assert_int_equal(roster_findings(&r, &body, 1, NULL), -ENOENT);
    assert_int_equal(roster_join(&r, &join, 1, NULL), 0);
    assert_int_equal(roster_findings(&r, &body, 1, NULL), 0);
    assert_int_equal(r.agents.list[0].findings.n, 0);
    assert_int_equal(r.agents.list[1].findings.n, 1);
    body.findings.list[0].cleared = true;
    assert_int_equal(roster_findings(&r, &body, 1, NULL), 0); /* the same report again */
    assert_int_equal(r.agents.list[1].findings.n, 1);
    body.seq = 2;
    assert_int_equal(roster_findings(&r, &body, 1, NULL), 0);
    assert_int_equal(r.agents.list[1].findings.n, 0);
    findings_body_fini(&body);
    roster_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_foreign_bytes),
        cmocka_unit_test(test_what_stands),    cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_roster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
