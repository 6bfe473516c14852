/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml_abi: the part of NVML's interface that hvd-probe uses, declared here because the header is
 * not on most machines. tests/e2e/probe_abi.c compares it with nvml.h where that
 * is installed. NVML versions its symbols: the declarations here stay valid.
 */
#ifndef HVD_DIAGNOSTICS_PROBER_NVML_ABI_H
#define HVD_DIAGNOSTICS_PROBER_NVML_ABI_H

typedef void *nvml_device;

enum {
    NVML_ABI_SUCCESS = 0,
    NVML_ABI_NOT_SUPPORTED = 3,
    NVML_ABI_NO_PERMISSION = 4,
    NVML_ABI_DRIVER_NOT_LOADED = 9,
    NVML_ABI_GPU_IS_LOST = 15,
    NVML_ABI_OPERATING_SYSTEM = 17,
    NVML_ABI_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ABI_UNKNOWN = 999,
};

enum {
    NVML_ABI_UNCORRECTED = 1, /* nvmlMemoryErrorType_t */
    NVML_ABI_VOLATILE = 0,    /* nvmlEccCounterType_t */
    NVML_ABI_AGGREGATE = 1,
    NVML_ABI_SRAM = 7,               /* nvmlMemoryLocation_t */
    NVML_ABI_TEMPERATURE_GPU = 0,    /* nvmlTemperatureSensors_t */
    NVML_ABI_THRESHOLD_SLOWDOWN = 1, /* nvmlTemperatureThresholds_t */
    NVML_ABI_THRESHOLD_GPU_MAX = 3,
    NVML_ABI_P2P_READ = 0, /* nvmlGpuP2PCapsIndex_t */
    NVML_ABI_P2P_NVLINK = 2,
    NVML_ABI_P2P_OK = 0, /* nvmlGpuP2PStatus_t */
    NVML_ABI_LINKS = 18, /* NVML_NVLINK_MAX_LINKS */
};

struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device;
    unsigned pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

struct nvml_fabric {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state; /* 0 not supported, 1 not started, 2 in progress, 3 completed */
};

/* Each returns nvmlReturn_t. */
typedef int nvml_void_f(void);
typedef const char *nvml_error_f(int rc);
typedef int nvml_system_text_f(char *dst, unsigned size);
typedef int nvml_system_int_f(int *ret);
typedef int nvml_count_f(unsigned *ret);
typedef int nvml_handle_f(unsigned index, nvml_device *ret);
typedef int nvml_text_f(nvml_device d, char *dst, unsigned size);
typedef int nvml_unsigned_f(
    nvml_device d,
    unsigned *ret); /* also for functions that return an enum, which is unsigned here */
typedef int nvml_two_f(nvml_device d, unsigned *current, unsigned *pending);
typedef int nvml_two_int_f(nvml_device d, int *major, int *minor);
typedef int nvml_ull_f(nvml_device d, unsigned long long *ret);
typedef int nvml_pci_f(nvml_device d, struct nvml_pci *ret);
typedef int nvml_memory_f(nvml_device d, struct nvml_memory *ret);
typedef int nvml_total_ecc_f(nvml_device d, int type, int counter, unsigned long long *ret);
typedef int nvml_ecc_f(nvml_device d, int type, int counter, int location, unsigned long long *ret);
typedef int nvml_remap_f(nvml_device d, unsigned *correctable, unsigned *uncorrectable,
                         unsigned *pending, unsigned *failed);
typedef int nvml_temperature_f(nvml_device d, int which,
                               unsigned *ret); /* also for the temperature thresholds */
typedef int nvml_link_f(nvml_device d, unsigned link, int *ret);
typedef int nvml_p2p_f(nvml_device a, nvml_device b, int index, int *ret);
typedef int nvml_fabric_f(nvml_device d, struct nvml_fabric *ret);
typedef int nvml_processes_f(nvml_device d, unsigned *n, struct nvml_process *ret);

#endif
