/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_abi: what we use of NCCL's interface, declared by us: neither NCCL nor CUDA is needed to
 * build. Names and values are those of nccl.h; tests/e2e/nccl_abi.c compares the two where the real
 * header is there. Included only by core/backend/nccl*, by the NCCL of tests/fake and by tests.
 */
#ifndef HVD_BACKEND_NCCL_ABI_H
#define HVD_BACKEND_NCCL_ABI_H

#include <limits.h>
#include <stddef.h>

struct ncclComm;    /* a communicator of NCCL */
struct CUstream_st; /* a stream of CUDA's, driver and runtime alike */

#define NCCL_ABI_ID_BYTES 128

struct nccl_abi_id { /* ncclUniqueId */
    char internal[NCCL_ABI_ID_BYTES];
};

enum { /* ncclResult_t */
       NCCL_ABI_SUCCESS = 0,
       NCCL_ABI_CUDA_ERROR = 1,
       NCCL_ABI_SYSTEM_ERROR = 2,
       NCCL_ABI_INTERNAL_ERROR = 3,
       NCCL_ABI_INVALID_ARGUMENT = 4,
       NCCL_ABI_INVALID_USAGE = 5,
       NCCL_ABI_REMOTE_ERROR = 6,
       NCCL_ABI_IN_PROGRESS = 7,
};

enum { /* ncclRedOp_t */
       NCCL_ABI_SUM = 0,
       NCCL_ABI_PROD = 1,
       NCCL_ABI_MAX = 2,
       NCCL_ABI_MIN = 3,
       NCCL_ABI_AVG = 4,
       NCCL_ABI_OPS = 5, /* operators that a program creates begin here */
};

enum { /* ncclDataType_t */
       NCCL_ABI_INT8 = 0,
       NCCL_ABI_UINT8 = 1,
       NCCL_ABI_INT32 = 2,
       NCCL_ABI_UINT32 = 3,
       NCCL_ABI_INT64 = 4,
       NCCL_ABI_UINT64 = 5,
       NCCL_ABI_FLOAT16 = 6,
       NCCL_ABI_FLOAT32 = 7,
       NCCL_ABI_FLOAT64 = 8,
       NCCL_ABI_BFLOAT16 = 9,
};

#define NCCL_ABI_SCALAR_HOST 1 /* ncclScalarHostImmediate */
#define NCCL_ABI_MAGIC       0xcafebeefU
#define NCCL_ABI_UNDEF       INT_MIN

/* ncclConfig_t as of 2.14. Later versions have more fields at the end and take those for unset when
 * size and version say that the caller did not know them. */
struct nccl_abi_config {
    size_t size;
    unsigned magic;
    unsigned version; /* the NCCL version that defines this layout */
    int blocking;
};

#define NCCL_ABI_CONFIG_VERSION 21400

/* Functions, by NCCL's names: N(name, result, arguments). Every NCCL that hvd accepts (2.14 and
 * newer) has them. */
#define NCCL_ABI_FUNCTIONS(N)                                                                      \
    N(ncclGetVersion, int, (int *version))                                                         \
    N(ncclGetUniqueId, int, (struct nccl_abi_id * id))                                             \
    N(ncclCommAbort, int, (struct ncclComm * comm))                                                \
    N(ncclCommGetAsyncError, int, (struct ncclComm * comm, int *error))                            \
    N(ncclGetErrorString, const char *, (int result))                                              \
    N(ncclAllReduce, int,                                                                          \
      (const void *in, void *out, size_t count, int type, int op, struct ncclComm *comm,           \
       struct CUstream_st *stream))                                                                \
    N(ncclReduce, int,                                                                             \
      (const void *in, void *out, size_t count, int type, int op, int root, struct ncclComm *comm, \
       struct CUstream_st *stream))                                                                \
    N(ncclBroadcast, int,                                                                          \
      (const void *in, void *out, size_t count, int type, int root, struct ncclComm *comm,         \
       struct CUstream_st *stream))                                                                \
    N(ncclAllGather, int,                                                                          \
      (const void *in, void *out, size_t count, int type, struct ncclComm *comm,                   \
       struct CUstream_st *stream))                                                                \
    N(ncclReduceScatter, int,                                                                      \
      (const void *in, void *out, size_t count, int type, int op, struct ncclComm *comm,           \
       struct CUstream_st *stream))                                                                \
    N(ncclSend, int,                                                                               \
      (const void *in, size_t count, int type, int peer, struct ncclComm *comm,                    \
       struct CUstream_st *stream))                                                                \
    N(ncclRecv, int,                                                                               \
      (void *out, size_t count, int type, int peer, struct ncclComm *comm,                         \
       struct CUstream_st *stream))                                                                \
    N(ncclGroupStart, int, (void))                                                                 \
    N(ncclGroupEnd, int, (void))                                                                   \
    N(ncclRedOpCreatePreMulSum, int,                                                               \
      (int *op, void *scalar, int type, int residence, struct ncclComm *comm))                     \
    N(ncclRedOpDestroy, int, (int op, struct ncclComm *comm))                                      \
    N(ncclGetLastError, const char *, (struct ncclComm * comm))                                    \
    N(ncclCommInitRankConfig, int,                                                                 \
      (struct ncclComm * *comm, int size, struct nccl_abi_id id, int rank,                         \
       struct nccl_abi_config *config))

#endif
