/* SPDX-License-Identifier: Apache-2.0
 *
 * fd: whole reads and writes with deadlines, files with a size limit, descriptors over a socket;
 * and library_open().
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/library.h"
#include "tests/harness/open_fds.h"

static void test_full(void **state)
{
    int s[2], p[2];
    char got[8];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
    assert_int_equal(fd_set_nonblock(s[0]), 0);
    assert_int_equal(fd_write_full(s[0], "abcdef", 6, deadline_in_ms(20000)), 0);
    assert_int_equal(fd_read_full(s[1], got, 3, deadline_in_ms(20000)), 0);
    assert_memory_equal(got, "abc", 3);
    assert_int_equal(fd_read_full(s[1], got, 4, deadline_in_ms(30)), -ETIMEDOUT);
    close(s[0]);
    assert_int_equal(fd_read_full(s[1], got, 1, deadline_in_ms(20000)), -ECONNRESET);
    assert_int_equal(fd_write_full(s[1], "x", 1, deadline_in_ms(20000)), -EPIPE);
    close(s[1]);
    assert_int_equal(pipe(p), 0);
    assert_int_equal(fd_write_full(p[1], "xy", 2, UINT64_MAX), 0);
    assert_int_equal(fd_read_full(p[0], got, 2, UINT64_MAX), 0);
    assert_int_equal(fd_read_full(p[0], got, 0, 0), 0);
    close(p[0]);
    close(p[1]);
}

static void test_write_deadline(void **state)
{
    int s[2];
    char *much = calloc(1, 8 << 20);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
    assert_int_equal(fd_write_full(s[0], much, 8 << 20, deadline_in_ms(50)), -ETIMEDOUT);
    free(much);
    close(s[0]);
    close(s[1]);
}

static void test_file(void **state)
{
    char name[] = "/tmp/hvd-test-fd-XXXXXX", *text = NULL;
    size_t len = 99;
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(fd_read_file(name, 10, &text, &len), 0);
    assert_string_equal(text, "");
    assert_int_equal(len, 0);
    free(text);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(write(fd, "0123456789", 10), 10);
    assert_int_equal(fd_read_file(name, 10000, &text, &len), 0);
    assert_int_equal(len, 10000);
    assert_int_equal(text[10000], '\0');
    free(text);
    text = NULL;
    assert_int_equal(fd_read_file(name, 9999, &text, &len), -EFBIG);
    assert_int_equal(fd_read_file(name, 5, &text, NULL), -EFBIG);
    assert_null(text);
    close(fd);
    unlink(name);
    assert_int_equal(fd_read_file(name, 5, &text, NULL), -ENOENT);
}

static void test_passing(void **state)
{
    int s[2], before = open_fds(), got[FD_MAX_PASSED];
    char byte[4];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
    const int three[] = {s[0], s[1], s[0]};
    size_t n = FD_MAX_PASSED;
    assert_int_equal(fd_send(s[0], "x", 1, three, 3), 1);
    assert_int_equal(fd_recv(s[1], byte, sizeof(byte), got, &n), 1);
    assert_int_equal(n, 3);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(fcntl(got[i], F_GETFD), FD_CLOEXEC);
        close(got[i]);
    }
    /* more descriptors than the caller has room for: all are closed */
    n = 2;
    assert_int_equal(fd_send(s[0], "x", 1, three, 3), 1);
    assert_int_equal(fd_recv(s[1], byte, sizeof(byte), got, &n), -EPROTO);
    assert_int_equal(fd_send(s[0], "x", 1, three, 3), 1);
    assert_int_equal(fd_recv(s[1], byte, sizeof(byte), NULL, NULL), -EPROTO);
    assert_int_equal(fd_send(s[0], "x", 1, three, FD_MAX_PASSED + 1), -EINVAL);
    fd_set_nonblock(s[1]);
    n = 1;
    assert_int_equal(fd_recv(s[1], byte, sizeof(byte), got, &n), -EAGAIN);
    close(s[0]);
    n = 1;
    assert_int_equal(fd_recv(s[1], byte, sizeof(byte), got, &n), 0);
    assert_int_equal(n, 0);
    close(s[1]);
    assert_int_equal(open_fds(), before);
}

static void test_library(void **state)
{
    static const char *const none[] = {"libno-such-thing.so.1", NULL};
    static const char *const some[] = {"libno-such-thing.so.1", "libm.so.6", NULL};
    double (*cosine)(double) = NULL;
    void *lost = NULL, *handle = NULL;
    struct err err;
    const struct library_symbol good[] = {{"cos", (void **)&cosine}};
    const struct library_symbol bad[] = {{"cos", (void **)&cosine}, {"no_such_symbol", &lost}};
    assert_int_equal(library_open(none, good, 1, &handle, &err), -ENOENT);
    assert_non_null(strstr(err.msg, "libno-such-thing"));
    assert_int_equal(library_open(some, bad, 2, &handle, &err), -ENOSYS);
    assert_non_null(strstr(err.msg, "no_such_symbol"));
    assert_null(cosine);
    assert_int_equal(library_open(some, good, 1, &handle, &err), 0);
    assert_true(cosine(0.0) == 1.0);
}

/* A limit that can be raised is raised as far as needed; a text names the numbers of the other. */
static void test_limits(void **state)
{
    struct rlimit before, limit;
    struct err err = {0};
    struct fd_use use, more;
    int fd = -1;
    char want[160];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(fd_count(getpid(), "hvd-test", &use));
    assert_int_equal(use.most, before.rlim_max);
    assert_true((fd = dup(0)) >= 0 && fd_count(getpid(), "hvd-test", &more));
    assert_int_equal(more.open, use.open + 1);
    close(fd);
    uint64_t open = use.open;
    limit = (struct rlimit){.rlim_cur = open + 2, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(fd_limit_need(20, &err), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(limit.rlim_cur >= open - 1 + 20 && limit.rlim_max == before.rlim_max);
    assert_int_equal(fd_limit_need((size_t)before.rlim_max, &err), -EMFILE);
    snprintf(want, sizeof(want), "this process needs %llu descriptors (%llu are open, ",
             (unsigned long long)(open - 1 + before.rlim_max), (unsigned long long)(open - 1));
    assert_non_null(strstr(err_text(&err), want));
    assert_false(fd_count(INT32_MAX, "hvd-test", &use));
    setrlimit(RLIMIT_NOFILE, &before);
}

/* The pages of memfds of one name that were written, in a process that has them open. */
static void test_memory(void **state)
{
    struct fd_use use;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int one = memfd_create("hvd-test", MFD_CLOEXEC), other = memfd_create("hvd-test2", MFD_CLOEXEC);
    assert_true(one >= 0 && other >= 0);
    assert_true(ftruncate(one, 64 << 20) == 0 && ftruncate(other, 64 << 20) == 0);
    assert_true(fd_count(getpid(), "hvd-test", &use));
    assert_int_equal(use.memory, 0);
    assert_int_equal(pwrite(one, "x", 1, 32 << 20), 1);
    assert_int_equal(pwrite(one, "x", 1, 0), 1);
    assert_int_equal(pwrite(other, "x", 1, 0), 1);
    assert_true(fd_count(getpid(), "hvd-test", &use));
    assert_int_equal(use.memory, 2 * page);
    close(one);
    close(other);
    assert_true(fd_count(getpid(), "hvd-test", &use));
    assert_int_equal(use.memory, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),    cmocka_unit_test(test_write_deadline),
        cmocka_unit_test(test_file),    cmocka_unit_test(test_passing),
        cmocka_unit_test(test_library), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
