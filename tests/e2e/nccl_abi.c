/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_abi: compares core/backend/nccl_abi.h with the real nccl.h. Compiled by test_nccl.sh with
 * NCCL's include folder, and run for the values that only an initializer shows. nccl.h needs three
 * headers and a type of CUDA: those in tests/e2e/nccl_abi.
 */
#include <stddef.h>
#include <stdio.h>

#include <nccl.h>

#include "core/backend/nccl_abi.h"

#define SAME(a, b) _Static_assert((long long)(a) == (long long)(b), #a " is " #b)
#define FIELD(name)                                                                                \
    SAME(offsetof(struct nccl_abi_config, name), offsetof(ncclConfig_t, name));                    \
    SAME(sizeof(((struct nccl_abi_config *)0)->name), sizeof(((ncclConfig_t *)0)->name))

SAME(sizeof(ncclUniqueId), sizeof(struct nccl_abi_id));
SAME(NCCL_UNIQUE_ID_BYTES, NCCL_ABI_ID_BYTES);
SAME(sizeof(ncclResult_t), sizeof(int));
SAME(sizeof(ncclRedOp_t), sizeof(int));
SAME(sizeof(ncclDataType_t), sizeof(int));
SAME(sizeof(ncclScalarResidence_t), sizeof(int));
SAME(ncclSuccess, NCCL_ABI_SUCCESS);
SAME(ncclUnhandledCudaError, NCCL_ABI_CUDA_ERROR);
SAME(ncclSystemError, NCCL_ABI_SYSTEM_ERROR);
SAME(ncclInternalError, NCCL_ABI_INTERNAL_ERROR);
SAME(ncclInvalidArgument, NCCL_ABI_INVALID_ARGUMENT);
SAME(ncclInvalidUsage, NCCL_ABI_INVALID_USAGE);
SAME(ncclRemoteError, NCCL_ABI_REMOTE_ERROR);
SAME(ncclInProgress, NCCL_ABI_IN_PROGRESS);
SAME(ncclSum, NCCL_ABI_SUM);
SAME(ncclProd, NCCL_ABI_PROD);
SAME(ncclMax, NCCL_ABI_MAX);
SAME(ncclMin, NCCL_ABI_MIN);
SAME(ncclAvg, NCCL_ABI_AVG);
SAME(ncclNumOps, NCCL_ABI_OPS);
SAME(ncclInt8, NCCL_ABI_INT8);
SAME(ncclUint8, NCCL_ABI_UINT8);
SAME(ncclInt32, NCCL_ABI_INT32);
SAME(ncclUint32, NCCL_ABI_UINT32);
SAME(ncclInt64, NCCL_ABI_INT64);
SAME(ncclUint64, NCCL_ABI_UINT64);
SAME(ncclFloat16, NCCL_ABI_FLOAT16);
SAME(ncclFloat32, NCCL_ABI_FLOAT32);
SAME(ncclFloat64, NCCL_ABI_FLOAT64);
SAME(ncclBfloat16, NCCL_ABI_BFLOAT16);
SAME(ncclScalarHostImmediate, NCCL_ABI_SCALAR_HOST);
SAME(NCCL_CONFIG_UNDEF_INT, NCCL_ABI_UNDEF);
FIELD(size);
FIELD(magic);
FIELD(version);
FIELD(blocking);

/* Each function must accept what we pass: enums for int, their structs for ours. */
#define TYPE(f, result, ...)                                                                       \
    _Static_assert(__builtin_types_compatible_p(__typeof__(f), result(__VA_ARGS__)), #f)
#define CALL(f, ...) TYPE(f, ncclResult_t, __VA_ARGS__)
CALL(ncclGetVersion, int *);
CALL(ncclGetUniqueId, ncclUniqueId *);
CALL(ncclCommInitRankConfig, ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
CALL(ncclCommAbort, ncclComm_t);
CALL(ncclCommGetAsyncError, ncclComm_t, ncclResult_t *);
TYPE(ncclGetErrorString, const char *, ncclResult_t);
TYPE(ncclGetLastError, const char *, ncclComm_t);
CALL(ncclAllReduce, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
     cudaStream_t);
CALL(ncclReduce, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
     cudaStream_t);
CALL(ncclBroadcast, const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
CALL(ncclAllGather, const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
CALL(ncclReduceScatter, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
     cudaStream_t);
CALL(ncclSend, const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
CALL(ncclRecv, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
CALL(ncclGroupStart, void);
CALL(ncclGroupEnd, void);
CALL(ncclRedOpCreatePreMulSum, ncclRedOp_t *, void *, ncclDataType_t, ncclScalarResidence_t,
     ncclComm_t);
CALL(ncclRedOpDestroy, ncclRedOp_t, ncclComm_t);

int main(void)
{
    const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
    if (initial.magic != NCCL_ABI_MAGIC || initial.blocking != NCCL_ABI_UNDEF) {
        printf("magic is %#x, no choice is %d\n", initial.magic, initial.blocking);
        return 1;
    }
    printf("nccl.h %d.%d.%d is as declared\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
    return 0;
}
