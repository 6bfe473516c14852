/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_bf16: empty; nccl.h includes it and uses nothing of it in C.
 */
#ifndef HVD_TESTS_CUDA_BF16_H
#define HVD_TESTS_CUDA_BF16_H
#endif
