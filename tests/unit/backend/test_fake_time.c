/* SPDX-License-Identifier: Apache-2.0
 *
 * The fakes as an instrument of time (tests/fake/README.md): the schedules of streams are exact
 * whatever the machine does meanwhile, a query sees an end only when it has passed, a collective
 * starts when its last rank is ready, an abort ends one that waits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "core/backend/gpu.h"
#include "core/backend/nccl_api.h"
#include "core/base/clock.h"
#include "tests/fake/cuda/use.h"
#include "tests/harness/world.h"

#define CUDA_TIME "h2d=1e9,d2h=2e9,d2d=100e9,copy=1e-6,kernel=3e-6,launch=5e-6,call=20e-6"
#define NCCL_TIME "bw=1e9,latency=10e-6"
#define LAUNCH_NS 5000
#define CALL_NS   20000
#define ASYNC_NS  200000
#define BYTES     1000000
#define OPS       16
#define RANKS     3

struct setup {
    const struct fake_cuda_control *fake;
    struct gpu *gpu;
    struct cuda_visit visit;
    struct CUstream_st *user;
    struct CUevent_st *event;
    struct cuda_memory memory, locked;
    struct fake_cuda_op ops[OPS];
    size_t n;
};

/* In a child process: ends it at the first difference, with a line. */
static void want(uint64_t got, uint64_t wanted, const char *what)
{
    if (got == wanted)
        return;
    printf("%s: %llu, want %llu\n", what, (unsigned long long)got, (unsigned long long)wanted);
    exit(1);
}

static void good(int rc, const struct err *err)
{
    if (rc >= 0)
        return;
    printf("%s\n", err->msg);
    exit(1);
}

/* launch: FAKE_NCCL_TIME's async */
static void set_up(struct setup *s, const char *data, const char *launch)
{
    char text[160];
    struct err err = {0};
    *s = (struct setup){.locked.host = true};
    snprintf(text, sizeof(text), "%s,data=%s", CUDA_TIME, data);
    setenv("FAKE_CUDA_TIME", text, 1);
    snprintf(text, sizeof(text), "%s,async=%s", NCCL_TIME, launch);
    setenv("FAKE_NCCL_TIME", text, 1);
    s->fake = fake_cuda_use("cuda");
    good(gpu_open(0, &s->gpu, &err), &err);
    good(cuda_enter(s->gpu->device, &s->visit, &err), &err);
    good(cuda_stream_create(s->gpu->device, &s->user, &err), &err);
    good(cuda_event_get(s->gpu->device, &s->event, &err), &err);
    good(cuda_memory_reserve(s->gpu->device, &s->memory, BYTES, &err), &err);
    good(cuda_memory_reserve(s->gpu->device, &s->locked, BYTES, &err), &err);
}

static void tear_down(struct setup *s)
{
    struct cuda_device *d = s->gpu->device;
    cuda_memory_free(d, &s->memory);
    cuda_memory_free(d, &s->locked);
    cuda_event_put(d, s->event);
    cuda_stream_destroy(d, s->user);
    cuda_leave(&s->visit);
    gpu_close(s->gpu);
    want((uint64_t)s->fake->live(), 0, "objects that are left");
}

static void nap(void)
{
    const struct timespec t = {.tv_nsec = 300000};
    nanosleep(&t, NULL);
}

/* Waits until the event has passed, and reads the schedule. */
static void finish(struct setup *s, struct CUstream_st *stream)
{
    struct err err = {0};
    int rc;
    good(cuda_event_record(s->gpu->device, s->event, stream, &err), &err);
    while ((rc = cuda_event_done(s->gpu->device, s->event, &err)) == 1)
        nap();
    good(rc, &err);
    uint64_t now = clock_ns();
    s->n = s->fake->log(s->ops, OPS);
    for (size_t i = 0; i < s->n; i++)
        want(s->ops[i].stream == stream && s->ops[i].end > now, 0, "ends after it was seen to end");
}

/* When the operation can start on its stream, behind another one. */
static uint64_t ready(const struct fake_cuda_op *op, const struct fake_cuda_op *before)
{
    uint64_t there = op->issued + LAUNCH_NS;
    return before && before->end > there ? before->end : there;
}

/* ---- streams ---- */

static void copies(struct setup *s)
{
    struct cuda_device *d = s->gpu->device;
    struct err err = {0};
    uint8_t *host = s->locked.at;
    memset(host, 1, BYTES);
    good(cuda_copy(d, CUDA_COPY_IN, s->memory.at, host, BYTES, s->user, &err), &err);
    good(cuda_copy(d, CUDA_COPY_OUT, host, s->memory.at, BYTES, s->user, &err), &err);
    good(cuda_copy(d, CUDA_COPY_INSIDE, s->memory.at, (uint8_t *)s->memory.at + BYTES / 2,
                   BYTES / 2, s->user, &err),
         &err);
    want(s->fake->work(s->user, 40000), CUDA_OK, "work");
    finish(s, s->user);
}

static int exact(const char *data)
{
    static const uint64_t takes[] = {1001000, 501000, 6000, 40000};
    static const char *const kinds[] = {"h2d", "d2h", "d2d", "kernel"};
    struct setup s;
    uint64_t begin = clock_ns();
    set_up(&s, data, "200e-6");
    copies(&s);
    want(s.n, 4, "operations");
    for (size_t i = 0; i < s.n; i++) {
        const struct fake_cuda_op *op = &s.ops[i], *before = &s.ops[i ? i - 1 : 0];
        want(op->end - op->start, takes[i], "duration");
        want(strcmp(op->kind, kinds[i]), 0, op->kind);
        want(op->start, ready(op, i ? before : NULL), "start");
        want(op->issued < (i ? before->issued : begin) + CALL_NS, 0, "a call took no time");
    }
    tear_down(&s);
    return 0;
}

/* Each stream's first operation waits for the other stream's event, which is recorded anew. */
static int events(const char *data)
{
    struct setup s;
    struct err err = {0};
    set_up(&s, data, "200e-6");
    struct cuda_device *d = s.gpu->device;
    struct CUstream_st *own = s.gpu->stream;
    uint64_t begin = clock_ns();
    want(s.fake->work(s.user, 100000000), CUDA_OK, "work");
    good(cuda_event_record(d, s.event, s.user, &err), &err);
    good(cuda_stream_wait(d, own, s.event, &err), &err);
    want(s.fake->work(s.user, 200000000), CUDA_OK, "work");
    good(cuda_event_record(d, s.event, s.user, &err), &err);
    want(s.fake->work(own, 30000000), CUDA_OK, "work");
    int early = cuda_event_done(d, s.event, &err) == 0 && clock_ns() < begin + 300000000;
    want((uint64_t)early, 0, "the event passed before its work");
    while (cuda_event_done(d, s.event, &err) == 1)
        nap();
    struct fake_cuda_op *ops = s.ops;
    want(s.fake->log(ops, OPS), 3, "operations");
    for (int i = 0; i < 2; i++) { /* own's operation is the last one */
        if (ops[i].stream == own) {
            struct fake_cuda_op last = ops[i];
            ops[i] = ops[2];
            ops[2] = last;
        }
    }
    want(ops[1].start, ready(&ops[1], &ops[0]), "the second one on the user's stream");
    want(ops[2].start, ready(&ops[2], &ops[0]), "behind the first record");
    tear_down(&s);
    return 0;
}

/* ---- collectives ---- */

static void make(struct setup *s, const struct nccl_abi_id *id, int rank, int size, bool blocking,
                 struct nccl_api *ret_nccl, struct ncclComm **ret)
{
    struct nccl_place place = {.origin = NCCL_ASKED};
    struct nccl_abi_config config = {.size = sizeof(config),
                                     .magic = NCCL_ABI_MAGIC,
                                     .version = NCCL_ABI_CONFIG_VERSION,
                                     .blocking = blocking};
    struct nccl_abi_id own = {0};
    struct err err = {0};
    int state = NCCL_ABI_IN_PROGRESS;
    fake_nccl_path("2.27", place.path);
    good(nccl_api_open(&place, ret_nccl, &err), &err);
    if (!id)
        ret_nccl->ncclGetUniqueId(&own);
    ret_nccl->ncclCommInitRankConfig(ret, size, id ? *id : own, rank, &config);
    while (ret_nccl->ncclCommGetAsyncError(*ret, &state) == 0 && state == NCCL_ABI_IN_PROGRESS)
        nap();
    want((uint64_t)state, NCCL_ABI_SUCCESS, "a communicator");
}

struct board {
    _Atomic int id_is_there;
    struct nccl_abi_id id;
    struct fake_cuda_op ops[RANKS];
    uint64_t ready[RANKS];
};

static int sum_rank(int rank, int size, void *arg)
{
    struct board *b = arg;
    struct setup s;
    struct nccl_api nccl;
    struct ncclComm *comm;
    set_up(&s, "off", "200e-6");
    if (rank == 0) {
        struct nccl_place place = {.origin = NCCL_ASKED};
        struct err err = {0};
        fake_nccl_path("2.27", place.path);
        good(nccl_api_open(&place, &nccl, &err), &err);
        nccl.ncclGetUniqueId(&b->id);
        b->id_is_there = 1;
    }
    while (!b->id_is_there)
        nap();
    make(&s, &b->id, rank, size, true, &nccl, &comm);
    want(s.fake->work(s.user, rank == 1 ? 8000000 : 10), CUDA_OK, "work");
    want((uint64_t)nccl.ncclAllReduce(s.memory.at, s.memory.at, BYTES / 4, NCCL_ABI_FLOAT32,
                                      NCCL_ABI_SUM, comm, s.user),
         NCCL_ABI_SUCCESS, "ncclAllReduce");
    finish(&s, s.user);
    want(s.n, 2, "operations");
    b->ops[rank] = s.ops[1];
    b->ready[rank] = ready(&s.ops[1], &s.ops[0]);
    nccl.ncclCommAbort(comm);
    tear_down(&s);
    return 0;
}

static void test_collective(void **state)
{
    struct board *b = world_board(sizeof(*b));
    uint64_t last = 0;
    assert_int_equal(world_run(RANKS, sum_rank, b), 0);
    for (int r = 0; r < RANKS; r++)
        last = b->ready[r] > last ? b->ready[r] : last;
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(b->ops[r].start, last);
        /* 2 * 2 / 3 of the bytes, and the latency */
        assert_int_equal(b->ops[r].end - b->ops[r].start, 1333333 + 10000);
    }
}

/* A launch of a nonblocking communicator is on the stream so long after the call. */
static int launches(const char *data)
{
    struct setup s;
    struct nccl_api nccl;
    struct ncclComm *comm;
    int state = NCCL_ABI_IN_PROGRESS;
    set_up(&s, data, "200e-6");
    make(&s, NULL, 0, 1, false, &nccl, &comm);
    uint64_t begin = clock_ns();
    want((uint64_t)nccl.ncclAllReduce(s.memory.at, s.memory.at, BYTES / 4, NCCL_ABI_FLOAT32,
                                      NCCL_ABI_SUM, comm, s.user),
         NCCL_ABI_IN_PROGRESS, "ncclAllReduce");
    uint64_t end = clock_ns();
    while (state == NCCL_ABI_IN_PROGRESS)
        want((uint64_t)nccl.ncclCommGetAsyncError(comm, &state), NCCL_ABI_SUCCESS, "poll");
    want(clock_ns() < begin + ASYNC_NS, 0, "it was launched too early");
    finish(&s, s.user);
    want(s.n, 1, "operations");
    want(s.ops[0].issued < begin + ASYNC_NS || s.ops[0].issued > end + ASYNC_NS, 0, "issued");
    want(s.ops[0].start, ready(&s.ops[0], NULL), "start");
    want(s.ops[0].end - s.ops[0].start, 10000, "a sum of one rank");
    nccl.ncclCommAbort(comm);
    tear_down(&s);
    return 0;
}

/* It is there when the call has returned: an event that is recorded then is behind it. */
static int launches_at_once(const char *data)
{
    struct setup s;
    struct nccl_api nccl;
    struct ncclComm *comm;
    set_up(&s, data, "0");
    make(&s, NULL, 0, 1, false, &nccl, &comm);
    want((uint64_t)nccl.ncclAllReduce(s.memory.at, s.memory.at, BYTES / 4, NCCL_ABI_FLOAT32,
                                      NCCL_ABI_SUM, comm, s.user),
         NCCL_ABI_SUCCESS, "ncclAllReduce");
    finish(&s, s.user);
    want(s.n, 1, "operations");
    nccl.ncclCommAbort(comm);
    tear_down(&s);
    return 0;
}

static int stuck(const char *data)
{
    struct setup s;
    struct nccl_api nccl;
    struct ncclComm *comm;
    struct err err = {0};
    set_up(&s, data, "200e-6");
    setenv("FAKE_NCCL_HANG", "ncclAllReduce:1:async", 1);
    make(&s, NULL, 0, 1, true, &nccl, &comm);
    nccl.ncclAllReduce(s.memory.at, s.memory.at, BYTES / 4, NCCL_ABI_FLOAT32, NCCL_ABI_SUM, comm,
                       s.user);
    good(cuda_event_record(s.gpu->device, s.event, s.user, &err), &err);
    for (int i = 0; i < 20; i++, nap())
        want((uint64_t)cuda_event_done(s.gpu->device, s.event, &err), 1, "it has ended");
    nccl.ncclCommAbort(comm);
    finish(&s, s.user);
    tear_down(&s);
    return 0;
}

/* ---- each in a process, which reads the variables anew ---- */

static void in_child(int (*body)(const char *data))
{
    static const char *const data[] = {"on", "off"};
    for (int i = 0; i < 2; i++) {
        int status;
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            int rc = body(data[i]);
            fflush(stdout);
            _exit(rc);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

static void test_exact(void **state)
{
    in_child(exact);
}

static void test_events(void **state)
{
    in_child(events);
}

static void test_launches(void **state)
{
    in_child(launches);
    in_child(launches_at_once);
}

static void test_stuck(void **state)
{
    in_child(stuck);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),      cmocka_unit_test(test_events),
        cmocka_unit_test(test_launches),   cmocka_unit_test(test_stuck),
        cmocka_unit_test(test_collective),
    };
    return cmocka_run_group_tests_name("backend/fake_time", tests, NULL, NULL);
}
