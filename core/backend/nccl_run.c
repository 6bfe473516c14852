/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run: see nccl_run.h. Its life, and an operation from its tensors to the event behind it;
 * nccl_run_form.c has epochs.
 */
#include "core/backend/nccl_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/backend/cuda_kernels.h"
#include "core/backend/nccl_run_private.h"
#include "core/base/clock.h"
#include "core/coll/algorithm.h"

#define BUFFER_ALIGN ((size_t)256)
/* Tensors from this size on are packed only if they need a kernel. */
#define DIRECT_BYTES ((size_t)512 << 10)

/* ---- struct nccl_host: callbacks of NCCL's calls, which may run on other threads ---- */

/* Runs on a thread that only calls NCCL, so the context that was current there before need not be
 * restored. */
static int bind(void *ctx)
{
    const struct nccl_ground *g = ctx;
    unsigned mode = CUDA_CAPTURE_RELAXED;
    if (g->api->context_set(g->context) != CUDA_OK)
        return -EIO;
    return g->api->capture_mode(&mode) == CUDA_OK ? 0 : -EIO;
}

static int copy(void *ctx, void *dst, const void *src, size_t bytes, struct CUstream_st *stream)
{
    const struct nccl_ground *g = ctx;
    cuda_address to = (uintptr_t)dst, from = (uintptr_t)src;
    return g->api->copy(to, from, bytes, stream) == CUDA_OK ? 0 : -EIO;
}

/* ---- life ---- */

int nccl_run_create(struct gpu *gpu, const struct nccl_limits *limits, struct nccl_run **ret,
                    struct err *err)
{
    struct nccl_run *run = calloc(1, sizeof(*run));
    struct nccl_ground *ground = calloc(1, sizeof(*ground));
    int rc = run && ground ? 0 : err_set(err, ENOMEM, "no memory for operations by NCCL");
    if (rc == 0)
        rc = cuda_event_get(gpu->device, &run->event, err);
    if (rc < 0) {
        free(run);
        free(ground);
        return rc;
    }
    *ground =
        (struct nccl_ground){.api = gpu->device->api, .context = gpu->device->context, .run = run};
    run->gpu = gpu;
    run->limits = limits ? *limits : (struct nccl_limits)NCCL_LIMITS_DEFAULT;
    run->ground = ground;
    *ret = run;
    return 0;
}

int nccl_run_load(struct nccl_run *run)
{
    const struct nccl_host host = {
        .ctx = run->ground, .bind = bind, .exchange = nccl_run_exchange, .copy = copy};
    const struct nccl_api *api;
    if (run->api)
        return 0;
    run->no_nccl = (struct err){0};
    int rc = nccl_api_load(&api, &run->no_nccl);
    if (rc == 0)
        rc = nccl_comm_create(api, &host, &run->limits, &run->comm, &run->no_nccl);
    if (rc == 0)
        run->api = api;
    return rc;
}

int nccl_run_none(const struct nccl_run *run, struct err *err)
{
    return err_set(err, ENOTCONN, "there is no communicator of NCCL's%s%s",
                   run->no_nccl.code ? ": " : "", run->no_nccl.code ? run->no_nccl.msg : "");
}

/* Waits until the stream has no work of hvd; bounded in time. Returns whether it has none. */
static bool drain(struct nccl_run *run)
{
    const struct timespec nap = {.tv_nsec = 500000};
    uint64_t deadline = deadline_in_ms(run->limits.abort_ms);
    bool rid;
    while (!(rid = nccl_run_settle(run, NULL) == 0) && !run->gpu->device->lost.code &&
           !deadline_passed(deadline))
        nanosleep(&nap, NULL);
    return rid;
}

/* Called when a thread was abandoned in NCCL: what it reads must never be freed. A list keeps it
 * reachable for leak checkers. */
static void leave_ground(struct nccl_ground *ground)
{
    static struct nccl_ground *abandoned;
    ground->run = NULL;
    ground->next = abandoned;
    abandoned = ground;
}

/* Gives up the operation in flight; does not touch the communicator. */
static void give_up(struct nccl_run *run)
{
    if (run->doing == RUN_LAUNCHED || run->doing == RUN_BEHIND) {
        run->given_up = true;
        run->marked = false;
        run->drain_deadline = 0;
    }
    run->doing = RUN_IDLE;
    run->op = NULL;
}

bool nccl_run_destroy(struct nccl_run *run)
{
    if (!run)
        return true;
    give_up(run);
    if (run->fusion.at) { /* drains the stream first: freeing would wait for all its work */
        run->used = true;
        run->marked = false;
    }
    bool lost = run->gpu->device->lost.code != 0;
    bool clean = nccl_comm_destroy(run->comm);
    bool rid = clean && !lost && drain(run);
    if (rid)
        cuda_memory_free(run->gpu->device, &run->fusion);
    cuda_event_put(run->gpu->device, run->event);
    if (clean)
        free(run->ground);
    else
        leave_ground(run->ground);
    nccl_steps_fini(&run->steps);
    free(run->pieces);
    free(run->counts);
    free(run->places);
    free(run->seen);
    free(run);
    return clean && (rid || lost);
}

void nccl_run_describe(const struct nccl_run *run, char *dst, size_t size)
{
    if (run->api)
        snprintf(dst, size, "%s (%s, %s)", run->api->text, run->api->path,
                 nccl_origin_name(run->api->origin));
    else
        snprintf(dst, size, "not loaded%s%s", run->no_nccl.code ? ": " : "",
                 run->no_nccl.code ? run->no_nccl.msg : "");
}

/* ---- what is on the stream ---- */

int nccl_run_settle(struct nccl_run *run, struct err *err)
{
    struct cuda_device *d = run->gpu->device;
    int rc = 0;
    if (!run->used)
        return 0;
    if (!run->marked)
        rc = cuda_event_record(d, run->event, run->gpu->stream, err);
    if (rc < 0)
        return rc;
    run->marked = true;
    rc = cuda_event_done(d, run->event, err);
    if (rc != 0)
        return rc;
    run->used = run->marked = false;
    return 0;
}

/* ---- the plan of an operation: what NCCL sees, and how it gets there ---- */

/* Makes room for n tensors. */
static int make_room(struct nccl_run *run, size_t n, struct err *err)
{
    if (n <= run->cap)
        return 0;
    size_t cap = n < 64 ? 64 : n + n / 2;
    struct gpu_piece *pieces = realloc(run->pieces, cap * sizeof(*pieces));
    run->pieces = pieces ? pieces : run->pieces;
    size_t *counts = realloc(run->counts, cap * sizeof(*counts));
    run->counts = counts ? counts : run->counts;
    size_t *places = realloc(run->places, cap * sizeof(*places));
    run->places = places ? places : run->places;
    struct coll_tensor *seen = realloc(run->seen, (cap + 1) * sizeof(*seen));
    run->seen = seen ? seen : run->seen;
    if (!pieces || !counts || !places || !seen)
        return err_set(err, ENOMEM, "no memory for an operation of %zu tensors", n);
    run->cap = cap;
    return 0;
}

/* Lays out the tensors one after the other; results of another size follow them. */
static int lay_out(struct nccl_run *run, const struct coll_op *op, enum hvd_dtype dtype,
                   struct err *err)
{
    size_t elem = hvd_dtype_size(dtype), size;
    int rc = make_room(run, op->n, err);
    if (rc < 0)
        return rc;
    run->nseen = 1;
    for (size_t i = 0; i < op->n; i++) {
        const struct coll_tensor *t = &op->tensors[i];
        bool direct = run->direct && t->count * elem >= DIRECT_BYTES;
        run->counts[i] = direct ? 0 : t->count;
        if (direct)
            run->seen[run->nseen++] = *t;
    }
    size = gpu_layout(run->counts, op->n, elem, run->places);
    struct coll_tensor *buffer = &run->seen[0];
    buffer->count = size / elem;
    run->out_at = 0;
    if (op->kind == HVD_REDUCESCATTER) {
        buffer->count = op->tensors[0].count;
        run->out_at = (size + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
        size = run->out_at + op->recv_counts[run->rank] * elem;
    }
    rc = size > 0 ? gpu_reserve(run->gpu, &run->fusion, size, err) : 0;
    if (rc < 0)
        return rc;
    buffer->in = run->fusion.at;
    buffer->out = size > 0 ? (uint8_t *)run->fusion.at + run->out_at : NULL;
    return 0;
}

/* Is there at most one tensor that has elements? */
static bool is_single(const struct coll_op *op)
{
    size_t n = 0;
    for (size_t i = 0; i < op->n && n < 2; i++)
        n += op->tensors[i].count > 0;
    return n < 2;
}

/* What NCCL can do; whether kernels are used is added by the caller. */
static struct nccl_means means_of(const struct nccl_run *run)
{
    return (struct nccl_means){.version = run->api->version, .cuda = run->api->cuda};
}

/* why: the reason why the operation needs kernels. */
static int refuse(const struct nccl_run *run, const struct coll_op *op, const struct err *why,
                  struct err *err)
{
    struct nccl_means means = means_of(run);
    struct nccl_form form;
    means.kernels = true;
    if (nccl_form_of(&means, op, run->size, &form, err) < 0)
        return -ENOTSUP;
    return err_set(err, ENOTSUP, "%s: %s", why->msg,
                   run->gpu->kernels ? "another rank lacks them" : run->gpu->no_kernels.msg);
}

static bool has_large(const struct coll_op *op)
{
    size_t elem = hvd_dtype_size(op->dtype);
    for (size_t i = 0; i < op->n; i++)
        if (op->tensors[i].count * elem >= DIRECT_BYTES)
            return true;
    return false;
}

/* Chooses which tensors are packed, by the rules in nccl_run.h. */
static int plan(struct nccl_run *run, const struct coll_op *op, struct err *err)
{
    struct nccl_means means = means_of(run);
    struct coll_op seen = *op;
    struct nccl_form form;
    struct err why = {0};
    int rc = nccl_form_of(&means, op, run->size, &form, &why);
    /* Kernels are needed if NCCL cannot run the operation, or would round its factor roughly. */
    bool kernels = rc < 0 || nccl_form_is_rough(&form, run->size);
    if (rc < 0 && !run->kernels)
        return refuse(run, op, &why, err);
    run->packed = run->kernels && (kernels || !is_single(op));
    run->direct = run->packed && !kernels && has_large(op);
    if (run->packed) {
        means.kernels = !run->direct;
        rc = nccl_form_of(&means, op, run->size, &form, err);
        if (rc == 0)
            rc = lay_out(run, op, form.dtype, err);
        if (rc < 0)
            return rc;
        seen.tensors = run->seen;
        seen.n = run->nseen;
    }
    return nccl_steps_make(&means, &seen, run->rank, run->size, &run->steps, err);
}

/* ---- an operation ---- */

/* Makes the stream wait until the inputs are ready. If the operation is packed, also packs them
 * into the fusion buffer. */
static int pack(struct nccl_run *run, struct err *err)
{
    const struct coll_op *op = run->op;
    const struct nccl_form *f = &run->steps.form;
    const struct gpu_change change = {op->dtype, f->dtype, f->prescale, 1, 1};
    int rc = gpu_await(run->gpu, op, err);
    if (rc < 0 || !run->packed || run->seen[0].count == 0)
        return rc;
    for (size_t i = 0; i < op->n; i++)
        run->pieces[i] = (struct gpu_piece){.from = op->tensors[i].in,
                                            .to = (uint8_t *)run->fusion.at + run->places[i],
                                            .count = run->counts[i]};
    run->used = true;
    run->marked = false;
    return cuda_move(run->gpu->device, &change, run->pieces, op->n, run->gpu->stream, err);
}

static int unpack(struct nccl_run *run, struct err *err)
{
    const struct coll_op *op = run->op;
    const struct nccl_form *f = &run->steps.form;
    const struct gpu_change change = {f->dtype, op->dtype, 1, f->divisor, f->postscale};
    bool scattered = op->kind == HVD_REDUCESCATTER;
    for (size_t i = 0; i < op->n; i++)
        run->pieces[i] =
            (struct gpu_piece){.from = (uint8_t *)run->fusion.at + run->places[i] + run->out_at,
                               .to = op->tensors[i].out,
                               .count = scattered ? op->recv_counts[run->rank] : run->counts[i]};
    return cuda_move(run->gpu->device, &change, run->pieces, op->n, run->gpu->stream, err);
}

int nccl_run_prepare(struct nccl_run *run, const struct mesh *mesh, const struct coll_op *op,
                     struct err *err)
{
    if (run->doing != RUN_IDLE)
        return err_set(err, EBUSY, "an operation of NCCL's is in flight");
    if (!run->comm || !run->heard)
        return nccl_run_none(run, err);
    if (mesh->rank != run->rank || mesh->size != run->size)
        return err_set(err, EINVAL, "rank %d of %d, but NCCL's ranks are those of another epoch",
                       mesh->rank, mesh->size);
    /* Earlier work may still use the buffer: this operation is added to the stream after it. */
    int rc = plan(run, op, err);
    if (rc < 0)
        return rc;
    run->op = op;
    run->doing = RUN_PLANNED;
    if (run->given_up)
        return 0;
    rc = pack(run, err);
    run->doing = rc < 0 ? RUN_IDLE : RUN_PREPARED;
    return rc;
}

int nccl_run_launch(struct nccl_run *run, struct err *err)
{
    int rc = 0;
    if (run->doing != RUN_PLANNED && run->doing != RUN_PREPARED)
        return err_set(err, EINVAL, "nothing was prepared for NCCL");
    if (run->form.phase != FORM_READY)
        return nccl_run_none(run, err);
    if (run->doing == RUN_PLANNED)
        rc = pack(run, err);
    if (rc < 0)
        return rc;
    run->doing = RUN_LAUNCHED;
    run->used = true;
    run->marked = false;
    return nccl_comm_launch(run->comm, &run->steps, run->gpu->stream, err);
}

/* Called when NCCL has put the operation on the stream. */
static int follow(struct nccl_run *run, struct err *err)
{
    int rc = run->packed && run->seen[0].count > 0 ? unpack(run, err) : 0;
    if (rc == 0)
        run->doing = RUN_BEHIND;
    return rc;
}

int nccl_run_progress(struct nccl_run *run, struct err *err)
{
    int rc;
    if (run->doing == RUN_LAUNCHED) {
        rc = nccl_comm_progress(run->comm, err);
        if (rc == 0)
            rc = follow(run, err);
        if (rc != 0)
            return rc;
    }
    if (run->doing != RUN_BEHIND)
        return 0;
    int on_stream = nccl_run_settle(run, err);
    if (on_stream < 0)
        return on_stream;
    /* Polled after the event: the event also completes when NCCL has given up. */
    rc = nccl_comm_progress(run->comm, err);
    if (rc != 0 || on_stream)
        return rc < 0 ? rc : 1;
    run->doing = RUN_IDLE;
    run->op = NULL;
    return 0;
}

/* ---- cancelling ---- */

void nccl_run_cancel(struct nccl_run *run)
{
    if (run->form.parting)
        coll_part_cancel(run->form.coll);
    run->form.parting = false;
    if (run->doing == RUN_PLANNED || run->doing == RUN_PREPARED)
        give_up(run);
}

void nccl_run_abort(struct nccl_run *run)
{
    give_up(run);
    run->form.phase = FORM_NONE;
    run->form.parting = false;
    if (run->comm)
        nccl_comm_abort(run->comm);
}

bool nccl_run_aborting(struct nccl_run *run)
{
    if (nccl_comm_phase(run->comm) != NCCL_ABORT)
        return false;
    nccl_comm_progress(run->comm, NULL);
    return nccl_comm_phase(run->comm) == NCCL_ABORT;
}

int nccl_run_drained(struct nccl_run *run, struct err *err)
{
    /* Until the abort has returned NCCL may still add work to the stream. */
    if (run->given_up && nccl_run_aborting(run))
        return 1;
    if (run->given_up && run->drain_deadline == 0)
        run->drain_deadline = deadline_in_ms(run->limits.abort_ms);
    int rc = nccl_run_settle(run, err);
    if (rc == 1 && run->given_up && deadline_passed(run->drain_deadline))
        return err_set(err, ETIMEDOUT,
                       "NCCL was aborted on GPU %d, but work on its stream does not end: restart "
                       "this process",
                       run->gpu->device->ordinal);
    if (rc == 0)
        run->given_up = false;
    return rc;
}
