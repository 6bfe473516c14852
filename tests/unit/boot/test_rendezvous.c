/* SPDX-License-Identifier: Apache-2.0
 *
 * test_rendezvous: if rank 0 may open too few descriptors, it reports that at once with both
 * numbers, and does not spin on a connection that it cannot accept. Rank 0 is a child, because the
 * limit is the process's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "core/base/clock.h"
#include "core/boot/rendezvous.h"
#include "tests/harness/port.h"

#define WAIT_MS 20000

static struct rendezvous rendezvous(int port, int rank, int size)
{
    struct rendezvous rv = {.host = "127.0.0.1", .rank = rank, .size = size};
    snprintf(rv.port, sizeof(rv.port), "%d", port);
    return rv;
}

static int meet(int port, int rank, int size, int ms, struct err *err)
{
    const struct rendezvous rv = rendezvous(port, rank, size);
    struct buf card = {0}, *cards = calloc((size_t)size, sizeof(*cards));
    struct rendezvous_result result = {.cards = cards};
    buf_put_u32(&card, (uint32_t)rank);
    int rc = rendezvous_exchange(&rv, &card, deadline_in_ms((uint64_t)ms), &result, err);
    for (int i = 0; i < size; i++)
        buf_fini(&cards[i]);
    buf_fini(&card);
    free(cards);
    return rc;
}

static int count_open(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = -1;
    while (d && readdir(d))
        n++;
    closedir(d);
    return n -
           2; /* without ".", ".." and the descriptor of opendir(), but with the -1 at the start */
}

/* Sets the soft and the hard limit to so many descriptors more than are open. Returns the limit. */
static int allow(int more)
{
    rlim_t n = (rlim_t)(count_open() + more);
    const struct rlimit limit = {n, n};
    setrlimit(RLIMIT_NOFILE, &limit);
    return (int)n;
}

static int end_of(pid_t pid)
{
    int status;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int refuses(int port)
{
    struct err err = {0};
    char want[64];
    uint64_t begin = clock_ns();
    int limit = allow(50);
    snprintf(want, sizeof(want), "no more than %d: raise the limit", limit);
    int rc = meet(port, 0, 1000, WAIT_MS, &err);
    bool said = strstr(err.msg, "1001 are to come") && strstr(err.msg, want);
    if (rc != -EMFILE || !said)
        return fprintf(stderr, "%d: %s\n", rc, err.msg), 1;
    return clock_ns() - begin < WAIT_MS / 2 * CLOCK_MS ? 0 : 2;
}

static void test_too_few(void **state)
{
    (void)state;
    int port = port_free();
    pid_t pid = fork();
    if (pid == 0)
        _exit(refuses(port));
    assert_int_equal(end_of(pid), 0);
}

/* Strangers hold all connections that rank 0 may accept. */
static int waits(int port)
{
    struct err err = {0};
    struct rusage use;
    allow(4); /* for the listener and three ranks */
    int rc = meet(port, 0, 3, 1500, &err);
    getrusage(RUSAGE_SELF, &use);
    long ms = (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000 +
              (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1000;
    if (rc != -ETIMEDOUT || !strstr(err.msg, "timed out waiting for ranks 1-2"))
        return fprintf(stderr, "%d: %s\n", rc, err.msg), 1;
    return ms < 500 ? 0 : (fprintf(stderr, "%ld ms of processor\n", ms), 2);
}

static int dial(int port)
{
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint64_t deadline = deadline_in_ms(WAIT_MS);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 && !deadline_passed(deadline))
        usleep(1000);
    return fd;
}

static void test_no_spin(void **state)
{
    enum { STRANGERS = 8 };
    int strangers[STRANGERS], port = port_free();
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(waits(port));
    for (int i = 0; i < STRANGERS; i++)
        strangers[i] = dial(port);
    assert_int_equal(end_of(pid), 0);
    for (int i = 0; i < STRANGERS; i++)
        close(strangers[i]);
}

struct eater {
    int before, told;
};

/* When rank 1 has connected, another thread of rank 0's program opens all descriptors that are
 * left. */
static void *eat(void *arg)
{
    struct eater *e = arg;
    while (count_open() < e->before + 2)
        usleep(1000);
    while (dup(e->told) >= 0)
        continue;
    return write(e->told, "x", 1) == 1 ? e : NULL;
}

static int starves(int port, int told)
{
    struct err err = {0};
    struct eater e = {.before = count_open(), .told = told};
    pthread_t thread;
    allow(8);
    if (pthread_create(&thread, NULL, eat, &e) != 0)
        return 3;
    uint64_t begin = clock_ns();
    int rc = meet(port, 0, 3, 2 * WAIT_MS, &err);
    if (rc != -EMFILE || !strstr(err.msg, "rank 0 holds 2 of 3 ranks and cannot accept another"))
        return fprintf(stderr, "%d: %s\n", rc, err.msg), 1;
    return clock_ns() - begin < WAIT_MS * CLOCK_MS ? 0 : 2;
}

static pid_t peer(int port, int rank)
{
    struct err err = {0};
    pid_t pid = fork();
    if (pid == 0) {
        int rc = meet(port, rank, 3, 2 * WAIT_MS, &err);
        _exit(rc < 0 && strstr(err.msg, "rank 0 holds 2 of 3 ranks") ? 0 : 1);
    }
    return pid;
}

static void test_out_at_accept(void **state)
{
    int told[2], port = port_free();
    char byte;
    (void)state;
    assert_int_equal(pipe(told), 0);
    pid_t root = fork();
    if (root == 0)
        _exit(starves(port, told[1]));
    pid_t first = peer(port, 1);
    assert_int_equal(read(told[0], &byte, 1), 1);
    int second = dial(port);
    assert_int_equal(end_of(root), 0);
    assert_int_equal(end_of(first), 0);
    close(second);
    close(told[0]);
    close(told[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_too_few),
        cmocka_unit_test(test_no_spin),
        cmocka_unit_test(test_out_at_accept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
