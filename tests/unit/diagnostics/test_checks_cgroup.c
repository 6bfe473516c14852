/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks_cgroup: control groups of version 1, version 2 and both, on the host, in a container
 * with and without a cgroup namespace, and nested: their limits and how much of them is unused.
 */
#include "tests/unit/diagnostics/checkup.h"

#include <errno.h>

#include "diagnostics/cgroup.h"
#include "diagnostics/mounts.h"

#define V2_MOUNT(root)                                                                             \
    "31 23 0:28 " root " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNT(name, options, root)                                                              \
    "35 31 0:32 " root " /sys/fs/cgroup/" name " rw,relatime - cgroup cgroup rw," options "\n"
#define PROC_MOUNT "22 27 0:21 / /proc rw,relatime - proc proc rw\n"

static void set_groups(const char *self, const char *mountinfo)
{
    checkup_file("proc/self/cgroup", self);
    checkup_file("proc/self/mountinfo", mountinfo);
}

static void set_group(const char *dir, const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    checkup_file(path, text);
}

/* A container with version 2 that sees its own group as the top. */
#define TOP "sys/fs/cgroup"
static void container_v2(void)
{
    checkup_new();
    set_groups("0::/\n", PROC_MOUNT V2_MOUNT("/"));
    set_group(TOP, "memory.max", "1073741824\n");
    set_group(TOP, "memory.current", "104857600\n");
    set_group(TOP, "memory.stat", "anon 1\ninactive_file 0\n");
    set_group(TOP, "memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n");
    set_group(TOP, "cpu.max", "400000 100000\n");
    set_group(TOP, "cpu.stat",
              "usage_usec 5\nnr_periods 1000\nnr_throttled 1\n"
              "throttled_usec 2000000\n");
    set_group(TOP, "pids.max", "1000\n");
    set_group(TOP, "pids.current", "10\n");
}

static void test_none(void **state)
{
    static const char *const ids[] = {"cgroup-version",   "cgroup-mem-limit",    "cgroup-oom-kill",
                                      "cgroup-cpu-quota", "cgroup-cpu-throttle", "cgroup-pids"};
    for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
        checkup_new();
        checkup_expect(ids[i], CHECK_SKIP, "needs /sys/fs/cgroup");
        set_groups("\n::\nno group\n4:memory\n", "garbage\n1 2\n");
        checkup_expect(ids[i], CHECK_SKIP, "needs /sys/fs/cgroup");
        set_groups("0::/../..\n", V2_MOUNT("/"));
        if (i > 0) /* a folder without files: no limits */
            checkup_expect(ids[i], i == 2 ? CHECK_SKIP : CHECK_PASS,
                           i == 2 ? "does not count" : "no ");
    }
}

static void test_version(void **state)
{
    container_v2();
    checkup_expect("cgroup-version", CHECK_PASS, "cgroup v2");
    set_groups("0::/\n4:memory:/\n3:cpu,cpuacct:/\n2:pids:/\n",
               V1_MOUNT("memory", "memory", "/") V1_MOUNT("cpu,cpuacct", "cpu,cpuacct", "/")
                   V1_MOUNT("pids", "pids", "/"));
    checkup_expect("cgroup-version", CHECK_INFO, "cgroup v1: ");
    set_groups("0::/\n4:memory:/\n3:cpu,cpuacct:/\n2:pids:/\n",
               V1_MOUNT("memory", "memory", "/") V1_MOUNT("cpu,cpuacct", "cpu,cpuacct", "/")
                   V1_MOUNT("pids", "pids", "/") V2_MOUNT("/"));
    checkup_expect("cgroup-version", CHECK_INFO, "v1 and v2 (hybrid): ");
    set_groups("4:memory:/\n3:cpu,cpuacct:/\n2:pids:/\n", V1_MOUNT("memory", "memory", "/"));
    checkup_expect("cgroup-version", CHECK_INFO, "cgroup v1 without cpu, pids");
}

static void test_memory_v2(void **state)
{
    container_v2();
    checkup_expect("cgroup-mem-limit", CHECK_PASS, "memory limit 1 GiB, 100 MiB in use");
    set_group(TOP, "memory.current", "1020054733\n"); /* 95 % */
    checkup_expect("cgroup-mem-limit", CHECK_FAIL, "51.2 MiB left below the memory limit of 1 GiB");
    set_group(TOP, "memory.stat", "anon 1\ninactive_file 912680550\n"); /* mostly page cache */
    checkup_expect("cgroup-mem-limit", CHECK_PASS, "in use");
    set_group(TOP, "memory.max", "107374182400\n");
    set_group(TOP, "memory.current", "102005473280\n");
    set_group(TOP, "memory.stat", "inactive_file 0\n");
    checkup_expect("cgroup-mem-limit", CHECK_WARN, "5 GiB left");
    set_group(TOP, "memory.max", "max\n");
    checkup_expect("cgroup-mem-limit", CHECK_PASS, "no memory limit");
    set_group(TOP, "memory.max", "nonsense\n");
    checkup_expect("cgroup-mem-limit", CHECK_PASS, "no memory limit");
    set_group(TOP, "memory.max", "0\n");
    checkup_expect("cgroup-mem-limit", CHECK_FAIL, "0 B left");
    checkup_expect("cgroup-oom-kill", CHECK_PASS, "no process was OOM-killed");
    set_group(TOP, "memory.events", "oom 3\noom_kill 2\n");
    checkup_expect("cgroup-oom-kill", CHECK_WARN, "killed 2 processes");
}

/* A pod: the container's group has no limit, the pod's above it has. */
static void test_nested_v2(void **state)
{
    const char *pod = "sys/fs/cgroup/kubepods.slice/pod1", *own;
    checkup_new();
    own = "sys/fs/cgroup/kubepods.slice/pod1/c1";
    set_groups("0::/kubepods.slice/pod1/c1\n", V2_MOUNT("/"));
    set_group(own, "memory.max", "max\n");
    set_group(own, "memory.current", "1000\n");
    set_group(pod, "memory.max", "2147483648\n");
    set_group(pod, "memory.current", "2137483648\n");
    set_group("sys/fs/cgroup/kubepods.slice", "memory.max", "214748364800\n");
    set_group("sys/fs/cgroup/kubepods.slice", "memory.current", "2137483648\n");
    checkup_expect("cgroup-mem-limit", CHECK_FAIL, "left below the memory limit of 2 GiB");
    set_group(own, "cpu.max", "max 100000\n");
    set_group(own, "cpu.stat", "nr_periods 0\nnr_throttled 0\n");
    set_group(pod, "cpu.max", "150000 100000\n");
    set_group(pod, "cpu.stat", "nr_periods 1000\nnr_throttled 300\nthrottled_usec 9000000\n");
    checkup.setting.local_ranks = 2;
    checkup_expect("cgroup-cpu-quota", CHECK_WARN, "1.5 processors for 2 ranks");
    checkup_expect("cgroup-cpu-throttle", CHECK_FAIL, "30.0 %");
    set_group(own, "pids.max", "max\n");
    set_group(pod, "pids.max", "100\n");
    set_group(pod, "pids.current", "97\n");
    checkup_expect("cgroup-pids", CHECK_FAIL, "97 of 100");
}

static void test_cpu_v2(void **state)
{
    container_v2();
    checkup.setting.local_ranks = 4;
    checkup_expect("cgroup-cpu-quota", CHECK_PASS, "4 processors for 4 ranks");
    checkup.setting.local_ranks = 5;
    checkup_expect("cgroup-cpu-quota", CHECK_WARN, "4 processors for 5 ranks");
    assert_non_null(strstr(checkup.result.fix[FIX_DOCKER], "docker run --cpus=5 ..."));
    checkup_expect("cgroup-cpu-throttle", CHECK_PASS, "0.1 % of 1000 periods");
    set_group(TOP, "cpu.stat", "nr_periods 1000\nnr_throttled 60\nthrottled_usec 2000000\n");
    checkup_expect("cgroup-cpu-throttle", CHECK_WARN,
                   "6.0 % of all periods since the cgroup was created (2 s in all)");
    set_group(TOP, "cpu.stat", "nr_periods 1000\nnr_throttled 500\n");
    checkup_expect("cgroup-cpu-throttle", CHECK_FAIL, "50.0 %");
    set_group(TOP, "cpu.stat", "nr_periods 10\nnr_throttled 5\n");
    checkup_expect("cgroup-cpu-throttle", CHECK_INFO, "5 of only 10 periods");
    set_group(TOP, "cpu.stat", "usage_usec 5\n");
    checkup_expect("cgroup-cpu-throttle", CHECK_SKIP, "no counters");
    set_group(TOP, "cpu.max", "max 100000\n");
    checkup_expect("cgroup-cpu-quota", CHECK_PASS, "no CPU quota");
    checkup_expect("cgroup-cpu-throttle", CHECK_PASS, "no CPU quota");
    set_group(TOP, "cpu.max", "-1 0\n");
    checkup_expect("cgroup-cpu-quota", CHECK_PASS, "no CPU quota");
}

static void test_pids(void **state)
{
    container_v2();
    checkup_expect("cgroup-pids", CHECK_PASS, "10 of 1000");
    set_group(TOP, "pids.current", "800\n");
    checkup_expect("cgroup-pids", CHECK_WARN, "80 %");
    set_group(TOP, "pids.current", "600\n");
    checkup.setting.local_ranks = 8;
    checkup_expect("cgroup-pids", CHECK_WARN,
                   "room for 400 more processes and threads of 1000; 8 "
                   "ranks want about 512");
    checkup.setting.local_ranks = 7;
    checkup_answer("ranks",
                   "rank.0.pid 1\nrank.1.pid 2\nrank.2.pid 3\nrank.3.pid 4\n"
                   "rank.4.pid 5\nrank.5.pid 6\nrank.6.pid 7\n"); /* all ranks run already */
    checkup_expect("cgroup-pids", CHECK_PASS, "600 of 1000");
    set_group(TOP, "pids.current", "1000\n");
    checkup_expect("cgroup-pids", CHECK_FAIL, "100 %");
    set_group(TOP, "pids.max", "max\n");
    checkup_expect("cgroup-pids", CHECK_PASS, "no limit");
}

/* Docker with version 1 and no cgroup namespace: /proc/self/cgroup has the host's path, and the
 * mount shows the container's group. */
static void test_v1_container(void **state)
{
    const char *memory = "sys/fs/cgroup/memory", *cpu = "sys/fs/cgroup/cpu,cpuacct";
    checkup_new();
    set_groups("9:name=systemd:/docker/abc\n4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n"
               "2:pids:/docker/abc\n0::/docker/abc\n",
               V1_MOUNT("memory", "memory", "/docker/abc")
                   V1_MOUNT("cpu,cpuacct", "cpu,cpuacct", "/docker/abc")
                       V1_MOUNT("pids", "pids", "/docker/abc"));
    set_group(memory, "memory.limit_in_bytes", "4294967296\n");
    set_group(memory, "memory.usage_in_bytes", "4194304000\n");
    set_group(memory, "memory.stat", "cache 5\ninactive_file 7\ntotal_inactive_file 3221225472\n");
    set_group(memory, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
    set_group(cpu, "cpu.cfs_quota_us", "50000\n");
    set_group(cpu, "cpu.cfs_period_us", "100000\n");
    set_group(cpu, "cpu.stat", "nr_periods 200\nnr_throttled 100\nthrottled_time 5000000000\n");
    checkup_expect("cgroup-mem-limit", CHECK_PASS, "memory limit 4 GiB, 928 MiB in use");
    checkup_expect("cgroup-oom-kill", CHECK_WARN, "killed 1 process of");
    checkup_expect("cgroup-cpu-quota", CHECK_WARN, "0.5 processors for 1 rank:");
    checkup_expect("cgroup-cpu-throttle", CHECK_FAIL,
                   "50.0 % of all periods since the cgroup was created (5 s in all)");
    checkup_expect("cgroup-pids", CHECK_PASS, "no limit");
    set_group(memory, "memory.limit_in_bytes", "9223372036854771712\n"); /* none */
    checkup_expect("cgroup-mem-limit", CHECK_PASS, "no memory limit");
    set_group(cpu, "cpu.cfs_quota_us", "-1\n");
    checkup_expect("cgroup-cpu-quota", CHECK_PASS, "no CPU quota");
    set_group(memory, "memory.oom_control", "oom_kill_disable 0\n"); /* before Linux 4.13 */
    checkup_expect("cgroup-oom-kill", CHECK_SKIP, "does not count");
}

/* A host with both versions (hybrid): memory is a group of version 1, pids only of version 2. */
static void test_hybrid(void **state)
{
    checkup_new();
    set_groups("4:memory:/process/x\n1:cpu:/\n0::/init.scope\n",
               V1_MOUNT("memory", "memory", "/")
                   V1_MOUNT("cpu", "cpu",
                            "/") "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    set_group("sys/fs/cgroup/memory/process/x", "memory.limit_in_bytes", "1073741824\n");
    set_group("sys/fs/cgroup/memory/process/x", "memory.usage_in_bytes", "1\n");
    set_group("sys/fs/cgroup/unified/init.scope", "pids.max", "50\n");
    set_group("sys/fs/cgroup/unified/init.scope", "pids.current", "45\n");
    checkup_expect("cgroup-mem-limit", CHECK_PASS, "memory limit 1 GiB");
    checkup_expect("cgroup-pids", CHECK_WARN, "45 of 50");
    checkup_expect("cgroup-cpu-quota", CHECK_PASS, "no CPU quota");
}

static void test_places(void **state)
{
    struct cgroup cg;
    /* a path of another namespace, and a path that leaves the mount: the mount itself is read */
    assert_int_equal(cgroup_parse("0::/../../x\n", V2_MOUNT("/"), &cg), 0);
    assert_string_equal(cg.at[CGROUP_MEMORY].dir, "sys/fs/cgroup");
    assert_int_equal(cgroup_parse("0::/other\n", V2_MOUNT("/docker/abc"), &cg), 0);
    assert_string_equal(cg.at[CGROUP_MEMORY].dir, "sys/fs/cgroup");
    assert_int_equal(cgroup_parse("0::/docker/abcdef\n", V2_MOUNT("/docker/abc"), &cg), 0);
    assert_string_equal(cg.at[CGROUP_MEMORY].dir, "sys/fs/cgroup");
    assert_int_equal(cgroup_parse("0::/docker/abc/d/\n", V2_MOUNT("/docker/abc"), &cg), 0);
    assert_string_equal(cg.at[CGROUP_MEMORY].dir, "sys/fs/cgroup/d");
    assert_int_equal(cg.mode, CGROUP_V2);
    assert_int_equal(cgroup_parse("", "", &cg), -ENOENT);
    assert_int_equal(cg.mode, CGROUP_NONE);
}

static void test_mounts(void **state)
{
    struct mount m;
    const char *text = "27 1 254:0 / / rw - ext4 /dev/vda rw,errors=remount-ro\n"
                       "50 27 0:50 /sub /mnt/a\\040b ro,nosuid master:1 - nfs4 srv:/x ro,hard\n"
                       "bad line\n"
                       "51 50 0:51 / /mnt/a\\040b rw - tmpfs none rw\n";
    assert_true(mounts_of(text, "/home/x", &m));
    assert_string_equal(m.point, "/");
    assert_true(mount_has(m.super, "errors=remount-ro"));
    assert_false(mount_has(m.super, "errors"));
    assert_false(mount_is_remote(&m));
    assert_true(mounts_of(text, "/mnt/a b/c", &m));
    assert_string_equal(m.type, "tmpfs"); /* the later one covers the first */
    assert_true(mounts_of(text, "/mnt/a bc", &m));
    assert_string_equal(m.point, "/");
    const char *at = strstr(text, "50 27");
    assert_true(mounts_next(&at, &m));
    assert_string_equal(m.source, "srv:/x");
    assert_true(mount_is_remote(&m));
    assert_true(mounts_next(&at, &m)); /* skips the invalid line */
    assert_string_equal(m.type, "tmpfs");
    assert_false(mounts_next(&at, &m));
}

static void test_tables(void **state)
{
    checkup_texts(&checks_cgroup);
    checkup_all_seen(&checks_cgroup);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),      cmocka_unit_test(test_version),
        cmocka_unit_test(test_memory_v2), cmocka_unit_test(test_nested_v2),
        cmocka_unit_test(test_cpu_v2),    cmocka_unit_test(test_pids),
        cmocka_unit_test(test_hybrid),    cmocka_unit_test(test_v1_container),
        cmocka_unit_test(test_places),    cmocka_unit_test(test_mounts),
        cmocka_unit_test(test_tables),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    checkup_remove();
    return rc;
}
