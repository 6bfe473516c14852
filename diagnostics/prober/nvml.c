/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml: reads the state of the GPUs from NVIDIA's management library; see probes.h. Values that a
 * driver or GPU does not report are left out of the answer. The library is opened in this process:
 * when it hangs, the probe times out, and that is the finding.
 */
#include "diagnostics/prober/nvml_abi.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/prober/out.h"
#include "diagnostics/prober/probes.h"

#define GPUS_MAX      64
#define PROCESSES_MAX 64

/* ISO C cannot convert an object pointer to a function pointer; by way of an integer it compiles
 * without a warning. */
#define FIND(type, name) ((type *)(intptr_t)dlsym(lib, name))

static void *lib;

static void put_number(int i, const char *key, nvml_device d, const char *name)
{
    unsigned value = 0;
    nvml_unsigned_f *get = FIND(nvml_unsigned_f, name);
    if (get && get(d, &value) == 0)
        out_at("gpu", i, key, "%u", value);
}

static void put_text(int i, const char *key, nvml_device d, const char *name)
{
    char text[128] = "";
    nvml_text_f *get = FIND(nvml_text_f, name);
    if (get && get(d, text, sizeof(text)) == 0)
        out_at("gpu", i, key, "%.127s", text);
}

static void put_two(int i, const char *key, nvml_device d, const char *name)
{
    unsigned current = 0, pending = 0;
    char full[64];
    nvml_two_f *get = FIND(nvml_two_f, name);
    if (!get || get(d, &current, &pending) != 0)
        return;
    out_at("gpu", i, key, "%u", current);
    snprintf(full, sizeof(full), "%s_pending", key);
    out_at("gpu", i, full, "%u", pending);
}

static void identity(int i, nvml_device d)
{
    struct nvml_pci pci = {.bus_id = ""};
    struct nvml_memory memory = {0};
    int major = 0, minor = 0;
    nvml_pci_f *get_pci = FIND(nvml_pci_f, "nvmlDeviceGetPciInfo_v3");
    nvml_memory_f *get_memory = FIND(nvml_memory_f, "nvmlDeviceGetMemoryInfo");
    nvml_two_int_f *get_cc = FIND(nvml_two_int_f, "nvmlDeviceGetCudaComputeCapability");
    put_text(i, "name", d, "nvmlDeviceGetName");
    put_text(i, "uuid", d, "nvmlDeviceGetUUID");
    put_number(i, "minor", d, "nvmlDeviceGetMinorNumber");
    if (get_pci && get_pci(d, &pci) == 0)
        out_at("gpu", i, "pci", "%.31s", pci.bus_id);
    if (get_memory && get_memory(d, &memory) == 0) {
        out_at("gpu", i, "memory", "%llu", memory.total);
        out_at("gpu", i, "memory_used", "%llu", memory.used);
    }
    if (get_cc && get_cc(d, &major, &minor) == 0)
        out_at("gpu", i, "sm", "%d", major * 10 + minor);
}

static void put_ecc(int i, nvml_device d)
{
    unsigned long long n = 0;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    nvml_total_ecc_f *total = FIND(nvml_total_ecc_f, "nvmlDeviceGetTotalEccErrors");
    nvml_ecc_f *where = FIND(nvml_ecc_f, "nvmlDeviceGetMemoryErrorCounter");
    nvml_remap_f *remap = FIND(nvml_remap_f, "nvmlDeviceGetRemappedRows");
    put_two(i, "ecc", d, "nvmlDeviceGetEccMode");
    if (total && total(d, NVML_ABI_UNCORRECTED, NVML_ABI_VOLATILE, &n) == 0)
        out_at("gpu", i, "ecc_volatile", "%llu", n);
    if (total && total(d, NVML_ABI_UNCORRECTED, NVML_ABI_AGGREGATE, &n) == 0)
        out_at("gpu", i, "ecc_aggregate", "%llu", n);
    if (where && where(d, NVML_ABI_UNCORRECTED, NVML_ABI_AGGREGATE, NVML_ABI_SRAM, &n) == 0)
        out_at("gpu", i, "ecc_sram_aggregate", "%llu", n);
    if (remap && remap(d, &corrected, &uncorrected, &pending, &failed) == 0) {
        out_at("gpu", i, "rows_corrected", "%u", corrected);
        out_at("gpu", i, "rows_uncorrected", "%u", uncorrected);
        out_at("gpu", i, "rows_pending", "%u", pending);
        out_at("gpu", i, "rows_failed", "%u", failed);
    }
    put_number(i, "retired_pending", d, "nvmlDeviceGetRetiredPagesPendingStatus");
}

static void clocks(int i, nvml_device d)
{
    unsigned long long reasons = 0;
    unsigned celsius = 0;
    nvml_ull_f *get = FIND(nvml_ull_f, "nvmlDeviceGetCurrentClocksEventReasons");
    nvml_temperature_f *now = FIND(nvml_temperature_f, "nvmlDeviceGetTemperature");
    nvml_temperature_f *limit = FIND(nvml_temperature_f, "nvmlDeviceGetTemperatureThreshold");
    if (!get)
        get = FIND(nvml_ull_f, "nvmlDeviceGetCurrentClocksThrottleReasons");
    if (get && get(d, &reasons) == 0)
        out_at("gpu", i, "throttle", "%llu", reasons);
    if (now && now(d, NVML_ABI_TEMPERATURE_GPU, &celsius) == 0)
        out_at("gpu", i, "celsius", "%u", celsius);
    if (limit && limit(d, NVML_ABI_THRESHOLD_SLOWDOWN, &celsius) == 0)
        out_at("gpu", i, "celsius_slowdown", "%u", celsius);
    if (limit && limit(d, NVML_ABI_THRESHOLD_GPU_MAX, &celsius) == 0)
        out_at("gpu", i, "celsius_max", "%u", celsius);
    put_number(i, "pcie_gen", d, "nvmlDeviceGetCurrPcieLinkGeneration");
    put_number(i, "pcie_gen_max", d, "nvmlDeviceGetMaxPcieLinkGeneration");
    put_number(i, "pcie_width", d, "nvmlDeviceGetCurrPcieLinkWidth");
    put_number(i, "pcie_width_max", d, "nvmlDeviceGetMaxPcieLinkWidth");
    put_number(i, "pcie_replays", d, "nvmlDeviceGetPcieReplayCounter");
    put_number(i, "pstate", d, "nvmlDeviceGetPerformanceState");
}

static void links(int i, nvml_device d)
{
    int active = 0, inactive = 0, state = 0;
    struct nvml_fabric fabric = {.state = 0};
    nvml_link_f *get = FIND(nvml_link_f, "nvmlDeviceGetNvLinkState");
    nvml_fabric_f *get_fabric = FIND(nvml_fabric_f, "nvmlDeviceGetGpuFabricInfo");
    for (unsigned k = 0; get && k < NVML_ABI_LINKS; k++) {
        if (get(d, k, &state) != 0)
            continue;
        active += state == 1;
        inactive += state == 0;
    }
    if (active + inactive) {
        out_at("gpu", i, "links", "%d", active);
        out_at("gpu", i, "links_down", "%d", inactive);
    }
    if (get_fabric && get_fabric(d, &fabric) == 0) {
        out_at("gpu", i, "fabric", "%u", fabric.state);
        out_at("gpu", i, "fabric_status", "%d", fabric.status);
        out_at("gpu", i, "fabric_clique", "%u", fabric.clique);
    }
}

static void processes(int i, nvml_device d)
{
    static struct nvml_process list[PROCESSES_MAX];
    unsigned n = PROCESSES_MAX;
    char text[PROCESSES_MAX * 12] = "";
    size_t at = 0;
    nvml_processes_f *get = FIND(nvml_processes_f, "nvmlDeviceGetComputeRunningProcesses_v3");
    if (!get || get(d, &n, list) != 0)
        return;
    out_at("gpu", i, "processes", "%u", n);
    for (unsigned k = 0; k < n && k < PROCESSES_MAX; k++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%u", at ? " " : "", list[k].pid);
    if (at)
        out_at("gpu", i, "pids", "%s", text);
}

static void pairs(nvml_device *gpus, int n)
{
    nvml_p2p_f *get = FIND(nvml_p2p_f, "nvmlDeviceGetP2PStatus");
    int state = 0, total = 0, ok = 0, nvlink = 0;
    char first[64] = "";
    for (int a = 0; get && a < n; a++) {
        for (int b = a + 1; b < n; b++) {
            if (!gpus[a] || !gpus[b] || get(gpus[a], gpus[b], NVML_ABI_P2P_READ, &state) != 0)
                continue;
            total++;
            ok += state == NVML_ABI_P2P_OK;
            if (state != NVML_ABI_P2P_OK && !first[0])
                snprintf(first, sizeof(first), "%d and %d: status %d", a, b, state);
            if (get(gpus[a], gpus[b], NVML_ABI_P2P_NVLINK, &state) == 0)
                nvlink += state == NVML_ABI_P2P_OK;
        }
    }
    if (total == 0)
        return;
    out_put("pairs", "%d", total);
    out_put("pairs_p2p", "%d", ok);
    out_put("pairs_nvlink", "%d", nvlink);
    if (first[0])
        out_put("pair_without", "%s", first);
}

static void system_texts(void)
{
    char text[128] = "";
    int cuda = 0;
    nvml_system_text_f *driver = FIND(nvml_system_text_f, "nvmlSystemGetDriverVersion");
    nvml_system_text_f *nvml = FIND(nvml_system_text_f, "nvmlSystemGetNVMLVersion");
    nvml_system_int_f *get_cuda = FIND(nvml_system_int_f, "nvmlSystemGetCudaDriverVersion_v2");
    if (nvml && nvml(text, sizeof(text)) == 0)
        out_put("nvml", "%.127s", text);
    if (driver && driver(text, sizeof(text)) == 0)
        out_put("driver", "%.127s", text);
    if (get_cuda && get_cuda(&cuda) == 0)
        out_put("cuda", "%d.%d", cuda / 1000, cuda / 10 % 100);
}

static void put_failure(const char *key, int rc)
{
    char full[32];
    nvml_error_f *text = FIND(nvml_error_f, "nvmlErrorString");
    out_put(key, "%d", rc);
    snprintf(full, sizeof(full), "%s_text", key);
    out_put(full, "%s", text ? text(rc) : "?");
}

static void devices(void)
{
    static nvml_device gpus[GPUS_MAX];
    unsigned n = 0;
    nvml_count_f *count = FIND(nvml_count_f, "nvmlDeviceGetCount_v2");
    nvml_handle_f *handle = FIND(nvml_handle_f, "nvmlDeviceGetHandleByIndex_v2");
    int rc = count ? count(&n) : NVML_ABI_NOT_SUPPORTED;
    if (rc != 0 || !handle) {
        put_failure("count_rc", rc);
        return;
    }
    out_put("count", "%u", n);
    if (n > GPUS_MAX)
        n = GPUS_MAX;
    for (unsigned i = 0; i < n; i++) {
        rc = handle(i, &gpus[i]);
        out_at("gpu", (int)i, "rc", "%d", rc);
        if (rc != 0) { /* without a handle (a lost GPU) nothing else can be asked */
            gpus[i] = NULL;
            continue;
        }
        identity((int)i, gpus[i]);
        put_ecc((int)i, gpus[i]);
        clocks((int)i, gpus[i]);
        links((int)i, gpus[i]);
        processes((int)i, gpus[i]);
        put_two((int)i, "mig", gpus[i], "nvmlDeviceGetMigMode");
        put_number((int)i, "persistence", gpus[i], "nvmlDeviceGetPersistenceMode");
        put_number((int)i, "compute_mode", gpus[i], "nvmlDeviceGetComputeMode");
    }
    pairs(gpus, (int)n);
}

int probe_nvml(const char *path)
{
    char real[4096];
    struct link_map *map = NULL;
    const char *name = path ? path : "libnvidia-ml.so.1";
    lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        out_put("error", "%s", dlerror());
        return 0;
    }
    if (dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 && map)
        out_put("path", "%s", realpath(map->l_name, real) ? real : map->l_name);
    nvml_void_f *init = FIND(nvml_void_f, "nvmlInit_v2"), *end = FIND(nvml_void_f, "nvmlShutdown");
    if (!init) {
        out_put("error", "%s has no nvmlInit_v2", name);
        return 0;
    }
    int rc = init();
    put_failure("init", rc);
    if (rc != 0)
        return 0;
    system_texts();
    devices();
    if (end)
        end();
    return 0;
}
