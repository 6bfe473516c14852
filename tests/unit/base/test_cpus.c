/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cpus: quotas of cgroup v1 and v2 from captured files, the affinity of this process.
 */
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "core/base/cpus.h"

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/hvd-test-cpus-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command);
}

static void write_file(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(full, 0755);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_none(void **state)
{
    (void)state;
    assert_int_equal(cpus_quota(root), INT_MAX);
    write_file("/proc/self/cgroup", "garbage\n0\n::\n0::\n");
    assert_int_equal(cpus_quota(root), INT_MAX);
    write_file("/sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(cpus_quota(root), INT_MAX);
}

static void test_v2(void **state)
{
    (void)state;
    write_file("/proc/self/cgroup", "0::/a/b\n");
    write_file("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_int_equal(cpus_quota(root), INT_MAX);
    write_file("/sys/fs/cgroup/a/cpu.max", "350000 100000\n");
    assert_int_equal(cpus_quota(root), 3);
    write_file("/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    assert_int_equal(cpus_quota(root), 1);
    write_file("/sys/fs/cgroup/a/b/cpu.max", "0 0\n");
    assert_int_equal(cpus_quota(root), 3);
}

/* The path in /proc/self/cgroup is the host's, and the mount shows only the container's part.
 * The limit at the top of the mount counts. */
static void test_foreign_path(void **state)
{
    (void)state;
    write_file("/proc/self/cgroup", "0::/../../elsewhere/x\n");
    write_file("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_int_equal(cpus_quota(root), 2);
}

static void test_v1(void **state)
{
    (void)state;
    write_file("/proc/self/cgroup", "7:memory:/x\n4:cpu,cpuacct:/docker/abc\n0::/\n");
    write_file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    write_file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    write_file("/sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(cpus_quota(root), INT_MAX);
    write_file("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "450000\n");
    write_file("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpus_quota(root), 4);
}

static void test_affinity(void **state)
{
    (void)state;
    uint64_t mask[CPUS_MASK_WORDS];
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(cpus_affinity(mask), 0);
    assert_int_equal(cpus_count(mask), CPU_COUNT(&all));
    assert_in_range(cpus_usable(), 1, CPU_COUNT(&all));
    int last = 0;
    for (int cpu = 0; cpu < CPUS_MASK_BITS; cpu++)
        if (CPU_ISSET(cpu, &all))
            last = cpu;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(cpus_affinity(mask), 0);
    assert_int_equal(cpus_count(mask), 1);
    assert_true(mask[last / 64] >> last % 64 & 1);
    assert_int_equal(cpus_usable(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

static void test_may_spin(void **state)
{
    (void)state;
    assert_true(cpus_may_spin(1, 2));
    assert_true(cpus_may_spin(2, 2));
    assert_true(cpus_may_spin(2, INT_MAX));
    assert_false(cpus_may_spin(3, 2));
    assert_false(cpus_may_spin(1, 1));
    assert_false(cpus_may_spin(2, 1));
}

static void test_cache(void **state)
{
    (void)state;
    assert_int_equal(cpus_cache_size(root), 0);
    write_file("/sys/devices/system/cpu/cpu0/cache/index2/size", "512K\n");
    write_file("/sys/devices/system/cpu/cpu0/cache/index3/size", "32M\n");
    assert_int_equal(cpus_cache_size(root), 32 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_none, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_v2, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_foreign_path, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_v1, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_cache, make_root, remove_root),
        cmocka_unit_test(test_affinity),
        cmocka_unit_test(test_may_spin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
