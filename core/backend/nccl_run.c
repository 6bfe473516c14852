/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run: see nccl_run.h.
 */
#include "core/backend/nccl_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/coll/algorithm.h"

/* Limits of what is in flight: operations, and memory for fused tensors and retained inputs. */
#define FLIGHTS_MAX  64
#define WINDOW_BYTES ((size_t)256 << 20)

/* ---- struct nccl_host: callbacks of NCCL's calls, which may run on other threads ---- */

/* Runs on a thread that only calls NCCL, so the context that was current there before need not be
 * restored. */
static int bind(void *ctx)
{
    const struct nccl_context *c = ctx;
    unsigned mode = CUDA_CAPTURE_RELAXED;
    if (c->api->context_set(c->context) != CUDA_OK)
        return -EIO;
    return c->api->capture_mode(&mode) == CUDA_OK ? 0 : -EIO;
}

static int copy(void *ctx, void *dst, const void *src, size_t bytes, struct CUstream_st *stream)
{
    const struct nccl_context *c = ctx;
    cuda_address to = (uintptr_t)dst, from = (uintptr_t)src;
    return c->api->copy(to, from, bytes, stream) == CUDA_OK ? 0 : -EIO;
}

/* ---- what is on the streams ---- */

/* The streams have got work after the marks. */
static void use(struct nccl_run *run)
{
    run->used = true;
    run->marked = false;
}

static int record_marks(struct nccl_run *run, struct err *err)
{
    const struct gpu *gpu = run->gpu;
    struct CUstream_st *const streams[NCCL_MARKS] = {gpu->stream, gpu->call, gpu->out};
    int rc = 0;
    for (int i = 0; i < NCCL_MARKS && rc == 0; i++)
        rc = cuda_event_record(gpu->device, run->marks[i], streams[i], err);
    run->marked = rc == 0;
    return rc;
}

static int settle(struct nccl_run *run, struct err *err)
{
    int rc = 0;
    if (!run->used)
        return 0;
    if (!run->marked)
        rc = record_marks(run, err);
    for (int i = 0; i < NCCL_MARKS && rc == 0; i++)
        rc = cuda_event_done(run->gpu->device, run->marks[i], err);
    if (rc == 0)
        run->used = run->marked = false;
    return rc;
}

/* ---- life ---- */

int nccl_run_create(struct gpu *gpu, const struct nccl_limits *limits, struct nccl_run **ret,
                    struct err *err)
{
    struct nccl_run *run = calloc(1, sizeof(*run));
    struct nccl_context *context = calloc(1, sizeof(*context));
    int rc = run && context ? 0 : err_set(err, ENOMEM, "no memory for operations by NCCL");
    for (int i = 0; i < NCCL_MARKS && rc == 0; i++)
        rc = cuda_event_get(gpu->device, &run->marks[i], err);
    if (rc < 0) {
        for (int i = 0; i < NCCL_MARKS && run; i++)
            cuda_event_put(gpu->device, run->marks[i]);
        free(run);
        free(context);
        return rc;
    }
    *context = (struct nccl_context){.api = gpu->device->api, .context = gpu->device->context};
    run->gpu = gpu;
    run->limits = limits ? *limits : (struct nccl_limits)NCCL_LIMITS_DEFAULT;
    run->context = context;
    run->end = &run->first;
    *ret = run;
    return 0;
}

static int load(struct nccl_run *run)
{
    const struct nccl_host host = {.ctx = run->context, .bind = bind, .copy = copy};
    const struct nccl_api *api;
    run->no_nccl = (struct err){0};
    if (run->api)
        return 0;
    int rc = nccl_api_load(&api, &run->no_nccl);
    if (rc == 0)
        rc = nccl_comm_create(api, &host, &run->limits, &run->comm, &run->no_nccl);
    if (rc == 0)
        run->api = api;
    return rc;
}

static int none(const struct nccl_run *run, struct err *err)
{
    return err_set(err, ENOTCONN, "there is no communicator of NCCL's%s%s",
                   run->no_nccl.code ? ": " : "", run->no_nccl.code ? run->no_nccl.msg : "");
}

/* Waits until the streams have no work of hvd; bounded in time. Returns whether it has none. */
static bool drain(struct nccl_run *run)
{
    const struct timespec nap = {.tv_nsec = 500000};
    uint64_t deadline = deadline_in_ms(run->limits.abort_ms);
    bool rid;
    while (!(rid = settle(run, NULL) == 0) && !run->gpu->device->lost.code &&
           !deadline_passed(deadline))
        nanosleep(&nap, NULL);
    return rid;
}

/* Called when a thread was abandoned in NCCL: what it reads must never be freed. A list keeps it
 * reachable for leak checkers. */
static void orphan_context(struct nccl_context *context)
{
    static struct nccl_context *abandoned;
    context->next = abandoned;
    abandoned = context;
}

static void destroy_all(struct nccl_flight *first, struct gpu *gpu)
{
    for (struct nccl_flight *next; first; first = next) {
        next = first->next;
        nccl_flight_destroy(first, gpu);
    }
}

bool nccl_run_destroy(struct nccl_run *run)
{
    if (!run)
        return true;
    use(run); /* drains the streams before memory is freed, because that waits for all their work */
    bool lost = run->gpu->device->lost.code != 0;
    bool clean = nccl_comm_destroy(run->comm);
    bool rid = clean && !lost && drain(run);
    struct gpu *gpu = rid ? run->gpu : NULL;
    destroy_all(run->first, gpu);
    destroy_all(run->owed, gpu);
    destroy_all(run->spare, gpu);
    for (int i = 0; i < NCCL_MARKS; i++)
        cuda_event_put(run->gpu->device, run->marks[i]);
    if (clean)
        free(run->context);
    else
        orphan_context(run->context);
    free(run);
    return clean && (rid || lost);
}

/* ---- flights ---- */

static int take_spare(struct nccl_run *run, struct nccl_flight **ret, struct err *err)
{
    struct nccl_flight *f = run->spare;
    if (!f) {
        int rc = nccl_flight_create(run->gpu, &f, err);
        if (rc < 0)
            return rc;
    } else {
        run->spare = f->next;
    }
    run->out++;
    *ret = f;
    return 0;
}

static void put_spare(struct nccl_run *run, struct nccl_flight *f)
{
    run->out--;
    run->bytes -= f->bytes;
    nccl_flight_drop(f, run->gpu);
    f->next = run->spare;
    run->spare = f;
}

int nccl_run_possible(struct nccl_run *run, const struct coll_op *op, struct err *err)
{
    if (!run->heard)
        return none(run, err);
    return nccl_flight_possible(&run->way, op, err);
}

bool nccl_run_has_room(const struct nccl_run *run)
{
    return run->out == 0 || (run->out < FLIGHTS_MAX && run->bytes < WINDOW_BYTES);
}

/* The oldest operation that has not reached this stage; NULL: none. */
static struct nccl_flight *first_below(const struct nccl_run *run, enum nccl_stage stage)
{
    struct nccl_flight *f = run->first;
    while (f && f->stage >= stage)
        f = f->next;
    return f;
}

size_t nccl_run_count(const struct nccl_run *run, enum nccl_stage stage)
{
    size_t n = 0;
    for (const struct nccl_flight *f = run->first; f && f->stage >= stage; f = f->next)
        n++;
    return n;
}

/* Moves operations forward while the communicator is ready for it. */
static int advance(struct nccl_run *run, struct err *err)
{
    int rc = nccl_comm_progress(run->comm, err);
    struct nccl_flight *f;
    while (rc == 0 && (f = first_below(run, FLIGHT_BEHIND)) != NULL) {
        use(run);
        if (f->stage == FLIGHT_PACKED)
            rc = nccl_flight_call(f, &run->way, run->comm, err);
        if (rc == 0)
            rc = nccl_comm_progress(run->comm, err);
        if (rc == 0)
            rc = nccl_flight_follow(f, &run->way, err);
    }
    return rc < 0 ? rc : 0;
}

int nccl_run_add(struct nccl_run *run, const struct coll_op *op, bool retain,
                 struct nccl_flight **ret, struct err *err)
{
    struct nccl_flight *f;
    struct err unsaid = {0};
    if (!run->ready)
        return none(run, err);
    int rc = take_spare(run, &f, err);
    if (rc < 0)
        return rc;
    use(run);
    rc = nccl_flight_plan(f, &run->way, op, retain, err);
    run->bytes += f->bytes;
    if (rc < 0) {
        put_spare(run, f);
        return rc == -ENOMEM && run->out > 0 ? -EAGAIN : rc;
    }
    f->next = NULL;
    *run->end = f;
    run->end = &f->next;
    *ret = f;
    rc = nccl_flight_pack(f, &run->way, err);
    if (rc == 0)
        advance(run, &unsaid); /* nccl_run_progress() reports what fails */
    return rc;
}

int nccl_run_progress(struct nccl_run *run, struct err *err)
{
    struct nccl_flight *aloft = first_below(run, FLIGHT_DONE), *f = aloft;
    int rc = 0;
    if (!aloft)
        return 0;
    while (f && f->stage == FLIGHT_BEHIND &&
           (rc = cuda_event_done(run->gpu->device, f->done, err)) == 0)
        f = f->next;
    /* Polled after the events: they also complete when NCCL has given up. */
    if (rc >= 0)
        rc = nccl_comm_progress(run->comm, err);
    if (rc < 0)
        return rc;
    for (; aloft != f; aloft = aloft->next)
        aloft->stage = FLIGHT_DONE;
    return advance(run, err);
}

void nccl_run_release(struct nccl_run *run, size_t n)
{
    for (struct nccl_flight *f = run->first; f && n > 0; f = run->first, n--) {
        if (!(run->first = f->next))
            run->end = &run->first;
        put_spare(run, f);
    }
}

int nccl_run_await(struct nccl_run *run, const struct nccl_flight *f, struct CUstream_st *stream,
                   struct err *err)
{
    if (f->stage < FLIGHT_BEHIND)
        return 1;
    return f->stage == FLIGHT_DONE ? 0 : cuda_stream_wait(run->gpu->device, stream, f->done, err);
}

/* ---- the end of a communicator ---- */

void nccl_run_abort(struct nccl_run *run)
{
    if (first_below(run, FLIGHT_DONE) && !run->given_up) {
        run->given_up = true;
        run->program_deadline = deadline_in_ms(run->limits.program_ms);
    }
    run->drain_deadline = 0;
    run->marked = false;
    run->ready = false;
    if (run->comm)
        nccl_comm_abort(run->comm);
}

void nccl_run_give_back(struct nccl_run *run)
{
    *run->end = run->owed;
    run->owed = run->first;
    run->first = NULL;
    run->end = &run->first;
}

/* Whether an operation waits for the program's own work on the GPU: from the oldest on, up to the
 * first that NCCL works on. */
static bool waits_for_program(const struct nccl_run *run)
{
    const struct nccl_flight *f = run->owed ? run->owed : run->first;
    for (; f; f = f->next) {
        if (kept_waits(&f->kept, run->gpu))
            return true;
        if (f->stage == FLIGHT_BEHIND && cuda_event_done(run->gpu->device, f->done, NULL) == 1)
            return false; /* the limit is for what NCCL and hvd do */
    }
    return false;
}

/* The limits for what was aborted begin when the program's own work before it has ended: NCCL's
 * abort frees memory, which waits for the device. */
static void hold_limits(struct nccl_run *run)
{
    if (!run->given_up || !waits_for_program(run) || deadline_passed(run->program_deadline))
        return;
    run->drain_deadline = 0;
    nccl_comm_hold(run->comm);
}

static bool aborting(struct nccl_run *run)
{
    if (nccl_comm_phase(run->comm) != NCCL_ABORT)
        return false;
    hold_limits(run);
    nccl_comm_progress(run->comm, NULL);
    return nccl_comm_phase(run->comm) == NCCL_ABORT;
}

int nccl_run_drained(struct nccl_run *run, struct err *err)
{
    /* Until the abort has returned NCCL may still add work to the stream. */
    if (run->given_up && aborting(run))
        return 1;
    hold_limits(run);
    if (run->given_up && run->drain_deadline == 0)
        run->drain_deadline = deadline_in_ms(run->limits.abort_ms);
    int rc = settle(run, err);
    if (rc == 1 && run->given_up && deadline_passed(run->drain_deadline))
        return err_set(
            err, ETIMEDOUT, "NCCL was aborted on GPU %d, but %s does not end: restart this process",
            run->gpu->device->ordinal,
            waits_for_program(run) ? "the program's own work there" : "work on its stream");
    if (rc == 0)
        run->given_up = false;
    return rc;
}

int nccl_run_restore(struct nccl_run *run, struct err *err)
{
    int rc = nccl_run_drained(run, err);
    while (rc == 0 && run->owed) {
        struct nccl_flight *f = run->owed;
        run->owed = f->next;
        use(run);
        rc = kept_restore(&f->kept, run->gpu, err);
        put_spare(run, f);
    }
    return rc == 0 ? gpu_join(run->gpu, err) : rc;
}

bool nccl_run_owes(const struct nccl_run *run)
{
    return run->given_up || run->owed;
}

/* ---- the communicator of an epoch ---- */

int nccl_run_say(struct nccl_run *run, int rank, int size, struct nccl_fact *ret)
{
    int rc = load(run);
    if (rc == 0 && aborting(run))
        return 1;
    if (rc == 0 && rank == 0 && !run->unused)
        rc = nccl_comm_id(run->comm, size, &run->id, &run->no_nccl);
    if (rc == 1)
        return 1;
    run->unused = false; /* from here on other ranks may use it */
    nccl_fact_fill(ret, rank, run->gpu->device, run->api, &run->no_nccl);
    ret->id = run->id;
    ret->kernels = run->gpu->kernels;
    return 0;
}

enum nccl_verdict nccl_run_hear(struct nccl_run *run, const struct nccl_fact *all, int rank,
                                int size, struct err *ret_why)
{
    bool kernels = true;
    for (int r = 0; r < size; r++)
        kernels = kernels && all[r].kernels;
    run->id = all[0].id;
    enum nccl_verdict verdict = nccl_facts_judge(all, size, ret_why);
    run->heard = verdict != NCCL_BAD;
    if (run->heard)
        run->way = (struct nccl_way){.gpu = run->gpu,
                                     .means = {run->api->version, run->api->cuda, false},
                                     .kernels = kernels,
                                     .rank = rank,
                                     .size = size};
    run->unused = verdict == NCCL_BAD && rank == 0 && all[0].nccl != 0;
    return verdict;
}

int nccl_run_form(struct nccl_run *run, struct err *err)
{
    int rc = run->heard ? 0 : none(run, err);
    if (rc == 0 && nccl_comm_phase(run->comm) == NCCL_NONE)
        rc = nccl_comm_start(run->comm, run->way.rank, run->way.size, &run->id, err);
    if (rc == 0)
        rc = nccl_comm_progress(run->comm, err);
    run->ready = rc == 0;
    if (rc < 0 && run->heard)
        nccl_comm_abort(run->comm);
    run->heard = run->heard && rc >= 0;
    return rc;
}
