/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of the engine: repeated init and shutdown, calls at the wrong time, invalid settings, one
 * rank that leaves before the others.
 *
 * timeout: 300
 * takes: 8 s, waiting
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

static int count_entries(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static long resident_kb(void)
{
    long pages = 0, total;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &total, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int live_once(int i)
{
    float x = 1;
    if (hvd_init() != 0)
        return FAIL("init %d: %s", i, hvd_error());
    if (hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM) != 0)
        return FAIL("allreduce %d: %s", i, hvd_error());
    if (x != (float)hvd_size())
        return FAIL("allreduce %d: %g", i, (double)x);
    if (hvd_shutdown() != 0)
        return FAIL("shutdown %d: %s", i, hvd_error());
    return 0;
}

/* The kernel lists a joined thread until it has freed it, so this is the smallest count of half a
 * second. */
static int count_threads(void)
{
    int fewest = count_entries("/proc/self/task");
    for (int i = 0; i < 500; i++) {
        nap_ms(1);
        int now = count_entries("/proc/self/task");
        fewest = now < fewest ? now : fewest;
    }
    return fewest;
}

static int live_again(int rank, int size, void *arg)
{
    int times = *(int *)arg, rc = 0;
    for (int i = 0; i < 10 && !rc; i++)
        rc = live_once(i);
    int fds = count_entries("/proc/self/fd"), threads = count_threads();
    long kb = resident_kb();
    for (int i = 0; i < times && !rc; i++)
        rc = live_once(i);
    if (rc)
        return rc;
    if (count_entries("/proc/self/fd") != fds)
        return FAIL("%d descriptors became %d", fds, count_entries("/proc/self/fd"));
    int left = count_threads();
    if (left != threads)
        return FAIL("%d threads became %d", threads, left);
    /* Sanitizers keep freed memory for a while. */
    if (resident_kb() > kb + 4096 && !getenv("HVD_TEST_SANITIZED"))
        return FAIL("%ld KB resident became %ld", kb, resident_kb());
    return 0;
}

static void test_live_again(void **state)
{
    int many = 990, some = 50;
    assert_int_equal(world_run(1, live_again, &many), 0);
    assert_int_equal(world_run(2, live_again, &some), 0);
    some = 10;
    assert_int_equal(world_run(4, live_again, &some), 0);
}

static int wrong_time(int rank, int size, void *arg)
{
    float x = 1;
    struct hvd_stats stats = {.size = sizeof(stats)};
    if (hvd_initialized() || hvd_rank() != -ENOTCONN || hvd_shutdown() != -ENOTCONN)
        return FAIL("before init");
    if (hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM) != -ENOTCONN)
        return FAIL("allreduce before init");
    if (!strstr(hvd_error(), "hvd_init"))
        return FAIL("text: %s", hvd_error());
    if (hvd_init() != 0 || !hvd_initialized())
        return FAIL("init twice: %s", hvd_error());
    if (hvd_init() != 0) /* a second init does nothing */
        return FAIL("init twice: %s", hvd_error());
    if (hvd_rank() != rank || hvd_size() != size || hvd_local_rank() != rank ||
        hvd_local_size() != size || hvd_cross_rank() != 0 || hvd_cross_size() != 1 ||
        !hvd_homogeneous())
        return FAIL("places");
    if (hvd_poll(0) != -EINVAL || hvd_wait(12345) != -EINVAL || hvd_wait(-1) != -EINVAL)
        return FAIL("unknown handles");
    if (hvd_stats(&stats) != 0 || stats.size != sizeof(stats))
        return FAIL("stats");
    if (hvd_shutdown() != 0)
        return FAIL("shutdown: %s", hvd_error());
    if (hvd_poll(1) != -ENOTCONN)
        return FAIL("poll after shutdown");
    if (hvd_shutdown() != -ENOTCONN || !strstr(hvd_error(), "hvd_shutdown() was called"))
        return FAIL("text: %s", hvd_error());
    return 0;
}

static void test_wrong_time(void **state)
{
    assert_int_equal(world_run(2, wrong_time, NULL), 0);
}

static int bad_setting(int rank, int size, void *arg)
{
    static const char *const bad[][2] = {
        {"HVD_FUSION_THRESHOLD", "many"},  {"HVD_CYCLE_TIME", "-1"},
        {"HVD_CACHE_CAPACITY", "1e3"},     {"HVD_FREEZE_AFTER", "x"},
        {"HVD_LOG_LEVEL", "loud"},         {"HVD_STALL_CHECK_DISABLE", "maybe"},
        {"HVD_START_TIMEOUT", "0"},        {"HVD_STALL_CHECK_TIME_SECONDS", "nan"},
        {"HVD_HIERARCHICAL_ADASUM", "2x"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv(bad[i][0], bad[i][1], 1);
        if (hvd_init() != -EINVAL || !strstr(hvd_error(), bad[i][0]) ||
            !strstr(hvd_error(), bad[i][1]))
            return FAIL("%s: %s", bad[i][0], hvd_error());
        unsetenv(bad[i][0]);
    }
    setenv("HVD_TIMELINE", "/nowhere/at/all.json", 1);
    if (hvd_init() != -ENOENT || !strstr(hvd_error(), "/nowhere/at/all.json"))
        return FAIL("timeline: %s", hvd_error());
    return 0;
}

static void test_bad_settings(void **state)
{
    assert_int_equal(world_run(1, bad_setting, NULL), 0);
}

/* What is in flight when this rank leaves ends with -ESHUTDOWN. */
static int leave_early(int rank, int size, void *arg)
{
    float x = 1;
    int64_t one = 1;
    struct hvd_request r = {.kind = HVD_ALLREDUCE,
                            .name = "never",
                            .input = &x,
                            .output = &x,
                            .dtype = HVD_FLOAT32,
                            .ndim = 1,
                            .shape = &one,
                            .op = HVD_SUM,
                            .device = -1};
    int rounds = *(int *)arg, rc = hvd_init();
    for (int i = 0; i < rounds && rc == 0; i++)
        rc = hvd_allreduce("together", &x, &x, 1, HVD_FLOAT32, HVD_SUM);
    if (rc != 0)
        return FAIL("%s", hvd_error());
    if (rank == size - 1)
        return hvd_shutdown() == 0 ? 0 : FAIL("shutdown: %s", hvd_error());
    uint64_t start = clock_ns();
    hvd_handle h;
    rc = hvd_submit(&r, 1, &h);
    if (rc == 0)
        rc = hvd_wait(h);
    char want[64];
    snprintf(want, sizeof(want), "rank %d has shut down", size - 1);
    if (rc != -ESHUTDOWN || !strstr(hvd_error(), want))
        return FAIL("%d: %s", rc, hvd_error());
    if (hvd_allreduce("together", &x, &x, 1, HVD_FLOAT32, HVD_SUM) != -ESHUTDOWN)
        return FAIL("afterwards: %s", hvd_error());
    if (clock_ns() - start > 20 * CLOCK_S)
        return FAIL("it took too long");
    return hvd_shutdown() == 0 ? 0 : FAIL("shutdown: %s", hvd_error());
}

static void test_leave_early(void **state)
{
    int few = 1, frozen = 200;
    for (int size = 2; size <= 4; size++) {
        assert_int_equal(world_run(size, leave_early, &few), 0);
        assert_int_equal(world_run(size, leave_early, &frozen), 0);
    }
}

/* The schedule is frozen and the others are in its next operation when this rank leaves. */
static int leave_begun(int rank, int size, void *arg)
{
    static float x[50000];
    int count = *(int *)arg, rc = hvd_init();
    for (int i = 0; i < 200 && rc == 0; i++)
        rc = hvd_allreduce("together", x, x, count, HVD_FLOAT32, HVD_SUM);
    if (rc != 0)
        return FAIL("%s", hvd_error());
    if (rank == size - 1) {
        usleep(100000); /* until the others are in the next operation */
        return hvd_shutdown() == 0 ? 0 : FAIL("shutdown: %s", hvd_error());
    }
    rc = hvd_allreduce("together", x, x, count, HVD_FLOAT32, HVD_SUM);
    char want[64];
    snprintf(want, sizeof(want), "rank %d has shut down", size - 1);
    if (rc != -ESHUTDOWN || !strstr(hvd_error(), want))
        return FAIL("%d: %s", rc, hvd_error());
    return hvd_shutdown() == 0 ? 0 : FAIL("shutdown: %s", hvd_error());
}

static void test_leave_begun(void **state)
{
    int small = 1, large = 50000;
    for (int size = 2; size <= 3; size++) {
        assert_int_equal(world_run(size, leave_begun, &small), 0);
        assert_int_equal(world_run(size, leave_begun, &large), 0);
    }
    struct world_options hosts = {.size = 4, .hosts = 2, .timeout_s = 60};
    if (!world_can_netns("multi/life/leave_begun"))
        return;
    assert_int_equal(world_run_options(&hosts, leave_begun, &small), 0);
    assert_int_equal(world_run_options(&hosts, leave_begun, &large), 0);
}

static int pending_at_shutdown(int rank, int size, void *arg)
{
    float x = 1;
    int64_t one = 1;
    struct hvd_request r = {.kind = HVD_ALLREDUCE,
                            .name = rank ? "mine" : "yours",
                            .input = &x,
                            .output = &x,
                            .dtype = HVD_FLOAT32,
                            .ndim = 1,
                            .shape = &one,
                            .op = HVD_SUM,
                            .device = -1};
    hvd_handle h;
    if (hvd_init() != 0 || hvd_submit(&r, 1, &h) != 0)
        return FAIL("%s", hvd_error());
    uint64_t start = clock_ns();
    if (hvd_shutdown() != 0)
        return FAIL("%s", hvd_error());
    return clock_ns() - start < 4 * CLOCK_S ? 0 : FAIL("it took too long");
}

/* No rank waits the 5 s of hvd_shutdown(). On a busy machine the test may repeat. */
static void test_pending_at_shutdown(void **state)
{
    int bad = 1;
    for (int i = 0; i < 3 && bad; i++)
        bad = world_run(2, pending_at_shutdown, NULL);
    assert_int_equal(bad, 0);
}

/* Calls in a loop while another thread shuts down. */
static void *call_on(void *arg)
{
    char name[16];
    float x = 1;
    int rc;
    snprintf(name, sizeof(name), "c%d", *(int *)arg);
    do
        rc = hvd_allreduce(name, &x, &x, 1, HVD_FLOAT32, HVD_MAX);
    while (rc == 0);
    return (void *)(intptr_t)rc;
}

static int shutdown_beside_calls(int rank, int size, void *arg)
{
    for (int k = 0; k < 20; k++) {
        pthread_t threads[3];
        int index[3] = {0, 1, 2};
        struct timespec nap = {.tv_nsec = 2000000 + k * 100000};
        if (hvd_init() != 0)
            return FAIL("%s", hvd_error());
        for (int i = 0; i < 3; i++)
            pthread_create(&threads[i], NULL, call_on, &index[i]);
        nanosleep(&nap, NULL);
        if (hvd_shutdown() != 0)
            return FAIL("%s", hvd_error());
        for (int i = 0; i < 3; i++) {
            void *rc;
            pthread_join(threads[i], &rc);
            int code = (int)(intptr_t)rc;
            if (code != -ESHUTDOWN && code != -ENOTCONN && (code != -ECONNRESET || size == 1))
                return FAIL("round %d: %d", k, code);
        }
        if (size > 1)
            break; /* the others' operations may have been in flight: no second round */
    }
    return 0;
}

static void test_shutdown_beside_calls(void **state)
{
    for (int i = 0; i < 5; i++) {
        assert_int_equal(world_run(1, shutdown_beside_calls, NULL), 0);
        assert_int_equal(world_run(3, shutdown_beside_calls, NULL), 0);
    }
}

static long cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* An idle rank uses no CPU: no timer, no spinning. On a busy machine it takes a while until all
 * threads sleep. */
static int idle(int rank, int size, void *arg)
{
    long us = 0;
    float x = 1;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < 100; i++)
        hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM);
    struct timespec settle = {.tv_nsec = 200000000}, nap = {.tv_sec = 1};
    for (int i = 0; i < 5 && (i == 0 || us > 5000); i++) {
        nanosleep(&settle, NULL);
        us = -cpu_us();
        nanosleep(&nap, NULL);
        us += cpu_us();
    }
    if (us > 5000)
        return FAIL("%ld us of processor time in an idle second", us);
    return hvd_shutdown() != 0;
}

static void test_idle(void **state)
{
    assert_int_equal(world_run(3, idle, NULL), 0);
}

/* ---- timeline ---- */

/* The file must begin and end as an array and have both words. */
static int expect_trace(const char *path, const char *word, const char *other)
{
    char *text = NULL;
    size_t len = 0;
    int rc = fd_read_file(path, 16 << 20, &text, &len);
    if (rc < 0)
        return FAIL("%s: %s", path, strerror(-rc));
    bool good = len > 5 && memcmp(text, "[\n", 2) == 0 && strcmp(text + len - 3, "\n]\n") == 0 &&
                strstr(text, word) && strstr(text, other);
    free(text);
    unlink(path);
    return good ? 0 : FAIL("%s has no %s or no %s", path, word, other);
}

static int with_timeline(int rank, int size, void *arg)
{
    const char *dir = arg;
    char pattern[96], own[96], later[96];
    float x[2] = {1, 2};
    snprintf(pattern, sizeof(pattern), "%s/at-start.%%r.json", dir);
    snprintf(own, sizeof(own), "%s/at-start.%d.json", dir, rank);
    snprintf(later, sizeof(later), "%s/later.json", dir);
    setenv("HVD_TIMELINE", pattern, 1);
    setenv("HVD_TIMELINE_MARK_CYCLES", "1", 1);
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < 20; i++) {
        if (hvd_allreduce("one", x, x, 2, HVD_FLOAT32, HVD_MAX) != 0)
            return FAIL("%s", hvd_error());
    }
    hvd_broadcast("differs", x, rank ? 1 : 2, HVD_FLOAT32, 0);
    if (hvd_stop_timeline() != 0)
        return FAIL("%s", hvd_error());
    int rc = expect_trace(own, "NEGOTIATE_ALLREDUCE", "CYCLE_START");
    if (!rc && hvd_start_timeline("/nowhere/x.json", false) != (rank ? 0 : -ENOENT))
        return FAIL("a path that cannot be written");
    if (hvd_start_timeline(later, false) != 0 || hvd_barrier("two") != 0)
        return FAIL("%s", hvd_error());
    if (rc || hvd_shutdown() != 0)
        return rc ? rc : FAIL("%s", hvd_error());
    return rank == 0 ? expect_trace(later, "NEGOTIATE_BARRIER", "barrier.two") : 0;
}

static void test_timeline(void **state)
{
    char dir[] = "/tmp/hvd-life-XXXXXX";
    assert_non_null(mkdtemp(dir));
    for (int size = 1; size <= 3; size++)
        assert_int_equal(world_run(size, with_timeline, dir), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_time),
        cmocka_unit_test(test_bad_settings),
        cmocka_unit_test(test_leave_early),
        cmocka_unit_test(test_leave_begun),
        cmocka_unit_test(test_pending_at_shutdown),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_shutdown_beside_calls),
        cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_live_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
