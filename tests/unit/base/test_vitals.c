/* SPDX-License-Identifier: Apache-2.0
 *
 * vitals: the verdict on a silent process, row by row, and what is read from /proc for a process
 * that runs, sleeps, is stopped, has one stopped thread, or is dead.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/vitals.h"

#define MS CLOCK_MS

static void test_limits(void **state)
{
    static const struct {
        int beat_ms;
        uint64_t silent_ms, evict_ms;
    } rows[] = {{10, 300, 10000},    {100, 300, 10000},   {101, 303, 10000},
                {1000, 3000, 10000}, {2000, 6000, 12000}, {10000, 30000, 60000}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct vitals_limits l = vitals_limits(rows[i].beat_ms);
        assert_int_equal(l.silent_ns, rows[i].silent_ms * MS);
        assert_int_equal(l.evict_ns, rows[i].evict_ms * MS);
    }
}

static void test_judge(void **state)
{
    static const struct {
        uint64_t silence_ms;
        struct vitals v;
        enum vitals_verdict verdict;
    } rows[] = {
        {0, {'R', false, false}, VITALS_ALIVE},      {300, {'R', false, false}, VITALS_ALIVE},
        {300, {'T', true, false}, VITALS_ALIVE}, /* the stop is still short */
        {300, {'Z', false, false}, VITALS_ALIVE},    {301, {'T', true, false}, VITALS_EVICT},
        {301, {'t', true, false}, VITALS_EVICT},     {301, {'T', true, true}, VITALS_EVICT},
        {301, {'T', false, false}, VITALS_SUSPECT}, /* another thread still runs */
        {301, {'Z', false, false}, VITALS_EVICT},    {301, {'X', false, false}, VITALS_EVICT},
        {301, {'R', false, false}, VITALS_SUSPECT},  {301, {'R', false, true}, VITALS_SUSPECT},
        {301, {'D', false, false}, VITALS_SUSPECT},  {301, {'S', false, false}, VITALS_SUSPECT},
        {301, {0, false, false}, VITALS_SUSPECT},    {10000, {'R', false, false}, VITALS_SUSPECT},
        {10000, {'D', false, true}, VITALS_SUSPECT}, {10001, {'R', false, false}, VITALS_EVICT},
        {10001, {'D', false, true}, VITALS_EVICT},   {10001, {0, false, false}, VITALS_EVICT},
    };
    struct vitals_limits limits = vitals_limits(100);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (vitals_judge(rows[i].silence_ms * MS, &rows[i].v, &limits) != rows[i].verdict)
            fail_msg("row %zu: want %d", i, rows[i].verdict);
}

static void test_parse(void **state)
{
    assert_int_equal(vitals_parse("1 (init) S 0 1 1"), 'S');
    assert_int_equal(vitals_parse("71 (a) R (b)) T 1 71"), 'T');
    assert_int_equal(vitals_parse("71 ( ) x 1 71"), 'X');
    assert_int_equal(vitals_parse("71 (a)"), 0);
    assert_int_equal(vitals_parse("71 (a) "), 0);
    assert_int_equal(vitals_parse("71 (a) S"), 0);
    assert_int_equal(vitals_parse("71 (a) SS 1"), 0);
    assert_int_equal(vitals_parse("71 (a) q 1"), 0);
    assert_int_equal(vitals_parse("71 a S 1"), 0);
    assert_int_equal(vitals_parse(""), 0);
    assert_int_equal(vitals_parse(")"), 0);
}

static void test_text(void **state)
{
    char text[128];
    struct vitals v = {'T', true, false};
    assert_string_equal(vitals_text(&v, text, sizeof(text)), "stopped (state T)");
    v = (struct vitals){'R', false, true};
    assert_string_equal(vitals_text(&v, text, sizeof(text)),
                        "running, or wanting to (state R), out of its processor quota");
    v = (struct vitals){0, false, false};
    assert_string_equal(vitals_text(&v, text, sizeof(text)), "in a state unknown to us (state ?)");
}

/* ---- real processes -------------------------------------------------------------------------- */

static void *spin(void *arg)
{
    for (volatile bool on = true; on;)
        ;
    return NULL;
}

/* A process with two threads: the main thread sleeps, the other runs. Its name has parentheses and
 * a state letter, to mislead the parser of /proc/PID/stat. */
static pid_t make_child(void)
{
    int ready[2];
    char byte;
    pthread_t thread;
    pid_t parent = getpid();
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "x) T 1 (");
        if (getppid() != parent || pthread_create(&thread, NULL, spin, NULL) != 0)
            _exit(1);
        if (write(ready[1], "r", 1) != 1)
            _exit(2);
        for (;;)
            pause();
    }
    assert_int_equal(fd_read_full(ready[0], &byte, 1, deadline_in_ms(20000)), 0);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

/* Waits until the main thread has this state and all threads are stopped, or not. */
static bool becomes(pid_t pid, char state, bool stopped)
{
    struct vitals v = {0};
    uint64_t deadline = deadline_in_ms(20000);
    while (!deadline_passed(deadline)) {
        if (vitals_read(pid, &v) == 0 && v.state == state && v.stopped == stopped)
            return true;
        usleep(1000);
    }
    return false;
}

static void test_read(void **state)
{
    struct vitals v = {'?', false, false};
    int status;
    pid_t pid = make_child();
    bool asleep = becomes(pid, 'S', false);
    kill(pid, SIGSTOP);
    bool stopped = becomes(pid, 'T', true);
    kill(pid, SIGCONT);
    bool again = becomes(pid, 'S', false);
    kill(pid, SIGKILL);
    bool dead = becomes(pid, 'Z', false);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(asleep && stopped && again && dead);
    assert_int_equal(vitals_read(pid, &v), -ESRCH);
    assert_int_equal(vitals_read(0, &v), -ESRCH);
    assert_int_equal(vitals_read(-1, &v), -ESRCH);
    assert_int_equal(v.state, '?');
    assert_int_equal(vitals_read(getpid(), &v), 0);
    assert_int_equal(v.state, 'R');
}

/* A debugger holds the main thread, and the other thread runs: the process does not count as
 * stopped. */
static void test_one_thread_traced(void **state)
{
    int status;
    pid_t pid = make_child();
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0) {
        printf("SKIP: base/vitals/traced: ptrace: %s\n", strerror(errno));
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        return;
    }
    ptrace(PTRACE_INTERRUPT, pid, NULL, NULL);
    bool traced = becomes(pid, 't', false);
    kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) == pid && !WIFSIGNALED(status))
        ;
    assert_true(traced);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits), cmocka_unit_test(test_judge),
        cmocka_unit_test(test_parse),  cmocka_unit_test(test_text),
        cmocka_unit_test(test_read),   cmocka_unit_test(test_one_thread_traced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
