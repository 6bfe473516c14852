/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/loop: descriptors, timers in order, signals, ends of processes, callbacks that stop
 * the next callback.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/loop.h"

static struct loop loop;
static char said[32];

static void say(char c)
{
    size_t n = strlen(said);
    if (n + 1 < sizeof(said))
        said[n] = c;
}

static int setup(void **state)
{
    (void)state;
    memset(said, 0, sizeof(said));
    return loop_init(&loop);
}

static int teardown(void **state)
{
    (void)state;
    loop_fini(&loop);
    return 0;
}

/* Turns the loop until n letters were recorded, at most 20 s. */
static void until(size_t n)
{
    uint64_t deadline = deadline_in_ms(20000);
    while (strlen(said) < n && !deadline_passed(deadline))
        assert_int_equal(loop_once(&loop, 50), 0);
}

static void on_a(void *arg)
{
    (void)arg;
    say('a');
}

static void on_b(void *arg)
{
    (void)arg;
    say('b');
}

static void on_stop(void *arg)
{
    (void)arg;
    loop_stop(&loop);
}

static void test_timers(void **state)
{
    struct loop_timer a = {0}, b = {0}, c = {0};
    (void)state;
    loop_timer_start(&loop, &a, 30, on_a, NULL);
    loop_timer_start(&loop, &b, 10, on_b, NULL);
    loop_timer_start(&loop, &c, 20, on_a, NULL);
    loop_timer_stop(&loop, &c);
    loop_timer_stop(&loop, &c);
    until(2);
    assert_string_equal(said, "ba");
    loop_timer_start(&loop, &a, 1000, on_a, NULL);
    loop_timer_start(&loop, &a, 1, on_a, NULL); /* moved */
    until(3);
    assert_string_equal(said, "baa");
    loop_timer_start(&loop, &b, 5, on_stop, NULL);
    assert_int_equal(loop_run(&loop), 0);
}

struct end {
    struct loop_fd lfd;
    int fd;
    struct loop_fd *other;
};

static void on_read(void *arg, uint32_t events)
{
    struct end *e = arg;
    char c;
    assert_true(events & (EPOLLIN | EPOLLHUP));
    if (read(e->fd, &c, 1) == 1)
        say(c);
    else
        loop_fd_stop(&loop, &e->lfd);
    if (e->other)
        loop_fd_stop(&loop, e->other);
}

static void test_descriptors(void **state)
{
    int p[2];
    struct end e = {0};
    (void)state;
    assert_int_equal(pipe(p), 0);
    e.fd = p[0];
    assert_int_equal(loop_fd_start(&loop, &e.lfd, p[0], EPOLLIN, on_read, &e), 0);
    assert_int_equal(write(p[1], "xyz", 3), 3);
    until(3);
    assert_string_equal(said, "xyz");
    /* A descriptor without events reports nothing, even if the other end is closed. */
    assert_int_equal(loop_fd_set(&loop, &e.lfd, 0), 0);
    close(p[1]);
    assert_int_equal(loop_once(&loop, 20), 0);
    assert_true(e.lfd.on);
    assert_int_equal(loop_fd_set(&loop, &e.lfd, EPOLLIN), 0);
    assert_int_equal(loop_once(&loop, 100), 0);
    assert_false(e.lfd.on);
    close(p[0]);
}

/* Both descriptors are readable in one turn. The first callback stops the other descriptor. */
static void test_callback_stops_the_next(void **state)
{
    int p[2], q[2];
    struct end a = {0}, b = {0};
    (void)state;
    assert_int_equal(pipe(p), 0);
    assert_int_equal(pipe(q), 0);
    a.fd = p[0];
    b.fd = q[0];
    a.other = &b.lfd;
    b.other = &a.lfd;
    assert_int_equal(loop_fd_start(&loop, &a.lfd, p[0], EPOLLIN, on_read, &a), 0);
    assert_int_equal(loop_fd_start(&loop, &b.lfd, q[0], EPOLLIN, on_read, &b), 0);
    assert_int_equal(write(p[1], "1", 1), 1);
    assert_int_equal(write(q[1], "1", 1), 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(loop_once(&loop, 20), 0);
    assert_string_equal(said, "1");
    assert_true(a.lfd.on != b.lfd.on);
    close(p[0]), close(p[1]), close(q[0]), close(q[1]);
}

static void test_regular_file(void **state)
{
    struct loop_fd lfd = {0};
    int fd = open("/proc/self/exe", O_RDONLY);
    (void)state;
    assert_int_equal(loop_fd_start(&loop, &lfd, fd, EPOLLIN, on_read, NULL), -EPERM);
    assert_false(lfd.on);
    close(fd);
}

static void on_signal(void *arg, uint32_t events)
{
    (void)events;
    while (loop_signal_next(arg) == SIGUSR1)
        say('s');
}

static void test_signals(void **state)
{
    struct loop_fd lfd = {0};
    sigset_t set;
    (void)state;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    assert_int_equal(loop_signals_start(&loop, &lfd, &set, on_signal, &lfd), 0);
    raise(SIGUSR1);
    until(1);
    assert_string_equal(said, "s");
    loop_fd_stop(&loop, &lfd);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void on_end(void *arg, uint32_t events)
{
    (void)events;
    say('e');
    loop_fd_stop(&loop, arg);
}

static void test_pid(void **state)
{
    struct loop_fd lfd = {0};
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        usleep(20000);
        _exit(0);
    }
    assert_int_equal(loop_pid_start(&loop, &lfd, pid, on_end, &lfd), 0);
    until(1);
    assert_string_equal(said, "e");
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(loop_pid_start(&loop, &lfd, pid, on_end, &lfd), -ESRCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_timers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_descriptors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_callback_stops_the_next, setup, teardown),
        cmocka_unit_test_setup_teardown(test_regular_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_signals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pid, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
