/* SPDX-License-Identifier: Apache-2.0
 *
 * test_watch: conditions that appear, last and clear, on a captured machine whose files change
 * between two looks.
 */
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "core/base/clock.h"
#include "diagnostics/watch.h"
#include "tests/unit/diagnostics/checkup.h"

static struct machine machine;
static struct watch *watch;
static uint64_t now;
static struct {
    int n;
    const char *id;
    enum check_status status;
    bool cleared;
    char summary[400];
} last;

static void on_news(void *arg, const struct watch_news *news)
{
    (void)arg;
    last.n++;
    last.id = news->check->id;
    last.status = news->status;
    last.cleared = news->cleared;
    snprintf(last.summary, sizeof(last.summary), "%s", news->summary);
}

/* One look. What it reported is in last. */
static void look(void)
{
    last.n = 0;
    now += WATCH_MS * CLOCK_MS;
    watch_look(watch, now, on_news, NULL);
}

/* Looks until something is reported, at most max times. Returns the number of looks, or 0. */
static int look_until(int max)
{
    for (int i = 1; i <= max; i++) {
        look();
        if (last.n)
            return i;
    }
    return 0;
}

#define EXPECT(ID, STATUS, WORDS)                                                                  \
    do {                                                                                           \
        assert_int_equal(last.n, 1);                                                               \
        assert_string_equal(last.id, ID);                                                          \
        assert_int_equal(last.status, STATUS);                                                     \
        assert_int_equal(last.cleared, (STATUS) == CHECK_PASS);                                    \
        if (!strstr(last.summary, WORDS))                                                          \
            fail_msg("the summary \"%s\" lacks \"%s\"", last.summary, WORDS);                      \
    } while (0)

static void number(const char *path, int64_t n)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRId64 "\n", n);
    checkup_file(path, text);
}

static void memory_events(int64_t kills)
{
    char text[96];
    snprintf(text, sizeof(text), "low 0\nhigh 0\nmax 0\noom 0\noom_kill %" PRId64 "\n", kills);
    checkup_file("sys/fs/cgroup/memory.events", text);
}

static void cpu_stat(int64_t periods, int64_t throttled)
{
    char text[128];
    snprintf(text, sizeof(text),
             "usage_usec 1\nnr_periods %" PRId64 "\nnr_throttled %" PRId64 "\nthrottled_usec 1\n",
             periods, throttled);
    checkup_file("sys/fs/cgroup/cpu.stat", text);
}

static void nic(int64_t errors, int64_t changes)
{
    number("sys/class/net/eth0/statistics/rx_errors", errors);
    number("sys/class/net/eth0/statistics/tx_errors", 0);
    number("sys/class/net/eth0/carrier_changes", changes);
}

static void swap(int64_t in, int64_t out)
{
    char text[64];
    snprintf(text, sizeof(text), "pswpin %" PRId64 "\npswpout %" PRId64 "\n", in, out);
    checkup_file("proc/vmstat", text);
}

/* Starts a watch of a healthy container with cgroup v2. */
static int setup(void **state)
{
    struct err err = {0};
    (void)state;
    checkup_new();
    checkup_file("proc/self/cgroup", "0::/\n");
    checkup_file("proc/self/mountinfo",
                 "30 20 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n");
    checkup_file("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n");
    checkup_file("sys/fs/cgroup/memory.max", "1073741824\n");
    checkup_file("sys/fs/cgroup/memory.current", "104857600\n");
    checkup_file("sys/fs/cgroup/memory.stat", "anon 1\nfile 1\ninactive_file 0\n");
    checkup_file("sys/fs/cgroup/cpu.max", "200000 100000\n");
    checkup_file("dev/kmsg", "6,1,1,-;boot\n");
    checkup_file("proc/77/stat", "77 (a) D) S 1 1\n");
    memory_events(3);
    cpu_stat(100, 50);
    nic(9, 4);
    swap(5, 5);
    assert_int_equal(machine_open_captured(&machine, checkup.dir, &err), 0);
    if (watch_create(&machine, &watch, &err) < 0)
        fail_msg("%s", err_text(&err));
    for (int i = 0; i < 3; i++) {
        look();
        assert_int_equal(last.n, 0);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    watch_destroy(watch);
    machine_close(&machine);
    checkup_remove();
    return 0;
}

static void test_quiet(void **state)
{
    const char *id, *unit;
    double value;
    enum check_status status;
    size_t n = 0;
    (void)state;
    assert_int_equal(look_until(200), 0);
    for (; watch_at(watch, n, &id, &unit, &value, &status); n++) {
        assert_int_equal(status, CHECK_PASS);
        assert_false(isnan(value) && strcmp(id, "shm-free") != 0);
    }
    assert_int_equal(n, 10);
}

static void test_oom_kill(void **state)
{
    (void)state;
    memory_events(5);
    look();
    EXPECT("cgroup-oom-kill", CHECK_FAIL, "2 processes");
    assert_int_equal(look_until(59), 0);
    assert_int_equal(look_until(1), 1);
    EXPECT("cgroup-oom-kill", CHECK_PASS, "5 minutes");
    memory_events(0); /* a counter that falls belongs to another group, and is no kill */
    assert_int_equal(look_until(3), 0);
}

static void test_throttle(void **state)
{
    int64_t periods = 100, throttled = 50;
    (void)state;
    for (int i = 1; i <= 3; i++) {
        cpu_stat(periods += 50, throttled += 4);
        look();
        assert_int_equal(last.n, i == 3);
    }
    EXPECT("cgroup-cpu-throttle", CHECK_WARN, "2.0 processors) ran out in 8 %");
    for (int i = 1; i <= 3; i++) {
        cpu_stat(periods += 50, throttled += 40);
        look();
        assert_int_equal(last.n, i == 3);
    }
    EXPECT("cgroup-cpu-throttle", CHECK_FAIL, "80 %");
    for (int i = 0; i < 20; i++) { /* 3 %: too much to clear, too little to report */
        cpu_stat(periods += 100, throttled += 3);
        look();
        assert_int_equal(last.n, 0);
    }
    assert_int_equal(look_until(10), 6);
    EXPECT("cgroup-cpu-throttle", CHECK_PASS, "enough again");
}

static void test_one_peak_is_nothing(void **state)
{
    int64_t periods = 100, throttled = 50;
    (void)state;
    for (int i = 0; i < 12; i++) {
        cpu_stat(periods += 50, throttled += i % 3 ? 50 : 0);
        look();
        assert_int_equal(last.n, 0);
    }
}

static void test_memory(void **state)
{
    (void)state;
    number("sys/fs/cgroup/memory.current", 1000000000);
    assert_int_equal(look_until(5), 2);
    EXPECT("cgroup-mem-limit", CHECK_FAIL, "of the memory limit of 1 GiB");
    number("sys/fs/cgroup/memory.current", 200000000);
    assert_int_equal(look_until(5), 3);
    EXPECT("cgroup-mem-limit", CHECK_PASS, "room");
}

/* Appends lines to the kernel's log, which the watch has open. */
static void kernel_says(const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/root/dev/kmsg", checkup.dir);
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void test_kernel_log(void **state)
{
    (void)state;
    kernel_says("4,2,9,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off\n"
                " SUBSYSTEM=pci\n");
    look();
    EXPECT("gpu-xid", CHECK_FAIL, "Xid (PCI:0000:3b:00): 79");
    assert_int_equal(look_until(200), 120);
    EXPECT("gpu-xid", CHECK_PASS, "10 minutes");
}

static void test_nic(void **state)
{
    (void)state;
    nic(20, 4);
    look();
    assert_int_equal(last.n, 0);
    nic(31, 4);
    look();
    EXPECT("nic-errors", CHECK_WARN, "eth0: 11 errors within 5 s");
    assert_int_equal(look_until(30), 24);
    EXPECT("nic-errors", CHECK_PASS, "2 minutes");
    nic(31, 6);
    look();
    EXPECT("nic-flaps", CHECK_WARN, "eth0: the link went down or up 2 times");
}

static void test_stuck(void **state)
{
    const pid_t pids[] = {77, 78};
    (void)state;
    assert_int_equal(watch_processes(watch, pids, 2), 0);
    checkup_file("proc/77/stat", "77 (a) D) D 1 1\n");
    for (int i = 0; i < 4; i++) {
        look();
        assert_int_equal(last.n, 0);
        assert_int_equal(watch_processes(watch, pids, 2),
                         0); /* the same processes: their counts are kept */
    }
    look();
    EXPECT("dstate-procs", CHECK_WARN, "process 77");
    checkup_file("proc/77/stat", "77 (a) D) R 1 1\n");
    assert_int_equal(look_until(5), 2);
    EXPECT("dstate-procs", CHECK_PASS, "no process");
}

static void test_swap(void **state)
{
    (void)state;
    for (int i = 1; i <= 3; i++) {
        swap(5 + i * 1000, 5 + i * 1000);
        look();
        assert_int_equal(last.n, i == 3);
    }
    EXPECT("swap-activity", CHECK_WARN, "400 pages a second");
    assert_int_equal(look_until(10), 6);
    EXPECT("swap-activity", CHECK_PASS, "stopped");
}

/* Missing files and invalid contents end nothing and report nothing. */
static void test_torn(void **state)
{
    (void)state;
    checkup_file("sys/fs/cgroup/memory.events", "oom_kill many\n");
    checkup_file("sys/fs/cgroup/cpu.stat", "");
    checkup_file("proc/vmstat", "pswpin\n\n\xff\xff");
    checkup_file("sys/class/net/eth0/carrier_changes", "a few\n");
    kernel_says("no record\n;\n;;oom\n\xff\xfe");
    assert_int_equal(look_until(5), 0);
}

/* Runs in a child with a 1 MiB dev/shm in its own mount namespace. Returns its exit code. */
static int shm_in_namespace(void)
{
    char path[256], file[300];
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return 77;
    snprintf(path, sizeof(path), "%s/root/dev/shm", checkup.dir);
    if (mkdir(path, 0700) < 0 || mount("shm", path, "tmpfs", 0, "size=1m") < 0)
        return 77;
    /* Files that were opened before still belong to the old mounts. */
    watch_destroy(watch);
    machine_close(&machine);
    if (machine_open_captured(&machine, checkup.dir, NULL) < 0 ||
        watch_create(&machine, &watch, NULL) < 0)
        return 4;
    look();
    snprintf(file, sizeof(file), "%s/big", path);
    FILE *f = fopen(file, "w");
    for (int i = 0; f && i < 1000 * 1024; i++)
        fputc(1, f);
    if (!f || fclose(f) != 0)
        return 1;
    look();
    if (last.n != 1 || strcmp(last.id, "shm-free") != 0 || last.status != CHECK_FAIL)
        return 2;
    unlink(file);
    return look_until(5) == 2 && last.cleared ? 0 : 3;
}

static void test_shm(void **state)
{
    int status;
    pid_t pid = fork();
    (void)state;
    if (pid == 0)
        _exit(shm_in_namespace());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("SKIP: diagnostics/watch/shm: mount-namespaces: cannot mount\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_quiet),    TEST(test_oom_kill),
        TEST(test_throttle), TEST(test_one_peak_is_nothing),
        TEST(test_memory),   TEST(test_kernel_log),
        TEST(test_nic),      TEST(test_stuck),
        TEST(test_swap),     TEST(test_torn),
        TEST(test_shm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
