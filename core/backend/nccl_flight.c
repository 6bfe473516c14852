/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_flight: see nccl_flight.h.
 */
#include "core/backend/nccl_flight.h"

#include <stdlib.h>

#define BUFFER_ALIGN ((size_t)256)
/* Tensors from this size on are packed only if they need a kernel. */
#define DIRECT_BYTES ((size_t)512 << 10)

/* ---- life ----------------------------------------------------------------------------------- */

int nccl_flight_create(struct gpu *gpu, struct nccl_flight **ret, struct err *err)
{
    struct nccl_flight *f = calloc(1, sizeof(*f));
    int rc = f ? 0 : err_set(err, ENOMEM, "no memory for an operation by NCCL");
    if (rc == 0)
        rc = cuda_event_get(gpu->device, &f->inputs, err);
    if (rc == 0)
        rc = cuda_event_get(gpu->device, &f->called, err);
    if (rc == 0)
        rc = cuda_event_get(gpu->device, &f->done, err);
    if (rc < 0)
        nccl_flight_destroy(f, gpu);
    else
        *ret = f;
    return rc;
}

void nccl_flight_destroy(struct nccl_flight *f, struct gpu *gpu)
{
    if (!f)
        return;
    kept_fini(&f->kept, gpu);
    if (gpu) {
        gpu_give(gpu, &f->buffer);
        cuda_event_put(gpu->device, f->inputs);
        cuda_event_put(gpu->device, f->called);
        cuda_event_put(gpu->device, f->done);
    }
    nccl_steps_fini(&f->steps);
    free(f);
}

void nccl_flight_drop(struct nccl_flight *f, struct gpu *gpu)
{
    kept_drop(&f->kept, gpu);
    gpu_give(gpu, &f->buffer);
    f->bytes = 0;
}

/* ---- plan ----------------------------------------------------------------------------------- */

/* Is there at most one tensor that has elements? */
static bool is_single(const struct coll_op *op)
{
    size_t n = 0;
    for (size_t i = 0; i < op->n && n < 2; i++)
        n += op->tensors[i].count > 0;
    return n < 2;
}

static bool is_large(const struct coll_op *op, const struct coll_tensor *tensor)
{
    return tensor->count * hvd_dtype_size(op->dtype) >= DIRECT_BYTES;
}

static bool has_large(const struct coll_op *op)
{
    for (size_t i = 0; i < op->n; i++)
        if (is_large(op, &op->tensors[i]))
            return true;
    return false;
}

/* The number of elements of a tensor in the buffer. */
static size_t packed_count(const struct nccl_flight *f, const struct coll_tensor *tensor)
{
    return f->direct && is_large(&f->kept.op, tensor) ? 0 : tensor->count;
}

/* Lays out the tensors one after the other in the buffer; results of another size follow them. Sets
 * what NCCL sees: the buffer, and the tensors that are not packed. */
static int lay_out(struct nccl_flight *f, const struct nccl_way *way, enum hvd_dtype dtype,
                   struct coll_op *ret, struct err *err)
{
    const struct coll_op *op = &f->kept.op;
    size_t elem = hvd_dtype_size(dtype), size = 0, n = 1;
    struct coll_tensor *seen = gpu_scratch(way->gpu, (op->n + 1) * sizeof(*seen), err);
    if (!seen)
        return -ENOMEM;
    for (size_t i = 0; i < op->n; i++) {
        size_t count = packed_count(f, &op->tensors[i]);
        if (count < op->tensors[i].count)
            seen[n++] = op->tensors[i];
        size += gpu_aligned(count * elem);
    }
    seen->count = size / elem;
    f->out_at = 0;
    if (op->kind == HVD_REDUCESCATTER) {
        seen->count = op->tensors[0].count;
        f->out_at = (size + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
        size = f->out_at + f->out_count * elem;
    }
    int rc = gpu_take(way->gpu, size, &f->buffer, err);
    if (rc < 0)
        return rc;
    f->bytes += size;
    f->buffered = seen->count;
    seen->in = f->buffer.at;
    seen->out = size > 0 ? (uint8_t *)f->buffer.at + f->out_at : NULL;
    ret->tensors = seen;
    ret->n = n;
    return 0;
}

/* why: the reason why the operation needs kernels. */
static int refuse(const struct nccl_way *way, const struct coll_op *op, const struct err *why,
                  struct err *err)
{
    struct nccl_means means = way->means;
    struct nccl_form form;
    means.kernels = true;
    if (nccl_form_of(&means, op, way->size, &form, err) < 0)
        return -ENOTSUP;
    return err_set(err, ENOTSUP, "%s: %s", why->msg,
                   way->gpu->kernels ? "another rank lacks them" : way->gpu->no_kernels.msg);
}

int nccl_flight_possible(const struct nccl_way *way, const struct coll_op *op, struct err *err)
{
    struct nccl_means means = way->means;
    struct nccl_form form;
    struct err why = {0};
    means.kernels = false;
    if (nccl_form_of(&means, op, way->size, &form, &why) == 0)
        return 0;
    means.kernels = true;
    return way->kernels ? nccl_form_of(&means, op, way->size, &form, err)
                        : refuse(way, op, &why, err);
}

/* Chooses which tensors are packed, by the rules in nccl_run.h. */
static int choose(struct nccl_flight *f, const struct nccl_way *way, struct err *err)
{
    struct nccl_means means = way->means;
    struct coll_op seen = f->kept.op;
    struct nccl_form form;
    int rc = nccl_form_of(&means, &seen, way->size, &form, NULL);
    /* Kernels are needed if NCCL cannot run the operation, or would round its factor roughly. */
    bool kernels = rc < 0 || nccl_form_is_rough(&form, way->size);
    bool packs = way->kernels && (kernels || !is_single(&seen));
    f->direct = packs && !kernels && has_large(&seen);
    f->buffered = 0;
    if (packs) {
        means.kernels = !f->direct;
        rc = nccl_form_of(&means, &seen, way->size, &form, err);
        if (rc == 0)
            rc = lay_out(f, way, form.dtype, &seen, err);
        if (rc < 0)
            return rc;
    }
    return nccl_steps_make(&means, &seen, way->rank, way->size, &f->steps, err);
}

int nccl_flight_plan(struct nccl_flight *f, const struct nccl_way *way, const struct coll_op *op,
                     bool retain, struct err *err)
{
    int rc = nccl_flight_possible(way, op, err);
    if (rc == 0)
        rc = kept_take(&f->kept, way->gpu, op, retain, err);
    if (rc < 0)
        return rc;
    f->bytes = f->kept.bytes;
    f->out_count = op->kind == HVD_REDUCESCATTER ? op->recv_counts[way->rank] : 0;
    f->stage = FLIGHT_PLANNED;
    return choose(f, way, err);
}

/* ---- on the streams ------------------------------------------------------------------------- */

/* Moves the tensors into the buffer, or the results out of it. */
static int move(const struct nccl_flight *f, struct gpu *gpu, bool out, struct err *err)
{
    const struct coll_op *op = &f->kept.op;
    const struct nccl_form *form = &f->steps.form;
    const struct gpu_change in_change = {op->dtype, form->dtype, form->prescale, 1, 1};
    const struct gpu_change out_change = {form->dtype, op->dtype, 1, form->divisor,
                                          form->postscale};
    bool scattered = op->kind == HVD_REDUCESCATTER;
    struct gpu_piece *pieces = gpu_scratch(gpu, op->n * sizeof(*pieces), err);
    uint8_t *at = f->buffer.at;
    if (!pieces)
        return -ENOMEM;
    for (size_t i = 0; i < op->n; i++) {
        const struct coll_tensor *t = &op->tensors[i];
        size_t count = packed_count(f, t);
        pieces[i] =
            out ? (struct gpu_piece){at + f->out_at, t->out, scattered ? f->out_count : count}
                : (struct gpu_piece){t->in, at, count};
        at += gpu_aligned(count * hvd_dtype_size(form->dtype));
    }
    return cuda_move(gpu->device, out ? &out_change : &in_change, pieces, op->n,
                     out ? gpu->out : gpu->stream, err);
}

/* NCCL's stream waits for the inputs: through gpu->stream if something is done to them there. */
int nccl_flight_pack(struct nccl_flight *f, const struct nccl_way *way, struct err *err)
{
    struct gpu *gpu = way->gpu;
    bool packs = f->buffered > 0;
    int rc = gpu_await(gpu, packs ? gpu->stream : gpu->call, &f->kept.op, err);
    if (rc == 0 && packs)
        rc = move(f, gpu, false, err);
    if (rc == 0 && packs)
        rc = cuda_stream_follow(gpu->device, gpu->call, gpu->stream, f->inputs, err);
    if (rc == 0)
        f->stage = FLIGHT_PACKED;
    return rc;
}

int nccl_flight_call(struct nccl_flight *f, const struct nccl_way *way, struct nccl_comm *comm,
                     struct err *err)
{
    f->stage = FLIGHT_CALLED;
    return nccl_comm_launch(comm, &f->steps, way->gpu->call, err);
}

int nccl_flight_follow(struct nccl_flight *f, const struct nccl_way *way, struct err *err)
{
    struct gpu *gpu = way->gpu;
    bool unpacks = f->buffered > 0;
    int rc = unpacks ? cuda_stream_follow(gpu->device, gpu->out, gpu->call, f->called, err) : 0;
    if (rc == 0 && unpacks)
        rc = move(f, gpu, true, err);
    if (rc == 0)
        rc = cuda_event_record(gpu->device, f->done, unpacks ? gpu->out : gpu->call, err);
    if (rc == 0)
        f->stage = FLIGHT_BEHIND;
    return rc;
}

struct CUevent_st *nccl_flight_last(const struct nccl_flight *f)
{
    if (f->stage == FLIGHT_BEHIND)
        return f->done;
    if (f->stage != FLIGHT_PACKED)
        return NULL;
    return f->buffered > 0 ? f->inputs : f->kept.bytes > 0 ? f->kept.event : NULL;
}
