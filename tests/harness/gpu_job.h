/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_job: ranks of the engine whose tensors are on GPUs of the fake driver, or of this machine
 * (gpu_side): a job with what all of its ranks have in common, and what most of them do.
 */
#ifndef HVD_TESTS_HARNESS_GPU_JOB_H
#define HVD_TESTS_HARNESS_GPU_JOB_H

#include "tests/harness/gpu_side.h"

#define GPU_JOB_ROOM ((size_t)8 << 20) /* bytes of in and out */

struct gpu_job {
    const char *way; /* "staged" or "nccl", which the counters of the engine must tell; or NULL */
    const char *script;                                  /* FAKE_CUDA */
    unsigned delay_us;                                   /* of all that is on streams */
    int gpu;                                             /* -1: each rank has its own */
    int (*body)(struct gpu_side *g, int rank, int size); /* 0, or FAIL() */
};

extern const char *const gpu_job_fallback[]; /* no NCCL, and the host's memory may be used */

/* HVD_NCCL_LIB=<the fake of that version>, and one more or NULL; until the next call. */
const char *const *gpu_job_nccl(const char *version, const char *more);

/* Forks the ranks; in each a gpu_side, hvd_init(), the body, hvd_shutdown(), and a look at whether
 * all was given back. An assertion of cmocka's: every rank ended well. */
void gpu_job_run(int size, const char *const *env, struct gpu_job job);

/* ---- in a rank ---- */

/* An allreduce of n values, checked; 0, or FAIL(). */
int gpu_job_sum(struct gpu_side *g, int rank, int size, enum hvd_dtype dtype, enum hvd_op op,
                size_t n, bool in_place, int salt);

#endif
