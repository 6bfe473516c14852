/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks_limits: limits of a process, system calls that a sandbox refuses, and the namespaces
 * of ranks, on captured machines; the probes on this one.
 */
#include "tests/unit/diagnostics/checkup.h"

#include <errno.h>
#include <sys/wait.h>

#include "diagnostics/probe.h"
#include "diagnostics/proc.h"

/* A row of /proc/self/limits. */
static void set_limit(const char *name, const char *soft, const char *hard)
{
    char text[256];
    snprintf(text, sizeof(text),
             "Limit                     Soft Limit           Hard Limit           Units     \n"
             "Max cpu time              unlimited            unlimited            seconds   \n"
             "%-25s %-20s %-20s things    \n",
             name, soft, hard);
    checkup_file("proc/self/limits", text);
}

/* A process of this user with these effective capabilities. first_userns: in the machine's first
 * user namespace; otherwise in another one. */
static void set_process(const char *uid, const char *caps, bool first_userns)
{
    char text[256];
    snprintf(text, sizeof(text), "Name:\thvd-doctor\nUid:\t%s\t0\t0\t0\nCapEff:\t%s\n", uid, caps);
    checkup_file("proc/self/status", text);
    checkup_file("proc/self/uid_map",
                 first_userns ? "         0          0 4294967295\n" : "0 1000 1\n");
}

#define CAPS_ALL    "000001ffffffffff"
#define CAPS_DOCKER "00000000a80425fb"

static void test_memlock(void **state)
{
    checkup_new();
    checkup_expect("memlock-limit", CHECK_SKIP, "No such file");
    checkup_file("proc/self/limits", "\n\nMax locked memory\nMax locked memory  many\n");
    checkup_expect("memlock-limit", CHECK_SKIP, "has no \"Max locked memory\"");
    set_limit("Max locked memory", "unlimited", "unlimited");
    checkup_expect("memlock-limit", CHECK_PASS, "memlock unlimited");
    set_limit("Max locked memory", "65536", "8388608");
    set_process("1000", "0000000000000000", true);
    checkup_expect("memlock-limit", CHECK_INFO, "memlock 64 KiB (hard 8 MiB)");
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("memlock-limit", CHECK_WARN, "unlimited is needed");
    checkup_file("sys/class/infiniband/mlx5_0/x",
                 ""); /* the host's device: the container has no device file for it */
    checkup_expect("memlock-limit", CHECK_WARN, "unlimited is needed");
    checkup_file("dev/infiniband/uverbs0", "");
    checkup_expect("memlock-limit", CHECK_FAIL, "InfiniBand");
    assert_string_equal(checkup.result.observed, "65536");
    set_process("0", CAPS_ALL, true);
    checkup_expect("memlock-limit", CHECK_PASS, "CAP_IPC_LOCK lifts it");
    set_process("0", CAPS_ALL, false); /* rootless: the capability is not valid on the host */
    checkup_expect("memlock-limit", CHECK_FAIL, "InfiniBand");
    set_limit("Max locked memory", "65536", "unlimited");
    checkup_expect("memlock-limit", CHECK_FAIL, "(hard unlimited)");
    assert_non_null(strstr(checkup.result.fix[FIX_HOST], "ulimit -l unlimited"));
}

static void test_ipc_lock(void **state)
{
    checkup_new();
    checkup_expect("cap-ipc-lock", CHECK_SKIP, "/proc/self/status");
    set_process("0", CAPS_DOCKER, true);
    checkup_expect("cap-ipc-lock", CHECK_INFO, "only RDMA needs it");
    checkup_file("sys/class/infiniband/mlx5_0/x", "");
    checkup_file("dev/infiniband/uverbs0", "");
    checkup_expect("cap-ipc-lock", CHECK_WARN, "RDMA cannot lock");
    set_limit("Max locked memory", "unlimited", "unlimited");
    checkup_expect("cap-ipc-lock", CHECK_PASS, "none needed");
    set_process("0", CAPS_ALL, true);
    checkup_expect("cap-ipc-lock", CHECK_PASS, "effective");
    checkup_file("proc/self/status", "CapEff:\tnonsense\n");
    checkup_expect("cap-ipc-lock", CHECK_SKIP, "Invalid argument");
}

static void test_stack(void **state)
{
    checkup_new();
    set_limit("Max stack size", "8388608", "unlimited");
    checkup_expect("stack-limit", CHECK_PASS, "stack 8 MiB");
    set_limit("Max stack size", "1048576", "unlimited");
    checkup_expect("stack-limit", CHECK_WARN, "stack 1 MiB");
    set_limit("Max stack size", "unlimited", "unlimited");
    checkup_expect("stack-limit", CHECK_PASS, "unlimited");
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("stack-limit", CHECK_WARN, "NCCL before 2.28");
    checkup_env("NCCL_VERSION", "2.21.5-1");
    checkup_expect("stack-limit", CHECK_WARN, "NCCL before 2.28");
    checkup_answer("nccl", "version 2.28.3\n");
    checkup_expect("stack-limit", CHECK_PASS, "unlimited");
    checkup_answer("nccl", "version 2.21.5\n");
    checkup_expect("stack-limit", CHECK_WARN, "NCCL before 2.28");
}

static void test_nofile(void **state)
{
    checkup_new();
    set_limit("Max open files", "65536", "65536");
    checkup_expect("nofile-low", CHECK_PASS, "65536 open files");
    checkup_expect("nofile-huge", CHECK_PASS, "65536 open files");
    checkup.setting.ranks = 100000;
    checkup_expect("nofile-low", CHECK_WARN, "401024 wanted");
    checkup.setting.ranks = 8;
    set_limit("Max open files", "1024", "524288");
    checkup_expect("nofile-low", CHECK_WARN, "1024 open files (hard 524288), 4096 wanted");
    assert_non_null(strstr(checkup.result.fix[FIX_HOST], "ulimit -n 524288"));
    set_limit("Max open files", "256", "256");
    checkup_expect("nofile-low", CHECK_FAIL, "256 open files");
    assert_string_equal(checkup.result.fix[FIX_HOST], "");
    set_limit("Max open files", "1073741816", "1073741816");
    checkup_expect("nofile-low", CHECK_PASS, "1073741816");
    checkup_expect("nofile-huge", CHECK_WARN, "one by one");
}

static void test_file_max(void **state)
{
    checkup_new();
    checkup_expect("file-max", CHECK_SKIP, "No such file");
    checkup_file("proc/sys/fs/file-nr", "garbage\n");
    checkup_expect("file-max", CHECK_SKIP, "not understood");
    checkup_file("proc/sys/fs/file-nr", "1000\t0\t0\n");
    checkup_expect("file-max", CHECK_SKIP, "not understood");
    checkup_file("proc/sys/fs/file-nr", "1440\t0\t9223372036854775807\n");
    checkup_expect("file-max", CHECK_PASS, "1440 files are open");
    checkup_file("proc/sys/fs/file-nr", "79999\t0\t100000\n");
    checkup_expect("file-max", CHECK_PASS, "79999 of the machine's 100000");
    checkup_file("proc/sys/fs/file-nr", "80000\t0\t100000\n");
    checkup_expect("file-max", CHECK_WARN, "80 %");
    checkup_file("proc/sys/fs/file-nr", "95000\t0\t100000\n");
    checkup_expect("file-max", CHECK_FAIL, "95 %");
}

static void test_nproc(void **state)
{
    checkup_new();
    set_process("1000", "0000000000000000", true);
    set_limit("Max processes", "unlimited", "unlimited");
    checkup_expect("nproc-limit", CHECK_PASS, "unlimited processes");
    set_limit("Max processes", "100", "200");
    checkup_expect("nproc-limit", CHECK_PASS, "100 processes");
    checkup.setting.local_ranks = 8;
    checkup_expect("nproc-limit", CHECK_WARN, "8 ranks want 512");
    checkup_answer("sandbox", "state failed 11\n");
    checkup_expect("nproc-limit", CHECK_FAIL, "no process can be started any more");
    checkup_answer("sandbox", "cma 0\n");
    set_process("0", CAPS_ALL, true);
    checkup_expect("nproc-limit", CHECK_PASS, "the limit does not apply to root");
}

static void test_core(void **state)
{
    checkup_new();
    set_limit("Max core file size", "0", "unlimited");
    checkup_expect("core-pattern", CHECK_SKIP, "core_pattern");
    checkup_file("proc/sys/kernel/core_pattern", "core\n");
    checkup_expect("core-pattern", CHECK_PASS, "no core files");
    set_limit("Max core file size", "unlimited", "unlimited");
    checkup_expect("core-pattern", CHECK_INFO, "\"core\" in its working directory");
    checkup_file("proc/sys/kernel/core_pattern", "|/usr/share/apport/apport %p\n");
    checkup_expect("core-pattern", CHECK_INFO, "/usr/share/apport/apport");
    checkup_file("proc/sys/kernel/core_pattern", "/cores/core.%p\n");
    checkup_expect("core-pattern", CHECK_INFO, "to /cores/core.%p");
}

static void test_sandbox(void **state)
{
    checkup_new();
    checkup_expect("cap-sys-ptrace", CHECK_SKIP, "not asked");
    checkup_answer("sandbox", "cma 0\nmbind 0\nio_uring 0\n");
    checkup_expect("cap-sys-ptrace", CHECK_PASS, "can read");
    checkup_expect("cap-sys-nice-numa", CHECK_PASS, "mbind");
    checkup_expect("seccomp-io-uring", CHECK_PASS, "works");
    checkup_answer("sandbox", "cma 1\nmbind 1\nio_uring 1\n");
    checkup_expect("cap-sys-ptrace", CHECK_WARN, "EPERM");
    checkup_expect("cap-sys-nice-numa", CHECK_INFO, "EPERM");
    checkup_expect("seccomp-io-uring", CHECK_INFO, "EPERM");
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("cap-sys-nice-numa", CHECK_WARN, "NCCL 2.24");
    checkup_answer("nccl", "version 2.26.4\n");
    checkup_expect("cap-sys-nice-numa", CHECK_WARN, "NCCL 2.24");
    checkup_answer("nccl", "version 2.26.5\n");
    checkup_expect("cap-sys-nice-numa", CHECK_INFO, "EPERM");
    checkup_answer("sandbox", "cma 38\nmbind 38\nio_uring 38\n");
    checkup_expect("cap-sys-ptrace", CHECK_WARN, "ENOSYS");
    checkup_expect("cap-sys-nice-numa", CHECK_INFO, "ENOSYS");
    checkup_expect("seccomp-io-uring", CHECK_INFO, "ENOSYS");
    checkup_answer("sandbox", "cma 99999\n");
    checkup_expect("cap-sys-ptrace", CHECK_WARN, "refused");
    checkup_expect("seccomp-io-uring", CHECK_SKIP, "not tried");
    checkup_answer("sandbox", "state crashed 31\n");
    checkup_expect("cap-sys-ptrace", CHECK_WARN, "SIGSYS");
}

#define RANK(i, rank, user, pid, ipc)                                                              \
    "rank." i ".pid 10" i "\nrank." i ".rank " rank "\nrank." i ".user user:[" user "]\nrank." i   \
    ".pidns pid:[" pid "]\nrank." i ".ipc ipc:[" ipc "]\n"

static void test_namespaces(void **state)
{
    checkup_new();
    checkup_expect("userns-same", CHECK_SKIP, "not asked");
    checkup_answer("ranks", "unreadable 3\n" RANK("0", "0", "1", "2", "3"));
    checkup_expect("userns-same", CHECK_SKIP, "fewer than two ranks");
    checkup_expect("pid-ipc-ns-shared", CHECK_SKIP, "fewer than two ranks");
    checkup_answer("ranks", RANK("0", "0", "1", "2", "3") RANK("1", "1", "1", "2", "3"));
    checkup_expect("userns-same", CHECK_PASS, "2 ranks in one user namespace");
    checkup_expect("pid-ipc-ns-shared", CHECK_PASS, "share their PID and IPC");
    checkup_answer("ranks", RANK("0", "0", "1", "2", "3") RANK("1", "1", "1", "2", "3")
                                RANK("2", "7", "9", "2", "4"));
    checkup_expect("userns-same", CHECK_WARN, "ranks 0 and 7 (processes 100 and 102)");
    checkup_expect("pid-ipc-ns-shared", CHECK_WARN, "ranks 0 and 7 do not share their IPC name");
    checkup_answer("ranks", RANK("0", "0", "1", "2", "3") RANK("1", "1", "1", "5", "6"));
    checkup_expect("pid-ipc-ns-shared", CHECK_WARN, "PID and IPC namespaces");
    /* Ranks of different jobs are not compared. */
    checkup_answer("ranks", RANK("0", "0", "1", "2", "3") "rank.0.job a\n" RANK(
                                "1", "0", "4", "5", "6") "rank.1.job b\n");
    checkup_expect("pid-ipc-ns-shared", CHECK_SKIP, "fewer than two ranks of one job");
    checkup_answer("ranks",
                   RANK("0", "0", "1", "2", "3") "rank.0.job a\n" RANK(
                       "1", "0", "4", "5", "6") "rank.1.job b\n" RANK("2", "1", "4", "5",
                                                                      "7") "rank.2.job b\n");
    checkup_expect("pid-ipc-ns-shared", CHECK_WARN, "ranks 0 and 1 do not share their IPC");
    checkup_expect("userns-same", CHECK_PASS, "2 ranks in one");
}

static void test_sys(void **state)
{
    checkup_new();
    checkup_expect("sys-mounted", CHECK_WARN, "/sys has no");
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("sys-mounted", CHECK_FAIL, "/sys/bus/pci/devices");
    checkup_file("sys/devices/system/cpu/online", "0-1\n");
    checkup_file("sys/class/net/lo/mtu", "65536\n");
    checkup_file("sys/bus/pci/devices/0000:00:00.0/class", "0x060000\n");
    checkup_expect("sys-mounted", CHECK_PASS, "mounted");
}

/* ---- on this machine ---- */

static const struct answer *ask(struct machine *m, const char *name)
{
    const struct probe *p = probe_find(name);
    struct setting s = {.level = 1, .timeout_ms = 20000, .local_ranks = 1};
    struct err err = {0};
    assert_non_null(p);
    assert_int_equal(machine_open_live(m, &err), 0);
    assert_int_equal(probe_run(m, &p, 1, &s, &err), 0);
    return machine_answer(m, name);
}

static void test_probe_sandbox(void **state)
{
    struct machine m;
    const struct answer *a = ask(&m, "sandbox");
    assert_int_equal(a->state, ANSWER_OK);
    assert_in_range(answer_int(a, "cma", -1), 0, 200);
    assert_in_range(answer_int(a, "mbind", -1), 0, 200);
    assert_in_range(answer_int(a, "io_uring", -1), 0, 200);
    machine_close(&m);
}

/* The probe finds a process that looks like a rank once, and never itself or its children. */
static void test_probe_ranks(void **state)
{
    struct machine m;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *const argv[] = {"cat", NULL}, *const env[] = {"HVD_RANK=41", "PATH=/bin", NULL};
        dup2(ready[0], 0);
        close(ready[1]);
        execve("/bin/cat", argv, env);
        _exit(127);
    }
    close(ready[0]);
    char path[64], text[256];
    for (int i = 0; i < 500; i++) { /* until the child is cat */
        snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
        FILE *f = fopen(path, "r");
        bool is = f && fgets(text, sizeof(text), f) && strcmp(text, "cat\n") == 0;
        if (f)
            fclose(f);
        if (is)
            break;
        usleep(10000);
    }
    setenv("HVD_RANK", "40", 1); /* the environment of a doctor that a rank has started */
    const struct answer *a = ask(&m, "ranks");
    unsetenv("HVD_RANK");
    assert_int_equal(a->state, ANSWER_OK);
    int seen = 0;
    for (int i = 0; i < answer_count(a, "rank"); i++)
        seen += answer_int_at(a, "rank", i, "rank", -1) == 41 &&
                answer_int_at(a, "rank", i, "pid", -1) == pid &&
                answer_str_at(a, "rank", i, "user", NULL) != NULL;
    machine_close(&m);
    close(ready[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(seen, 1);
}

static void test_limit_parse(void **state)
{
    uint64_t soft = 7, hard = 7;
    assert_int_equal(proc_limit_parse("", "Max x", &soft, &hard), -ENOENT);
    assert_int_equal(proc_limit_parse("Max x  unlimited 5\n", "Max x", &soft, &hard), 0);
    assert_true(soft == PROC_UNLIMITED && hard == 5);
    assert_int_equal(proc_limit_parse("Max x  12", "Max x", &soft, NULL), -EINVAL);
    assert_int_equal(proc_limit_parse("Max xy 1 2\nMax x 3 4", "Max x", &soft, NULL), 0);
    assert_true(soft == 3);
}

static void test_tables(void **state)
{
    checkup_texts(&checks_limits);
    checkup_texts(&checks_sandbox);
    checkup_all_seen(&checks_limits);
    checkup_all_seen(&checks_sandbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memlock),     cmocka_unit_test(test_ipc_lock),
        cmocka_unit_test(test_stack),       cmocka_unit_test(test_nofile),
        cmocka_unit_test(test_file_max),    cmocka_unit_test(test_nproc),
        cmocka_unit_test(test_core),        cmocka_unit_test(test_sandbox),
        cmocka_unit_test(test_namespaces),  cmocka_unit_test(test_sys),
        cmocka_unit_test(test_limit_parse), cmocka_unit_test(test_probe_sandbox),
        cmocka_unit_test(test_probe_ranks), cmocka_unit_test(test_tables),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    checkup_remove();
    return rc;
}
