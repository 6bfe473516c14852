/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_rank: see gpu_rank.h.
 */
#include "tests/harness/gpu_rank.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/coll/algorithm.h"
#include "tests/fake/cuda/use.h"
#include "tests/harness/pattern.h"
#include "tests/harness/rank.h"

/* ---- the algorithm ---- */

static int part(struct coll *coll, struct gpu_rank *me, const struct coll_op *op)
{
    int rc = 0;
    if (!me->parting) {
        me->part = *op;
        me->part.prescale = me->part.postscale = 1;
        me->part.device = -1;
        rc = coll_part_start(coll, &me->part, &me->err);
    }
    if (rc == 0)
        rc = coll_part_progress(coll);
    me->parting = rc == 1;
    return rc;
}

static int saying(struct coll *coll, struct gpu_rank *me)
{
    int rc;
    if (!me->heard) {
        if (!me->parting) {
            rc = nccl_run_say(me->run, me->r.mesh->rank, me->r.mesh->size, &me->mine);
            if (rc != 0)
                return rc;
            me->tensor = (struct coll_tensor){&me->mine, me->all, sizeof(me->mine)};
        }
        const struct coll_op gather = {.kind = HVD_ALLGATHER,
                                       .dtype = HVD_UINT8,
                                       .tensors = &me->tensor,
                                       .n = 1,
                                       .recv_counts = me->bytes};
        rc = part(coll, me, &gather);
        if (rc != 0)
            return rc;
        me->verdict = nccl_run_hear(me->run, me->all, me->r.mesh->rank, me->r.mesh->size, &me->err);
        me->heard = true;
        if (me->verdict == NCCL_BAD)
            return -ENOTSUP;
    }
    me->stage = GPU_PREPARING;
    return 0;
}

static int advance(struct coll *coll, struct gpu_rank *me)
{
    static const struct coll_op barrier = {.kind = HVD_BARRIER};
    int rc;
    switch (me->stage) {
    case GPU_SAYING:
        return saying(coll, me);
    case GPU_PREPARING: /* in the first operation this comes before the communicator */
        me->stage = GPU_FORMING;
        return nccl_run_possible(me->run, coll->op, &me->err);
    case GPU_FORMING:
        me->stage = GPU_GATHERING;
        rc = nccl_run_form(me->run, &me->err);
        if (rc == 0)
            rc = nccl_run_restore(me->run, &me->err);
        me->stage = rc == 1 ? GPU_FORMING : GPU_GATHERING;
        return rc;
    case GPU_GATHERING:
        rc = part(coll, me, &barrier);
        if (rc != 0)
            return rc;
        if (me->dies)
            kill(getpid(), SIGKILL);
        if (me->breaks)
            me->fake->break_device(me->gpu->device->ordinal, CUDA_ILLEGAL_ADDRESS);
        me->stage = GPU_RUNNING;
        return nccl_run_add(me->run, coll->op, false, &me->flight, &me->err);
    case GPU_RUNNING:
        break;
    }
    rc = nccl_run_progress(me->run, &me->err);
    if (rc < 0 || nccl_run_count(me->run, FLIGHT_DONE) == 0)
        return rc < 0 ? rc : 1;
    nccl_run_release(me->run, 1);
    return 0;
}

static int by_nccl_start(struct coll *coll, void *state, struct err *err)
{
    struct gpu_rank *me = *(struct gpu_rank **)state;
    me->stage = GPU_SAYING;
    me->err = (struct err){0};
    return 0;
}

static int by_nccl_progress(struct coll *coll, void *state)
{
    struct gpu_rank *me = *(struct gpu_rank **)state;
    int rc;
    coll->wait = COLL_ASKS;
    do {
        enum gpu_rank_stage before = me->stage;
        rc = advance(coll, me);
        if (rc == 0 && before == GPU_RUNNING && me->stage == GPU_RUNNING)
            return 0;
    } while (rc == 0);
    return rc;
}

static void by_nccl_cancel(struct coll *coll, void *state)
{
    struct gpu_rank *me = *(struct gpu_rank **)state;
    if (me->parting)
        coll_part_cancel(coll);
    me->parting = false;
}

static bool by_nccl_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return op->device >= 0;
}

static int by_nccl_init(struct coll *coll, void *state, struct err *err)
{
    *(void **)state = coll->backend;
    return 0;
}

static const struct algorithm by_nccl = {
    .name = "nccl",
    .state_size = sizeof(struct gpu_rank *),
    .applies = by_nccl_applies,
    .init = by_nccl_init,
    .start = by_nccl_start,
    .progress = by_nccl_progress,
    .cancel = by_nccl_cancel,
};

/* ---- its life ---- */

int gpu_rank_renew_coll(struct gpu_rank *me)
{
    static const struct algorithm *const list[] = {&by_nccl, NULL};
    int rc = 0;
    coll_destroy(me->r.coll);
    me->r.coll = NULL;
    rc = coll_create(me->r.mesh, &me->r.coll, &me->err);
    if (rc == 0)
        rc = coll_add_algorithms(me->r.coll, list, me, &me->err);
    me->heard = me->parting = false;
    return rc;
}

static int open_coll(struct gpu_rank *me, int rank, const char *hosts)
{
    int rc = coll_rank_open(&me->r, rank, hosts);
    if (rc == 0)
        rc = gpu_rank_renew_coll(me);
    if (rc < 0)
        return rc;
    size_t size = (size_t)me->r.mesh->size;
    free(me->all);
    free(me->bytes);
    me->all = calloc(size, sizeof(*me->all));
    me->bytes = calloc(size, sizeof(*me->bytes));
    for (size_t i = 0; me->bytes && i < size; i++)
        me->bytes[i] = sizeof(*me->all);
    return me->all && me->bytes ? 0 : -ENOMEM;
}

int gpu_rank_open_gpu(struct gpu_rank *me, int ordinal, const struct nccl_limits *limits)
{
    const struct nccl_limits brief = {
        .init_ms = 15000, .launch_ms = 15000, .abort_ms = 5000, .program_ms = 20000};
    struct err *err = &me->err;
    me->before = me->fake->live();
    me->gpu = NULL;
    me->run = NULL;
    me->stream = NULL;
    me->event = NULL;
    me->memory = me->locked = (struct cuda_memory){0};
    int rc = gpu_open(ordinal, &me->gpu, err);
    if (rc == 0)
        rc = cuda_enter(me->gpu->device, &me->visit, err);
    if (rc == 0)
        rc = nccl_run_create(me->gpu, limits && limits->init_ms ? limits : &brief, &me->run, err);
    if (rc == 0)
        rc = cuda_stream_create(me->gpu->device, &me->stream, err);
    if (rc == 0)
        rc = cuda_event_get(me->gpu->device, &me->event, err);
    if (rc == 0)
        rc = cuda_memory_reserve(me->gpu->device, &me->memory, 4 * me->room, err);
    me->locked.host = true;
    if (rc == 0)
        rc = cuda_memory_reserve(me->gpu->device, &me->locked, me->room, err);
    me->host = me->locked.at;
    me->in = me->memory.at;
    me->out = me->in + (me->in ? me->room : 0);
    return rc;
}

static void find_live(struct gpu_rank *me, const char *library)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = handle ? dlsym(handle, "fake_nccl_live") : NULL;
    memcpy(&me->nccl_live, &symbol, sizeof(symbol));
    if (handle)
        dlclose(handle);
}

int gpu_rank_open(struct gpu_rank *me, int rank, const struct gpu_rank_options *o)
{
    char library[PATH_MAX] = "/nonexistent/libnccl.so.2", script[256];
    if (o->nccl)
        fake_nccl_path(o->nccl, library);
    snprintf(script, sizeof(script), "count=8%s%s", o->script ? ";" : "",
             o->script ? o->script : "");
    setenv("FAKE_CUDA", script, 1);
    setenv("HVD_NCCL_LIB", library, 1);
    me->fake = fake_cuda_use("cuda");
    me->salt = 1;
    me->room = o->room ? o->room : GPU_RANK_ROOM;
    int rc = open_coll(me, rank, o->hosts);
    if (rc == 0)
        rc = gpu_rank_open_gpu(me, o->ordinal < 0 ? rank : o->ordinal, &o->limits);
    if (rc < 0)
        printf("rank %d: %s\n", rank, err_text(&me->err));
    me->r.quiet = o->quiet;
    me->fake->delay(o->delay_us);
    return rc;
}

int gpu_rank_close_gpu(struct gpu_rank *me)
{
    bool clean = nccl_run_destroy(me->run), lost = me->gpu && me->gpu->device->lost.code;
    if (me->visit.device && !lost) {
        struct cuda_device *d = me->gpu->device;
        cuda_memory_free(d, &me->memory);
        cuda_memory_free(d, &me->locked);
        cuda_event_put(d, me->event);
        cuda_stream_destroy(d, me->stream);
    }
    cuda_leave(&me->visit);
    int left = me->gpu ? me->gpu->room.communicators + me->gpu->room.making : 0;
    gpu_close(me->gpu);
    find_live(me, getenv("HVD_NCCL_LIB"));
    if (!clean)
        return FAIL("a thread stays in NCCL");
    if (left != 0)
        return FAIL("%d communicators are counted", left);
    if (me->nccl_live && me->nccl_live() != 0)
        return FAIL("%d communicators were not destroyed", me->nccl_live());
    return lost || me->fake->live() == me->before
               ? 0
               : FAIL("%ld objects of the driver were not freed", me->fake->live());
}

int gpu_rank_close(struct gpu_rank *me)
{
    coll_rank_close(&me->r);
    free(me->all);
    free(me->bytes);
    return gpu_rank_close_gpu(me);
}

int gpu_rank_epoch(struct gpu_rank *me, const int *ports, int epoch, int rank, int size)
{
    char text[64];
    bool quiet = me->r.quiet;
    nccl_run_abort(me->run);
    nccl_run_give_back(me->run);
    coll_rank_close(&me->r);
    snprintf(text, sizeof(text), "127.0.0.1:%d", ports[epoch]);
    setenv("HVD_RENDEZVOUS", text, 1);
    snprintf(text, sizeof(text), "%d", rank);
    setenv("HVD_RANK", text, 1);
    snprintf(text, sizeof(text), "%d", size);
    setenv("HVD_SIZE", text, 1);
    int rc = open_coll(me, rank, NULL);
    me->r.quiet = quiet;
    me->in = (uint8_t *)me->memory.at + (size_t)(epoch % 2 ? 0 : 2) * me->room;
    me->out = me->in + me->room;
    me->salt = 1000 * (unsigned)(epoch + 1);
    return rc;
}

/* ---- operations ---- */

/* Drives the operation to its end, or to the time limit. */
static int drive(struct gpu_rank *me, const struct coll_op *op, int ms)
{
    uint64_t deadline = deadline_in_ms(ms ? (uint64_t)ms : 60000);
    int rc = coll_start(me->r.coll, op, &me->err);
    while (rc == 0 && (rc = coll_progress(me->r.coll)) == 1) {
        if (deadline_passed(deadline))
            return -ETIME;
        rc = coll_rank_wait(&me->r, deadline);
        if (rc <= 0)
            return rc;
        usleep(20); /* the fake driver's streams are threads of this process */
        rc = 0;
    }
    return rc;
}

/* An operation that was given up may still have to copy from me->host: waits for that. */
static void wait_for_input(struct gpu_rank *me)
{
    uint64_t deadline = deadline_in_ms(5000);
    while (cuda_event_done(me->gpu->device, me->event, NULL) == 1 && !deadline_passed(deadline))
        usleep(100);
}

int gpu_rank_run(struct gpu_rank *me, struct coll_op *op, size_t bytes, int ms)
{
    static void *ready[GPU_RANK_FUSED];
    struct cuda_device *d = me->gpu->device;
    int rc = 0;
    me->err = (struct err){0};
    /* Keeps the user's stream busy before the input is ready. */
    for (int i = 0; i < 4 && rc == 0; i++)
        rc = cuda_copy(d, CUDA_COPY_INSIDE, me->out, me->in, 8, me->stream, &me->err);
    if (rc == 0)
        rc = cuda_copy(d, CUDA_COPY_IN, me->in, me->host, bytes, me->stream, &me->err);
    if (rc == 0)
        rc = cuda_event_record(d, me->event, me->stream, &me->err);
    for (size_t i = 0; i < op->n; i++)
        ready[i] = me->event;
    op->ready = ready;
    op->device = d->ordinal;
    if (rc == 0)
        rc = drive(me, op, ms);
    if (rc < 0 && !me->hurries)
        wait_for_input(me);
    if (rc < 0 && !me->r.quiet)
        printf("rank %d: %s: %d %s\n", me->r.mesh->rank, hvd_kind_name(op->kind), rc, me->err.msg);
    return rc;
}

int gpu_rank_fetch(struct gpu_rank *me, const void *from, size_t bytes)
{
    struct cuda_device *d = me->gpu->device;
    uint64_t deadline = deadline_in_ms(20000);
    int rc = cuda_copy(d, CUDA_COPY_OUT, me->host, from, bytes, me->stream, &me->err);
    if (rc == 0)
        rc = cuda_event_record(d, me->event, me->stream, &me->err);
    while (rc == 0 && (rc = cuda_event_done(d, me->event, &me->err)) == 1)
        rc = deadline_passed(deadline) ? -ETIMEDOUT : 0;
    if (rc < 0 && !me->r.quiet)
        printf("rank %d: %d %s\n", me->r.mesh->rank, rc, me->err.msg);
    return rc;
}

int gpu_rank_allreduce(struct gpu_rank *me, const struct gpu_rank_sum *s)
{
    static struct coll_tensor t[GPU_RANK_FUSED];
    size_t elem = hvd_dtype_size(s->dtype), at = 0;
    unsigned salt = me->salt++;
    int rank = me->r.mesh->rank, size = me->r.mesh->size;
    for (size_t i = 0; i < s->n; i++) {
        pattern_fill(s->dtype, s->op, rank, size, 0, s->counts[i], salt + (unsigned)i,
                     me->host + at);
        uint8_t *in = me->in + at, *out = me->out + at;
        t[i] = (struct coll_tensor){.in = in, .out = s->in_place ? in : out, .count = s->counts[i]};
        at += (s->counts[i] + i % 3) * elem; /* leaves gaps between some tensors */
    }
    struct coll_op op = coll_rank_op(&me->r, HVD_ALLREDUCE, s->dtype, s->op, t, s->n);
    op.prescale = s->scaled ? 2 : 1;
    op.postscale = s->scaled ? 0.5 : 1;
    int rc = at > me->room ? FAIL("no room") : gpu_rank_run(me, &op, at, s->ms);
    if (rc == 0)
        rc = gpu_rank_fetch(me, s->in_place ? me->in : me->out, at);
    at = 0;
    for (size_t i = 0; i < s->n && rc == 0; i++) {
        size_t count = s->counts[i];
        size_t bad =
            pattern_check(s->dtype, s->op, size, 0, count, salt + (unsigned)i, me->host + at);
        if (bad < count)
            rc = FAIL("%s %s%s, tensor %zu of %zu, element %zu of %zu is wrong",
                      hvd_dtype_name(s->dtype), hvd_op_name(s->op), s->scaled ? " scaled" : "", i,
                      s->n, bad, count);
        at += (count + i % 3) * elem;
    }
    return rc;
}

int gpu_rank_check(struct gpu_rank *me)
{
    static const size_t one = 1000, many[] = {1, 0, 1000, 77};
    static const struct gpu_rank_sum sums[] = {
        {HVD_FLOAT32, HVD_SUM, &one, 1, false, false, 0},
        {HVD_INT32, HVD_MAX, many, 4, true, false, 0},
        {HVD_UINT8, HVD_SUM, many, 4, false, false, 0},
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]) && rc == 0; i++)
        rc = gpu_rank_allreduce(me, &sums[i]);
    return rc;
}

int gpu_rank_drain(struct gpu_rank *me)
{
    uint64_t deadline = deadline_in_ms(20000);
    int rc;
    while ((rc = nccl_run_drained(me->run, &me->err)) == 1) {
        if (deadline_passed(deadline))
            return FAIL("the stream does not become idle and reports no error");
        nap_ms(1);
    }
    return rc;
}
