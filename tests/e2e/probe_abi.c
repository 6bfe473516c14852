/* SPDX-License-Identifier: Apache-2.0
 *
 * probe_abi: compares hvd-probe's declarations of foreign libraries with their headers, as far as
 * these are installed. Compiled by test_probe.sh and never run. The symbols below tell the script
 * which headers were found.
 */
#include <stddef.h>
#include <stdint.h>

#include "diagnostics/prober/nvml_abi.h"

#define SAME_TYPE(a, b) _Static_assert(__builtin_types_compatible_p(a, b), #a)
#define SAME(a, b)      _Static_assert((long long)(a) == (long long)(b), #a " is " #b)
#define FIELD(ours, a, theirs, b)                                                                  \
    SAME(offsetof(struct ours, a), offsetof(theirs, b));                                           \
    SAME(sizeof(((struct ours *)0)->a), sizeof(((theirs *)0)->b))

#if __has_include(<nvml.h>)
#include <nvml.h>
const char seen_nvml[] = "seen nvml.h";

SAME(sizeof(nvmlReturn_t), sizeof(int));
SAME(NVML_SUCCESS, NVML_ABI_SUCCESS);
SAME(NVML_ERROR_NOT_SUPPORTED, NVML_ABI_NOT_SUPPORTED);
SAME(NVML_ERROR_NO_PERMISSION, NVML_ABI_NO_PERMISSION);
SAME(NVML_ERROR_DRIVER_NOT_LOADED, NVML_ABI_DRIVER_NOT_LOADED);
SAME(NVML_ERROR_GPU_IS_LOST, NVML_ABI_GPU_IS_LOST);
SAME(NVML_ERROR_OPERATING_SYSTEM, NVML_ABI_OPERATING_SYSTEM);
SAME(NVML_ERROR_LIB_RM_VERSION_MISMATCH, NVML_ABI_LIB_RM_VERSION_MISMATCH);
SAME(NVML_ERROR_UNKNOWN, NVML_ABI_UNKNOWN);
SAME(NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_ABI_UNCORRECTED);
SAME(NVML_VOLATILE_ECC, NVML_ABI_VOLATILE);
SAME(NVML_AGGREGATE_ECC, NVML_ABI_AGGREGATE);
SAME(NVML_MEMORY_LOCATION_SRAM, NVML_ABI_SRAM);
SAME(NVML_TEMPERATURE_GPU, NVML_ABI_TEMPERATURE_GPU);
SAME(NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, NVML_ABI_THRESHOLD_SLOWDOWN);
SAME(NVML_TEMPERATURE_THRESHOLD_GPU_MAX, NVML_ABI_THRESHOLD_GPU_MAX);
SAME(NVML_P2P_CAPS_INDEX_READ, NVML_ABI_P2P_READ);
SAME(NVML_P2P_CAPS_INDEX_NVLINK, NVML_ABI_P2P_NVLINK);
SAME(NVML_P2P_STATUS_OK, NVML_ABI_P2P_OK);
SAME(NVML_NVLINK_MAX_LINKS, NVML_ABI_LINKS);
SAME(NVML_FEATURE_ENABLED, 1);
SAME(NVML_COMPUTEMODE_PROHIBITED, 2);
SAME(NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, 3);
SAME(NVML_GPU_FABRIC_STATE_IN_PROGRESS, 2);
SAME(NVML_GPU_FABRIC_STATE_COMPLETED, 3);
SAME(nvmlClocksThrottleReasonHwSlowdown, 0x8);
SAME(nvmlClocksEventReasonSwThermalSlowdown, 0x20);
SAME(nvmlClocksThrottleReasonHwThermalSlowdown, 0x40);
SAME(nvmlClocksThrottleReasonHwPowerBrakeSlowdown, 0x80);
SAME(nvmlClocksEventReasonSwPowerCap, 0x4);

SAME(sizeof(struct nvml_pci), sizeof(nvmlPciInfo_t));
FIELD(nvml_pci, domain, nvmlPciInfo_t, domain);
FIELD(nvml_pci, bus_id, nvmlPciInfo_t, busId);
SAME(sizeof(struct nvml_memory), sizeof(nvmlMemory_t));
FIELD(nvml_memory, used, nvmlMemory_t, used);
SAME(sizeof(struct nvml_process), sizeof(nvmlProcessInfo_t));
FIELD(nvml_process, pid, nvmlProcessInfo_t, pid);
FIELD(nvml_process, used, nvmlProcessInfo_t, usedGpuMemory);
SAME(sizeof(struct nvml_fabric), sizeof(nvmlGpuFabricInfo_t));
FIELD(nvml_fabric, status, nvmlGpuFabricInfo_t, status);
FIELD(nvml_fabric, clique, nvmlGpuFabricInfo_t, cliqueId);
FIELD(nvml_fabric, state, nvmlGpuFabricInfo_t, state);

#define NVML_FUNCTION(name, ...) SAME_TYPE(__typeof__(name), nvmlReturn_t(__VA_ARGS__))
NVML_FUNCTION(nvmlInit_v2, void);
NVML_FUNCTION(nvmlSystemGetDriverVersion, char *, unsigned);
NVML_FUNCTION(nvmlSystemGetCudaDriverVersion_v2, int *);
NVML_FUNCTION(nvmlDeviceGetCount_v2, unsigned *);
NVML_FUNCTION(nvmlDeviceGetHandleByIndex_v2, unsigned, nvmlDevice_t *);
NVML_FUNCTION(nvmlDeviceGetName, nvmlDevice_t, char *, unsigned);
NVML_FUNCTION(nvmlDeviceGetUUID, nvmlDevice_t, char *, unsigned);
NVML_FUNCTION(nvmlDeviceGetPciInfo_v3, nvmlDevice_t, nvmlPciInfo_t *);
NVML_FUNCTION(nvmlDeviceGetMemoryInfo, nvmlDevice_t, nvmlMemory_t *);
NVML_FUNCTION(nvmlDeviceGetCudaComputeCapability, nvmlDevice_t, int *, int *);
NVML_FUNCTION(nvmlDeviceGetMigMode, nvmlDevice_t, unsigned *, unsigned *);
NVML_FUNCTION(nvmlDeviceGetEccMode, nvmlDevice_t, nvmlEnableState_t *, nvmlEnableState_t *);
NVML_FUNCTION(nvmlDeviceGetTotalEccErrors, nvmlDevice_t, nvmlMemoryErrorType_t,
              nvmlEccCounterType_t, unsigned long long *);
NVML_FUNCTION(nvmlDeviceGetMemoryErrorCounter, nvmlDevice_t, nvmlMemoryErrorType_t,
              nvmlEccCounterType_t, nvmlMemoryLocation_t, unsigned long long *);
NVML_FUNCTION(nvmlDeviceGetRemappedRows, nvmlDevice_t, unsigned *, unsigned *, unsigned *,
              unsigned *);
NVML_FUNCTION(nvmlDeviceGetCurrentClocksEventReasons, nvmlDevice_t, unsigned long long *);
NVML_FUNCTION(nvmlDeviceGetTemperature, nvmlDevice_t, nvmlTemperatureSensors_t, unsigned *);
NVML_FUNCTION(nvmlDeviceGetTemperatureThreshold, nvmlDevice_t, nvmlTemperatureThresholds_t,
              unsigned *);
NVML_FUNCTION(nvmlDeviceGetMinorNumber, nvmlDevice_t, unsigned *);
NVML_FUNCTION(nvmlDeviceGetRetiredPagesPendingStatus, nvmlDevice_t, nvmlEnableState_t *);
NVML_FUNCTION(nvmlDeviceGetCurrPcieLinkGeneration, nvmlDevice_t, unsigned *);
NVML_FUNCTION(nvmlDeviceGetMaxPcieLinkWidth, nvmlDevice_t, unsigned *);
NVML_FUNCTION(nvmlDeviceGetPerformanceState, nvmlDevice_t, nvmlPstates_t *);
NVML_FUNCTION(nvmlDeviceGetPersistenceMode, nvmlDevice_t, nvmlEnableState_t *);
NVML_FUNCTION(nvmlDeviceGetComputeMode, nvmlDevice_t, nvmlComputeMode_t *);
NVML_FUNCTION(nvmlDeviceGetNvLinkState, nvmlDevice_t, unsigned, nvmlEnableState_t *);
NVML_FUNCTION(nvmlDeviceGetGpuFabricInfo, nvmlDevice_t, nvmlGpuFabricInfo_t *);
NVML_FUNCTION(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t, unsigned *,
              nvmlProcessInfo_t *);
NVML_FUNCTION(nvmlDeviceGetP2PStatus, nvmlDevice_t, nvmlDevice_t, nvmlGpuP2PCapsIndex_t,
              nvmlGpuP2PStatus_t *);
SAME(sizeof(nvmlEnableState_t), sizeof(unsigned));
SAME(sizeof(nvmlPstates_t), sizeof(unsigned));
SAME(sizeof(nvmlComputeMode_t), sizeof(unsigned));
SAME(sizeof(nvmlDevice_t), sizeof(nvml_device));
#endif

#if __has_include(<cuda.h>)
#include <cuda.h>
const char seen_cuda[] = "seen cuda.h";

SAME(sizeof(CUresult), sizeof(int));
SAME(sizeof(CUdevice), sizeof(int));
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 20);
SAME(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 33);
SAME(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 34);
SAME(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 50);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76);
SAME(CUDA_ERROR_STUB_LIBRARY, 34);
SAME(CUDA_ERROR_DEVICE_UNAVAILABLE, 46);
SAME(CUDA_ERROR_NO_DEVICE, 100);
SAME(CUDA_ERROR_INVALID_DEVICE, 101);
SAME(CUDA_ERROR_OPERATING_SYSTEM, 304);
SAME(CUDA_ERROR_SYSTEM_NOT_READY, 802);
SAME(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803);
SAME(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804);
SAME(CUDA_ERROR_MPS_CONNECTION_FAILED, 805);
SAME(CUDA_ERROR_UNKNOWN, 999);
SAME_TYPE(__typeof__(cuInit), CUresult(unsigned));
SAME_TYPE(__typeof__(cuDriverGetVersion), CUresult(int *));
SAME_TYPE(__typeof__(cuDeviceGetCount), CUresult(int *));
SAME_TYPE(__typeof__(cuDeviceGet), CUresult(CUdevice *, int));
SAME_TYPE(__typeof__(cuDeviceGetName), CUresult(char *, int, CUdevice));
SAME_TYPE(__typeof__(cuDeviceGetAttribute), CUresult(int *, CUdevice_attribute, CUdevice));
SAME_TYPE(__typeof__(cuDeviceCanAccessPeer), CUresult(int *, CUdevice, CUdevice));
SAME_TYPE(__typeof__(cuGetErrorName), CUresult(CUresult, const char **));
#endif

#ifdef WITH_MPI
#include <mpi.h>
const char seen_mpi[] = "seen mpi.h";
SAME_TYPE(__typeof__(MPI_Get_library_version), int(char *, int *));
_Static_assert(MPI_MAX_LIBRARY_VERSION_STRING <= 8192, "MPI_VERSION_TEXT of libs.c");
#endif

#if __has_include(<pmix.h>)
#include <pmix.h>
const char seen_pmix[] = "seen pmix.h";
SAME_TYPE(__typeof__(PMIx_Get_version), const char *(void));
#endif

#if __has_include(<hwloc.h>)
#include <hwloc.h>
const char seen_hwloc[] = "seen hwloc.h";
SAME_TYPE(__typeof__(hwloc_get_api_version), unsigned(void));
#endif

#if __has_include(<numa.h>)
#include <numa.h>
const char seen_numa[] = "seen numa.h";
SAME_TYPE(__typeof__(numa_available), int(void));
SAME_TYPE(__typeof__(numa_max_node), int(void));
#endif

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
const char seen_verbs[] = "seen verbs.h";
SAME_TYPE(__typeof__(ibv_get_device_list), struct ibv_device **(int *));
SAME_TYPE(__typeof__(ibv_get_device_name), const char *(struct ibv_device *));
#endif
