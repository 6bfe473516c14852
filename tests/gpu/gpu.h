/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu: a device for the programs of tests/gpu: the first GPU of this machine, or, if it has none,
 * one of the fake driver (tests/fake/cuda), which shows that the programs work.
 */
#ifndef HVD_TESTS_GPU_GPU_H
#define HVD_TESTS_GPU_GPU_H

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/backend/cuda.h"
#include "core/backend/cuda_kernels.h"
#include "core/base/clock.h"
#include "tests/fake/cuda/use.h"
#include "tests/harness/gpu_side.h"

struct gpu {
    bool fake;
    struct cuda_device *device;
    struct cuda_visit visit;
    struct CUstream_st *stream;
    struct CUevent_st *event;
};

/* Ends the program after an error that is not under test. */
static inline void gpu_need(int rc, const struct err *err)
{
    if (rc == 0)
        return;
    fprintf(stderr, "%s\n", err->msg);
    exit(1);
}

/* Skips the program if there are no kernels, or the driver cannot use them. */
static inline void gpu_need_kernels(struct gpu *g, const char *id)
{
    char path[PATH_MAX];
    struct err err = {0};
    int rc = cuda_kernels_path(path, sizeof(path), &err);
    bool none = rc == -ENOENT;
    if (rc == 0) {
        rc = cuda_kernels_load(g->device, &err);
        none = rc == -ENOTSUP;
    }
    if (none) {
        printf("SKIP: %s: kernels: %s\n", id, err.msg);
        exit(77);
    }
    gpu_need(rc, &err);
}

/* Opens the GPU with this ordinal, or the fake driver's. id: the test's name in a SKIP line. */
static inline void gpu_open_number(struct gpu *g, const char *id, int ordinal)
{
    char path[PATH_MAX];
    struct err err = {0};
    g->fake = getenv("HVD_TEST_FAKE") || !gpu_side_has_gpu(&err);
    if (g->fake) {
        printf("SKIP: %s: GPU: %s; runs on the fake driver\n", id,
               getenv("HVD_TEST_FAKE") ? "HVD_TEST_FAKE" : err.msg);
        fake_cuda_use("cuda");
    } else {
        build_path("hvd_kernels.fatbin", path);
        setenv("HVD_KERNELS", path, 0);
    }
    gpu_need(cuda_device_open(ordinal, &g->device, &err), &err);
    gpu_need(cuda_enter(g->device, &g->visit, &err), &err);
    gpu_need(cuda_stream_create(g->device, &g->stream, &err), &err);
    gpu_need(cuda_event_get(g->device, &g->event, &err), &err);
    gpu_need_kernels(g, id);
    printf("GPU %s%s, sm_%d, driver for CUDA %d.%d (%s)\n", g->device->name,
           g->fake ? " (fake)" : "", g->device->sm, g->device->api->version / 1000,
           g->device->api->version / 10 % 100, g->device->api->path);
}

static inline void gpu_open(struct gpu *g, const char *id)
{
    gpu_open_number(g, id, 0);
}

/* Waits until the stream is done. */
static inline void gpu_finish(struct gpu *g)
{
    struct err err = {0};
    uint64_t deadline = deadline_in_ms(60000);
    int rc = cuda_event_record(g->device, g->event, g->stream, &err);
    gpu_need(rc, &err);
    while ((rc = cuda_event_done(g->device, g->event, &err)) == 1 && !deadline_passed(deadline))
        sched_yield();
    if (rc == 1)
        err_set(&err, ETIMEDOUT, "the device did not end in 60 s");
    gpu_need(rc, &err);
}

static inline void gpu_copy(struct gpu *g, enum cuda_copy way, void *to, const void *from,
                            size_t bytes)
{
    struct err err = {0};
    gpu_need(cuda_copy(g->device, way, to, from, bytes, g->stream, &err), &err);
    gpu_finish(g);
}

static inline void gpu_close(struct gpu *g)
{
    cuda_event_put(g->device, g->event);
    cuda_stream_destroy(g->device, g->stream);
    cuda_leave(&g->visit);
    cuda_device_close(g->device);
}

#endif
