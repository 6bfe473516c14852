/* SPDX-License-Identifier: Apache-2.0
 *
 * kept: see kept.h.
 */
#include "core/backend/kept.h"

#include <stdlib.h>

static int make_room(struct kept *k, struct gpu *gpu, size_t n, struct err *err)
{
    if (!gpu_scratch(gpu, n * sizeof(struct gpu_piece), err)) /* for move() */
        return -ENOMEM;
    if (n <= k->cap)
        return 0;
    free(k->tensors);
    k->tensors = malloc(2 * n * (sizeof(*k->tensors) + sizeof(*k->ready)));
    k->cap = k->tensors ? 2 * n : 0;
    k->ready = (void **)(k->tensors + k->cap);
    return k->tensors ? 0 : err_set(err, ENOMEM, "no memory for an operation of %zu tensors", n);
}

static bool is_copy(const struct kept *k, const void *in)
{
    uintptr_t at = (uintptr_t)in, first = (uintptr_t)k->memory.at;
    return at >= first && at - first < k->bytes;
}

/* Moves all retained inputs between where they were and the copies. */
static int move(struct kept *k, struct gpu *gpu, bool back, struct err *err)
{
    size_t n = 0, elem = hvd_dtype_size(k->op.dtype);
    struct gpu_piece *pieces = gpu_scratch(gpu, k->op.n * sizeof(*pieces), err);
    if (!pieces)
        return -ENOMEM;
    for (size_t i = 0; i < k->op.n; i++) {
        uint8_t *own = k->tensors[i].out, *copy = (uint8_t *)k->tensors[i].in;
        if (k->tensors[i].count > 0 && is_copy(k, copy))
            pieces[n++] = (struct gpu_piece){back ? copy : own, back ? own : copy,
                                             k->tensors[i].count * elem};
    }
    return gpu_move_bytes(gpu, pieces, n, gpu->stream, err);
}

/* Bytes of the copy of an input; 0: it needs none. */
static size_t copy_bytes(const struct coll_op *op, const struct coll_tensor *tensor)
{
    bool reduces = op->kind == HVD_ALLREDUCE || op->kind == HVD_REDUCESCATTER;
    return reduces && coll_destroys_input(tensor)
               ? gpu_aligned(tensor->count * hvd_dtype_size(op->dtype))
               : 0;
}

static int copy_inputs(struct kept *k, struct gpu *gpu, struct err *err)
{
    int rc = gpu_take(gpu, k->bytes, &k->memory, err);
    if (rc == 0 && !k->event)
        rc = cuda_event_get(gpu->device, &k->event, err);
    if (rc == 0)
        rc = gpu_await(gpu, gpu->stream, &k->op, err);
    if (rc < 0)
        return rc;
    uint8_t *copy = k->memory.at;
    for (size_t i = 0; i < k->op.n; i++) {
        size_t bytes = copy_bytes(&k->op, &k->tensors[i]);
        k->ready[i] = k->event;
        if (bytes > 0)
            k->tensors[i].in = copy;
        copy += bytes;
    }
    rc = move(k, gpu, false, err);
    return rc == 0 ? cuda_event_record(gpu->device, k->event, gpu->stream, err) : rc;
}

int kept_take(struct kept *k, struct gpu *gpu, const struct coll_op *op, bool retain,
              struct err *err)
{
    k->op = (struct coll_op){.n = 0};
    k->bytes = 0;
    int rc = make_room(k, gpu, op->n, err);
    if (rc < 0)
        return rc;
    k->op = *op;
    k->op.tensors = k->tensors;
    k->op.ready = op->ready ? k->ready : NULL;
    size_t bytes = 0;
    for (size_t i = 0; i < op->n; i++) {
        k->tensors[i] = op->tensors[i];
        k->ready[i] = op->ready ? op->ready[i] : NULL;
        bytes += retain ? copy_bytes(op, &op->tensors[i]) : 0;
    }
    if (bytes == 0)
        return 0;
    k->bytes = bytes;
    k->op.ready = k->ready;
    rc = copy_inputs(k, gpu, err);
    k->bytes = rc < 0 ? 0 : bytes;
    return rc;
}

bool kept_waits(const struct kept *k, struct gpu *gpu)
{
    const void *before = NULL; /* tensors of one submission often have one event */
    for (size_t i = 0; k->op.ready && i < k->op.n; before = k->op.ready[i++])
        if (k->op.ready[i] && k->op.ready[i] != before &&
            cuda_event_done(gpu->device, k->op.ready[i], NULL) == 1)
            return true;
    return false;
}

int kept_restore(struct kept *k, struct gpu *gpu, struct err *err)
{
    return k->bytes > 0 ? move(k, gpu, true, err) : 0;
}

void kept_drop(struct kept *k, struct gpu *gpu)
{
    gpu_give(gpu, &k->memory);
    k->bytes = 0;
    k->op = (struct coll_op){.n = 0}; /* its events may belong to other operations now */
}

void kept_fini(struct kept *k, struct gpu *gpu)
{
    if (gpu) {
        kept_drop(k, gpu);
        cuda_event_put(gpu->device, k->event);
    }
    free(k->tensors);
    *k = (struct kept){.cap = 0};
}
