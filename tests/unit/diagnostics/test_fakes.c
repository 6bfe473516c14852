/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fakes: hvd-probe and the checks together on this machine, with the project's own libraries
 * (tests/fake) as healthy and broken ones: wrong versions of NCCL, Open MPI and hwloc, errors of
 * memory, a lost GPU, hanging and crashing drivers.
 *
 * takes: 2 s, waiting
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "diagnostics/doctor.h"
#include "diagnostics/registry.h"
#include "diagnostics/rules.h"
#include "tests/harness/build_path.h"

static char prober[PATH_MAX], libraries[64];

/* Runs one check on this machine with the fakes in LD_LIBRARY_PATH, and returns its result. */
static struct result check(const char *id, int timeout_ms)
{
    const struct choice choice = {.only = &id, .nonly = 1};
    struct setting setting = {.profiles = PROFILE_GPU,
                              .local_ranks = 1,
                              .gpus = -1,
                              .level = 1,
                              .timeout_ms = timeout_ms,
                              .prober = prober};
    struct machine m;
    struct report report;
    struct err err = {0};
    assert_int_equal(machine_open_live(&m, &err), 0);
    assert_int_equal(doctor_run(&m, &setting, &choice, rules_builtin(), NULL, NULL, &report, &err),
                     0);
    assert_int_equal(report.n, 1);
    struct result r = report.results[0];
    report_fini(&report);
    machine_close(&m);
    return r;
}

/* variable: NVML, CUDA or NCCL, the script's variable of that fake. */
static void expect(const char *variable, const char *script, const char *id,
                   enum check_status status, const char *words)
{
    bool hangs = strstr(script, "hang=") != NULL;
    setenv(variable, script, 1);
    struct result r = check(id, hangs ? 300 : 20000);
    unsetenv(variable);
    if (r.status != status || !strstr(r.summary, words))
        fail_msg("%s=%s: %s is %s \"%s\", want %s \"%s\"", variable, script, id,
                 check_status_name(r.status), r.summary, check_status_name(status), words);
}

#define NVML  "FAKE_NVML"
#define CUDA  "FAKE_CUDA"
#define NCCL  "FAKE_NCCL"
#define MPI   "FAKE_MPI"
#define HWLOC "FAKE_HWLOC"

static void test_healthy(void **state)
{
    expect(NVML, "", "nvml-load", CHECK_PASS, "driver 580.65.06, 2 GPUs, CUDA up to 13.0");
    expect(NVML, "", "gpu-ecc-uncorr", CHECK_PASS, "on 2 GPUs");
    expect(NVML, "", "gpu-pcie-link", CHECK_PASS, "all 2 GPUs");
    expect(NVML, "", "nvlink-state", CHECK_PASS, "18 NVLinks");
    expect(NVML, "", "gpu-p2p", CHECK_PASS, "1 by NVLink");
    expect(NVML, "", "fabric-state", CHECK_PASS, "2 GPUs are part");
    expect(NVML, "", "gpu-foreign-procs", CHECK_PASS, "no other process");
    expect(CUDA, "", "cuinit", CHECK_PASS, "CUDA 13.0, 2 GPUs");
    expect(NCCL, "version=22809", "nccl-load", CHECK_PASS, "NCCL 2.28.9");
}

static void test_driver(void **state)
{
    expect(NVML, "nvmlInit_v2=18", "nvml-lib-mismatch", CHECK_FAIL,
           "updated while programs used it");
    expect(NVML, "nvmlInit_v2=999", "nvml-lost-cgroup", CHECK_FAIL, "Unknown Error");
    expect(NVML, "nvmlInit_v2=9", "nvml-load", CHECK_FAIL, "Driver Not Loaded");
    expect(NVML, "count=1", "gpu-count", CHECK_PASS, "1 GPU");
    expect(NVML, "count=0", "gpu-count", CHECK_FAIL, "0 GPUs here, the job wants 1");
    expect(NVML, "nvmlDeviceGetHandleByIndex_v2.1=15", "gpu-count", CHECK_FAIL, "GPU 1 is lost");
    expect(NVML, "nvmlDeviceGetHandleByIndex_v2.0=999", "nvml-lost-cgroup", CHECK_FAIL, "GPU 0");
    expect(CUDA, "cuInit=802", "cuinit", CHECK_FAIL, "802 CUDA_ERROR_SYSTEM_NOT_READY");
    expect(CUDA, "cuInit=804", "cuinit", CHECK_FAIL, "compatibility");
}

static void test_hang_and_crash(void **state)
{
    expect(NVML, "hang=nvmlInit_v2", "nvml-load", CHECK_FAIL, "timed out");
    expect(NVML, "hang=nvmlDeviceGetName", "nvml-load", CHECK_FAIL, "timed out");
    expect(NVML, "crash=nvmlDeviceGetP2PStatus", "nvml-load", CHECK_FAIL, "SIGSEGV");
    expect(CUDA, "hang=cuInit", "cuinit", CHECK_FAIL, "timed out");
    expect(CUDA, "crash=cuInit", "cuinit", CHECK_FAIL, "SIGSEGV");
    /* If a copy of NCCL crashes, its line of the answer says so, and its version text is read
     * all the same. */
    expect(NCCL, "crash=ncclGetVersion", "nccl-load", CHECK_FAIL, "crashed");
    expect(NCCL, "crash=ncclGetVersion", "nccl-known-bad", CHECK_FAIL, "2.8.4");
    expect(NCCL, "hang=ncclGetVersion", "nccl-load", CHECK_WARN, "timed out");
}

static void test_health(void **state)
{
    expect(NVML, "ecc_volatile.1=3", "gpu-ecc-uncorr", CHECK_FAIL,
           "GPU 1 (00000000:11:00.0) has 3 uncorrectable errors");
    expect(NVML, "ecc_sram.0=5", "gpu-ecc-uncorr", CHECK_FAIL, "5 SRAM");
    expect(NVML, "rows_pending.0=1", "gpu-row-remap", CHECK_FAIL, "GPU 0");
    expect(NVML, "rows_failed.1=1", "gpu-row-remap", CHECK_FAIL, "cannot remap");
    expect(NVML, "nvmlDeviceGetRemappedRows=3;nvmlDeviceGetRetiredPagesPendingStatus=3",
           "gpu-row-remap", CHECK_SKIP, "do not remap");
    expect(NVML, "throttle.1=0x40", "gpu-throttle", CHECK_WARN, "GPU 1");
    expect(NVML, "celsius.0=84", "gpu-temp", CHECK_WARN, "84 C of 87");
    expect(NVML, "pcie_width.1=8", "gpu-pcie-link", CHECK_WARN, "x8 of x16");
    expect(NVML, "links.1=17", "nvlink-state", CHECK_WARN, "17 of 18");
    expect(NVML, "p2p=1", "gpu-p2p", CHECK_WARN, "0 of 1 pairs");
    expect(NVML, "fabric.1=2", "fabric-state", CHECK_FAIL, "GPU 1");
    expect(NVML, "compute_mode.0=2", "compute-mode", CHECK_FAIL, "prohibited");
    expect(NVML, "mig.0=1", "mig", CHECK_INFO, "GPU 0");
    expect(NVML, "persistence=0", "persistence-mode", CHECK_WARN, "GPU 1");
    expect(NVML, "pid.1=4242;memory_used.1=5368709120", "gpu-foreign-procs", CHECK_WARN,
           "1 other process, 5 GiB");
    expect(NVML, "driver=515.65.01", "cuda-driver-version", CHECK_PASS, "515.65.01");
}

/* NCCL 2.8.4 reports itself as 2804. */
static void test_nccl(void **state)
{
    expect(NCCL, "version=2804", "nccl-load", CHECK_PASS, "NCCL 2.8.4 for CUDA 11.0");
    expect(NCCL, "version=22707", "nccl-load", CHECK_PASS, "NCCL 2.27.7");
    expect(NCCL, "ncclGetVersion=3", "nccl-load", CHECK_FAIL, "ncclGetVersion returned 3");
}

static void test_mpi(void **state)
{
    (void)state;
    expect(MPI, "version=4.1.6", "mpi-load", CHECK_PASS, "4.1.6");
    expect(MPI, "version=4.1.6", "mpi-known-bad", CHECK_PASS, "4.1.6");
    expect(MPI, "version=3.1.3", "mpi-known-bad", CHECK_FAIL, "3.1.3");
    expect(MPI, "crash=MPI_Get_library_version", "mpi-load", CHECK_WARN, "crashed");
    expect(MPI, "hang=MPI_Get_library_version", "mpi-load", CHECK_WARN, "timed out");
}

static void test_hwloc(void **state)
{
    (void)state;
    expect(HWLOC, "version=0x20800", "hwloc-version", CHECK_PASS, "2.8.0");
    expect(HWLOC, "version=0x10b00", "hwloc-version", CHECK_WARN, "1.11");
    expect(HWLOC, "version=0x30000", "hwloc-version", CHECK_FAIL, "3.0.0");
    expect(HWLOC, "crash=hwloc_get_api_version", "hwloc-version", CHECK_WARN, "crashed");
    expect(HWLOC, "hang=hwloc_get_api_version", "hwloc-version", CHECK_WARN, "timed out");
}

static void add_link(const char *file, const char *name)
{
    char part[64], target[PATH_MAX], link[128];
    snprintf(part, sizeof(part), "tests/fake/%s.so", file);
    build_path(part, target);
    snprintf(link, sizeof(link), "%s/%s", libraries, name);
    if (access(target, R_OK) != 0 || symlink(target, link) != 0) {
        fprintf(stderr, "%s is not there\n", target);
        exit(1);
    }
}

static void remove_links(void)
{
    static const char *const names[] = {"libnvidia-ml.so.1", "libcuda.so.1", "libnccl.so.2",
                                        "libmpi.so.40", "libhwloc.so.15"};
    char link[128];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(link, sizeof(link), "%s/%s", libraries, names[i]);
        unlink(link);
    }
    rmdir(libraries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_healthy),        cmocka_unit_test(test_driver),
        cmocka_unit_test(test_hang_and_crash), cmocka_unit_test(test_health),
        cmocka_unit_test(test_nccl),           cmocka_unit_test(test_mpi),
        cmocka_unit_test(test_hwloc),
    };
    build_path("hvd-probe", prober);
    snprintf(libraries, sizeof(libraries), "/tmp/hvd-fake-XXXXXX");
    if (!mkdtemp(libraries))
        return 1;
    add_link("nvidia-ml", "libnvidia-ml.so.1");
    add_link("cuda", "libcuda.so.1");
    add_link("nccl", "libnccl.so.2");
    add_link("mpi", "libmpi.so.40");
    add_link("hwloc", "libhwloc.so.15");
    setenv("LD_LIBRARY_PATH", libraries, 1);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    remove_links();
    return rc;
}
