/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_fatbin: lists the content of a file of kernels made by nvcc: a head, and parts, each of
 * which is machine code for one architecture or PTX. Pure; any thread. The file is untrusted.
 */
#ifndef HVD_BACKEND_CUDA_FATBIN_H
#define HVD_BACKEND_CUDA_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct cuda_fatbin_part {
    bool ptx;     /* else machine code */
    unsigned sm;  /* 90: compute capability 9.0 */
    size_t at, n; /* where it lies in the bytes */
};

/* Iterates over the parts; *at is 0 before the first call. 1: *ret is the next part; 0: there
 * are no more; -EINVAL: not such a file, or a part is cut off. */
int cuda_fatbin_next(const void *bytes, size_t n, size_t *at, struct cuda_fatbin_part *ret,
                     struct err *err);

/* "sm_75 sm_80 sm_90, PTX of sm_75", cut where dst is full. -EINVAL. */
int cuda_fatbin_text(const void *bytes, size_t n, char *dst, size_t size, struct err *err);

#endif
