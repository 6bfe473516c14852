/* SPDX-License-Identifier: Apache-2.0
 *
 * test_probe: probes that answer, fail, crash, hang, answer endlessly, and leave children behind.
 *
 * takes: 5 s, waiting
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "diagnostics/probe.h"

static pid_t *shared; /* pid of the child that the probe "leaves" has made */

static int says(struct buf *out, const struct machine *m, const struct setting *s)
{
    answer_put(out, "answer", "%d", 42);
    answer_put(out, "text", "two\nlines \\ and a backslash");
    for (int i = 0; i < 3; i++)
        answer_put_at(out, "list", i, "square", "%d", i * i);
    return 0;
}

static int fails(struct buf *out, const struct machine *m, const struct setting *s)
{
    answer_put(out, "so.far", "yes");
    return -EPERM;
}

static int crashes(struct buf *out, const struct machine *m, const struct setting *s)
{
    raise(SIGSEGV);
    return 0;
}

static int hangs(struct buf *out, const struct machine *m, const struct setting *s)
{
    signal(SIGTERM, SIG_IGN);
    while (s)
        pause();
    return 0;
}

static int babbles(struct buf *out, const struct machine *m, const struct setting *s)
{
    for (int i = 0; i < 100000; i++)
        answer_put(out, "again", "%064d", i);
    return 0;
}

/* Leaves a child that would keep the pipe open for ever. */
static int leaves(struct buf *out, const struct machine *m, const struct setting *s)
{
    pid_t pid = fork();
    if (pid == 0) {
        for (;;)
            pause();
    }
    *shared = pid;
    answer_put(out, "left", "one");
    return 0;
}

static const struct probe probes[] = {
    {.name = "says", .run = says},
    {.name = "fails", .run = fails},
    {.name = "crashes", .run = crashes},
    {.name = "hangs", .run = hangs},
    {.name = "babbles", .run = babbles},
    {.name = "leaves", .run = leaves},
    {.name = "later", .run = says, .alone = true},
    {.name = "quick", .run = hangs, .ms = 50},
    {.name = "prober", .run = NULL},
};

enum { PROBES = sizeof(probes) / sizeof(*probes) };

static bool gone(pid_t pid)
{
    for (int i = 0; i < 200; i++) {
        if (kill(pid, 0) < 0)
            return true;
        char path[64], state = 0;
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        FILE *f = fopen(path, "r");
        if (f && fscanf(f, "%*d %*s %c", &state) != 1)
            state = 0;
        if (f)
            fclose(f);
        if (state == 'Z')
            return true;
        usleep(10000);
    }
    return false;
}

static void test_all(void **state)
{
    struct machine m;
    struct err err = {0};
    struct setting s = {.level = 1, .timeout_ms = 5000, .prober = "/nonexistent/hvd-probe"};
    const struct probe *list[PROBES];
    for (size_t i = 0; i < PROBES; i++)
        list[i] = &probes[i];
    assert_int_equal(machine_open_live(&m, &err), 0);
    uint64_t start = clock_ns();
    assert_int_equal(probe_run(&m, list, PROBES, &s, &err), 0);
    assert_true(clock_ns() - start < 30 * CLOCK_S);
    assert_int_equal(m.nanswers, PROBES);

    const struct answer *a = machine_answer(&m, "says");
    assert_int_equal(a->state, ANSWER_OK);
    assert_int_equal(answer_int(a, "answer", 0), 42);
    assert_string_equal(answer_str(a, "text", ""), "two\nlines \\ and a backslash");
    assert_int_equal(answer_count(a, "list"), 3);
    assert_int_equal(answer_int_at(a, "list", 2, "square", -1), 4);
    assert_int_equal(machine_answer(&m, "later")->state, ANSWER_OK);

    a = machine_answer(&m, "fails");
    assert_int_equal(a->state, ANSWER_FAILED);
    assert_int_equal(a->detail, EPERM);
    assert_string_equal(answer_str(a, "so.far", "no"), "yes");

    assert_int_equal(machine_answer(&m, "crashes")->state, ANSWER_CRASHED);
    assert_int_equal(machine_answer(&m, "crashes")->detail, SIGSEGV);
    assert_int_equal(machine_answer(&m, "hangs")->state, ANSWER_TIMEOUT);
    assert_int_equal(machine_answer(&m, "quick")->state, ANSWER_TIMEOUT);
    assert_true(machine_answer(&m, "quick")->ms < machine_answer(&m, "hangs")->ms);
    assert_int_equal(machine_answer(&m, "prober")->state, ANSWER_FAILED);
    assert_int_equal(machine_answer(&m, "prober")->detail, ENOENT);

    a = machine_answer(&m, "babbles");
    assert_int_equal(a->state, ANSWER_OK);
    assert_true(a->len <= ANSWER_MAX);

    assert_string_equal(answer_str(machine_answer(&m, "leaves"), "left", ""), "one");
    assert_true(*shared > 0 && gone(*shared));
    assert_int_equal(machine_answer(&m, "nobody")->state, ANSWER_ABSENT);
    machine_close(&m);
}

static void test_unknown(void **state)
{
    struct machine m;
    struct err err = {0};
    struct setting s = {.level = 1, .timeout_ms = 1000};
    const char *const names[] = {"no-such-probe"};
    assert_int_equal(machine_open_live(&m, &err), 0);
    assert_int_equal(probe_ask(&m, names, 1, &s, &err), -ENOENT);
    assert_non_null(strstr(err.msg, "no-such-probe"));
    machine_close(&m);
}

/* Without descriptors each probe is reported as failed, and none is missing. */
static void test_no_descriptors(void **state)
{
    struct machine m;
    struct err err = {0};
    struct setting s = {.level = 1, .timeout_ms = 1000};
    const struct probe *list[] = {&probes[0]};
    int fds[1024], n = 0;
    assert_int_equal(machine_open_live(&m, &err), 0);
    while (n < 1024 && (fds[n] = dup(0)) >= 0)
        n++;
    if (n < 1024)
        close(fds[--n]); /* one descriptor is free, and a pipe takes two */
    int rc = probe_run(&m, list, 1, &s, &err);
    bool exhausted = n < 1024;
    while (n > 0)
        close(fds[--n]);
    assert_int_equal(rc, 0);
    if (exhausted) {
        assert_int_equal(m.answers[0].answer.state, ANSWER_FAILED);
        assert_int_equal(m.answers[0].answer.detail, EMFILE);
    }
    machine_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_no_descriptors),
    };
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
