/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks_gpu: the driver, GPUs, CUDA and their health, good and bad, on captured machines.
 */
#include "tests/unit/diagnostics/checkup.h"

/* A machine with NVIDIA GPUs on its PCI bus and a job that wants them. */
static void gpu_machine(int pci)
{
    char path[128];
    checkup_new();
    checkup.setting.profiles = PROFILE_GPU;
    for (int i = 0; i < pci; i++) {
        snprintf(path, sizeof(path), "sys/bus/pci/devices/0000:%02x:00.0/vendor", i + 16);
        checkup_file(path, "0x10de\n");
        snprintf(path, sizeof(path), "sys/bus/pci/devices/0000:%02x:00.0/class", i + 16);
        checkup_file(path, "0x030200\n");
        snprintf(path, sizeof(path), "dev/nvidia%d", i);
        checkup_file(path, "");
    }
    checkup_file("sys/bus/pci/devices/0000:00:01.0/vendor", "0x8086\n");
    checkup_file("sys/bus/pci/devices/0000:00:02.0/vendor",
                 "0x10de\n"); /* a sound card: not class 03 */
    checkup_file("sys/bus/pci/devices/0000:00:02.0/class", "0x040300\n");
}

#define NVML "path /usr/lib/libnvidia-ml.so.580.65.06\ninit 0\ninit_text Success\n"
#define NVML_OK(rest)                                                                              \
    NVML "nvml 13.580.65.06\ndriver 580.65.06\ncuda 13.0\ncount 2\n"                               \
         "gpu.0.rc 0\ngpu.0.name NVIDIA H100\ngpu.0.sm 90\ngpu.0.uuid GPU-aaaa\n"                  \
         "gpu.1.rc 0\ngpu.1.name NVIDIA H100\ngpu.1.sm 90\ngpu.1.uuid GPU-bbbb\n" rest
#define MODULE                                                                                     \
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"          \
    "GCC version: gcc 12\n"
#define ABSENT                                                                                     \
    "error libnvidia-ml.so.1: cannot open shared object file: No such file or directory\n"

static void test_load(void **state)
{
    gpu_machine(0);
    checkup.setting.profiles = PROFILE_CPU;
    checkup_answer("nvml", ABSENT);
    checkup_expect("nvml-load", CHECK_SKIP, "no NVIDIA GPU here");
    checkup_expect("nvml-lost-cgroup", CHECK_SKIP, "no NVIDIA GPU");
    checkup_expect("gpu-ecc-uncorr", CHECK_SKIP, "no NVIDIA GPU here");
    checkup.setting.gpus = 2;
    checkup_expect("nvml-load", CHECK_FAIL, "the job wants 2 GPUs, none is visible here");
    gpu_machine(8);
    checkup_answer("nvml", ABSENT);
    checkup_expect("nvml-load", CHECK_FAIL, "8 NVIDIA GPUs on the PCI bus, but libnvidia-ml");
    checkup_expect("gpu-temp", CHECK_SKIP, "see nvml-load");
    checkup.setting.profiles = PROFILE_CPU;
    checkup_expect("nvml-load", CHECK_FAIL, "on the PCI bus");
    checkup_file(".dockerenv", "");
    checkup_expect("nvml-load", CHECK_INFO, "not handed to this container");
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("nvml-load", CHECK_FAIL, "on the PCI bus");
    checkup_answer("nvml", NVML_OK(""));
    checkup_expect("nvml-load", CHECK_PASS, "driver 580.65.06, 2 GPUs, CUDA up to 13.0");
    checkup_answer("nvml", "state timeout 10000\npath /usr/lib/libnvidia-ml.so.1\n");
    checkup_expect("nvml-load", CHECK_FAIL, "timed out after 10000 ms");
    checkup_expect("gpu-temp", CHECK_SKIP, "timed out");
    checkup_answer("nvml", "state crashed 11\n");
    checkup_expect("nvml-load", CHECK_FAIL, "SIGSEGV");
    checkup_answer("nvml", "path /x\ninit 9\ninit_text Driver Not Loaded\n");
    checkup_expect("nvml-load", CHECK_FAIL, "Driver Not Loaded");
    checkup_answer("nvml", "path /x\ninit 18\ninit_text Driver/library version mismatch\n");
    checkup_expect("nvml-load", CHECK_SKIP, "nvml-lib-mismatch");
}

static void test_agreement(void **state)
{
    gpu_machine(2);
    checkup_answer("nvml", "error x\n");
    checkup_expect("nvml-lib-mismatch", CHECK_SKIP, "nvml-load");
    checkup_answer("nvml", NVML_OK(""));
    checkup_expect("nvml-lib-mismatch", CHECK_PASS, "understand each other");
    checkup_file("proc/driver/nvidia/version", MODULE);
    checkup_expect("nvml-lib-mismatch", CHECK_PASS, "are both 580.65.06");
    checkup_file(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15\n");
    checkup_expect("nvml-lib-mismatch", CHECK_WARN, "580.65.06, the kernel module 535.104.05");
    checkup_answer("nvml", "path /l/libnvidia-ml.so.580.65.06\ninit 18\ninit_text Driver/library "
                           "version mismatch\n");
    checkup_expect("nvml-lib-mismatch", CHECK_FAIL, "the kernel module 535.104.05");
    checkup_file("proc/driver/nvidia/version", "Module Module x.. Module  1");
    checkup_expect("nvml-lib-mismatch", CHECK_FAIL, "another version");

    checkup_answer("nvml", NVML_OK(""));
    checkup_expect("nvml-lost-cgroup", CHECK_PASS, "open to this process");
    checkup_answer("nvml", "path /x\ninit 999\ninit_text Unknown Error\n");
    checkup_expect("nvml-lost-cgroup", CHECK_FAIL, "Unknown Error");
    checkup_file(".dockerenv", "");
    checkup_expect("nvml-lost-cgroup", CHECK_FAIL, "lost the device files");
    assert_int_equal(checkup.result.action, ACTION_RECREATE);
    checkup_answer("nvml", NVML "count 2\ngpu.0.rc 0\ngpu.1.rc 999\n");
    checkup_expect("nvml-lost-cgroup", CHECK_FAIL, "for GPU 1 is refused");
}

static void test_count(void **state)
{
    gpu_machine(2);
    checkup_answer("nvml", NVML_OK(""));
    checkup_expect("gpu-count", CHECK_PASS, "2 GPUs, 2 device files");
    checkup.setting.gpus = 4;
    checkup_expect("gpu-count", CHECK_FAIL, "2 GPUs here, the job wants 4");
    checkup.setting.gpus = -1;
    checkup.setting.local_ranks = 3;
    checkup_expect("gpu-count", CHECK_FAIL, "wants 3");
    checkup.setting.local_ranks = 2;
    checkup_answer("nvml", NVML "count 2\ngpu.0.rc 0\ngpu.1.rc 15\n");
    checkup_expect("gpu-count", CHECK_FAIL, "GPU 1 is lost");
    assert_int_equal(checkup.result.action, ACTION_REBOOT);
    gpu_machine(3);
    checkup_answer("nvml", NVML_OK(""));
    checkup_expect("gpu-count", CHECK_WARN, "3 GPUs on the PCI bus, NVML has 2");
    checkup_file(".dockerenv", ""); /* a container may have only some of the machine's GPUs */
    checkup_expect("gpu-count", CHECK_PASS, "2 GPUs");
    gpu_machine(1);
    checkup_answer("nvml", NVML_OK(""));
    checkup_expect("gpu-count", CHECK_WARN, "1 device files");
}

static void visible_is(const char *value, enum check_status status, const char *words)
{
    gpu_machine(2);
    checkup_answer("nvml", NVML_OK(""));
    checkup_env("CUDA_VISIBLE_DEVICES", value);
    checkup_expect("cuda-visible-devices", status, words);
}

static void test_visible(void **state)
{
    gpu_machine(2);
    checkup_answer("nvml", NVML_OK(""));
    checkup_expect("cuda-visible-devices", CHECK_PASS, "is not set");
    visible_is("0,1", CHECK_PASS, "2 of 2");
    visible_is("GPU-aaaa,GPU-b", CHECK_PASS, "2 of 2");
    visible_is("MIG-123", CHECK_PASS, "1 of 2");
    visible_is("2", CHECK_FAIL, "beyond the GPUs here");
    visible_is("0,0", CHECK_FAIL, "twice");
    visible_is("GPU-cccc", CHECK_FAIL, "not here");
    visible_is("all", CHECK_FAIL, "not a list");
    visible_is("", CHECK_FAIL, "hides all GPUs");
    visible_is("-1", CHECK_FAIL, "hides all GPUs");
    visible_is("1", CHECK_PASS, "1 of 2");
    checkup.setting.local_ranks = 2;
    checkup_expect("cuda-visible-devices", CHECK_WARN, "leaves 1 GPU for 2 ranks");
    checkup_env("LOCAL_RANK", "1"); /* the launcher has given each rank one GPU */
    checkup_expect("cuda-visible-devices", CHECK_PASS, "1 of 2");
    checkup_env("NVIDIA_VISIBLE_DEVICES",
                "void"); /* with CDI the variable is "void" and the GPUs are there */
    checkup_expect("cuda-visible-devices", CHECK_PASS, "1 of 2");
    checkup_answer("nvml", ABSENT);
    checkup_expect("cuda-visible-devices", CHECK_FAIL, "started without GPUs");
    visible_is("-1", CHECK_FAIL, "hides");
    checkup.setting.profiles = PROFILE_CPU;
    checkup_expect("cuda-visible-devices", CHECK_INFO, "hides");
}

static void with(const char *more)
{
    char text[2048];
    snprintf(text, sizeof(text), NVML_OK("%s"), more);
    gpu_machine(2);
    checkup_answer("nvml", text);
}

static void test_use(void **state)
{
    with("gpu.0.compute_mode 0\ngpu.0.mig 0\ngpu.0.mig_pending 0\ngpu.0.persistence 1\n");
    checkup_expect("compute-mode", CHECK_PASS, "default");
    checkup_expect("mig", CHECK_PASS, "no GPU is split");
    checkup_expect("persistence-mode", CHECK_PASS, "on");
    checkup_expect("gpu-p2p", CHECK_PASS, "NVML does not report");
    checkup_expect("fabric-state", CHECK_PASS, "do not register");
    checkup_expect("imex-channel", CHECK_PASS, "does not leave the machine");
    checkup_expect("gpu-foreign-procs", CHECK_PASS, "no other process");
    with("gpu.1.compute_mode 2\n");
    checkup_expect("compute-mode", CHECK_FAIL, "GPU 1 is in prohibited compute mode");
    with("gpu.0.compute_mode 3\n");
    checkup_expect("compute-mode", CHECK_INFO, "is in exclusive compute mode");
    checkup.setting.local_ranks = 4;
    checkup_expect("compute-mode", CHECK_FAIL, "4 ranks share 2");
    with("gpu.0.mig 0\ngpu.0.mig_pending 1\n");
    checkup_expect("mig", CHECK_WARN, "next reset");
    with("gpu.0.mig 1\ngpu.0.mig_pending 1\n");
    checkup_expect("mig", CHECK_INFO, "is split");
    checkup.setting.local_ranks = 2;
    checkup_expect("mig", CHECK_WARN, "NCCL does not work");
    with("gpu.0.persistence 0\n");
    checkup_expect("persistence-mode", CHECK_WARN, "GPU 0 has it off");
    with("pairs 6\npairs_p2p 6\npairs_nvlink 6\n");
    checkup_expect("gpu-p2p", CHECK_PASS, "all 6 pairs");
    with("pairs 6\npairs_p2p 5\npair_without 1 and 3: status 2\n");
    checkup_expect("gpu-p2p", CHECK_WARN,
                   "5 of 6 pairs of GPUs reach each other's memory; not GPU 1 and 3");
    with("gpu.0.fabric 3\ngpu.0.fabric_status 0\ngpu.1.fabric 3\ngpu.1.fabric_status 0\n");
    checkup_expect("fabric-state", CHECK_PASS, "2 GPUs are part");
    with("gpu.0.fabric 2\n");
    checkup_expect("fabric-state", CHECK_FAIL, "still being registered");
    with("gpu.0.fabric 3\ngpu.0.fabric_status 999\n");
    checkup_expect("fabric-state", CHECK_FAIL, "refused (status 999)");
}

static void test_others(void **state)
{
    checkup_new();
    checkup_answer("nvml", NVML "count 1\ngpu.0.name NVIDIA GB200\n");
    checkup_expect("imex-channel", CHECK_WARN, "no IMEX channel");
    checkup_file("dev/nvidia-caps-imex-channels/channel0", "");
    checkup_expect("imex-channel", CHECK_PASS, "channel0");
    with("gpu.0.memory_used 2147483648\ngpu.0.pids 10 11\n");
    checkup_expect("gpu-foreign-procs", CHECK_WARN, "GPU 0 has 2 other processes, 2 GiB in use");
    checkup_answer("ranks", "rank.0.pid 10\nrank.1.pid 11\n");
    checkup_expect("gpu-foreign-procs", CHECK_PASS, "no other process");
    with("gpu.1.memory_used 5368709120\n");
    checkup_expect("gpu-foreign-procs", CHECK_WARN, "no process that this container can see");
}

static void test_health(void **state)
{
    with("gpu.0.ecc_volatile 0\ngpu.0.rows_pending 0\ngpu.0.throttle 1\ngpu.0.celsius 40\n"
         "gpu.0.celsius_max 87\ngpu.0.pcie_gen 5\ngpu.0.pcie_gen_max 5\ngpu.0.pcie_width 16\n"
         "gpu.0.pcie_width_max 16\ngpu.0.links 18\ngpu.1.links 18\n");
    checkup_expect("gpu-ecc-uncorr", CHECK_PASS, "no uncorrectable");
    checkup_expect("gpu-row-remap", CHECK_PASS, "no row waits");
    checkup_expect("gpu-throttle", CHECK_PASS, "slowed down");
    checkup_expect("gpu-temp", CHECK_PASS, "40 C; each is 47 C or more below");
    checkup_expect("gpu-pcie-link", CHECK_PASS, "full width and speed");
    checkup_expect("nvlink-state", CHECK_PASS, "18 NVLinks up on each of 2 GPUs");
    with("");
    checkup_expect("gpu-ecc-uncorr", CHECK_SKIP, "do not count");
    checkup_expect("gpu-row-remap", CHECK_SKIP, "do not remap");
    checkup_expect("gpu-throttle", CHECK_SKIP, "do not report");
    checkup_expect("gpu-temp", CHECK_SKIP, "do not report");
    checkup_expect("gpu-pcie-link", CHECK_SKIP, "do not report");
    checkup_expect("nvlink-state", CHECK_PASS, "no NVLink");
    with("gpu.1.pci 00000000:11:00.0\ngpu.1.ecc_volatile 3\n");
    checkup_expect("gpu-ecc-uncorr", CHECK_FAIL,
                   "GPU 1 (00000000:11:00.0) has 3 uncorrectable errors");
    assert_int_equal(checkup.result.action, ACTION_RESET_GPU);
    with("gpu.1.ecc_volatile 0\ngpu.1.ecc_sram_aggregate 5\n");
    checkup_expect("gpu-ecc-uncorr", CHECK_FAIL, "5 SRAM errors");
    assert_int_equal(checkup.result.action, ACTION_REPLACE_NODE);
    with("gpu.0.ecc 0\n");
    checkup_expect("gpu-ecc-uncorr", CHECK_INFO, "ECC off");
    with("gpu.0.rows_pending 1\n");
    checkup_expect("gpu-row-remap", CHECK_FAIL, "waits for a reset to remap");
    with("gpu.0.retired_pending 1\n");
    checkup_expect("gpu-row-remap", CHECK_FAIL, "retire a page");
    with("gpu.0.rows_failed 1\ngpu.0.rows_uncorrected 8\n");
    checkup_expect("gpu-row-remap", CHECK_FAIL, "cannot remap rows any more (8 remapped)");
    with("gpu.0.rows_uncorrected 513\n");
    checkup_expect("gpu-row-remap", CHECK_FAIL, "513");
    with("gpu.0.throttle 64\n");
    checkup_expect("gpu-throttle", CHECK_WARN, "heat");
    with("gpu.0.throttle 128\ngpu.1.throttle 8\n");
    checkup_expect("gpu-throttle", CHECK_WARN, "brake, GPU 1 is slowed by hardware");
    with("gpu.0.throttle 4\n");
    checkup_expect("gpu-throttle", CHECK_INFO, "power limit");
    with("gpu.0.celsius 85\ngpu.0.celsius_slowdown 88\n");
    checkup_expect("gpu-temp", CHECK_WARN, "85 C of 88");
    with("gpu.0.pcie_gen 4\ngpu.0.pcie_gen_max 4\ngpu.0.pcie_width 8\ngpu.0.pcie_width_max 16\n");
    checkup_expect("gpu-pcie-link", CHECK_WARN, "x8 of x16");
    with("gpu.0.pcie_gen 1\ngpu.0.pcie_gen_max 4\ngpu.0.pstate 8\n");
    checkup_expect("gpu-pcie-link", CHECK_INFO, "idle links");
    with("gpu.0.pcie_gen 1\ngpu.0.pcie_gen_max 4\ngpu.0.pstate 0\n");
    checkup_expect("gpu-pcie-link", CHECK_WARN, "while it is busy");
    with("gpu.0.links 18\ngpu.1.links 16\n");
    checkup_expect("nvlink-state", CHECK_WARN, "GPU 1 has 16 of 18 NVLinks up");
    with("gpu.0.links 0\ngpu.0.links_down 4\n");
    checkup_expect("nvlink-state", CHECK_INFO, "no link is up");
}

static void xid(const char *code, enum check_status status, const char *words)
{
    char text[256];
    snprintf(text, sizeof(text),
             "lines 9\nxid_count 1\nxid.0.line NVRM: Xid (PCI:0000:3b:00): %s, pid=1, name=x\n",
             code);
    gpu_machine(1);
    checkup_answer("kmsg", text);
    checkup_expect("gpu-xid", status, words);
}

static void test_xid(void **state)
{
    gpu_machine(1);
    checkup_expect("gpu-xid", CHECK_SKIP, "not asked");
    checkup_answer("kmsg", "state failed 1\n");
    checkup_expect("gpu-xid", CHECK_SKIP, "CAP_SYSLOG");
    checkup_answer("kmsg", "lines 9\nxid_count 0\n");
    checkup_expect("gpu-xid", CHECK_PASS, "no Xid");
    xid("43", CHECK_INFO, "nothing to do");
    xid("31", CHECK_WARN, "caused by programs");
    xid("48", CHECK_FAIL, "reset the GPU");
    assert_int_equal(checkup.result.action, ACTION_RESET_GPU);
    xid("79", CHECK_FAIL, "must be restarted");
    assert_int_equal(checkup.result.action, ACTION_REBOOT);
    xid("9999", CHECK_WARN, "9999");
    checkup_answer("kmsg",
                   "xid_count 40\nxid.0.line NVRM: Xid (PCI:0): 79, a\nxid.1.line NVRM: Xid "
                   "(PCI:0): 13, b\nxid.2.line nvidia-nvswitch0: SXid (PCI:0000): 20034\n");
    checkup_expect("gpu-xid", CHECK_FAIL,
                   "40 Xid, the machine must be restarted: NVRM: Xid (PCI:0): 79");
}

static void test_cuinit(void **state)
{
    gpu_machine(0);
    checkup_answer("cuda", "error libcuda.so.1: cannot open: No such file\n");
    checkup_expect("cuinit", CHECK_SKIP, "no NVIDIA GPU here");
    checkup_answer("cuda", "path /l/libcuda.so.1\ninit 100\ninit_name CUDA_ERROR_NO_DEVICE\n");
    checkup_expect("cuinit", CHECK_SKIP, "no GPU is visible");
    gpu_machine(1);
    checkup_answer("cuda", "path /l/libcuda.so.1\nversion 13.0\ninit 0\ncount 1\n");
    checkup_expect("cuinit", CHECK_PASS, "CUDA 13.0, 1 GPUs");
    checkup_answer("cuda",
                   "path /l/libcuda.so.1\ninit 802\ninit_name CUDA_ERROR_SYSTEM_NOT_READY\n");
    checkup_expect("cuinit", CHECK_FAIL, "NVSwitch fabric is not ready");
    assert_non_null(strstr(checkup.result.fix[FIX_HOST], "fabricmanager"));
    checkup_answer("cuda", "path /l/libcuda.so.1\ninit 100\ninit_name CUDA_ERROR_NO_DEVICE\n");
    checkup_expect("cuinit", CHECK_FAIL, "sees no GPU");
    checkup_answer("cuda", "path /l/libcuda.so.1\ninit 2\ninit_name CUDA_ERROR_OUT_OF_MEMORY\n");
    checkup_expect("cuinit", CHECK_FAIL, "CUDA_ERROR_OUT_OF_MEMORY");
    checkup_answer("cuda", "state timeout 10000\npath /l/libcuda.so.1\nbegun 1\n");
    checkup_expect("cuinit", CHECK_FAIL, "cuInit of /l/libcuda.so.1 timed out after 10000 ms");
    checkup_answer("cuda", "error libcuda.so.1: cannot open\n");
    checkup_expect("cuinit", CHECK_FAIL, "libcuda.so.1: cannot open");
    checkup.setting.profiles = PROFILE_CPU;
    checkup_expect("cuinit", CHECK_SKIP, "no CUDA driver in this container");
}

static void driver(const char *version, const char *cuda, enum check_status status,
                   const char *words)
{
    char text[256];
    gpu_machine(1);
    snprintf(text, sizeof(text), "path /l\ninit 0\ncount 1\ndriver %s\n", version);
    checkup_answer("nvml", text);
    snprintf(text, sizeof(text), "path /l\nlib.0.path /l\nlib.0.version %s\n", cuda);
    checkup_answer("cudart", text);
    checkup_expect("cuda-driver-version", status, words);
}

static void test_driver(void **state)
{
    driver("580.65.06", "13.0", CHECK_PASS, "new enough for CUDA 13.0 of libcudart");
    driver("570.86.10", "13.0", CHECK_FAIL, "CUDA 13 needs driver 580");
    driver("570.86.10", "12.9", CHECK_PASS, "570.86.10");
    driver("515.65.01", "12.1", CHECK_FAIL, "525");
    driver("450.80.02", "11.4", CHECK_PASS, "11.4");
    driver("450.51", "11.4", CHECK_FAIL, "450.80.02");
    driver("440.33", "10.2", CHECK_PASS, "10.2");
    driver("418.39", "10.2", CHECK_FAIL, "440.33");
    driver("410.48", "10.1", CHECK_FAIL, "418.39");
    driver("396.26", "10.0", CHECK_FAIL, "410.48");
    checkup_answer("cuda", "path /usr/local/cuda/compat/libcuda.so.1\ninit 0\n");
    checkup_expect("cuda-driver-version", CHECK_PASS, "compatibility library");
    driver("535.104.05", "12.2", CHECK_PASS, "of libcudart");
    checkup_answer("framework", "torch.0.path /t\ntorch.0.cuda 13.0\n");
    checkup_expect("cuda-driver-version", CHECK_FAIL, "torch is for CUDA 13.0");
    gpu_machine(1);
    checkup_expect("cuda-driver-version", CHECK_SKIP, "does not report");
    checkup_file("proc/driver/nvidia/version", MODULE);
    checkup_expect("cuda-driver-version", CHECK_PASS, "driver 580.65.06");
}

static void test_runtime(void **state)
{
    gpu_machine(1);
    checkup_answer("cudart", "error libcudart.so.13: No such file\n");
    checkup_expect("cudart-version", CHECK_PASS, "no libcudart");
    checkup_answer("cudart", "path /a\nlib.0.path /a\nlib.0.version 12.4\n");
    checkup_answer("cuda", "path /l/libcuda.so.1\nversion 12.2\ninit 0\n");
    checkup_expect("cudart-version", CHECK_PASS, "12.4 in /a");
    checkup_answer("cudart",
                   "lib.0.path /a\nlib.0.version 12.4\nlib.1.path /b\nlib.1.version 11.8\n");
    checkup_expect("cudart-version", CHECK_WARN, "several CUDA majors");
    checkup_answer("cudart",
                   "lib.0.path /a\nlib.0.version 12.4\nlib.1.path /b\nlib.1.version 13.0\n");
    checkup_expect("cudart-version", CHECK_FAIL,
                   "the driver supports CUDA up to 12.2, the runtime is 13.0");

    checkup_expect("cuda-compat-lib", CHECK_PASS, "is not a compatibility");
    checkup_expect("cuda-stubs-loaded", CHECK_PASS, "/l/libcuda.so.1");
    checkup_answer("cuda", "path /usr/local/cuda-13/compat/libcuda.so.1\nversion 13.0\ninit 0\n");
    checkup_expect("cuda-compat-lib", CHECK_INFO, "is used in place of");
    checkup_answer("nvml", NVML "count 1\ngpu.0.name NVIDIA GeForce RTX 4090\n");
    checkup_expect("cuda-compat-lib", CHECK_FAIL, "GeForce RTX 4090");
    checkup_answer("nvml", NVML_OK(""));
    checkup_answer("cuda", "path /usr/local/cuda-13/compat/libcuda.so.1\ninit 804\n");
    checkup_expect("cuda-compat-lib", CHECK_FAIL, "data centre");
    checkup_answer("cuda", "path /usr/local/cuda/lib64/stubs/libcuda.so\ninit 34\n");
    checkup_expect("cuda-stubs-loaded", CHECK_FAIL, "for linking only");
    checkup_answer("cuda", "path /l/libcuda.so.1\ninit 0\n");
    checkup_env("LD_LIBRARY_PATH", "/usr/local/cuda/lib64/stubs:/x");
    checkup_expect("cuda-stubs-loaded", CHECK_WARN, "folder of stubs");
    checkup_answer("cuda", "error none\n");
    checkup_expect("cuda-stubs-loaded", CHECK_SKIP, "no libcuda");
}

static void arch(int sm, const char *cuda, enum check_status status, const char *words)
{
    char text[256];
    gpu_machine(1);
    snprintf(text, sizeof(text), "path /l\ninit 0\ncount 1\ngpu.0.sm %d\n", sm);
    checkup_answer("nvml", text);
    snprintf(text, sizeof(text), "torch.0.path /t\ntorch.0.cuda %s\n", cuda);
    checkup_answer("framework", text);
    checkup_expect("gpu-arch-support", status, words);
}

static void test_arch(void **state)
{
    arch(90, "12.4", CHECK_PASS, "supports compute capability 9.0");
    arch(70, "13.0", CHECK_FAIL, "no code for a GPU of compute capability 7.0");
    arch(70, "12.9", CHECK_PASS, "7.0");
    arch(100, "12.4", CHECK_WARN, "older than a GPU of compute capability 10.0");
    arch(100, "12.8", CHECK_PASS, "10.0");
    arch(90, "11.7", CHECK_WARN, "9.0");
    arch(80, "10.2", CHECK_WARN, "8.0");
    arch(37, "12.0", CHECK_FAIL, "3.7");
    arch(90, "9.2", CHECK_SKIP, "no CUDA runtime or torch");
    gpu_machine(1);
    checkup_answer("nvml", NVML "count 2\ngpu.0.sm 70\ngpu.1.sm 90\n");
    checkup_answer("cudart", "lib.0.path /a\nlib.0.version 12.4\n");
    checkup_expect("gpu-arch-support", CHECK_PASS, "7.0 to 9.0");
    checkup_answer("nvml", ABSENT);
    checkup_expect("gpu-arch-support", CHECK_SKIP, "nvml-load");
}

static void test_env(void **state)
{
    checkup_new();
    checkup_expect("cuda-bad-env", CHECK_PASS, "no CUDA variable");
    checkup_env("CUDA_DEVICE_MAX_CONNECTIONS", "1");
    checkup_expect("cuda-bad-env", CHECK_INFO, "Megatron");
    checkup_env("CUDA_LAUNCH_BLOCKING", "1");
    checkup_expect("cuda-bad-env", CHECK_WARN, "CUDA_LAUNCH_BLOCKING=1");
}

static void test_tables(void **state)
{
    const struct check_table *const tables[] = {&checks_gpu, &checks_gpu_use, &checks_gpu_health,
                                                &checks_cuda};
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++) {
        checkup_texts(tables[i]);
        checkup_all_seen(tables[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),    cmocka_unit_test(test_agreement),
        cmocka_unit_test(test_count),   cmocka_unit_test(test_visible),
        cmocka_unit_test(test_use),     cmocka_unit_test(test_others),
        cmocka_unit_test(test_health),  cmocka_unit_test(test_xid),
        cmocka_unit_test(test_cuinit),  cmocka_unit_test(test_driver),
        cmocka_unit_test(test_runtime), cmocka_unit_test(test_arch),
        cmocka_unit_test(test_env),     cmocka_unit_test(test_tables),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    checkup_remove();
    return rc;
}
