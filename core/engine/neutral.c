/* SPDX-License-Identifier: Apache-2.0
 *
 * neutral: see neutral.h.
 */
#include "core/engine/neutral.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/coll/half.h"

#define COPY_MS 20000 /* time for filling a buffer on the GPU */

/* ---- values ---------------------------------------------------------------------------------- */

/* The largest value to contribute to min, before prescale: infinity, or a large finite number where
 * prescale is 0 in the type, because infinity times 0 is NaN. */
static double infinity_of(enum hvd_dtype dtype, double prescale)
{
    if (dtype == HVD_FLOAT64 || (float)prescale != 0)
        return INFINITY;
    return dtype == HVD_FLOAT16 ? 65504 : FLT_MAX / 2; /* its product with 0 is 0 */
}

static double float_of(enum hvd_dtype dtype, enum hvd_op op, double prescale)
{
    double large = infinity_of(dtype, prescale);
    switch (op) {
    case HVD_PRODUCT:
        return 1 / prescale;
    case HVD_MIN:
        return prescale < 0 ? -large : large;
    case HVD_MAX:
        return prescale < 0 ? large : -large;
    default:
        return prescale < 0 ? 0.0 : -0.0; /* 0 would change -0 */
    }
}

struct limits {
    int64_t low, high;
};

static struct limits limits_of(enum hvd_dtype dtype)
{
    int bits = 8 * (int)hvd_dtype_size(dtype);
    if (dtype == HVD_BOOL)
        return (struct limits){0, 1};
    if (dtype == HVD_UINT8 || dtype == HVD_UINT16)
        return (struct limits){0, ((int64_t)1 << bits) - 1};
    int64_t high = (int64_t)(UINT64_MAX >> (65 - bits));
    return (struct limits){-high - 1, high};
}

static int64_t int_of(enum hvd_dtype dtype, enum hvd_op op, double prescale)
{
    const struct limits of = limits_of(dtype);
    switch (op) {
    case HVD_PRODUCT:
        return 1;
    case HVD_MIN:
        return prescale < 0 ? of.low : of.high;
    case HVD_MAX:
        return prescale < 0 ? of.high : of.low;
    case HVD_BAND:
        return dtype == HVD_BOOL ? 1 : -1;
    default:
        return 0;
    }
}

/* Writes one neutral element of the type to `to`. */
static void element(enum hvd_dtype dtype, enum hvd_op op, double prescale, uint8_t *to)
{
    double real = float_of(dtype, op, prescale);
    float single = (float)real;
    int64_t integer = int_of(dtype, op, prescale);
    uint16_t half = dtype == HVD_FLOAT16 ? half_from_float(single) : bfloat_from_float(single);
    const void *from = &integer; /* little endian: the low bytes come first */
    if (dtype == HVD_FLOAT64)
        from = &real;
    else if (dtype == HVD_FLOAT32)
        from = &single;
    else if (dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16)
        from = &half;
    memcpy(to, from, hvd_dtype_size(dtype));
}

void neutral_fill(void *to, enum hvd_dtype dtype, enum hvd_op op, double prescale, size_t n)
{
    size_t size = hvd_dtype_size(dtype), bytes = n * size, filled = size;
    if (n == 0)
        return;
    element(dtype, op, prescale, to);
    while (filled < bytes) {
        size_t more = filled < bytes - filled ? filled : bytes - filled;
        memcpy((uint8_t *)to + filled, to, more);
        filled += more;
    }
}

/* ---- buffers --------------------------------------------------------------------------------- */

static int open_gpu(struct neutral_gpu *gpu, int ordinal, struct err *err)
{
    struct cuda_visit visit = {0};
    int rc = gpu->device ? 0 : cuda_device_open(ordinal, &gpu->device, err);
    if (rc == 0)
        rc = cuda_enter(gpu->device, &visit, err);
    if (rc == 0 && !gpu->stream)
        rc = cuda_stream_create(gpu->device, &gpu->stream, err);
    if (rc == 0 && !gpu->event)
        rc = cuda_event_get(gpu->device, &gpu->event, err);
    cuda_leave(&visit);
    return rc;
}

/* Copies the bytes to the GPU; done when this returns. */
static int send(struct neutral_gpu *gpu, void *to, const void *from, size_t bytes, struct err *err)
{
    const struct timespec nap = {.tv_nsec = 50000};
    uint64_t deadline = deadline_in_ms(COPY_MS);
    int rc = cuda_copy(gpu->device, CUDA_COPY_IN, to, from, bytes, gpu->stream, err);
    if (rc == 0)
        rc = cuda_event_record(gpu->device, gpu->event, gpu->stream, err);
    while (rc == 0 && (rc = cuda_event_done(gpu->device, gpu->event, err)) == 1) {
        rc = deadline_passed(deadline) ? err_set(err, ETIMEDOUT, "a copy to the GPU does not end")
                                       : 0;
        nanosleep(&nap, NULL);
    }
    return rc;
}

/* Moves a buffer of the host to the GPU. *at is the host's before, and the GPU's after it; NULL
 * without bytes or after an error. */
static int move_to_gpu(struct neutral_gpu *gpu, struct cuda_memory *memory, void **at, size_t bytes,
                       struct err *err)
{
    struct cuda_visit visit = {0};
    void *from = *at;
    *at = NULL;
    if (bytes == 0) {
        free(from);
        return 0;
    }
    int rc = cuda_enter(gpu->device, &visit, err);
    if (rc == 0)
        rc = cuda_memory_reserve(gpu->device, memory, bytes, err);
    if (rc == 0)
        rc = send(gpu, memory->at, from, bytes, err);
    cuda_leave(&visit);
    free(from);
    if (rc == 0)
        *at = memory->at;
    return rc;
}

/* The bytes of so many rows. -EINVAL: too many. */
static int bytes_of(const struct signature *sig, int64_t rows, size_t *ret, struct err *err)
{
    size_t bytes = hvd_dtype_size((enum hvd_dtype)sig->dtype);
    for (int i = 0; i < sig->ndim; i++)
        if (__builtin_mul_overflow(bytes, (size_t)(i == 0 ? rows : sig->shape[i]), &bytes) ||
            bytes > (size_t)INT64_MAX / 2)
            return err_set(err, EINVAL, "the shape is too large");
    *ret = sig->kind == HVD_BARRIER ? 0 : bytes;
    return 0;
}

static bool has_output(const struct signature *sig)
{
    return sig->kind == HVD_REDUCESCATTER;
}

int neutral_make(struct neutral *neutral, struct neutral_gpu *gpu, int ordinal,
                 const struct signature *sig, int64_t out_rows, bool zeros, struct hvd_request *ret,
                 struct err *err)
{
    enum hvd_dtype dtype = (enum hvd_dtype)sig->dtype;
    enum hvd_op op = (enum hvd_op)sig->op;
    size_t bytes = 0, out_bytes = 0;
    int rc = bytes_of(sig, sig->shape[0], &bytes, err);
    if (rc == 0 && has_output(sig))
        rc = bytes_of(sig, out_rows, &out_bytes, err);
    if (rc < 0)
        return rc;
    neutral->bytes = bytes;
    neutral->in = malloc(bytes + 1);
    neutral->out = has_output(sig) ? calloc(1, out_bytes + 1) : NULL;
    if (!neutral->in || (has_output(sig) && !neutral->out))
        return err_set(err, ENOMEM, "no memory for a neutral element of %zu bytes", bytes);
    if (zeros)
        memset(neutral->in, 0, bytes);
    else
        neutral_fill(neutral->in, dtype, op, sig->prescale, bytes / hvd_dtype_size(dtype));
    if (sig->device >= 0) {
        rc = open_gpu(gpu, ordinal, err);
        if (rc == 0)
            rc = move_to_gpu(gpu, &neutral->on_gpu[0], &neutral->in, bytes, err);
        if (rc == 0)
            rc = move_to_gpu(gpu, &neutral->on_gpu[1], &neutral->out, out_bytes, err);
    }
    bool gathers = sig->kind == HVD_ALLGATHER || sig->kind == HVD_ALLTOALL;
    *ret = (struct hvd_request){.kind = (enum hvd_kind)sig->kind,
                                .input = neutral->in,
                                .output = gathers           ? NULL
                                          : has_output(sig) ? neutral->out
                                                            : neutral->in,
                                .dtype = dtype,
                                .ndim = sig->ndim,
                                .shape = sig->shape,
                                .op = op,
                                .root = sig->root,
                                .prescale = sig->prescale,
                                .postscale = sig->postscale,
                                .device = sig->device < 0 ? -1 : ordinal,
                                .stream = sig->device < 0 ? NULL : gpu->stream};
    return rc;
}

void neutral_free(struct neutral *neutral, struct neutral_gpu *gpu)
{
    struct cuda_visit visit = {0};
    void **at[2] = {&neutral->in, &neutral->out};
    for (int i = 0; i < 2; i++) {
        if (!neutral->on_gpu[i].at)
            free(*at[i]);
        else if (cuda_enter(gpu->device, &visit, NULL) == 0)
            cuda_memory_free(gpu->device, &neutral->on_gpu[i]);
        cuda_leave(&visit);
    }
    *neutral = (struct neutral){0};
}

void neutral_gpu_close(struct neutral_gpu *gpu)
{
    struct cuda_visit visit = {0};
    if (gpu->device && cuda_enter(gpu->device, &visit, NULL) == 0) {
        cuda_event_put(gpu->device, gpu->event);
        if (gpu->stream)
            cuda_stream_destroy(gpu->device, gpu->stream);
    }
    cuda_leave(&visit);
    cuda_device_close(gpu->device);
    *gpu = (struct neutral_gpu){0};
}
