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
    return err_set(err, ENOMEM, "no memory to keep the inputs of %zu tensors", n);
}

/* Fills k->at with the offset of each copy. Returns the bytes of all copies; 0: op overwrites none
 * of its inputs. */
static size_t lay_out(struct kept *k, const struct coll_op *op)
{
    for (size_t i = 0; i < op->n; i++)
        k->at[i] = coll_destroys_input(&op->tensors[i]) ? op->tensors[i].count : 0;
    return gpu_layout(k->at, op->n, hvd_dtype_size(op->dtype), k->at);
}

/* Copies all tensors to the retained copies, or back. */
static int copy_all(struct kept *k, struct gpu *gpu, const struct coll_tensor *tensors, bool back,
                    struct err *err)
{
    size_t n = 0, elem = hvd_dtype_size(k->op.dtype);
    for (size_t i = 0; i < k->n; i++) {
        uint8_t *copy = (uint8_t *)k->memory.at + k->at[i], *own = tensors[i].out;
        /* Only tensors that have a copy: op reduces them in place, and its duplicate (for the way
         * back) reads the copy. */
        if (tensors[i].count > 0 && tensors[i].in == (back ? copy : own))
            k->pieces[n++] =
                (struct gpu_piece){back ? copy : own, back ? own : copy, tensors[i].count * elem};
    }
    return gpu_move_bytes(gpu, k->pieces, n, gpu->stream, err);
}

static int copy_out(struct kept *k, struct gpu *gpu, const struct coll_op *op, size_t bytes,
                    struct err *err)
{
    int rc = gpu_reserve(gpu, &k->memory, bytes, err);
    if (rc == 0 && !k->event)
        rc = cuda_event_get(gpu->device, &k->event, err);
    if (rc == 0)
        rc = gpu_await(gpu, op, err);
    if (rc == 0)
        rc = copy_all(k, gpu, op->tensors, false, err);
    return rc == 0 ? cuda_event_record(gpu->device, k->event, gpu->stream, err) : rc;
}

int kept_begin(struct kept *k, struct gpu *gpu, const struct coll_op *op,
               const struct coll_op **ret, struct err *err)
{
    bool reduces = op->kind == HVD_ALLREDUCE || op->kind == HVD_REDUCESCATTER;
    int rc = kept_restore(k, gpu, err);
    k->n = 0;
    *ret = op;
    if (rc == 0 && reduces)
        rc = make_room(k, op->n, err);
    size_t bytes = rc == 0 && reduces ? lay_out(k, op) : 0;
    if (bytes == 0)
        return rc;
    k->n = op->n;
    k->op = *op;
    rc = copy_out(k, gpu, op, bytes, err);
    if (rc < 0) {
        k->n = 0;
        return rc;
    }
    for (size_t i = 0; i < op->n; i++) {
        k->tensors[i] = op->tensors[i];
        k->ready[i] = k->event;
        if (coll_destroys_input(&op->tensors[i]))
            k->tensors[i].in = (uint8_t *)k->memory.at + k->at[i];
    }
    k->op.tensors = k->tensors;
    k->op.ready = k->ready;
    *ret = &k->op;
    return 0;
}

int kept_restore(struct kept *k, struct gpu *gpu, struct err *err)
{
    if (!k->owed)
        return 0;
    k->owed = false;
    return copy_all(k, gpu, k->tensors, true, err);
}

void kept_fini(struct kept *k, struct gpu *gpu)
{
    if (gpu) {
        cuda_memory_free(gpu->device, &k->memory);
        cuda_event_put(gpu->device, k->event);
    }
    free(k->tensors);
    free(k->ready);
    free(k->at);
    free(k->pieces);
    *k = (struct kept){0};
}
