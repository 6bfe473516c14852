/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks_host: settings of the machine and the kernel's log, on captured machines; the probes
 * on this one.
 */
#include "tests/unit/diagnostics/checkup.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

#include "diagnostics/probe.h"
#include "diagnostics/probes/kmsg.h"
#include "diagnostics/probes/procs.h"

#define BARE "release 6.1.0-13-amd64\nmachine x86_64\nvirt none\n"
#define KVM  "release 6.1.0-13-amd64\nmachine x86_64\nvirt KVMKVMKVM\n"

static void test_kernel(void **state)
{
    checkup_new();
    checkup_expect("kernel-version", CHECK_SKIP, "not asked");
    checkup_answer("system", BARE);
    checkup_expect("kernel-version", CHECK_INFO, "Linux 6.1.0-13-amd64 on x86_64");
    checkup_expect("virt-type", CHECK_PASS, "bare metal");
    checkup_answer("system", KVM);
    checkup_expect("virt-type", CHECK_INFO, "virtual machine (KVM)");
    checkup_answer("system", "release 3.10.0-1160.el7.x86_64\nvirt Strange Thing\n");
    checkup_expect("kernel-version", CHECK_WARN, "older than 4.18");
    checkup_expect("virt-type", CHECK_INFO, "(Strange Thing)");
    checkup_answer("system", "release 4.18.0-553.el8_10.x86_64\n");
    checkup_expect("kernel-version", CHECK_INFO, "4.18.0");
}

static void test_iommu(void **state)
{
    checkup_new();
    checkup_expect("iommu-mode", CHECK_SKIP, "/sys is not there");
    checkup_answer("system", BARE);
    checkup_file("sys/class/net/lo/mtu", "1\n");
    checkup_expect("iommu-mode", CHECK_PASS, "no IOMMU support");
    checkup_file("sys/class/iommu/dmar0/x", "");
    checkup_file("sys/kernel/iommu_groups/0/type", "identity\n");
    checkup_expect("iommu-mode", CHECK_PASS, "pass-through");
    checkup_file("sys/kernel/iommu_groups/1/type", "DMA-FQ\n");
    checkup_expect("iommu-mode", CHECK_INFO, "between GPUs only");
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("iommu-mode", CHECK_WARN, "translates for 1 group of");
    assert_string_equal(checkup.result.observed, "1 units, 1 of 2 groups translated");
    checkup_answer("system", KVM);
    checkup_expect("iommu-mode", CHECK_INFO, "virtual machine's host");
    checkup_answer("system", "machine aarch64\nvirt none\n");
    checkup_expect("iommu-mode", CHECK_INFO, "this architecture");
}

static void test_acs(void **state)
{
    checkup_new();
    checkup.setting.profiles = PROFILE_GPU;
    checkup_answer("system", KVM);
    checkup_expect("pci-acs", CHECK_SKIP, "virtual machine (KVM)");
    checkup_answer("system", BARE);
    checkup_expect("pci-acs", CHECK_SKIP, "not asked");
    checkup_answer("pci-acs", "on 0\n");
    checkup_expect("pci-acs", CHECK_SKIP, "incomplete");
    checkup_answer("pci-acs", "bridges 12\non 0\nunreadable 12\n");
    checkup_expect("pci-acs", CHECK_SKIP, "12 of 12 PCI bridges cannot be read");
    checkup_answer("pci-acs", "bridges 12\non 0\nunreadable 0\n");
    checkup_expect("pci-acs", CHECK_PASS, "12 PCI bridges");
    checkup_answer("pci-acs", "bridges 12\non 3\nunreadable 0\nfirst 0000:3a:00.0\n");
    checkup_expect("pci-acs", CHECK_WARN, "3 of 12 PCI bridges (0000:3a:00.0 ...)");
}

static void test_settings(void **state)
{
    checkup_new();
    checkup_expect("nouveau-loaded", CHECK_SKIP, "/sys/module");
    checkup_file("sys/module/ext4/x", "");
    checkup_expect("nouveau-loaded", CHECK_PASS, "not loaded");
    checkup_file("sys/module/nouveau/x", "");
    checkup_expect("nouveau-loaded", CHECK_INFO, "no CUDA");
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("nouveau-loaded", CHECK_FAIL, "nouveau is loaded");

    checkup_new();
    checkup_expect("numa-balancing", CHECK_SKIP, "No such file");
    checkup_file("proc/sys/kernel/ostype", "Linux\n");
    checkup_expect("numa-balancing", CHECK_PASS, "has no automatic");
    checkup_file("proc/sys/kernel/numa_balancing", "1\n");
    checkup_expect("numa-balancing", CHECK_PASS, "one NUMA node");
    checkup_file("sys/devices/system/node/node0/cpulist", "0\n");
    checkup_file("sys/devices/system/node/node1/cpulist", "1\n");
    checkup_expect("numa-balancing", CHECK_WARN, "numa_balancing=1 on 2 NUMA nodes");
    checkup_file("proc/sys/kernel/numa_balancing", "0\n");
    checkup_expect("numa-balancing", CHECK_PASS, "off");

    checkup_expect("thp-mode", CHECK_SKIP, "No such file");
    checkup_file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise\n");
    checkup_expect("thp-mode", CHECK_SKIP, "not understood");
    checkup_file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    checkup_expect("thp-mode", CHECK_PASS, "madvise");
    checkup_file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    checkup_expect("thp-mode", CHECK_INFO, "never");

    checkup_expect("ptrace-scope", CHECK_PASS, "no Yama");
    checkup_file("proc/sys/kernel/yama/ptrace_scope", "1\n");
    checkup_expect("ptrace-scope", CHECK_INFO, "ptrace_scope=1");
    checkup_env("OMPI_COMM_WORLD_SIZE", "4");
    checkup_expect("ptrace-scope", CHECK_WARN, "MPI copies");
    checkup_file("proc/sys/kernel/yama/ptrace_scope", "0\n");
    checkup_expect("ptrace-scope", CHECK_PASS, "ptrace_scope=0");
    checkup_file("proc/sys/kernel/yama/ptrace_scope", "x\n");
    checkup_expect("ptrace-scope", CHECK_SKIP, "Invalid argument");
}

static void test_clock(void **state)
{
    checkup_new();
    checkup_answer("system", "clock.state 0\nclock.unsync 0\nclock.offset_us 12\nrandom ready\n");
    checkup_expect("clock-sync", CHECK_PASS, "12 us off");
    checkup_expect("entropy", CHECK_PASS, "do not block");
    checkup_answer("system", "clock.state 5\nclock.unsync 1\nclock.offset_us 0\nrandom blocks\n");
    checkup_expect("clock-sync", CHECK_WARN, "not synchronized");
    checkup_expect("entropy", CHECK_WARN, "block");
    checkup_answer("system", "clock.unsync 0\nclock.offset_us -250000\nrandom unknown\n");
    checkup_expect("clock-sync", CHECK_WARN, "-250 ms off");
    checkup_expect("entropy", CHECK_SKIP, "getrandom");
    checkup_answer("system", "clock.errno 1\n");
    checkup_expect("clock-sync", CHECK_SKIP, "Operation not permitted");
}

#define OOM_LINE                                                                                   \
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,"                \
    "oom_memcg=/docker/abc,task_memcg=/docker/abc,task=python,pid=4711,uid=0"

static void test_log(void **state)
{
    static const char *const ids[] = {"kernel-oom-events", "kernel-hung-task", "kmsg-readable"};
    checkup_new();
    for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
        checkup_answer("kmsg", "state failed 1\n");
        checkup_expect(ids[i], CHECK_SKIP, "--cap-add=SYSLOG");
        checkup_answer("kmsg", "oom_cou");
        checkup_expect(ids[i], CHECK_SKIP, "incomplete");
        checkup_answer("kmsg", "state failed 2\n");
        checkup_expect(ids[i], CHECK_SKIP, "on the host");
        checkup_answer("kmsg", "source /dev/kmsg\nlines 812\noom_count 0\nhung_count 0\n");
        checkup_expect(ids[i], CHECK_PASS, i == 2 ? "812 lines from /dev/kmsg" : "no ");
    }
    checkup_answer("kmsg", "source /dev/kmsg\nlines 0\n");
    checkup_expect("kmsg-readable", CHECK_INFO, "is empty");
    checkup_answer("kmsg",
                   "lines 9\noom_count 3\noom.0.line x\noom.0.age_s 9000\noom.1.line " OOM_LINE
                   "\noom.1.age_s 720\nhung_count 1\nhung.0.line INFO: task "
                   "python:99 blocked for more than 122 seconds.\nhung.0.age_s 30\n");
    checkup_expect("kernel-oom-events", CHECK_WARN,
                   "OOM-killed 3 processes, the last 12 min ago (python, process "
                   "4711): its container's limit");
    checkup_expect("kernel-hung-task", CHECK_WARN, "the last 30 s ago: python:99");
    checkup_answer("kmsg", "lines 9\noom_count 1\noom.0.line " OOM_LINE "\noom.0.age_s 200000\n"
                           "hung_count 1\nhung.0.line odd\nhung.0.age_s 100000\n");
    checkup_expect("kernel-oom-events", CHECK_INFO, "2 days ago");
    checkup_expect("kernel-hung-task", CHECK_INFO, "27 h ago");
    checkup_answer("kmsg",
                   "lines 3\noom_count 1\noom.0.line oom-kill:constraint=CONSTRAINT_NONE,task=\n");
    checkup_expect("kernel-oom-events", CHECK_WARN,
                   "at an unknown time (?, process 0): the "
                   "machine's memory");
}

static void test_procs(void **state)
{
    checkup_new();
    checkup_answer("procs", "total 120\nzombies 3\nlooks 5\nstuck_count 0\n");
    checkup_expect("dstate-procs", CHECK_PASS, "none of 120");
    checkup_expect("zombie-count", CHECK_PASS, "3 zombie");
    checkup_answer("procs", "total 120\nzombies 1500\nlooks 5\nstuck_count 6\nstuck.0.pid 7\n"
                            "stuck.0.name python\nstuck.0.wait nfs_wait_bit_killable\n"
                            "stuck.1.pid 8\nstuck.1.name tar\nzombie.0.ppid 1\n"
                            "zombie.0.parent sleep\nzombie.0.n 3\nzombie.1.ppid 9\n"
                            "zombie.1.parent train.sh\nzombie.1.n 1497\n");
    checkup_expect("dstate-procs", CHECK_WARN,
                   "6 processes stuck in the kernel (state D, seen 5 times in a row): python 7 in "
                   "nfs_wait_bit_killable, tar 8 ...");
    checkup_expect("zombie-count", CHECK_WARN,
                   "1500 zombie processes, most are children of "
                   "train.sh (9)");
    checkup_answer("procs", "total 2100\nzombies 2000\n");
    checkup_expect("zombie-count", CHECK_FAIL, "2000 zombie");
    checkup_answer("procs", "total 0\nzombies 0\nstuck_count 0\n"); /* no /proc */
    checkup_expect("zombie-count", CHECK_SKIP, "needs /proc");
    checkup_expect("dstate-procs", CHECK_SKIP, "needs /proc");
}

/* ---- the probes ---- */

static void test_parse_kmsg(void **state)
{
    const char *text;
    double at;
    char record[] = "6,339,5140900,-;NVRM: Xid; again\n SUBSYSTEM=pci\n";
    char bare[] = "no semicolon", empty[] = ";", odd[] = "6;x";
    char line[] = "<6>[    5.140900] hello", plain[] = "hello", only[] = "<6>";
    assert_true(kmsg_record(record, &text, &at));
    assert_string_equal(text, "NVRM: Xid; again");
    assert_true(at > 5.14 && at < 5.15);
    assert_false(kmsg_record(bare, &text, &at));
    assert_true(kmsg_record(empty, &text, &at));
    assert_true(kmsg_record(odd, &text, &at) && at < 0);
    assert_true(kmsg_line(line, &text, &at));
    assert_string_equal(text, "hello");
    assert_true(at > 5.14 && at < 5.15);
    assert_true(kmsg_line(plain, &text, &at) && at < 0);
    assert_false(kmsg_line(only, &text, &at));
}

static void test_parse_stat(void **state)
{
    struct procs_stat st;
    assert_true(procs_stat_parse("12 (a) b) (c) D 7 1 1 0 -1 2097152 0 0", &st));
    assert_int_equal(st.pid, 12);
    assert_int_equal(st.ppid, 7);
    assert_int_equal(st.state, 'D');
    assert_int_equal(st.flags, 2097152);
    assert_string_equal(st.name, "a) b) (c");
    assert_false(procs_stat_parse("", &st));
    assert_false(procs_stat_parse(")(", &st));
    assert_false(procs_stat_parse("12 (x", &st));
    assert_false(procs_stat_parse("12 (x) D", &st));
}

static void run_probe(struct machine *m, const char *name)
{
    const struct probe *p = probe_find(name);
    struct setting s = {.level = 1, .timeout_ms = 20000, .local_ranks = 1};
    struct err err = {0};
    assert_non_null(p);
    assert_int_equal(probe_run(m, &p, 1, &s, &err), 0);
}

static void test_live(void **state)
{
    struct machine m;
    struct err err = {0};
    assert_int_equal(machine_open_live(&m, &err), 0);
    pid_t pid = fork(); /* stays a zombie until the probe has run */
    if (pid == 0)
        _exit(0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    run_probe(&m, "procs");
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    const struct answer *a = machine_answer(&m, "procs");
    assert_int_equal(a->state, ANSWER_OK);
    assert_true(answer_int(a, "total", 0) > 1);
    assert_true(answer_int(a, "zombies", 0) >= 1);
    run_probe(&m, "system");
    a = machine_answer(&m, "system");
    assert_int_equal(a->state, ANSWER_OK);
    assert_true(answer_has(a, "release") && answer_has(a, "virt") && answer_has(a, "random"));
    run_probe(&m, "kmsg"); /* the kernel may refuse to show its log */
    a = machine_answer(&m, "kmsg");
    assert_true(a->state == ANSWER_OK || a->state == ANSWER_FAILED);
    if (a->state == ANSWER_OK)
        assert_true(answer_has(a, "xid_count") && answer_has(a, "lockup_count"));
    machine_close(&m);
}

/* Adds a PCI device of this class with len bytes of configuration space. */
static void set_bridge(const char *name, const char *class, const unsigned char *config, size_t len)
{
    char path[128];
    snprintf(path, sizeof(path), "sys/bus/pci/devices/%s/class", name);
    checkup_file(path, class);
    snprintf(path, sizeof(path), "root/sys/bus/pci/devices/%s/config", name);
    checkup_write(path, (const char *)config, len);
}

static void test_pci(void **state)
{
    static unsigned char config[4096];
    struct machine m;
    struct err err = {0};
    checkup_new();
    set_bridge("none", "0x060400\n", config, sizeof(config));
    memcpy(config + 0x100, "\x01\x00\x02\x15",
           4); /* the list of capabilities: error reporting, next at 0x150 */
    memcpy(config + 0x150, "\x0d\x00\x01\x00", 4);
    config[0x156] = 0x01; /* source validation alone redirects nothing */
    set_bridge("off", "0x060400\n", config, sizeof(config));
    config[0x156] = 0x1d;
    set_bridge("on", "0x060400\n", config, sizeof(config));
    set_bridge("gpu", "0x030200\n", config, sizeof(config));
    set_bridge("old", "0x060400\n", config, 256);
    memcpy(config + 0x150, "\x10\x00\x01\x15", 4); /* a list that points to itself */
    set_bridge("ring", "0x060400\n", config, sizeof(config));
    memset(config, 0xff, sizeof(config));
    set_bridge("asleep", "0x060400\n", config, sizeof(config));
    assert_int_equal(machine_open_captured(&m, checkup.dir, &err), 0);
    run_probe(&m, "pci-acs");
    const struct answer *a = machine_answer(&m, "pci-acs");
    assert_int_equal(a->state, ANSWER_OK);
    assert_int_equal(answer_int(a, "bridges", -1), 6);
    assert_int_equal(answer_int(a, "on", -1), 1);
    assert_string_equal(answer_str(a, "first", ""), "on");
    assert_int_equal(answer_int(a, "unreadable", -1), 1);
    machine_close(&m);
}

static void test_tables(void **state)
{
    checkup_texts(&checks_host);
    checkup_texts(&checks_kernel_log);
    checkup_all_seen(&checks_host);
    checkup_all_seen(&checks_kernel_log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernel),     cmocka_unit_test(test_iommu),
        cmocka_unit_test(test_acs),        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_clock),      cmocka_unit_test(test_log),
        cmocka_unit_test(test_procs),      cmocka_unit_test(test_parse_kmsg),
        cmocka_unit_test(test_parse_stat), cmocka_unit_test(test_live),
        cmocka_unit_test(test_pci),        cmocka_unit_test(test_tables),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    checkup_remove();
    return rc;
}
