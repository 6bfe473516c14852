/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_abi: what hvd declares of CUDA's driver library, so that it is built without NVIDIA's
 * headers.
 *
 * One list of functions makes the table of cuda_api.h, the fake library's prototypes, and, where a
 * real cuda.h is at hand, a comparison with it (tests/unit/backend/cuda_abi_check.c). The structs
 * have the tags of cuda.h; where cuda.h has an enum, this list has unsigned.
 */
#ifndef HVD_BACKEND_CUDA_ABI_H
#define HVD_BACKEND_CUDA_ABI_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

struct CUctx_st;
struct CUevent_st;
struct CUfunc_st;
struct CUmod_st;
struct CUstream_st;
struct CUuuid_st;

/* A device address, as the driver's functions take it. */
typedef unsigned long long cuda_address;

/* clang-format off */
/* X(field, function, parameters): functions that hvd needs. Every driver for CUDA 11.0 or newer has them. */
#define CUDA_REQUIRED(X)                                                                           \
    X(init, cuInit, (unsigned flags))                                                              \
    X(driver_version, cuDriverGetVersion, (int *ret))                                              \
    X(error_name, cuGetErrorName, (unsigned code, const char **ret))                               \
    X(error_text, cuGetErrorString, (unsigned code, const char **ret))                             \
    X(device_count, cuDeviceGetCount, (int *ret))                                                  \
    X(device_get, cuDeviceGet, (int *ret, int ordinal))                                            \
    X(device_name, cuDeviceGetName, (char *ret, int size, int device))                             \
    X(device_attribute, cuDeviceGetAttribute, (int *ret, unsigned attribute, int device))          \
    X(device_pci, cuDeviceGetPCIBusId, (char *ret, int size, int device))                          \
    X(context_retain, cuDevicePrimaryCtxRetain, (struct CUctx_st **ret, int device))              \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                 \
    X(context_push, cuCtxPushCurrent_v2, (struct CUctx_st *context))                              \
    X(context_pop, cuCtxPopCurrent_v2, (struct CUctx_st **ret))                                   \
    X(context_set, cuCtxSetCurrent, (struct CUctx_st *context))                                    \
    X(priorities, cuCtxGetStreamPriorityRange, (int *ret_least, int *ret_greatest))                \
    X(capture_mode, cuThreadExchangeStreamCaptureMode, (unsigned *mode))                           \
    X(stream_create, cuStreamCreateWithPriority,                                                   \
      (struct CUstream_st **ret, unsigned flags, int priority))                                   \
    X(stream_destroy, cuStreamDestroy_v2, (struct CUstream_st *stream))                           \
    X(stream_query, cuStreamQuery, (struct CUstream_st *stream))                                  \
    X(stream_wait, cuStreamWaitEvent,                                                              \
      (struct CUstream_st *stream, struct CUevent_st *event, unsigned flags))                    \
    X(stream_capturing, cuStreamIsCapturing, (struct CUstream_st *stream, unsigned *ret))         \
    X(event_create, cuEventCreate, (struct CUevent_st **ret, unsigned flags))                     \
    X(event_destroy, cuEventDestroy_v2, (struct CUevent_st *event))                               \
    X(event_record, cuEventRecord, (struct CUevent_st *event, struct CUstream_st *stream))       \
    X(event_query, cuEventQuery, (struct CUevent_st *event))                                      \
    X(mem_alloc, cuMemAlloc_v2, (cuda_address *ret, size_t bytes))                                \
    X(mem_free, cuMemFree_v2, (cuda_address at))                                                   \
    X(mem_info, cuMemGetInfo_v2, (size_t * ret_left, size_t *ret_total))                           \
    X(host_alloc, cuMemHostAlloc, (void **ret, size_t bytes, unsigned flags))                      \
    X(host_free, cuMemFreeHost, (void *at))                                                        \
    X(copy_in, cuMemcpyHtoDAsync_v2,                                                               \
      (cuda_address to, const void *from, size_t bytes, struct CUstream_st *stream))               \
    X(copy_out, cuMemcpyDtoHAsync_v2,                                                              \
      (void *to, cuda_address from, size_t bytes, struct CUstream_st *stream))                     \
    X(copy, cuMemcpyDtoDAsync_v2,                                                                  \
      (cuda_address to, cuda_address from, size_t bytes, struct CUstream_st *stream))             \
    X(pointer_attribute, cuPointerGetAttribute, (void *ret, unsigned attribute, cuda_address at))  \
    X(module_load, cuModuleLoadData, (struct CUmod_st **ret, const void *image))                  \
    X(module_unload, cuModuleUnload, (struct CUmod_st *module))                                   \
    X(module_function, cuModuleGetFunction,                                                        \
      (struct CUfunc_st **ret, struct CUmod_st *module, const char *name))                       \
    X(launch, cuLaunchKernel,                                                                      \
      (struct CUfunc_st *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,             \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,                      \
       struct CUstream_st *stream, void **parameters, void **extra))

/* Functions that an older driver may lack: the field is NULL then. */
#define CUDA_OPTIONAL(X)                                                                           \
    X(device_uuid, cuDeviceGetUuid_v2, (struct CUuuid_st *ret, int device)) /* 11.4 */            \
    X(device_uuid_old, cuDeviceGetUuid, (struct CUuuid_st *ret, int device))                      \
    X(event_elapsed, cuEventElapsedTime,                                                           \
      (float *ret_ms, struct CUevent_st *from, struct CUevent_st *to)) /* benchmarks */            \
    X(host_function, cuLaunchHostFunc,                                                             \
      (struct CUstream_st *stream, void (*f)(void *), void *ctx)) /* the fake libraries */
/* clang-format on */

enum {
    CUDA_FLAG_STREAM_NON_BLOCKING = 1,
    CUDA_FLAG_EVENT_DISABLE_TIMING = 2,
    CUDA_FLAG_HOST_PORTABLE = 1,

    CUDA_CAPTURE_GLOBAL = 0, /* modes: what a thread may do while a stream is captured */
    CUDA_CAPTURE_RELAXED = 2,

    CUDA_ATTR_MULTIPROCESSORS = 16,
    CUDA_ATTR_MAJOR = 75,
    CUDA_ATTR_MINOR = 76,

    CUDA_POINTER_MEMORY_TYPE = 2,
    CUDA_POINTER_ORDINAL = 9,
    CUDA_MEMORY_HOST = 1,

    CUDA_UUID_SIZE = 16,
};

/* X(name, code, errno, sticks): what hvd knows of CUresult: the driver's name after CUDA_ERROR_,
 * the errno that it becomes, and whether this process cannot use the GPU any more after it. Any
 * other code is EIO. */
#define CUDA_ERRORS(X)                                                                             \
    X(INVALID_VALUE, 1, EINVAL, false)                                                             \
    X(OUT_OF_MEMORY, 2, ENOMEM, false)                                                             \
    X(NOT_INITIALIZED, 3, ENODEV, false)                                                           \
    X(DEINITIALIZED, 4, ESHUTDOWN, false)                                                          \
    X(STUB_LIBRARY, 34, ENODEV, false)                                                             \
    X(DEVICE_UNAVAILABLE, 46, EBUSY, false)                                                        \
    X(NO_DEVICE, 100, ENODEV, false)                                                               \
    X(INVALID_DEVICE, 101, ENODEV, false)                                                          \
    X(INVALID_IMAGE, 200, EINVAL, false)                                                           \
    X(INVALID_CONTEXT, 201, EINVAL, false)                                                         \
    X(NO_BINARY_FOR_GPU, 209, ENOTSUP, false)                                                      \
    X(ECC_UNCORRECTABLE, 214, EIO, true)                                                           \
    X(INVALID_PTX, 218, ENOTSUP, false)                                                            \
    X(NVLINK_UNCORRECTABLE, 220, EIO, true)                                                        \
    X(UNSUPPORTED_PTX_VERSION, 222, ENOTSUP, false)                                                \
    X(CONTAINED, 226, EIO, true)                                                                   \
    X(INVALID_HANDLE, 400, EINVAL, false)                                                          \
    X(NOT_FOUND, 500, ENOENT, false)                                                               \
    X(NOT_READY, 600, EAGAIN, false)                                                               \
    X(ILLEGAL_ADDRESS, 700, EFAULT, true)                                                          \
    X(LAUNCH_OUT_OF_RESOURCES, 701, EINVAL, false)                                                 \
    X(LAUNCH_TIMEOUT, 702, ETIMEDOUT, true)                                                        \
    X(CONTEXT_IS_DESTROYED, 709, EIO, true)                                                        \
    X(ASSERT, 710, EIO, true)                                                                      \
    X(HARDWARE_STACK_ERROR, 714, EIO, true)                                                        \
    X(ILLEGAL_INSTRUCTION, 715, EIO, true)                                                         \
    X(MISALIGNED_ADDRESS, 716, EFAULT, true)                                                       \
    X(INVALID_ADDRESS_SPACE, 717, EFAULT, true)                                                    \
    X(INVALID_PC, 718, EIO, true)                                                                  \
    X(LAUNCH_FAILED, 719, EIO, true)                                                               \
    X(NOT_PERMITTED, 800, EPERM, false)                                                            \
    X(NOT_SUPPORTED, 801, ENOTSUP, false)                                                          \
    X(SYSTEM_NOT_READY, 802, ENODEV, false)                                                        \
    X(SYSTEM_DRIVER_MISMATCH, 803, ENOTSUP, false)                                                 \
    X(COMPAT_NOT_SUPPORTED_ON_DEVICE, 804, ENOTSUP, false)                                         \
    X(STREAM_CAPTURE_UNSUPPORTED, 900, EBUSY, false)                                               \
    X(STREAM_CAPTURE_INVALIDATED, 901, EBUSY, false)                                               \
    X(STREAM_CAPTURE_IMPLICIT, 906, EBUSY, false)                                                  \
    X(CAPTURED_EVENT, 907, EBUSY, false)                                                           \
    X(EXTERNAL_DEVICE, 911, EIO, true)                                                             \
    X(UNKNOWN, 999, EIO, true)

#define CUDA_ERROR_CODE(name, code, errnum, sticks) CUDA_##name = (code),
enum { CUDA_OK = 0, CUDA_ERRORS(CUDA_ERROR_CODE) };

#endif
