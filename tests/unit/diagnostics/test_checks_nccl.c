/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks_nccl: NCCL's copies, versions, variables, plugin and mappings, good and bad, on
 * captured machines.
 */
#include "tests/unit/diagnostics/checkup.h"

#include "diagnostics/checks/nccl_env.h"

#define LIB(i, path, how, version, cuda)                                                           \
    "lib." i ".path " path "\nlib." i ".how " how "\nlib." i ".version " version "\nlib." i        \
    ".cuda " cuda "\n"
#define LOADED(version, cuda)                                                                      \
    "path /usr/lib/libnccl.so.2\nversion " version                                                 \
    "\n" LIB("0", "/usr/lib/libnccl.so.2", "loader", version, cuda)
#define NONE "error libnccl.so.2: cannot open shared object file: No such file or directory\n"

static void gpu_machine(void)
{
    checkup_new();
    checkup.setting.profiles = PROFILE_GPU;
}

/* NVML's answer: n GPUs of one compute capability. */
static void gpus(int n, int sm)
{
    char text[1024];
    size_t at = (size_t)snprintf(text, sizeof(text), "init 0\ncount %d\n", n);
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "gpu.%d.sm %d\n", i, sm);
    checkup_answer("nvml", text);
}

static void test_load(void **state)
{
    gpu_machine();
    checkup_expect("nccl-load", CHECK_SKIP, "not asked");
    checkup_answer("nccl", "state crashed 11\n");
    checkup_expect("nccl-load", CHECK_WARN, "crashed with SIGSEGV");
    checkup_answer("nccl", NONE);
    checkup_expect("nccl-load", CHECK_WARN, "one GPU works without");
    gpus(2, 90);
    checkup_expect("nccl-load", CHECK_FAIL, "GPUs cannot exchange data");
    checkup_answer("elf", "object.0.path /t/libtorch_cuda.so\nobject.0.nccl_inside 2.10.3\n");
    checkup_expect("nccl-load", CHECK_PASS, "2.10.3 is inside /t/libtorch_cuda.so");
    checkup_answer("nccl", LOADED("2.28.9", "13.0"));
    checkup_expect("nccl-load", CHECK_PASS, "NCCL 2.28.9 for CUDA 13.0 (/usr/lib/libnccl.so.2)");
    checkup_answer("nccl", NONE LIB("0", "/s/nvidia/nccl/lib/libnccl.so.2", "Python package",
                                    "2.27.7", "13.0"));
    checkup_expect("nccl-load", CHECK_PASS, "in a Python package: /s/nvidia");
    checkup_answer("nccl", "error libcudart.so.11.0: cannot open\nlib.0.path /o/libnccl.so.2\n"
                           "lib.0.how ld.so.cache\nlib.0.error libcudart.so.11.0: cannot open\n");
    checkup_expect("nccl-load", CHECK_FAIL, "libcudart.so.11.0");
    checkup_answer("nccl", "path /o/libnccl.so.2\nload timeout\n");
    checkup_expect("nccl-load", CHECK_FAIL, "timeout");
    checkup.setting.profiles = PROFILE_CPU;
    checkup_expect("nccl-load", CHECK_SKIP, "--profile gpu");
}

static void test_multiple(void **state)
{
    gpu_machine();
    checkup_answer("nccl", NONE);
    checkup_expect("nccl-multiple", CHECK_PASS, "no NCCL");
    checkup_answer("nccl", LOADED("2.28.9", "12.9"));
    checkup_expect("nccl-multiple", CHECK_PASS, "one NCCL");
    checkup_answer("nccl", LOADED("2.28.9", "12.9")
                               LIB("1", "/s/libnccl.so.2", "Python package", "2.28.9", "12.9"));
    checkup_expect("nccl-multiple", CHECK_INFO, "2 copies of one version");
    checkup_answer("nccl", LOADED("2.28.9", "12.9")
                               LIB("1", "/s/libnccl.so.2", "Python package", "2.21.5", "12.4"));
    checkup_expect("nccl-multiple", CHECK_WARN, "2.21.5 in /s/libnccl.so.2");
    checkup_answer("nccl", LOADED("2.28.9", "12.9")
                               LIB("1", "/s/libnccl.so.2", "Python package", "2.28.9", "13.0"));
    checkup_expect("nccl-multiple", CHECK_FAIL, "CUDA majors");
    checkup_answer("nccl", LOADED("2.28.9", "12.9"));
    checkup_answer("elf", "object.0.path /t/libtorch_cuda.so\nobject.0.nccl_inside 2.10.3\n");
    checkup_expect("nccl-multiple", CHECK_WARN, "2.10.3 inside");
}

static void test_known_bad(void **state)
{
    gpu_machine();
    checkup_answer("nccl", NONE);
    checkup_expect("nccl-known-bad", CHECK_SKIP, "no NCCL");
    checkup_answer("nccl", LOADED("2.28.9", "13.0"));
    checkup_expect("nccl-known-bad", CHECK_PASS, "no known fault");
    checkup_answer("nccl", LOADED("2.14.3", "11.6"));
    checkup_expect("nccl-known-bad", CHECK_WARN, "can hang");
    checkup_answer("nccl", LOADED("2.4.2", "10.0"));
    checkup_expect("nccl-known-bad", CHECK_FAIL, "hvd needs NCCL 2.14 or newer");
    assert_non_null(strstr(checkup.result.why, "github.com/NVIDIA/nccl"));
    /* The message is whole sentences, and says how many more problems there are. */
    gpus(2, 90);
    checkup_answer("nccl", LOADED("2.8.4", "11.0"));
    checkup_run("nccl-known-bad");
    const char *last = strstr(checkup.result.why, "); and ");
    assert_non_null(last);
    assert_string_equal(last + strcspn(last, "m"), "more");
    gpus(8, 70); /* Volta */
    checkup_answer("nccl", LOADED("2.28.9", "13.0"));
    checkup_expect("nccl-known-bad", CHECK_FAIL, "no code for Volta");
    gpus(2, 90);
    checkup_answer("nccl", LOADED("2.14.3", "11.6"));
    checkup_expect("nccl-known-bad", CHECK_FAIL, "H100");
    gpus(1, 90);
    checkup_expect("nccl-known-bad", CHECK_WARN, "NCCL");
    /* Reported only in a container that lacks SYS_NICE. */
    gpus(2, 80);
    checkup_answer("nccl", LOADED("2.25.1", "12.8"));
    checkup_run("nccl-known-bad");
    assert_null(strstr(checkup.result.why, "SYS_NICE"));
    checkup_file(".dockerenv", "");
    checkup_file("proc/self/status", "Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n");
    checkup_file("proc/self/uid_map", "         0          0 4294967295\n");
    checkup_run("nccl-known-bad");
    assert_non_null(strstr(checkup.result.why, "SYS_NICE"));
    /* The result is that of the worst copy. */
    checkup_answer("nccl", LOADED("2.28.9", "12.9")
                               LIB("1", "/s/libnccl.so.2", "Python package", "2.14.3", "11.6"));
    checkup_expect("nccl-known-bad", CHECK_WARN, "/s/libnccl.so.2");
    checkup_answer("elf", "machine aarch64\n");
    checkup_answer("nccl", LOADED("2.29.2", "13.0"));
    checkup_expect("nccl-known-bad", CHECK_FAIL, "ARM");
}

static void test_unlimited_stack(void **state)
{
    gpu_machine();
    checkup_answer("nccl", LOADED("2.27.7", "13.0"));
    checkup_run("nccl-known-bad");
    assert_null(strstr(checkup.result.why, "stack"));
    checkup_file("proc/self/limits", "Max stack size            unlimited            unlimited     "
                                     "       bytes     \n");
    checkup_run("nccl-known-bad");
    assert_non_null(strstr(checkup.result.why, "stack"));
    checkup.setting.ranks = 128;
    checkup_run("nccl-known-bad");
    assert_non_null(strstr(checkup.result.summary, "NCCL"));
}

static void test_variables(void **state)
{
    checkup_new();
    checkup_expect("nccl-env-unknown", CHECK_PASS, "no NCCL_* variable");
    checkup_env("NCCL_DEBUG", "INFO");
    checkup_env("NCCL_SOCKET_IFNAME", "eth0");
    checkup_expect("nccl-env-unknown", CHECK_PASS, "2 NCCL_* variables, all known");
    checkup_env("NCCL_IB_HCAS", "mlx5_0");
    checkup_env("NCCL_SOCKET_IFNAMES", "eth0");
    checkup_env("NCCL_ZZZZZZZZZZZZZZ", "1");
    checkup_expect("nccl-env-unknown", CHECK_WARN, "NCCL_IB_HCAS (did you mean NCCL_IB_HCA?)");
    assert_non_null(strstr(checkup.result.summary, "did you mean NCCL_SOCKET_IFNAME?"));
    assert_non_null(strstr(checkup.result.summary, "NCCL_ZZZZZZZZZZZZZZ"));
    assert_null(strstr(checkup.result.summary, "NCCL_ZZZZZZZZZZZZZZ ("));
    assert_string_equal(checkup.result.observed, "3");
}

static void test_names(void **state)
{
    static const char *const known[] = {"NCCL_DEBUG",       "NCCL_ALGO",    "NCCL_WORK_FIFO_BYTES",
                                        "NCCL_IB_HCA",      "NCCL_VERSION", "NCCL_FASTRAK_IFNAME",
                                        "NCCL_NVLS_ENABLE", "NCCL_RINGS",   "NCCL_MIN_NCHANNELS"};
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        assert_true(nccl_env_known(known[i]));
    assert_false(nccl_env_known("NCCL_"));
    assert_false(nccl_env_known("NCCL_debug"));
    assert_string_equal(nccl_env_nearest("NCCL_DEBGU"), "NCCL_DEBUG");
    assert_string_equal(nccl_env_nearest("NCCL_P2P_DISBALE"), "NCCL_P2P_DISABLE");
    assert_null(nccl_env_nearest("NCCL_XQJ"));
}

static void test_perf(void **state)
{
    checkup_new();
    gpus(1, 80);
    checkup_expect("nccl-env-perf-off", CHECK_PASS, "no variable");
    checkup_env("NCCL_P2P_DISABLE", "1");
    checkup_expect("nccl-env-perf-off", CHECK_INFO, "NCCL_P2P_DISABLE=1");
    gpus(8, 80);
    checkup_expect("nccl-env-perf-off", CHECK_WARN, "no direct access");
    checkup_new();
    checkup_env("NCCL_IB_DISABLE", "1");
    checkup_env("NCCL_SHM_DISABLE", "0");
    checkup_expect("nccl-env-perf-off", CHECK_INFO, "NCCL_IB_DISABLE");
    checkup_file("sys/class/infiniband/mlx5_0/x", "");
    checkup_expect("nccl-env-perf-off", CHECK_WARN, "InfiniBand");
}

static void test_gid(void **state)
{
    gpu_machine();
    checkup_answer("nccl", NONE);
    checkup_expect("nccl-gid-index", CHECK_SKIP, "no NCCL");
    checkup_answer("nccl", LOADED("2.21.5", "12.4"));
    checkup_expect("nccl-gid-index", CHECK_PASS, "not set");
    checkup_env("NCCL_IB_GID_INDEX", "3");
    checkup_expect("nccl-gid-index", CHECK_WARN, "overrides its choice");
    checkup_answer("nccl", LOADED("2.20.5", "12.4"));
    checkup_expect("nccl-gid-index", CHECK_PASS, "3");
    gpu_machine();
    checkup_answer("nccl", LOADED("2.20.5", "12.4"));
    checkup_file("sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
    checkup_expect("nccl-gid-index", CHECK_PASS, "not set");
    checkup_file("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n");
    checkup_expect("nccl-gid-index", CHECK_WARN, "does not choose");
}

static void test_file(void **state)
{
    checkup_new();
    checkup_expect("nccl-conf-file", CHECK_PASS, "no nccl.conf");
    checkup_file("etc/nccl.conf", "# nothing\n");
    checkup_expect("nccl-conf-file", CHECK_PASS, "/etc/nccl.conf sets nothing");
    checkup_file("etc/nccl.conf", "NCCL_DEBUG=WARN\n  NCCL_ALGO = Ring\n");
    checkup_expect("nccl-conf-file", CHECK_INFO, "/etc/nccl.conf sets 2 variables");
    checkup_env("HOME", "/home/u");
    checkup_file("home/u/.nccl.conf", "NCCL_DEBUGG=1\n");
    checkup_expect("nccl-conf-file", CHECK_WARN, "NCCL_DEBUGG");
    checkup_env("NCCL_CONF_FILE", "/nowhere.conf");
    checkup_expect("nccl-conf-file", CHECK_WARN, "/nowhere.conf: No such file");
}

static void test_plugin(void **state)
{
    gpu_machine();
    checkup_answer("nccl-plugin", "lib.0.name libnccl-net.so\nlib.0.error libnccl-net.so: cannot "
                                  "open shared object file: No such file or directory\n");
    checkup_expect("nccl-net-plugin", CHECK_PASS, "own InfiniBand");
    checkup_file("sys/class/infiniband/efa_0/x", "");
    checkup_expect("nccl-net-plugin", CHECK_WARN, "aws-ofi-nccl");
    checkup_answer("nccl-plugin", "wanted none\n");
    checkup_expect("nccl-net-plugin", CHECK_INFO, "EFA devices here are not used");
    checkup_answer("nccl-plugin", "lib.0.name libnccl-net.so\nlib.0.loaded /p/libnccl-net.so\n"
                                  "lib.0.version 8\n");
    checkup_expect("nccl-net-plugin", CHECK_PASS, "interface v8");
    checkup_answer("nccl-plugin", "wanted aws\nlib.0.name aws\nlib.0.error aws: No such file or "
                                  "directory\n");
    checkup_expect("nccl-net-plugin", CHECK_FAIL, "NCCL_NET_PLUGIN=aws does not exist");
    checkup_answer("nccl-plugin", "lib.0.name libnccl-net.so\nlib.0.error libfabric.so.1: version "
                                  "FABRIC_1.6 not found\n");
    checkup_expect("nccl-net-plugin", CHECK_FAIL, "FABRIC_1.6");
    checkup_answer("nccl-plugin", "wanted %s%n\n");
    checkup_expect("nccl-net-plugin", CHECK_FAIL, "%s%n");
}

static void test_mapped(void **state)
{
    gpu_machine();
    checkup_answer("ranks", "unreadable 0\n");
    checkup_expect("hvd-nccl-mapped", CHECK_PASS, "no rank");
    checkup_answer("ranks", "rank.0.pid 10\nrank.1.pid 11\n");
    checkup_expect("hvd-nccl-mapped", CHECK_SKIP, "same user");
    checkup_file("proc/10/maps", "7f00-7f01 r-xp 0 08:01 5 /usr/lib/libc.so.6\n");
    checkup_expect("hvd-nccl-mapped", CHECK_PASS, "none has mapped");
    checkup_file("proc/10/maps", "7f00-7f01 r-xp 0 08:01 5     /a/libnccl.so.2.27.7\n");
    checkup_file("proc/11/maps", "7f00-7f01 r-xp 0 08:01 5     /a/libnccl.so.2.27.7\nx\n");
    checkup_expect("hvd-nccl-mapped", CHECK_PASS, "2 ranks have mapped /a/libnccl.so.2.27.7");
    checkup_answer("nccl", LOADED("2.28.9", "13.0"));
    checkup_expect("hvd-nccl-mapped", CHECK_INFO, "a plain program would get /usr/lib");
    checkup_file("proc/11/maps", "7f00-7f01 r-xp 0 08:01 5     /b/libnccl.so.2\n");
    checkup_expect("hvd-nccl-mapped", CHECK_FAIL, "two NCCLs in one job");
}

static void test_tables(void **state)
{
    checkup_texts(&checks_nccl);
    checkup_texts(&checks_nccl_settings);
    checkup_all_seen(&checks_nccl);
    checkup_all_seen(&checks_nccl_settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),      cmocka_unit_test(test_multiple),
        cmocka_unit_test(test_known_bad), cmocka_unit_test(test_unlimited_stack),
        cmocka_unit_test(test_variables), cmocka_unit_test(test_names),
        cmocka_unit_test(test_perf),      cmocka_unit_test(test_gid),
        cmocka_unit_test(test_file),      cmocka_unit_test(test_plugin),
        cmocka_unit_test(test_mapped),    cmocka_unit_test(test_tables),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    checkup_remove();
    return rc;
}
