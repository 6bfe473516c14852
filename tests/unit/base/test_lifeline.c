/* SPDX-License-Identifier: Apache-2.0
 *
 * lifeline: the watcher is told of every death of a holder, however it dies, and of nothing else.
 * Holders are children, killed by their pid.
 *
 * takes: 3 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/harness/lifeline_holder.h"
#include "tests/harness/open_fds.h"
#include "tests/harness/robust.h"

enum { MOMENT_MS = 200 };

static void expect(enum deed deed, int signo, enum lifeline_state state)
{
    struct holder h;
    holder_begin(&h, deed, 0);
    if (signo)
        kill(h.pid, signo);
    assert_true(lifeline_told(h.l, SOON_MS));
    assert_int_equal(lifeline_state(h.l), state);
    assert_int_equal(lifeline_silence(h.l, clock_ns()), 0);
    holder_end(&h);
}

/* ---- deaths --------------------------------------------------------------------------------- */

static void test_killed(void **state)
{
    expect(WAIT, SIGKILL, LIFELINE_DEAD);
    expect(WAIT, SIGTERM, LIFELINE_DEAD);
}

static void test_segfault(void **state)
{
    expect(SEGFAULT, 0, LIFELINE_DEAD);
}

static void test_exit(void **state)
{
    expect(EXIT, 0, LIFELINE_DEAD);
    expect(EXIT_IN_THREAD, 0, LIFELINE_DEAD);
}

static void test_exec(void **state)
{
    expect(EXEC, 0, LIFELINE_DEAD);
}

static void test_killed_while_stopped(void **state)
{
    struct holder h;
    holder_begin(&h, WAIT, 0);
    kill(h.pid, SIGSTOP);
    assert_false(lifeline_told(h.l, MOMENT_MS));
    kill(h.pid, SIGKILL);
    assert_true(lifeline_told(h.l, SOON_MS));
    assert_int_equal(lifeline_state(h.l), LIFELINE_DEAD);
    holder_end(&h);
}

/* Returns whether the lifeline reported the death before waitid() could, and before the process's
 * socket reported end of file. */
static bool told_first(void)
{
    struct holder h;
    int status;
    siginfo_t info = {0};
    holder_begin(&h, WAIT, (size_t)1 << 30);
    kill(h.pid, SIGKILL);
    bool dead = lifeline_told(h.l, SOON_MS) && lifeline_state(h.l) == LIFELINE_DEAD;
    waitid(P_PID, (id_t)h.pid, &info, WEXITED | WNOHANG | WNOWAIT);
    struct pollfd socket_end = {.fd = h.sock, .events = POLLIN};
    bool first = info.si_pid == 0 && poll(&socket_end, 1, 0) == 0;
    assert_int_equal(waitpid(h.pid, &status, 0), h.pid);
    close(h.sock);
    lifeline_destroy(h.l);
    assert_true(dead);
    return first;
}

/* The holder has 1 GiB of memory, and the watcher is told while the kernel still frees it. On a
 * busy host this process may look too late, but not in all of 8 tries. */
static void test_large(void **state)
{
    bool first = false;
    for (int i = 0; i < 8 && !first; i++)
        first = told_first();
    assert_true(first);
}

static void test_many(void **state)
{
    enum { MANY = 64 };
    struct holder all[MANY];
    for (int i = 0; i < MANY; i++)
        holder_start(&all[i], WAIT, 0);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(holder_give(&all[i]), 'h');
    for (int i = 0; i < MANY; i += 2)
        kill(all[i].pid, SIGKILL);
    for (int i = 0; i < MANY; i += 2)
        assert_true(lifeline_told(all[i].l, SOON_MS));
    for (int i = 0; i < MANY; i++)
        assert_int_equal(lifeline_state(all[i].l), i % 2 ? LIFELINE_HELD : LIFELINE_DEAD);
    for (int i = 0; i < MANY; i++)
        holder_end(&all[i]);
}

/* The lifeline does not depend on pid namespaces: the holder is process 1 in its own namespace. */
static void test_namespace(void **state)
{
    struct holder h;
    holder_start(&h, NAMESPACE, 0);
    if (holder_give(&h) == 'h') {
        assert_int_equal(lifeline_pid(h.l), 0);
        assert_false(lifeline_told(h.l, MOMENT_MS));
        kill(h.pid, SIGKILL);
        assert_true(lifeline_told(h.l, SOON_MS));
        assert_int_equal(lifeline_state(h.l), LIFELINE_DEAD);
    } else {
        printf("SKIP: base/lifeline/namespace: CAP_SYS_ADMIN: no right to make a pid namespace\n");
    }
    holder_end(&h);
}

/* ---- no deaths ------------------------------------------------------------------------------ */

static void test_release(void **state)
{
    struct holder h;
    holder_begin(&h, RELEASE, 0);
    assert_true(lifeline_told(h.l, SOON_MS));
    assert_int_equal(lifeline_state(h.l), LIFELINE_RELEASED);
    holder_end(&h);
}

static void test_fork(void **state)
{
    struct holder h;
    holder_begin(&h, FORK, 0);
    assert_false(lifeline_told(h.l, MOMENT_MS));
    assert_int_equal(lifeline_state(h.l), LIFELINE_HELD);
    holder_end(&h);
}

static void test_main_thread_ends(void **state)
{
    struct holder h;
    holder_begin(&h, LEAVE_MAIN, 0);
    assert_false(lifeline_told(h.l, MOMENT_MS));
    assert_int_equal(lifeline_state(h.l), LIFELINE_HELD);
    kill(h.pid, SIGKILL);
    assert_true(lifeline_told(h.l, SOON_MS));
    assert_int_equal(lifeline_state(h.l), LIFELINE_DEAD);
    holder_end(&h);
}

/* Measures the silence at every beat, until it exceeds the limit or after so many looks. Returns
 * the longest one. */
static uint64_t longest_silence(struct lifeline *l, uint64_t limit, int looks)
{
    uint64_t longest = 0;
    for (int i = 0; i < looks && longest <= limit; i++) {
        uint64_t now = lifeline_silence(l, clock_ns());
        longest = now > longest ? now : longest;
        usleep(BEAT_MS * 1000);
    }
    return longest;
}

static void test_stop_is_silence(void **state)
{
    struct holder h;
    holder_begin(&h, WAIT, 0);
    assert_int_equal(lifeline_pid(h.l), h.pid);
    kill(h.pid, SIGSTOP);
    assert_true(longest_silence(h.l, 500 * CLOCK_MS, SOON_MS / BEAT_MS) > 500 * CLOCK_MS);
    assert_int_equal(lifeline_state(h.l), LIFELINE_HELD);
    /* a watcher that itself did not run for an hour reports no silence */
    assert_int_equal(lifeline_silence(h.l, clock_ns() + 3600 * CLOCK_S), 0);
    assert_int_equal(lifeline_silence(h.l, clock_ns() + 3600 * CLOCK_S + 250 * CLOCK_MS) > 0, true);
    kill(h.pid, SIGCONT);
    uint64_t until = deadline_in_ms(SOON_MS);
    lifeline_silence(h.l, clock_ns());
    do {
        usleep(BEAT_MS * 1000);
    } while (lifeline_silence(h.l, clock_ns()) > 0 && !deadline_passed(until));
    assert_false(deadline_passed(until));
    holder_end(&h);
}

/* ---- the watcher's end ---------------------------------------------------------------------- */

static void test_destroyed_while_held(void **state)
{
    struct holder h;
    int before = open_fds();
    for (int i = 0; i < 20; i++) {
        holder_begin(&h, WAIT, 0);
        uint64_t from = clock_ns();
        lifeline_destroy(h.l);
        assert_true(clock_ns() - from < 10 * CLOCK_S);
        h.l = NULL;
        assert_int_equal(kill(h.pid, 0), 0);
        holder_end(&h);
    }
    assert_int_equal(open_fds(), before);
}

/* In one process: holding a second lifeline releases the first. Holding the same lifeline twice
 * fails with -EPROTO. */
static void test_hold_again(void **state)
{
    struct lifeline *a, *b;
    int fd_a, fd_b, before = open_fds();
    assert_int_equal(lifeline_create(&a, BEAT_MS, &fd_a, NULL), 0);
    assert_int_equal(lifeline_create(&b, BEAT_MS, &fd_b, NULL), 0);
    assert_int_equal(lifeline_hold(fd_a, NULL), 0);
    assert_true(lifeline_is_held());
    assert_int_equal(lifeline_hold(fd_a, NULL), -EPROTO);
    assert_false(lifeline_told(a, 20));
    assert_int_equal(lifeline_hold(fd_b, NULL), 0);
    assert_true(lifeline_told(a, SOON_MS));
    assert_int_equal(lifeline_state(a), LIFELINE_RELEASED);
    assert_false(lifeline_told(b, 20));
    assert_int_equal(lifeline_state(b), LIFELINE_HELD);
    lifeline_release();
    assert_false(lifeline_is_held());
    assert_true(lifeline_told(b, SOON_MS));
    lifeline_destroy(a);
    lifeline_destroy(b);
    close(fd_a);
    close(fd_b);
    assert_int_equal(open_fds(), before);
}

/* ---- scheduling priority -------------------------------------------------------------------- */

/* Reads struct sched_attr: nice is at byte 16, runtime at 24. */
static uint64_t turn_of_self(void)
{
    uint64_t attr[6] = {0};
    return syscall(SYS_sched_getattr, 0, attr, sizeof(attr), 0) < 0 ? 0 : attr[3];
}

/* lifeline_raise_priority() changes only the thread's time slice: not its nice value, and not
 * its children's time slice. */
static void test_hurry(void **state)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        uint64_t before = turn_of_self();
        setpriority(PRIO_PROCESS, 0, 7);
        lifeline_raise_priority();
        if (getpriority(PRIO_PROCESS, 0) != 7 || turn_of_self() > before)
            _exit(1);
        pid = fork();
        if (pid == 0)
            _exit(turn_of_self() == before && getpriority(PRIO_PROCESS, 0) == 7 ? 0 : 1);
        _exit(waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    if (robust_missing("base/lifeline/robust"))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_segfault),
        cmocka_unit_test(test_exit),
        cmocka_unit_test(test_exec),
        cmocka_unit_test(test_killed_while_stopped),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_namespace),
        cmocka_unit_test(test_release),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_main_thread_ends),
        cmocka_unit_test(test_stop_is_silence),
        cmocka_unit_test(test_destroyed_while_held),
        cmocka_unit_test(test_hold_again),
        cmocka_unit_test(test_hurry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
