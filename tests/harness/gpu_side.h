/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_side: the user's side of a rank whose tensors are on a GPU, of the fake driver
 * (tests/fake/cuda) or, with HVD_TEST_REAL_GPU, of this machine: memory there, a stream of the
 * program's own, copies to and fro. What is on the GPU is filled and read by copies, as on a real
 * one. For forked ranks: what goes wrong is returned in words, never asserted.
 */
#ifndef HVD_TESTS_HARNESS_GPU_SIDE_H
#define HVD_TESTS_HARNESS_GPU_SIDE_H

#include <stdint.h>

#include <hvd.h>

#include "core/backend/cuda.h"
#include "tests/fake/cuda/control.h"

struct gpu_side {
    const struct fake_cuda_control *fake; /* NULL: a real one */
    struct cuda_device *d;
    struct CUstream_st *stream; /* the program's */
    struct CUevent_st *event;
    struct cuda_memory in, out, locked;
    uint8_t *host; /* locked: room bytes to read into and fill from, twice */
    size_t room;
    struct err err;
};

bool gpu_side_is_real(void);

/* Can the first GPU of this machine be used? Asked in a child; err says why not. */
bool gpu_side_has_gpu(struct err *err);

/* Can a job here use an NCCL, as it is found without the job's own variables? Asked in a child; err
 * says why not, with the code of nccl_api_load(). */
bool gpu_side_has_nccl(struct err *err);

/* room: bytes of in and of out. script: FAKE_CUDA, NULL: none. */
int gpu_side_open(struct gpu_side *g, int ordinal, size_t room, const char *script);

/* After hvd_shutdown(). False: something that was made on the fake was not given back. */
bool gpu_side_close(struct gpu_side *g);

/* In place at the beginning of in, summed; the caller changes what is to be otherwise. */
struct hvd_request gpu_side_request(const struct gpu_side *g, enum hvd_kind kind, const char *name,
                                    enum hvd_dtype dtype, int ndim, const int64_t *shape);

/* bytes of host to in + at, in the order of the stream: not done when this returns. */
int gpu_side_send(struct gpu_side *g, size_t at, size_t bytes);

/* bytes from a place of the device into host; done when this returns. */
int gpu_side_read(struct gpu_side *g, const void *from, size_t bytes);

#endif
