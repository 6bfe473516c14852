/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_side: the user's side of a rank whose tensors are on a GPU of the fake driver
 * (tests/fake/cuda) or, with HVD_TEST_REAL_GPU, of this machine: device memory, a stream of the
 * program's own, copies in both directions. Device memory is filled and read by copies, as on a
 * real GPU. For forked ranks: errors are returned as text, never asserted.
 */
#ifndef HVD_TESTS_HARNESS_GPU_SIDE_H
#define HVD_TESTS_HARNESS_GPU_SIDE_H

#include <stdint.h>

#include <hvd.h>

#include "core/backend/cuda.h"
#include "tests/fake/cuda/control.h"

struct gpu_side {
    const struct fake_cuda_control *fake; /* NULL: a real GPU */
    struct cuda_device *d;
    struct CUstream_st *stream; /* the program's */
    struct CUevent_st *event;
    struct cuda_memory in, out, locked;
    uint8_t *host; /* pinned host memory of 2 * room bytes, for copies both ways */
    size_t room;
    int set; /* of gpu_side_request(); 0: the world */
    struct err err;
};

bool gpu_side_is_real(void);

/* Whether the first GPU of this machine can be used; err says why not. Tested in a child process.
 */
bool gpu_side_has_gpu(struct err *err);

/* Whether a job on this machine finds an NCCL without setting variables; err says why not, with the
 * code of nccl_api_load(). Tested in a child process. */
bool gpu_side_has_nccl(struct err *err);

/* Whether the NCCL that a job finds lets ranks share a GPU (from 2.30 on, with
 * NCCL_MULTI_RANK_GPU_ENABLE=1). Tested in a child process. */
bool gpu_side_nccl_shares(void);

/* room: bytes of in and of out. script: FAKE_CUDA, NULL: none. */
int gpu_side_open(struct gpu_side *g, int ordinal, size_t room, const char *script);

/* Call after hvd_shutdown(). False: an object of the fake driver was not freed. */
bool gpu_side_close(struct gpu_side *g);

/* A request for an in-place sum at the beginning of `in`; the caller changes other fields. */
struct hvd_request gpu_side_request(const struct gpu_side *g, enum hvd_kind kind, const char *name,
                                    enum hvd_dtype dtype, int ndim, const int64_t *shape);

/* Enqueues a copy of bytes from host to in + at on the stream; it is not done when this returns. */
int gpu_side_send(struct gpu_side *g, size_t at, size_t bytes);

/* Copies bytes of device memory into host; done when this returns. */
int gpu_side_read(struct gpu_side *g, const void *from, size_t bytes);

#endif
