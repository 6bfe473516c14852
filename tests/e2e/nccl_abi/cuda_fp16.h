/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_fp16: empty; nccl.h includes it and uses nothing of it in C.
 */
#ifndef HVD_TESTS_CUDA_FP16_H
#define HVD_TESTS_CUDA_FP16_H
#endif
