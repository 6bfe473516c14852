/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run: see nccl_run.h.
 */
#include "core/backend/nccl_run_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/coll/algorithm.h"

/* Limits of what is in flight: operations, and memory for fused tensors and retained inputs. */
#define FLIGHTS_MAX  64
#define WINDOW_BYTES ((size_t)256 << 20)

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

/* Whether the operations' work has ended: 0, 1 or -errno. *unsure: one of them was being put on
 * streams, by NCCL, or by hvd, which has failed there. */
static int look_at(struct nccl_run *run, const struct nccl_flight *f, bool *unsure, struct err *err)
{
    int rc = 0;
    for (; f && rc == 0; f = f->next) {
        struct CUevent_st *last = nccl_flight_last(f);
        *unsure = *unsure || f->stage == FLIGHT_CALLED || f->stage == FLIGHT_PLANNED;
        if (last)
            rc = cuda_event_done(run->gpu->device, last, err);
    }
    return rc;
}

/* Waits for no other work than the run's own, as far as that is possible: other sets have theirs on
 * the same streams, and it may wait for other ranks. */
static int settle(struct nccl_run *run, struct err *err)
{
    int rc = 0;
    bool unsure = false;
    const struct err *lost = &run->gpu->device->lost;
    if (!run->used)
        return 0;
    if (lost->code)
        return err_set(err, -lost->code, "%s", lost->msg);
    if (!run->marked)
        rc = look_at(run, run->first, &unsure, err);
    if (rc == 0 && !run->marked)
        rc = look_at(run, run->owed, &unsure, err);
    if (rc == 0 && unsure)
        rc = record_marks(run, err);
    for (int i = 0; i < NCCL_MARKS && rc == 0 && run->marked; i++)
        rc = cuda_event_done(run->gpu->device, run->marks[i], err);
    if (rc == 0)
        run->used = run->marked = false;
    return rc;
}

/* The oldest operation that has not reached this stage; NULL: none. */
static struct nccl_flight *first_below(const struct nccl_run *run, enum nccl_stage stage)
{
    struct nccl_flight *f = run->first;
    while (f && f->stage >= stage)
        f = f->next;
    return f;
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

int nccl_run_none(const struct nccl_run *run, struct err *err)
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
    if (first_below(run, FLIGHT_DONE) || nccl_run_owes(run))
        use(run);
    bool lost = run->gpu->device->lost.code != 0;
    gpu_room_ended(run->gpu, &run->part);
    bool clean = nccl_comm_destroy(run->comm);
    bool rid = clean && !lost && drain(run);
    struct gpu *gpu = rid ? run->gpu : NULL;
    for (const struct nccl_flight *f = run->first; f; f = f->next)
        run->gpu->flights--;
    destroy_all(run->first, gpu);
    destroy_all(run->owed, gpu);
    destroy_all(run->spare, gpu);
    for (int i = 0; i < NCCL_MARKS; i++)
        cuda_event_put(run->gpu->device, run->marks[i]);
    if (gpu)
        gpu_room_look(gpu); /* for the memory that is free now */
    if (clean)
        free(run->context);
    else
        nccl_context_abandon(run->context);
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
        return nccl_run_none(run, err);
    return nccl_flight_possible(&run->way, op, err);
}

bool nccl_run_has_room(const struct nccl_run *run)
{
    return run->out == 0 || (run->out < FLIGHTS_MAX && run->bytes < WINDOW_BYTES);
}

size_t nccl_run_count(const struct nccl_run *run, enum nccl_stage stage)
{
    size_t n = 0;
    for (const struct nccl_flight *f = run->first; f && f->stage >= stage; f = f->next)
        n += !f->aside;
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
        return nccl_run_none(run, err);
    int rc = take_spare(run, &f, err);
    if (rc < 0)
        return rc;
    use(run);
    rc = nccl_flight_plan(f, &run->way, op, retain, err);
    run->bytes += f->bytes;
    if (rc < 0) {
        put_spare(run, f);
        return rc == -ENOMEM && run->gpu->flights > 0 ? -EAGAIN : rc;
    }
    f->next = NULL;
    f->aside = false;
    *run->end = f;
    run->end = &f->next;
    run->gpu->flights++;
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
    for (; rc >= 0 && aloft != f; aloft = aloft->next)
        aloft->stage = FLIGHT_DONE;
    rc = rc < 0 ? rc : advance(run, err);
    if (rc < 0)
        gpu_room_explain(run->gpu, &run->part, err);
    return rc;
}

/* Takes the operation at *at out of the list. */
static struct nccl_flight *take_out(struct nccl_run *run, struct nccl_flight **at)
{
    struct nccl_flight *f = *at;
    if (!(*at = f->next))
        run->end = at;
    run->gpu->flights--;
    return f;
}

/* The first operation that is aside, or that is not; the end of the list: there is none. */
static struct nccl_flight **find(struct nccl_run *run, bool aside)
{
    struct nccl_flight **at = &run->first;
    while (*at && (*at)->aside != aside)
        at = &(*at)->next;
    return at;
}

static void note_released(struct nccl_run *run)
{
    if (!run->first && !nccl_run_owes(run)) /* all that was put on streams came before their ends */
        run->used = run->marked = false;
}

void nccl_run_release(struct nccl_run *run, size_t n)
{
    struct nccl_flight **at;
    for (; n > 0 && *(at = find(run, false)); n--)
        put_spare(run, take_out(run, at));
    note_released(run);
}

void nccl_run_release_aside(struct nccl_run *run, struct nccl_flight *flight)
{
    struct nccl_flight **at = &run->first;
    while (*at != flight)
        at = &(*at)->next;
    put_spare(run, take_out(run, at));
    note_released(run);
}

int nccl_run_await(struct nccl_run *run, const struct nccl_flight *f, struct CUstream_st *stream,
                   struct err *err)
{
    if (f->stage < FLIGHT_BEHIND)
        return 1;
    return f->stage == FLIGHT_DONE ? 0 : cuda_stream_wait(run->gpu->device, stream, f->done, err);
}

/* ---- the end of a communicator ---- */

static void give_back_aside(struct nccl_run *run)
{
    struct nccl_flight **at, **end = &run->owed;
    while (*end)
        end = &(*end)->next;
    while (*(at = find(run, true))) {
        *end = take_out(run, at);
        end = &(*end)->next;
        *end = NULL;
    }
}

void nccl_run_abort(struct nccl_run *run)
{
    if (first_below(run, FLIGHT_DONE) && !run->given_up) {
        run->given_up = true;
        run->program_deadline = deadline_in_ms(run->limits.program_ms);
    }
    run->drain_deadline = 0;
    run->marked = false;
    run->ready = false;
    give_back_aside(run);
    gpu_room_ended(run->gpu, &run->part);
    if (run->comm)
        nccl_comm_abort(run->comm);
}

void nccl_run_give_back(struct nccl_run *run)
{
    for (const struct nccl_flight *f = run->first; f; f = f->next)
        run->gpu->flights--;
    *run->end = run->owed;
    run->owed = run->first;
    run->first = NULL;
    run->end = &run->first;
}

enum wait { WAIT_NONE, WAIT_PROGRAM, WAIT_OURS };

/* For whose work on the GPU the operations of the list wait, from the oldest on: the program's, or
 * NCCL's and hvd's. */
static enum wait wait_of(const struct nccl_run *run, const struct nccl_flight *f)
{
    for (; f; f = f->next) {
        if (kept_waits(&f->kept, run->gpu))
            return WAIT_PROGRAM;
        if (f->stage == FLIGHT_BEHIND && cuda_event_done(run->gpu->device, f->done, NULL) == 1)
            return WAIT_OURS;
    }
    return WAIT_NONE;
}

/* After nccl_run_abort() messages are owed, while the operations of all ranks, which may lie before
 * them on the stream, are not yet. */
static bool waits_for_program(const struct nccl_run *run)
{
    enum wait first = wait_of(run, run->first), owed = wait_of(run, run->owed);
    return first == WAIT_PROGRAM || (first == WAIT_NONE && owed == WAIT_PROGRAM);
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

bool nccl_run_aborting(struct nccl_run *run)
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
    if (run->given_up && nccl_run_aborting(run))
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
        if (rc == 0 && !run->owed)
            rc = record_marks(run, err);
    }
    return rc == 0 ? gpu_join(run->gpu, err) : rc;
}

bool nccl_run_owes(const struct nccl_run *run)
{
    return run->given_up || run->owed;
}
