/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl: frames over a socket pair: sizes, descriptors, frames in pieces, queues, invalid frames.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/ctl.h"
#include "tests/harness/open_fds.h"

struct pair {
    int fd[2];
    struct ctl a, b;
};

static void pair_init(struct pair *p)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p->fd), 0);
    ctl_init(&p->a, p->fd[0]);
    ctl_init(&p->b, p->fd[1]);
}

static void pair_fini(struct pair *p)
{
    ctl_fini(&p->a);
    ctl_fini(&p->b);
    close(p->fd[0]);
    close(p->fd[1]);
}

static void test_sizes(void **state)
{
    static const size_t sizes[] = {0, 1, 100, 70000, 3000000};
    struct pair p;
    struct ctl_frame f;
    pair_init(&p);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct buf body = {0};
        for (size_t k = 0; k < sizes[i]; k++)
            buf_put_u8(&body, (uint8_t)(k * 5 + i));
        assert_int_equal(ctl_send(&p.a, CTL_PROGRESS, &body, NULL, 0), 0);
        int rc;
        while ((rc = ctl_recv(&p.b, &f)) == 1)
            assert_true(ctl_flush(&p.a) >= 0);
        assert_int_equal(rc, 0);
        assert_int_equal(f.type, CTL_PROGRESS);
        assert_int_equal(f.len, sizes[i]);
        assert_int_equal(f.nfds, 0);
        assert_memory_equal(f.body, body.data ? body.data : (uint8_t *)"", f.len);
        buf_fini(&body);
    }
    assert_int_equal(ctl_flush(&p.a), 0);
    assert_int_equal(ctl_recv(&p.b, &f), 1);
    pair_fini(&p);
}

static void test_no_body(void **state)
{
    struct pair p;
    struct ctl_frame f;
    pair_init(&p);
    assert_int_equal(ctl_send(&p.a, CTL_BYE, NULL, NULL, 0), 0);
    assert_int_equal(ctl_wait(&p.b, &f, deadline_in_ms(20000)), 0);
    assert_int_equal(f.type, CTL_BYE);
    assert_int_equal(f.len, 0);
    assert_int_equal(ctl_wait(&p.b, &f, deadline_in_ms(20)), -ETIMEDOUT);
    pair_fini(&p);
}

static void test_descriptors(void **state)
{
    struct pair p;
    struct ctl_frame f;
    struct buf body = {0};
    int before = open_fds(), pipes[2];
    pair_init(&p);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    buf_put_u32(&body, 77);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(ctl_send(&p.a, CTL_PROGRESS, &body, NULL, 0), 0);
        assert_int_equal(ctl_send(&p.a, CTL_SHARE, &body, pipes, 2), 0);
    }
    for (int round = 0; round < 3; round++) {
        assert_int_equal(ctl_wait(&p.b, &f, deadline_in_ms(20000)), 0);
        assert_int_equal(f.nfds, 0);
        assert_int_equal(ctl_wait(&p.b, &f, deadline_in_ms(20000)), 0);
        assert_int_equal(f.type, CTL_SHARE);
        assert_int_equal(f.nfds, 2);
        assert_int_equal(fcntl(f.fds[0], F_GETFD), FD_CLOEXEC);
        char c = (char)('a' + round), got;
        assert_int_equal(write(f.fds[1], &c, 1), 1);
        assert_int_equal(read(pipes[0], &got, 1), 1);
        assert_int_equal(got, c);
        close(f.fds[0]);
        close(f.fds[1]);
    }
    close(pipes[0]);
    close(pipes[1]);
    buf_fini(&body);
    pair_fini(&p);
    assert_int_equal(open_fds(), before);
}

/* Descriptors of a frame that is never finished are closed. */
static void test_descriptors_dropped(void **state)
{
    struct pair p;
    struct ctl_frame f;
    const uint8_t half[] = {9, 0, 0, 0, CTL_SHARE, 0, 1, 0, 'x'};
    int before = open_fds(), null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pair_init(&p);
    assert_int_equal(fd_send(p.fd[0], half, sizeof(half), &null, 1), sizeof(half));
    assert_int_equal(ctl_recv(&p.b, &f), 1);
    shutdown(p.fd[0], SHUT_WR);
    assert_int_equal(ctl_recv(&p.b, &f), -ECONNRESET);
    close(null);
    pair_fini(&p);
    assert_int_equal(open_fds(), before);
}

/* Between two frames another struct ctl can take over the socket. */
static void test_hand_over(void **state)
{
    struct pair p;
    struct ctl_frame f;
    struct ctl second;
    struct buf body = {0};
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pair_init(&p);
    buf_put_str(&body, "one");
    assert_int_equal(ctl_send(&p.a, CTL_ROSTER, &body, NULL, 0), 0);
    assert_int_equal(ctl_send(&p.a, CTL_SHARE, &body, &null, 1), 0);
    assert_int_equal(ctl_recv(&p.b, &f), 0);
    assert_int_equal(f.type, CTL_ROSTER);
    ctl_fini(&p.b);
    ctl_init(&second, p.fd[1]);
    assert_int_equal(ctl_recv(&second, &f), 0);
    assert_int_equal(f.type, CTL_SHARE);
    assert_int_equal(f.nfds, 1);
    close(f.fds[0]);
    close(null);
    ctl_fini(&second);
    buf_fini(&body);
    pair_fini(&p);
}

static void test_nonsense(void **state)
{
    static const uint8_t bad[][9] = {
        {1, 0, 0, 1, CTL_HELLO, 0, 0, 0},      /* longer than CTL_BODY_MAX */
        {1, 0, 0, 0, CTL_HELLO, 0, 9, 0},      /* nine descriptors that did not arrive */
        {1, 0, 0, 0, CTL_HELLO, 0, 1, 0, 'x'}, /* a descriptor that did not arrive */
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct pair p;
        struct ctl_frame f;
        pair_init(&p);
        assert_int_equal(write(p.fd[0], bad[i], 9), 9);
        assert_int_equal(ctl_recv(&p.b, &f), -EPROTO);
        pair_fini(&p);
    }
    struct pair p;
    struct buf body = {.len = CTL_BODY_MAX + 1};
    int fds[FD_MAX_PASSED + 1];
    pair_init(&p);
    assert_int_equal(ctl_send(&p.a, CTL_HELLO, &body, NULL, 0), -EMSGSIZE);
    assert_int_equal(ctl_send(&p.a, CTL_HELLO, NULL, fds, FD_MAX_PASSED + 1), -EMSGSIZE);
    body = (struct buf){.failed = true};
    assert_int_equal(ctl_send(&p.a, CTL_HELLO, &body, NULL, 0), -ENOMEM);
    pair_fini(&p);
}

static void test_queue(void **state)
{
    struct pair p;
    struct ctl_frame f;
    struct buf body = {0};
    enum { N = 50 };
    pair_init(&p);
    for (int i = 0; i < 10000; i++)
        buf_put_u8(&body, 'q');
    for (int i = 0; i < N; i++)
        assert_int_equal(ctl_send(&p.a, CTL_PROGRESS, &body, NULL, 0), 0);
    assert_int_equal(ctl_flush(&p.a), 1);
    for (int i = 0; i < N; i++) {
        int rc;
        while ((rc = ctl_recv(&p.b, &f)) == 1)
            assert_true(ctl_flush(&p.a) >= 0);
        assert_int_equal(rc, 0);
        assert_int_equal(f.len, 10000);
    }
    assert_int_equal(ctl_flush(&p.a), 0);
    /* after the other end has closed, sending fails */
    close(p.fd[1]);
    assert_int_equal(ctl_send(&p.a, CTL_BYE, NULL, NULL, 0), -ECONNRESET);
    p.fd[1] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    buf_fini(&body);
    pair_fini(&p);
}

/* A frame with descriptors waits in the queue, in order with the frames before and after it. The
 * caller may close its own descriptor meanwhile. */
static void test_queue_descriptors(void **state)
{
    struct pair p;
    struct ctl_frame f;
    struct buf body = {0};
    enum { N = 40 };
    int before = open_fds();
    (void)state;
    pair_init(&p);
    for (int i = 0; i < 20000; i++)
        buf_put_u8(&body, 'q');
    for (int i = 0; i < N; i++) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_int_equal(ctl_send(&p.a, CTL_PROGRESS, &body, NULL, 0), 0);
        assert_int_equal(ctl_send(&p.a, CTL_SHARE, &body, &fd, 1), 0);
        close(fd);
    }
    assert_int_equal(ctl_flush(&p.a), 1);
    for (int i = 0; i < 2 * N; i++) {
        int rc;
        while ((rc = ctl_recv(&p.b, &f)) == 1)
            assert_true(ctl_flush(&p.a) >= 0);
        assert_int_equal(rc, 0);
        assert_int_equal(f.len, 20000);
        assert_int_equal(f.nfds, i % 2);
        if (f.nfds)
            close(f.fds[0]);
    }
    /* descriptors that are still queued at the end are closed */
    for (int i = 0; i < N; i++) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_int_equal(ctl_send(&p.a, CTL_SHARE, &body, &fd, 1), 0);
        close(fd);
    }
    buf_fini(&body);
    pair_fini(&p);
    assert_int_equal(open_fds(), before);
}

/* Two queues send the same descriptors (ctl_send_shared); the descriptors are closed when both
 * have finished. */
static void test_cargo(void **state)
{
    struct pair p, q;
    struct ctl_frame f;
    int before = open_fds(), fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)state;
    pair_init(&p);
    pair_init(&q);
    struct ctl_fds *fds = ctl_fds_create(&fd, 1);
    assert_non_null(fds);
    assert_int_equal(ctl_send_shared(&p.a, CTL_SHARE, NULL, fds), 0);
    assert_int_equal(ctl_send_shared(&q.a, CTL_SHARE, NULL, fds), 0);
    ctl_fds_drop(fds);
    assert_int_equal(ctl_recv(&p.b, &f), 0);
    close(f.fds[0]);
    assert_int_equal(ctl_recv(&q.b, &f), 0);
    close(f.fds[0]);
    pair_fini(&p);
    pair_fini(&q);
    assert_int_equal(open_fds(), before);
}

/* The kernel's limit of descriptors in flight is reached: frames stay queued, and are sent after
 * others were received. In a child, because the limit counts per user and root is exempt. */
static int refused(void)
{
    struct pair p;
    struct ctl_frame f;
    const struct rlimit few = {40, 40};
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC), sent = 0;
    pair_init(&p);
    if (setrlimit(RLIMIT_NOFILE, &few) < 0 || setresuid(64123, 64123, 64123) < 0)
        return 77;
    while (!p.a.refused_since && sent < 1000 && ctl_send(&p.a, CTL_SHARE, NULL, &null, 1) == 0)
        sent++;
    if (ctl_flush(&p.a) != CTL_RETRY)
        return 1;
    if (ctl_send(&p.a, CTL_SHARE, NULL, &null, 1) != 0)
        return 2;
    for (int i = 0; i <= sent; i++) {
        int rc = ctl_recv(&p.b, &f);
        if (rc != 0 || f.nfds != 1)
            return 3;
        close(f.fds[0]);
        if (ctl_flush(&p.a) < 0)
            return 4;
    }
    if (ctl_flush(&p.a) != 0 || p.a.refused_since != 0)
        return 5;
    /* a sender that is refused for CTL_REFUSED_S gives up */
    while (!p.a.refused_since && ctl_send(&p.a, CTL_SHARE, NULL, &null, 1) == 0)
        continue;
    p.a.refused_since = clock_ns() - CTL_REFUSED_S * CLOCK_S;
    char why[256] = "";
    ctl_refused_text(ctl_flush(&p.a), why, sizeof(why));
    return strstr(why, "the limit of 40 (ulimit -n)") ? 0 : 6;
}

static void test_refused(void **state)
{
    int status;
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(refused());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_no_body),
        cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_descriptors_dropped),
        cmocka_unit_test(test_hand_over),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_cargo),
        cmocka_unit_test(test_queue_descriptors),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
