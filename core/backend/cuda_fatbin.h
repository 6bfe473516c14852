/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_fatbin: what is inside of a file of kernels as nvcc makes it: a head, and parts of which
 * each is machine code for one architecture or PTX. Pure; any thread. The file is foreign bytes.
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

/* One part after the other; *at is 0 before the first. 1: *ret is the next one; 0: there are no
 * more; -EINVAL: this is no such file, or a part of it is missing. */
int cuda_fatbin_next(const void *bytes, size_t n, size_t *at, struct cuda_fatbin_part *ret,
                     struct err *err);

/* "sm_75 sm_80 sm_90, PTX of sm_75", cut where dst is full. -EINVAL. */
int cuda_fatbin_text(const void *bytes, size_t n, char *dst, size_t size, struct err *err);

#endif
