/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_job: runs ranks of the engine whose tensors are on GPUs of the fake driver, or of this
 * machine (gpu_side). Has what their tests share.
 */
#ifndef HVD_TESTS_HARNESS_GPU_JOB_H
#define HVD_TESTS_HARNESS_GPU_JOB_H

#include "tests/harness/gpu_side.h"

#define GPU_JOB_ROOM ((size_t)8 << 20) /* bytes of in and out */

struct gpu_job {
    /* "staged" or "nccl": the back end that the engine's counters must show; or NULL. */
    const char *way;
    const char *script; /* FAKE_CUDA */
    unsigned delay_us;  /* delay of everything on streams */
    int gpu;            /* ordinal for all ranks; -1: each has its own */
    int (*body)(struct gpu_side *g, int rank, int size); /* 0, or FAIL() */
};

/* An environment with no NCCL, in which staging through host memory is allowed. */
extern const char *const gpu_job_fallback[];

/* Returns an environment with HVD_NCCL_LIB=<fake NCCL of that version> and `more` (or NULL), valid
 * until the next call. */
const char *const *gpu_job_nccl(const char *version, const char *more);

/* Forks the ranks. Each opens a gpu_side and runs hvd_init(), the body and hvd_shutdown(), then
 * checks that everything was freed. Asserts that every rank exits with 0. */
void gpu_job_run(int size, const char *const *env, struct gpu_job job);

/* The same on several hosts: hosts has a character for each rank, its host. */
void gpu_job_run_on(const char *hosts, const char *const *env, struct gpu_job job);

/* ---- in a rank ---- */

/* An allreduce of n values, checked; 0, or FAIL(). */
int gpu_job_sum(struct gpu_side *g, int rank, int size, enum hvd_dtype dtype, enum hvd_op op,
                size_t n, bool in_place, int salt);

#endif
