/* SPDX-License-Identifier: Apache-2.0
 *
 * nvidia-ml: a fake libnvidia-ml.so.1 with scripted values (script.h, FAKE_NVML), for tests of hvd-
 * probe and of the checks of GPUs. Two healthy H100 unless the script says otherwise.
 */
#include "diagnostics/prober/nvml_abi.h"

#include <stdint.h>

#include "tests/fake/script.h"

#define SCRIPT "FAKE_NVML"

#define ENTER(gpu)                                                                                 \
    do {                                                                                           \
        int rc_ = script_enter(SCRIPT, __func__, gpu);                                             \
        if (rc_)                                                                                   \
            return rc_;                                                                            \
    } while (0)

nvml_void_f nvmlInit_v2, nvmlShutdown;
nvml_error_f nvmlErrorString;
nvml_system_text_f nvmlSystemGetDriverVersion, nvmlSystemGetNVMLVersion;
nvml_system_int_f nvmlSystemGetCudaDriverVersion_v2;
nvml_count_f nvmlDeviceGetCount_v2;
nvml_handle_f nvmlDeviceGetHandleByIndex_v2;
nvml_text_f nvmlDeviceGetName, nvmlDeviceGetUUID;
nvml_pci_f nvmlDeviceGetPciInfo_v3;
nvml_memory_f nvmlDeviceGetMemoryInfo;
nvml_two_int_f nvmlDeviceGetCudaComputeCapability;
nvml_two_f nvmlDeviceGetEccMode, nvmlDeviceGetMigMode;
nvml_total_ecc_f nvmlDeviceGetTotalEccErrors;
nvml_ecc_f nvmlDeviceGetMemoryErrorCounter;
nvml_remap_f nvmlDeviceGetRemappedRows;
nvml_ull_f nvmlDeviceGetCurrentClocksEventReasons;
nvml_temperature_f nvmlDeviceGetTemperature, nvmlDeviceGetTemperatureThreshold;
nvml_unsigned_f nvmlDeviceGetMinorNumber, nvmlDeviceGetRetiredPagesPendingStatus,
    nvmlDeviceGetCurrPcieLinkGeneration, nvmlDeviceGetMaxPcieLinkGeneration,
    nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetMaxPcieLinkWidth, nvmlDeviceGetPcieReplayCounter,
    nvmlDeviceGetPerformanceState, nvmlDeviceGetPersistenceMode, nvmlDeviceGetComputeMode;
nvml_link_f nvmlDeviceGetNvLinkState;
nvml_fabric_f nvmlDeviceGetGpuFabricInfo;
nvml_processes_f nvmlDeviceGetComputeRunningProcesses_v3;
nvml_p2p_f nvmlDeviceGetP2PStatus;

static int gpu_of(nvml_device d)
{
    return (int)(intptr_t)d - 1;
}

int nvmlInit_v2(void)
{
    ENTER(0);
    return 0;
}

int nvmlShutdown(void)
{
    ENTER(0);
    return 0;
}

const char *nvmlErrorString(int rc)
{
    switch (rc) {
    case NVML_ABI_SUCCESS:
        return "Success";
    case NVML_ABI_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ABI_GPU_IS_LOST:
        return "GPU is lost";
    case NVML_ABI_LIB_RM_VERSION_MISMATCH:
        return "Driver/library version mismatch";
    default:
        return "Unknown Error";
    }
}

static int text(const char *key, const char *def, char *dst, unsigned size)
{
    if (!script_text(SCRIPT, key, dst, size))
        snprintf(dst, size, "%s", def);
    return 0;
}

int nvmlSystemGetDriverVersion(char *dst, unsigned size)
{
    ENTER(0);
    return text("driver", "580.65.06", dst, size);
}

int nvmlSystemGetNVMLVersion(char *dst, unsigned size)
{
    ENTER(0);
    return text("nvml", "13.580.65.06", dst, size);
}

int nvmlSystemGetCudaDriverVersion_v2(int *ret)
{
    ENTER(0);
    *ret = (int)script_number(SCRIPT, "cuda", 0, 13000);
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *ret)
{
    ENTER(0);
    *ret = (unsigned)script_number(SCRIPT, "count", 0, 2);
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *ret)
{
    ENTER((int)index);
    *ret = (nvml_device)(intptr_t)(index + 1);
    return 0;
}

int nvmlDeviceGetName(nvml_device d, char *dst, unsigned size)
{
    ENTER(gpu_of(d));
    return text("name", "NVIDIA H100 80GB HBM3", dst, size);
}

int nvmlDeviceGetUUID(nvml_device d, char *dst, unsigned size)
{
    ENTER(gpu_of(d));
    snprintf(dst, size, "GPU-0000%04d-0000-0000-0000-000000000000", gpu_of(d));
    return 0;
}

int nvmlDeviceGetPciInfo_v3(nvml_device d, struct nvml_pci *ret)
{
    ENTER(gpu_of(d));
    memset(ret, 0, sizeof(*ret));
    ret->bus = (unsigned)gpu_of(d) + 0x10;
    snprintf(ret->bus_id, sizeof(ret->bus_id), "00000000:%02X:00.0", ret->bus);
    return 0;
}

int nvmlDeviceGetMemoryInfo(nvml_device d, struct nvml_memory *ret)
{
    ENTER(gpu_of(d));
    ret->total = 80ull << 30;
    ret->used = (unsigned long long)script_number(SCRIPT, "memory_used", gpu_of(d), 600 << 20);
    ret->free = ret->total - ret->used;
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(nvml_device d, int *major, int *minor)
{
    ENTER(gpu_of(d));
    long long sm = script_number(SCRIPT, "sm", gpu_of(d), 90);
    *major = (int)sm / 10;
    *minor = (int)sm % 10;
    return 0;
}

static int two(const char *key, const char *pending_key, nvml_device d, int def, unsigned *current,
               unsigned *pending)
{
    *current = (unsigned)script_number(SCRIPT, key, gpu_of(d), def);
    *pending = (unsigned)script_number(SCRIPT, pending_key, gpu_of(d), *current);
    return 0;
}

int nvmlDeviceGetEccMode(nvml_device d, unsigned *current, unsigned *pending)
{
    ENTER(gpu_of(d));
    return two("ecc", "ecc_pending", d, 1, current, pending);
}

int nvmlDeviceGetMigMode(nvml_device d, unsigned *current, unsigned *pending)
{
    ENTER(gpu_of(d));
    return two("mig", "mig_pending", d, 0, current, pending);
}

int nvmlDeviceGetTotalEccErrors(nvml_device d, int type, int counter, unsigned long long *ret)
{
    ENTER(gpu_of(d));
    *ret = 0;
    if (type == NVML_ABI_UNCORRECTED)
        *ret = (unsigned long long)script_number(
            SCRIPT, counter == NVML_ABI_VOLATILE ? "ecc_volatile" : "ecc_aggregate", gpu_of(d), 0);
    return 0;
}

int nvmlDeviceGetMemoryErrorCounter(nvml_device d, int type, int counter, int location,
                                    unsigned long long *ret)
{
    ENTER(gpu_of(d));
    *ret = 0;
    if (location == NVML_ABI_SRAM && type == NVML_ABI_UNCORRECTED && counter == NVML_ABI_AGGREGATE)
        *ret = (unsigned long long)script_number(SCRIPT, "ecc_sram", gpu_of(d), 0);
    return 0;
}

int nvmlDeviceGetRemappedRows(nvml_device d, unsigned *correctable, unsigned *uncorrectable,
                              unsigned *pending, unsigned *failed)
{
    ENTER(gpu_of(d));
    *correctable = 0;
    *uncorrectable = (unsigned)script_number(SCRIPT, "rows", gpu_of(d), 0);
    *pending = (unsigned)script_number(SCRIPT, "rows_pending", gpu_of(d), 0);
    *failed = (unsigned)script_number(SCRIPT, "rows_failed", gpu_of(d), 0);
    return 0;
}

int nvmlDeviceGetCurrentClocksEventReasons(nvml_device d, unsigned long long *ret)
{
    ENTER(gpu_of(d));
    *ret = (unsigned long long)script_number(SCRIPT, "throttle", gpu_of(d), 1);
    return 0;
}

int nvmlDeviceGetTemperature(nvml_device d, int which, unsigned *ret)
{
    ENTER(gpu_of(d));
    *ret = (unsigned)script_number(SCRIPT, "celsius", gpu_of(d), 40);
    return 0;
}

int nvmlDeviceGetTemperatureThreshold(nvml_device d, int which, unsigned *ret)
{
    ENTER(gpu_of(d));
    *ret = which == NVML_ABI_THRESHOLD_GPU_MAX ? 87 : 92;
    return 0;
}

#define NUMBER(function, key, def)                                                                 \
    int function(nvml_device d, unsigned *ret)                                                     \
    {                                                                                              \
        ENTER(gpu_of(d));                                                                          \
        *ret = (unsigned)script_number(SCRIPT, key, gpu_of(d), def);                               \
        return 0;                                                                                  \
    }

NUMBER(nvmlDeviceGetMinorNumber, "minor", 0)
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending", 0)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen", 5)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max", 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", 16)
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie_replays", 0)
NUMBER(nvmlDeviceGetPerformanceState, "pstate", 0)
NUMBER(nvmlDeviceGetPersistenceMode, "persistence", 1)
NUMBER(nvmlDeviceGetComputeMode, "compute_mode", 0)

int nvmlDeviceGetNvLinkState(nvml_device d, unsigned link, int *ret)
{
    ENTER(gpu_of(d));
    if (link >= 18)
        return 2;
    *ret = (long long)link < script_number(SCRIPT, "links", gpu_of(d), 18);
    return 0;
}

int nvmlDeviceGetGpuFabricInfo(nvml_device d, struct nvml_fabric *ret)
{
    ENTER(gpu_of(d));
    memset(ret, 0, sizeof(*ret));
    ret->state = (unsigned char)script_number(SCRIPT, "fabric", gpu_of(d), 3);
    ret->status = (int)script_number(SCRIPT, "fabric_status", gpu_of(d), 0);
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(nvml_device d, unsigned *n, struct nvml_process *ret)
{
    ENTER(gpu_of(d));
    long long pid = script_number(SCRIPT, "pid", gpu_of(d), 0);
    *n = pid ? 1 : 0;
    if (pid)
        *ret = (struct nvml_process){.pid = (unsigned)pid, .used = 1 << 30};
    return 0;
}

int nvmlDeviceGetP2PStatus(nvml_device a, nvml_device b, int index, int *ret)
{
    ENTER(gpu_of(a));
    *ret = (int)script_number(SCRIPT, index == NVML_ABI_P2P_NVLINK ? "p2p_nvlink" : "p2p",
                              gpu_of(a), 0);
    return 0;
}
