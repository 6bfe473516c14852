/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_abi_check compares core/backend/cuda_abi.h with NVIDIA's cuda.h.
 * core/backend/kernels/kernels.mk compiles it where cuda.h is installed. A difference is a compile
 * error; the program never runs.
 */
#include <cuda.h>

#include "core/backend/cuda_abi.h"

#define DECLARE(field, function, parameters) unsigned function parameters;
CUDA_REQUIRED(DECLARE)
CUDA_OPTIONAL(DECLARE)

#define SAME(theirs, ours) _Static_assert((long long)(theirs) == (long long)(ours), #ours)
SAME(sizeof(CUdeviceptr), sizeof(cuda_address));
SAME(sizeof(CUuuid), CUDA_UUID_SIZE);

SAME(CU_STREAM_NON_BLOCKING, CUDA_FLAG_STREAM_NON_BLOCKING);
SAME(CU_EVENT_DISABLE_TIMING, CUDA_FLAG_EVENT_DISABLE_TIMING);
SAME(CU_MEMHOSTALLOC_PORTABLE, CUDA_FLAG_HOST_PORTABLE);
SAME(CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_CAPTURE_GLOBAL);
SAME(CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_CAPTURE_RELAXED);
SAME(CU_STREAM_CAPTURE_STATUS_NONE, 0);
SAME(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CUDA_ATTR_MULTIPROCESSORS);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CUDA_ATTR_MAJOR);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CUDA_ATTR_MINOR);
SAME(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CUDA_POINTER_MEMORY_TYPE);
SAME(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CUDA_POINTER_ORDINAL);
SAME(CU_MEMORYTYPE_HOST, CUDA_MEMORY_HOST);

#define ERROR(name, code, errnum, sticks) SAME(CUDA_ERROR_##name, CUDA_##name);
CUDA_ERRORS(ERROR)
