/* SPDX-License-Identifier: Apache-2.0
 *
 * kept: see kept.h.
 */
#include "core/backend/kept.h"

#include <stdlib.h>
#include <string.h>

static int make_room(struct kept *k, size_t n, struct err *err)
{
    if (n <= k->cap)
        return 0;
    free(k->tensors);
    free(k->ready);
    free(k->at);
    free(k->pieces);
    k->cap = 2 * n;
    k->tensors = calloc(k->cap, sizeof(*k->tensors));
    k->ready = calloc(k->cap, sizeof(*k->ready));
    k->at = calloc(k->cap, sizeof(*k->at));
    k->pieces = calloc(k->cap, sizeof(*k->pieces));
    if (k->tensors && k->ready && k->at && k->pieces)
        return 0;
    k->cap = 0;
    return err_set(err, ENOMEM, "no memory for an operation of %zu tensors", n);
}

/* Moves all retained inputs between where they were and the copies. */
static int move(struct kept *k, struct gpu *gpu, bool back, struct err *err)
{
    size_t n = 0, elem = hvd_dtype_size(k->op.dtype);
    for (size_t i = 0; i < k->op.n; i++) {
        uint8_t *own = k->tensors[i].out, *copy = (uint8_t *)k->memory.at + k->at[i];
        if (k->tensors[i].count > 0 && k->tensors[i].in == copy)
            k->pieces[n++] = (struct gpu_piece){back ? copy : own, back ? own : copy,
                                                k->tensors[i].count * elem};
    }
    return gpu_move_bytes(gpu, k->pieces, n, gpu->stream, err);
}

/* Fills k->at. Returns the bytes of all copies. */
static size_t lay_out(struct kept *k)
{
    const struct coll_op *op = &k->op;
    if (op->kind != HVD_ALLREDUCE && op->kind != HVD_REDUCESCATTER)
        return 0;
    for (size_t i = 0; i < op->n; i++)
        k->at[i] = coll_destroys_input(&k->tensors[i]) ? k->tensors[i].count : 0;
    return gpu_layout(k->at, op->n, hvd_dtype_size(op->dtype), k->at);
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
    for (size_t i = 0; i < k->op.n; i++) {
        k->ready[i] = k->event;
        if (coll_destroys_input(&k->tensors[i]))
            k->tensors[i].in = (uint8_t *)k->memory.at + k->at[i];
    }
    rc = move(k, gpu, false, err);
    return rc == 0 ? cuda_event_record(gpu->device, k->event, gpu->stream, err) : rc;
}

int kept_take(struct kept *k, struct gpu *gpu, const struct coll_op *op, bool retain,
              struct err *err)
{
    k->op = (struct coll_op){.n = 0};
    k->bytes = 0;
    int rc = make_room(k, op->n, err);
    if (rc < 0)
        return rc;
    k->op = *op;
    k->op.tensors = k->tensors;
    k->op.ready = op->ready ? k->ready : NULL;
    for (size_t i = 0; i < op->n; i++) {
        k->tensors[i] = op->tensors[i];
        k->ready[i] = op->ready ? op->ready[i] : NULL;
    }
    size_t bytes = retain ? lay_out(k) : 0;
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
    free(k->ready);
    free(k->at);
    free(k->pieces);
    *k = (struct kept){.cap = 0};
}
