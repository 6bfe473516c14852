/* SPDX-License-Identifier: Apache-2.0
 *
 * test_report: the same results as text, JUnit, Prometheus, node-problem-detector's line and the
 * verdict; every combination of statuses, silenced checks, foreign text, narrow terminals. (JSON:
 * test_schema.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "diagnostics/report/junit.h"
#include "diagnostics/report/npd.h"
#include "diagnostics/report/prometheus.h"
#include "diagnostics/report/text.h"
#include "diagnostics/report/verdict.h"

static const struct check checks[] = {
    {.id = "shm-size",
     .code = "HVD3001",
     .group = GROUP_MEMORY,
     .level = 1,
     .title = "size of /dev/shm",
     .why = "NCCL and DataLoader workers end with SIGBUS when /dev/shm is full.",
     .fix = {"docker run --shm-size=1g ...", "volumes:\n- emptyDir: {medium: Memory}", NULL},
     .action = ACTION_CONTAINER_OPTION},
    {.id = "memlock", .code = "HVD2007", .group = GROUP_LIMITS, .level = 1, .title = "memlock"},
    {.id = "nccl-load", .code = "HVD6001", .group = GROUP_NCCL, .level = 1, .title = "NCCL"},
    {.id = "clock", .code = "HVD1010", .group = GROUP_HOST, .level = 1, .title = "clock"},
    {.id = "five", .code = "HVD1011", .group = GROUP_HOST, .level = 1, .title = "five"},
    {.id = "six", .code = "HVD1012", .group = GROUP_HOST, .level = 1, .title = "six"},
};

#define N (sizeof(checks) / sizeof(checks[0]))

static struct result results[N];
static struct report report;
static struct buf out;

/* A letter per check: p i w f s e; upper case: silenced. The verdict is computed as in doctor.c. */
static void make(const char *letters, bool strict)
{
    static const char all[] = "piwfse";
    memset(results, 0, sizeof(results));
    memset(&report, 0, sizeof(report));
    report.results = results;
    report.n = strlen(letters);
    report.ms = 123;
    report.place = FIX_K8S;
    report.setting = (struct setting){.profiles = PROFILE_CPU | PROFILE_K8S,
                                      .local_ranks = 4,
                                      .ranks = 16,
                                      .gpus = -1,
                                      .level = 1};
    for (size_t i = 0; i < report.n; i++) {
        char low = (char)(letters[i] | 0x20);
        results[i].check = &checks[i];
        results[i].status = (enum check_status)(strchr(all, low) - all);
        results[i].silenced = low != letters[i];
        if (results[i].silenced)
            snprintf(results[i].silence_reason, sizeof(results[i].silence_reason), "we know");
        snprintf(results[i].summary, sizeof(results[i].summary), "%s says %c", checks[i].id, low);
        report.counts[results[i].status] += !results[i].silenced;
    }
    const int *n = report.counts;
    report.verdict = n[CHECK_FAIL] || (strict && n[CHECK_WARN]) ? VERDICT_FAIL
                     : n[CHECK_WARN]                            ? VERDICT_WARN
                     : n[CHECK_PASS] || n[CHECK_INFO]           ? VERDICT_OK
                                                                : VERDICT_UNKNOWN;
}

static const char *text_of(struct buf *b)
{
    buf_put_u8(b, 0);
    b->len--;
    assert_false(b->failed);
    return (const char *)b->data;
}

static void expect_text(struct text_style style, const char *want)
{
    buf_reset(&out);
    report_text(&report, &style, &out);
    assert_string_equal(text_of(&out), want);
}

static void test_verdict(void **state)
{
    static const struct {
        const char *letters;
        bool strict;
        const char *line;
    } rows[] = {
        {"p", false, "OK: 1 check passed"},
        {"pi", false, "OK: 2 checks passed"},
        {"pis", false, "OK: 2 checks passed; 1 skipped"},
        {"pw", false, "WARN: 1 warning: memlock"},
        {"pww", true, "FAIL (strict): 2 warnings: memlock, nccl-load"},
        {"pwf", false, "FAIL: 1 of 3 checks failed: nccl-load; 1 warning"},
        {"pwfs", true, "FAIL: 1 of 3 checks failed: nccl-load; 1 warning; 1 skipped"},
        {"ffffff", false,
         "FAIL: 6 of 6 checks failed: shm-size, memlock, nccl-load, clock and 2 more"},
        {"pe", false, "OK: 1 check passed; 1 check could not run"},
        {"F", false, "UNKNOWN: nothing could be determined (--verbose says why)"},
        {"ss", false, "UNKNOWN: nothing could be determined (--verbose says why); 2 skipped"},
        {"", false, "UNKNOWN: nothing could be determined (--verbose says why)"},
        {"pF", false, "OK: 1 check passed"},
        {"pfFW", false, "FAIL: 1 of 2 checks failed: memlock"},
    };
    char line[RESULT_TEXT], small[16];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        make(rows[i].letters, rows[i].strict);
        assert_string_equal(verdict_line(&report, line, sizeof(line)), rows[i].line);
        verdict_line(&report, small, sizeof(small));
        assert_memory_equal(small, line, strlen(small));
    }
}

static void test_text(void **state)
{
    make("fpsWi", false);
    expect_text((struct text_style){0},
                "FAIL    shm-size: shm-size says f\n"
                "  why     NCCL and DataLoader workers end with SIGBUS when /dev/shm is full.\n"
                "  do      volumes:\n"
                "          - emptyDir: {medium: Memory}\n"
                "  more    hvd-doctor explain shm-size\n"
                "\n"
                "host        1 noted, 1 silenced\n"
                "limits      1 passed\n"
                "memory      1 failed\n"
                "nccl        1 skipped\n"
                "\n"
                "for a job of: cpu and k8s, 4 of 16 ranks here, level 1\n"
                "FAIL: 1 of 3 checks failed: shm-size; 1 skipped\n");
    expect_text((struct text_style){.quiet = true},
                "FAIL: 1 of 3 checks failed: shm-size; 1 skipped\n");
    make("pW", false);
    expect_text((struct text_style){.verbose = true},
                "limits      1 silenced\n"
                "warn    memlock: memlock says w (silenced: we know)\n"
                "\n"
                "memory      1 passed\n"
                "pass    shm-size: shm-size says p\n"
                "\n"
                "for a job of: cpu and k8s, 4 of 16 ranks here, level 1\n"
                "OK: 1 check passed\n");
}

static void test_setting(void **state)
{
    struct setting s = {.local_ranks = 1, .gpus = -1, .level = 2};
    char line[128], small[8];
    assert_string_equal(verdict_setting(&s, line, sizeof(line)), "1 rank here, level 2");
    s = (struct setting){
        .profiles = PROFILE_GPU, .local_ranks = 8, .ranks = 8, .gpus = 1, .level = 1};
    assert_string_equal(verdict_setting(&s, line, sizeof(line)),
                        "gpu, 8 ranks here, 1 GPU, level 1");
    assert_string_equal(verdict_setting(&s, small, sizeof(small)), "gpu, 8 ");
}

static const char *fixes_shown(enum fix_place place)
{
    report.place = place;
    buf_reset(&out);
    report_text(&report, &(struct text_style){0}, &out);
    return text_of(&out);
}

/* Advice fits the place: no docker option on a host. If a check has no advice for the place, all
 * of it is shown. */
static void test_place(void **state)
{
    make("f", false);
    assert_non_null(
        strstr(fixes_shown(FIX_DOCKER), "\n  do      docker run --shm-size=1g ...\n  more "));
    assert_non_null(strstr(fixes_shown(FIX_HOST), "\n  docker  docker run --shm-size=1g ...\n"
                                                  "  k8s     volumes:\n"));
    result_fix(&results[0], FIX_HOST, "mount it larger");
    assert_non_null(strstr(fixes_shown(FIX_HOST), "\n  do      mount it larger\n  more "));
    assert_null(strstr(text_of(&out), "docker"));
}

/* Worst first, whatever the order of checks. */
static void test_order(void **state)
{
    make("wpfe", false);
    buf_reset(&out);
    report_text(&report, &(struct text_style){0}, &out);
    const char *t = text_of(&out);
    assert_true(strstr(t, "FAIL    nccl-load") < strstr(t, "error   clock"));
    assert_true(strstr(t, "error   clock") < strstr(t, "warn    shm-size"));
}

static void test_color(void **state)
{
    make("fp", false);
    buf_reset(&out);
    report_text(&report, &(struct text_style){.color = true}, &out);
    const char *t = text_of(&out);
    assert_non_null(strstr(t, "\033[1;31mFAIL\033[0m    shm-size: "));
    assert_non_null(strstr(t, "\033[1;31mFAIL: 1 of 2 checks failed: shm-size\033[0m\n"));
    buf_reset(&out);
    report_text(&report, &(struct text_style){0}, &out);
    assert_null(strchr(text_of(&out), '\033'));
}

/* Sentences are wrapped, commands are not. */
static void test_wrap(void **state)
{
    make("f", false);
    buf_reset(&out);
    report_text(&report, &(struct text_style){.width = 40}, &out);
    const char *t = text_of(&out);
    assert_non_null(strstr(t, "  why     NCCL and DataLoader workers\n"
                              "          end with SIGBUS when /dev/shm\n"
                              "          is full.\n"));
    assert_non_null(strstr(t, "\n  do      volumes:\n          - emptyDir: {medium: Memory}\n"));
    buf_reset(&out);
    text_wrap(&out, "averyveryverylongword b", 4, 10);
    assert_string_equal(text_of(&out), "averyveryverylongword\n    b");
    buf_reset(&out);
    text_wrap(&out, "\xc3\xa4\xc3\xb6\xc3\xbc \xc3\x9f", 0, 5);
    assert_string_equal(text_of(&out), "\xc3\xa4\xc3\xb6\xc3\xbc \xc3\x9f");
    buf_reset(&out);
    text_wrap(&out, "one\ntwo", 2, 0);
    assert_string_equal(text_of(&out), "one\n  two");
}

/* A line of a report may be longer than any buffer of the writer. */
static void test_long(void **state)
{
    static char text[20000];
    memset(text, 'x', sizeof(text) - 1);
    buf_reset(&out);
    text_put(&out, "%s", text);
    assert_int_equal(out.len, sizeof(text) - 1);
}

static void test_junit(void **state)
{
    make("fwpsE", false);
    snprintf(results[0].summary, sizeof(results[0].summary), "<a & \"b\">\x01");
    buf_reset(&out);
    report_junit(&report, false, &out);
    const char *t = text_of(&out);
    assert_non_null(strstr(t, "<testsuites name=\"hvd-doctor\" tests=\"5\" failures=\"1\" "
                              "errors=\"0\" skipped=\"1\" time=\"0.123000\">"));
    assert_non_null(strstr(t, "<failure message=\"&lt;a &amp; &quot;b&quot;&gt;?\" "
                              "type=\"none\">NCCL and"));
    assert_non_null(strstr(t, "docker: docker run --shm-size=1g ...\nk8s: volumes:\n"));
    assert_non_null(strstr(t, "<system-out>warn: memlock says w</system-out>"));
    assert_non_null(strstr(t, "<skipped message=\"clock says s\"/>"));
    assert_non_null(strstr(t, "five says e (silenced: we know)</system-out>"));
    buf_reset(&out);
    report_junit(&report, true, &out);
    assert_non_null(strstr(text_of(&out), " failures=\"2\" "));
    make("e", false);
    buf_reset(&out);
    report_junit(&report, false, &out);
    assert_non_null(strstr(text_of(&out), "<error message=\"shm-size says e\""));
}

static void expect_npd(const char *letters, bool strict, int code, const char *line)
{
    make(letters, strict);
    buf_reset(&out);
    assert_int_equal(report_npd(&report, &out), code);
    assert_string_equal(text_of(&out), line);
}

static void test_npd(void **state)
{
    expect_npd("pi", false, 0, "OK: 2 checks passed\n");
    expect_npd("pw", false, 0, "WARN: 1 warning: memlock\n");
    expect_npd("pw", true, 1, "memlock: memlock says w\n");
    expect_npd("wpf", false, 1, "nccl-load: nccl-load says f\n");
    expect_npd("fff", false, 1, "shm-size: shm-size says f (+2)\n");
    expect_npd("ss", false, 2,
               "UNKNOWN: nothing could be determined (--verbose says why); 2 skipped\n");
    make("ff", false);
    memset(results[0].summary, 'x', sizeof(results[0].summary) - 1);
    buf_reset(&out);
    report_npd(&report, &out);
    assert_int_equal(out.len, NPD_LINE + 1);
    assert_string_equal(text_of(&out) + NPD_LINE - 5, " (+1)\n");
    for (size_t i = 0; i < sizeof(results[0].summary) / 2 - 1; i++) /* no cut character */
        memcpy(results[0].summary + 2 * i, "\xc3\xa4", 2);
    buf_reset(&out);
    report_npd(&report, &out);
    assert_true(out.len <= NPD_LINE + 1);
    const char *t = text_of(&out);
    assert_memory_equal(t + out.len - 8, "\xc3\xa4 (+1)\n", 8);
}

static void test_prometheus(void **state)
{
    make("piwFse", false);
    buf_reset(&out);
    report_prometheus(&report, &out);
    const char *t = text_of(&out);
    assert_non_null(strstr(t, "# TYPE hvd_doctor_check_status gauge\n"
                              "hvd_doctor_check_status{id=\"shm-size\",group=\"memory\"} 0\n"));
    assert_non_null(strstr(t, "hvd_doctor_check_status{id=\"clock\",group=\"host\"} 3\n"));
    assert_non_null(strstr(t, "hvd_doctor_check_silenced{id=\"clock\",group=\"host\"} 1\n"));
    assert_non_null(strstr(t, "\nhvd_doctor_verdict 1\n"));
    assert_non_null(strstr(t, "\nhvd_doctor_duration_seconds 0.123\n"));
    assert_null(strstr(t, "says")); /* no free text in metrics */
}

/* The text of a result is one line of UTF-8. */
static void test_clean(void **state)
{
    static const struct {
        const char *dirty, *clean;
    } rows[] = {
        {"a\nb\t\x7f", "a b  "},
        {"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xff\xc3", "??"},
        {"\xc3(", "?("},
        {"\xe2\x82", "??"},
        {"\xc0\xaf", "??"},           /* overlong */
        {"\xed\xa0\x80", "???"},      /* a surrogate */
        {"\xf4\x90\x80\x80", "????"}, /* above the last code point */
        {"\xc2\x9b"
         "2J",
         "??2J"}, /* CSI as one character */
        {"\033[2J", " [2J"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[32];
        struct result r = {.check = &checks[0]};
        snprintf(text, sizeof(text), "%s", rows[i].dirty);
        check_clean(text);
        assert_string_equal(text, rows[i].clean);
        result_fail(&r, "%s", rows[i].dirty);
        assert_string_equal(r.summary, rows[i].clean);
    }
}

static int teardown(void **state)
{
    buf_fini(&out);
    return 0;
}

/* Lists in results: a separator between the items, "..." once for the rest, and a first item
 * that is too long is cut. */
static void test_append(void **state)
{
    char text[16] = "", tight[8] = "";
    check_append(text, sizeof(text), ", ", "%s", "abc");
    check_append(text, sizeof(text), ", ", "%d", 12);
    assert_string_equal(text, "abc, 12");
    check_append(text, sizeof(text), ", ", "%s", "too long for it");
    assert_string_equal(text, "abc, 12, ...");
    check_append(text, sizeof(text), ", ", "%s", "x");
    assert_string_equal(text, "abc, 12, ...");
    check_append(tight, sizeof(tight), ", ", "%s", "0123456789");
    assert_string_equal(tight, "0123456");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdict),    cmocka_unit_test(test_text),
        cmocka_unit_test(test_setting),    cmocka_unit_test(test_place),
        cmocka_unit_test(test_order),      cmocka_unit_test(test_color),
        cmocka_unit_test(test_wrap),       cmocka_unit_test(test_long),
        cmocka_unit_test(test_junit),      cmocka_unit_test(test_npd),
        cmocka_unit_test(test_prometheus), cmocka_unit_test(test_clean),
        cmocka_unit_test(test_append),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
