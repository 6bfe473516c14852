/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks_cpu: processors, threads, NUMA nodes, governors and stuck processors, on captured
 * machines.
 */
#include "tests/unit/diagnostics/checkup.h"

#include <errno.h>

#include "diagnostics/proc.h"

static void set_allowed(const char *cpus, const char *mems)
{
    char text[256];
    snprintf(text, sizeof(text), "Name:\tx\nCpus_allowed_list:\t%s\nMems_allowed_list:\t%s\n", cpus,
             mems);
    checkup_file("proc/self/status", text);
}

static void test_allowed(void **state)
{
    checkup_new();
    checkup_expect("cpus-allowed", CHECK_SKIP, "Cpus_allowed_list");
    set_allowed("0-", "0");
    checkup_expect("cpus-allowed", CHECK_SKIP, "Invalid argument");
    set_allowed("0-3,8-11", "0");
    checkup_expect("cpus-allowed", CHECK_PASS, "8 processors for 1 rank");
    checkup.setting.local_ranks = 4;
    checkup_expect("cpus-allowed", CHECK_INFO, "8 processors for 4 ranks, fewer than 4");
    checkup.setting.local_ranks = 9; /* slow, but it works */
    checkup_expect("cpus-allowed", CHECK_WARN, "8 processors for 9 ranks");
    checkup.setting.local_ranks = 4;
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("cpus-allowed", CHECK_WARN, "data loading");
    checkup.setting.local_ranks = 9;
    checkup_expect("cpus-allowed", CHECK_FAIL, "8 processors for 9 ranks");
    assert_string_equal(checkup.result.observed, "8");
    assert_int_equal(checkup.result.action, ACTION_CONTAINER_OPTION);
    checkup_file("sys/devices/system/cpu/online", "0-3,8-11\n");
    checkup_expect("cpus-allowed", CHECK_FAIL, "8 processors for 9 ranks");
    assert_int_equal(checkup.result.action, ACTION_JOB);
    assert_non_null(strstr(checkup.result.fix[FIX_HOST], "hvdrun -np 8"));
}

static void test_threads(void **state)
{
    checkup_new();
    checkup_expect("omp-threads", CHECK_SKIP, "Cpus_allowed_list");
    set_allowed("0-15", "0");
    checkup_expect("omp-threads", CHECK_PASS, "1 rank x 16 threads on 16 processors");
    checkup.setting.local_ranks = 8;
    checkup_expect("omp-threads", CHECK_WARN, "not set: 8 ranks x 16 threads on 16 processors");
    assert_string_equal(checkup.result.fix[FIX_HOST], "export OMP_NUM_THREADS=2");
    checkup_env("MKL_NUM_THREADS", "2");
    checkup_expect("omp-threads", CHECK_PASS, "8 ranks x 2 threads");
    checkup_env("OMP_NUM_THREADS", "4");
    checkup_expect("omp-threads", CHECK_WARN, "OMP_NUM_THREADS=4: 8 ranks x 4 threads");
    checkup.setting.local_ranks = 1;
    checkup_file("proc/self/cgroup", "0::/\n");
    checkup_file("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    checkup_file("sys/fs/cgroup/cpu.max", "200000 100000\n");
    checkup_expect("omp-threads", CHECK_WARN, "1 rank x 4 threads on 2 processors");
    checkup_new();
    set_allowed("0-1", "0");
    checkup.setting.local_ranks = 8;
    checkup_env("OMP_NUM_THREADS",
                "1"); /* one thread per rank is the least; cpus-allowed reports the shortage */
    checkup_expect("omp-threads", CHECK_PASS, "8 ranks with one thread each");
}

static void test_nodes(void **state)
{
    checkup_new();
    set_allowed("0-3", "0");
    checkup_expect("numa-nodes", CHECK_SKIP, "needs /sys");
    checkup_file("sys/devices/system/node/node0/cpulist", "0-3\n");
    checkup_file("sys/devices/system/node/online", "0\n");
    checkup_expect("numa-nodes", CHECK_PASS, "one NUMA node");
    checkup_file("sys/devices/system/node/node1/cpulist", "4-7\n");
    checkup_expect("numa-nodes", CHECK_PASS, "1 of 2 NUMA nodes");
    set_allowed("0-7", "0");
    checkup_expect("numa-nodes", CHECK_WARN,
                   "processors of 2 NUMA nodes, but no memory of 1 of them "
                   "(node 1)");
    set_allowed("0-7", "0-1");
    checkup_expect("numa-nodes", CHECK_PASS, "2 of 2 NUMA nodes");
    set_allowed("4-7", "0"); /* remote for all processors */
    checkup_expect("numa-nodes", CHECK_WARN, "no memory of 1");
    checkup_file("sys/devices/system/node/node1/cpulist", "\n"); /* memory only */
    set_allowed("0-3", "0");
    checkup_expect("numa-nodes", CHECK_PASS, "1 of 2");
}

static void set_device(const char *name, const char *vendor, const char *class, const char *cpus)
{
    char path[128];
    snprintf(path, sizeof(path), "sys/bus/pci/devices/%s/vendor", name);
    checkup_file(path, vendor);
    snprintf(path, sizeof(path), "sys/bus/pci/devices/%s/class", name);
    checkup_file(path, class);
    snprintf(path, sizeof(path), "sys/bus/pci/devices/%s/local_cpulist", name);
    checkup_file(path, cpus);
}

static void test_affinity(void **state)
{
    checkup_new();
    set_allowed("0-3", "0");
    checkup_expect("rank-gpu-affinity", CHECK_SKIP, "only with --profile gpu");
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("rank-gpu-affinity", CHECK_SKIP, "cannot be listed");
    set_device("0000:00:01.0", "0x8086\n", "0x030000\n", "0-7\n");
    checkup_expect("rank-gpu-affinity", CHECK_SKIP, "no NVIDIA GPU");
    set_device("0000:3b:00.0", "0x10de\n", "0x030200\n", "0-7\n");
    set_device("0000:3b:00.1", "0x10de\n", "0x040300\n", "8-15\n"); /* the GPU's audio function */
    checkup_expect("rank-gpu-affinity", CHECK_PASS, "near each of 1 GPU");
    set_device("0000:af:00.0", "0x10de\n", "0x030200\n", "8-15\n");
    checkup_expect("rank-gpu-affinity", CHECK_WARN, "near 1 of 2 GPUs (0000:af:00.0)");
    set_allowed("0-15", "0");
    checkup_expect("rank-gpu-affinity", CHECK_PASS, "near each of 2 GPUs");
}

#define CPU0 "sys/devices/system/cpu/cpu0/cpufreq/"
#define CPU1 "sys/devices/system/cpu/cpu1/cpufreq/"

static void test_governor(void **state)
{
    checkup_new();
    set_allowed("0-1", "0");
    checkup_expect("cpu-governor", CHECK_PASS, "no governor here");
    checkup_file(CPU0 "scaling_governor", "performance\n");
    checkup_file(CPU1 "scaling_governor", "performance\n");
    checkup_expect("cpu-governor", CHECK_PASS, "performance on 2");
    checkup_file(CPU1 "scaling_governor", "powersave\n");
    checkup_expect("cpu-governor", CHECK_WARN, "1 of 2 processors run with governor powersave");
    checkup_file(CPU0 "scaling_driver", "intel_pstate\n");
    checkup_expect("cpu-governor", CHECK_INFO, "powersave of intel_pstate");
    checkup_file(CPU1 "scaling_governor", "conservative\n");
    checkup_expect("cpu-governor", CHECK_WARN, "conservative");
}

static void test_lockup(void **state)
{
    checkup_new();
    checkup_answer("kmsg", "state failed 1\n");
    checkup_expect("cpu-soft-lockup", CHECK_SKIP, "--cap-add=SYSLOG");
    checkup_answer("kmsg", "lines 5\nlockup_count 0\n");
    checkup_expect("cpu-soft-lockup", CHECK_PASS, "no processor got stuck");
    checkup_answer("kmsg",
                   "lines 9\nlockup_count 1\nlockup.0.age_s 60\nlockup.0.line watchdog: BUG: soft "
                   "lockup - CPU#3 stuck for 23s! [python:7]\n");
    checkup_expect("cpu-soft-lockup", CHECK_FAIL, "the last 60 s ago: watchdog: BUG: soft lockup");
    checkup_answer("kmsg", "lines 9\nlockup_count 1\nlockup.0.age_s 100000\nlockup.0.line x\n");
    checkup_expect("cpu-soft-lockup", CHECK_WARN, "27 h ago");
}

static void test_libnuma(void **state)
{
    checkup_new();
    checkup_expect("libnuma-present", CHECK_SKIP, "not asked");
    checkup_answer("numa", "");
    checkup_expect("libnuma-present", CHECK_INFO, "one NUMA node");
    checkup_file("sys/devices/system/node/node0/cpulist", "0\n");
    checkup_file("sys/devices/system/node/node1/cpulist", "1\n");
    checkup_expect("libnuma-present", CHECK_WARN, "not in this image");
    checkup_answer("numa", "path /usr/lib/x86_64-linux-gnu/libnuma.so.1.0.0\n");
    checkup_expect("libnuma-present", CHECK_PASS, "libnuma.so.1.0.0");
}

static void test_lists(void **state)
{
    struct proc_cpus a, b;
    assert_int_equal(proc_cpus_parse("0-3,8", &a), 0);
    assert_int_equal(proc_cpus_count(&a), 5);
    assert_int_equal(proc_cpus_parse("", &b), 0);
    assert_int_equal(proc_cpus_count(&b), 0);
    assert_false(proc_cpus_meet(&a, &b));
    assert_int_equal(proc_cpus_parse("8191\n", &b), 0);
    assert_int_equal(proc_cpus_parse("8192", &b), -EINVAL);
    assert_int_equal(proc_cpus_parse("3-1", &b), -EINVAL);
    assert_int_equal(proc_cpus_parse("1;2", &b), -EINVAL);
    assert_int_equal(proc_cpus_parse("99999999999999999999", &b), -EINVAL);
    assert_int_equal(proc_cpus_parse("3-3", &b), 0);
    assert_true(proc_cpus_meet(&a, &b));
}

static void test_tables(void **state)
{
    checkup_texts(&checks_cpu);
    checkup_all_seen(&checks_cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allowed),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_nodes),    cmocka_unit_test(test_affinity),
        cmocka_unit_test(test_governor), cmocka_unit_test(test_lockup),
        cmocka_unit_test(test_libnuma),  cmocka_unit_test(test_lists),
        cmocka_unit_test(test_tables),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    checkup_remove();
    return rc;
}
