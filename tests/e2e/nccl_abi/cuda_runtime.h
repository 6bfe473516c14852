/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_runtime: what nccl.h uses of it.
 */
#ifndef HVD_TESTS_CUDA_RUNTIME_H
#define HVD_TESTS_CUDA_RUNTIME_H

typedef struct CUstream_st *cudaStream_t;

#endif
