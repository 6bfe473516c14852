/* SPDX-License-Identifier: Apache-2.0
 *
 * lifelines: what the agent learns from the lifelines of its ranks. A death and a silence are
 * reported, with the reason. A rank that lives, or has released its lifeline, is not. Ranks are
 * children of this program.
 *
 * takes: 6 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "agent/lifelines.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/lifeline_page.h"
#include "tests/harness/robust.h"

enum { SOON_MS = 20000 };

struct child {
    pid_t pid;
    int sock;
    struct rank_lifeline lifeline;
    int gone, evicted, told; /* how many calls of each kind */
    char text[512];
};

static struct loop loop;
static struct lifelines ls;

/* ---- the ranks ------------------------------------------------------------------------------ */

/* Holds the lifeline without the library and counts a beat for each byte it receives, so that
 * the process lives and is silent. */
static void hold_by_hand(int fd, int sock)
{
    struct lifeline_page *page =
        mmap(NULL, LIFELINE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char byte = 'h';
    if (page == MAP_FAILED)
        _exit(4);
    atomic_store(&page->pid, (uint32_t)getpid());
    atomic_store(&page->pidns, lifeline_pid_namespace());
    atomic_store(&page->word, FUTEX_WAITERS | (uint32_t)getpid());
    lifeline_futex_wake(&page->word);
    while (write(sock, &byte, 1) == 1 && read(sock, &byte, 1) == 1)
        atomic_fetch_add(&page->beats, 1);
    _exit(0);
}

/* The child ends, or releases its lifeline, when it receives a byte. */
static _Noreturn void child_main(int sock, pid_t parent, bool by_hand)
{
    char byte;
    int fd;
    size_t nfds = 1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || fd_recv(sock, &byte, 1, &fd, &nfds) != 1 || nfds != 1)
        _exit(1);
    if (by_hand)
        hold_by_hand(fd, sock);
    if (lifeline_hold(fd, NULL) < 0)
        _exit(2);
    close(fd);
    if (write(sock, "h", 1) != 1 || read(sock, &byte, 1) != 1)
        _exit(3);
    lifeline_release();
    for (;;)
        pause();
}

static void start(struct child *c, bool by_hand)
{
    int pair[2];
    pid_t parent = getpid();
    memset(c, 0, sizeof(*c));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    c->pid = fork();
    assert_true(c->pid >= 0);
    if (c->pid == 0)
        child_main(pair[1], parent, by_hand);
    close(pair[1]);
    c->sock = pair[0];
}

static void give(struct child *c)
{
    struct err err;
    char byte;
    int fd;
    if (rank_lifeline_start(&ls, &c->lifeline, &fd, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(fd_send(c->sock, "l", 1, &fd, 1), 1);
    close(fd);
    assert_int_equal(fd_read_full(c->sock, &byte, 1, deadline_in_ms(SOON_MS)), 0);
}

static void end(struct child *c)
{
    int status;
    rank_lifeline_stop(&c->lifeline);
    kill(c->pid, SIGKILL);
    waitpid(c->pid, &status, 0);
    close(c->sock);
}

/* ---- the owner ------------------------------------------------------------------------------ */

static void on_gone(void *arg, struct rank_lifeline *rl, bool evict, const char *text)
{
    struct child *c = list_entry(rl, struct child, lifeline);
    assert_ptr_equal(arg, &ls);
    assert_null(rl->line);
    c->gone++;
    c->evicted += evict;
    strncpy(c->text, text, sizeof(c->text) - 1);
}

static void on_suspected(void *arg, struct rank_lifeline *rl, const char *text)
{
    struct child *c = list_entry(rl, struct child, lifeline);
    c->told++;
    strncpy(c->text, text, sizeof(c->text) - 1);
}

static const struct lifelines_ops ops = {on_gone, on_suspected};

static int begin(void **state)
{
    setenv("HVD_HEARTBEAT_MS", "20", 1);
    return loop_init(&loop) < 0 || lifelines_init(&ls, &loop, &ops, &ls, NULL) < 0 ? -1 : 0;
}

static int finish(void **state)
{
    lifelines_fini(&ls);
    loop_fini(&loop);
    unsetenv("HVD_HEARTBEAT_MS");
    return 0;
}

/* Runs the loop until *counter is n, or for ms milliseconds. Returns whether *counter is n. */
static bool until(const int *counter, int n, uint64_t ms)
{
    uint64_t deadline = deadline_in_ms(ms);
    while (*counter < n && !deadline_passed(deadline))
        loop_once(&loop, 10);
    return *counter == n;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_death(void **state)
{
    struct child a, b;
    start(&a, false);
    start(&b, false);
    give(&a);
    give(&b);
    assert_false(until(&a.gone, 1, 500));
    kill(a.pid, SIGKILL);
    assert_true(until(&a.gone, 1, SOON_MS));
    assert_int_equal(a.evicted, 0);
    assert_string_equal(a.text, "died");
    assert_false(until(&a.gone, 2, 100));
    assert_int_equal(b.gone, 0);
    end(&a);
    end(&b);
}

static void test_release(void **state)
{
    struct child c;
    start(&c, false);
    give(&c);
    assert_int_equal(write(c.sock, "r", 1), 1);
    uint64_t deadline = deadline_in_ms(SOON_MS);
    while (c.lifeline.line && !deadline_passed(deadline))
        until(&c.gone, 1, 20);
    assert_null(c.lifeline.line);
    assert_false(ls.timer.on); /* no rank holds a lifeline */
    end(&c);
    assert_int_equal(c.gone, 0);
}

static void test_stopped(void **state)
{
    struct child a, b;
    start(&a, false);
    start(&b, false);
    give(&a);
    give(&b);
    until(&a.gone, 1, 100);
    uint64_t from = clock_ns();
    kill(a.pid, SIGSTOP);
    assert_true(until(&a.gone, 1, SOON_MS));
    assert_true(clock_ns() - from > 200 * CLOCK_MS);
    assert_int_equal(a.evicted, 1);
    assert_non_null(strstr(a.text, "was stopped (state T) and silent for "));
    assert_int_equal(b.gone, 0);
    end(&a);
    end(&b);
}

/* A short stop is not reported. */
static void test_stopped_shortly(void **state)
{
    struct child c;
    start(&c, false);
    give(&c);
    for (int i = 0; i < 3; i++) {
        kill(c.pid, SIGSTOP);
        until(&c.gone, 1, 100);
        kill(c.pid, SIGCONT);
        until(&c.gone, 1, 100);
    }
    assert_int_equal(c.gone, 0);
    end(&c);
}

/* A sleeping rank is silent for long: it is suspected, once. It beats again: that is reported.
 * Then it is silent past the limit: it is evicted. */
static void test_silent(void **state)
{
    struct child c;
    start(&c, true);
    give(&c);
    assert_true(until(&c.told, 1, SOON_MS));
    assert_non_null(strstr(c.text, "is silent for "));
    assert_non_null(strstr(c.text, "asleep (state S)"));
    if (until(&c.told, 2, 300))
        fail_msg("%s", c.text);
    assert_int_equal(write(c.sock, "b", 1), 1);
    assert_true(until(&c.told, 2, SOON_MS));
    assert_string_equal(c.text, "is no longer silent");
    ls.limits.evict_ns = 600 * CLOCK_MS;
    assert_true(until(&c.gone, 1, SOON_MS));
    assert_int_equal(c.told,
                     2); /* no second suspicion: evict_ns is over before the warning is due */
    assert_int_equal(c.evicted, 1);
    assert_non_null(strstr(c.text, "it was ended"));
    end(&c);
}

/* While the agent itself did not run, the ranks are not silent. */
static void test_away(void **state)
{
    struct child c;
    start(&c, false);
    give(&c);
    until(&c.gone, 1, 100);
    kill(c.pid, SIGSTOP);
    usleep(600 * 1000);
    loop_once(&loop, 50);
    assert_int_equal(c.gone, 0);
    assert_true(until(&c.gone, 1, SOON_MS));
    end(&c);
}

static void test_replaced(void **state)
{
    struct child c;
    int fd;
    start(&c, false);
    give(&c);
    assert_int_equal(rank_lifeline_start(&ls, &c.lifeline, &fd, NULL), 0);
    kill(c.pid, SIGKILL); /* the rank holds the page that was replaced */
    assert_false(until(&c.gone, 1, 100));
    close(fd);
    end(&c);
}

static void test_heartbeat(void **state)
{
    static const char *const bad[] = {"9", "10001", "x", "-1"};
    struct lifelines other = {0};
    struct err err;
    lifelines_fini(&other);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("HVD_HEARTBEAT_MS", bad[i], 1);
        assert_int_equal(lifelines_init(&other, &loop, &ops, NULL, &err), -EINVAL);
        assert_non_null(strstr(err.msg, "HVD_HEARTBEAT_MS"));
    }
    unsetenv("HVD_HEARTBEAT_MS");
    assert_int_equal(lifelines_init(&other, &loop, &ops, NULL, &err), 0);
    assert_int_equal(other.beat_ms, 100);
    lifelines_fini(&other);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, finish)

int main(void)
{
    if (robust_missing("agent/lifelines/robust"))
        return 77;
    const struct CMUnitTest tests[] = {
        TEST(test_death),  TEST(test_release), TEST(test_stopped),  TEST(test_stopped_shortly),
        TEST(test_silent), TEST(test_away),    TEST(test_replaced), TEST(test_heartbeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
