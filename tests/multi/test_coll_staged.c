/* SPDX-License-Identifier: Apache-2.0
 *
 * GPU tensors through pinned host memory and the host's algorithms (core/backend/staged), on real
 * meshes without the engine; each rank has a device of the fake driver. Every kind, sizes around
 * the chunks, fused tensors, with and without kernels, on a slow device; cancelled operations, and
 * a device that fails. Device memory is filled and read by copies, as on a real device.
 *
 * timeout: 300
 * takes: 12 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/backend/cuda.h"
#include "core/backend/device.h"
#include "core/backend/staged.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "tests/fake/cuda/use.h"
#include "tests/harness/coll_rank.h"
#include "tests/harness/pattern.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define ROOM   ((size_t)32 << 20) /* bytes of a rank's inputs, and of its outputs */
#define FLOATS (STAGED_CHUNK / 4)
#define FUSED  700

struct job {
    const char *hosts;
    const char *script; /* FAKE_CUDA */
    unsigned delay_us;
    int (*body)(void *rank);
};

struct rank {
    struct coll_rank r;
    const struct fake_cuda_control *fake;
    struct cuda_device *d;
    struct cuda_visit visit;
    struct CUstream_st *stream; /* the user's */
    struct CUevent_st *event;
    struct cuda_memory in, out, locked;
    uint8_t *host; /* pinned: copied to and from the device */
    unsigned salt;
};

/* Copies bytes from me->host to the device (CUDA_COPY_IN) or back, and waits for the copy. */
static int copy(struct rank *me, enum cuda_copy way, void *device, size_t bytes)
{
    struct err err = {0};
    bool in = way == CUDA_COPY_IN;
    uint64_t deadline = deadline_in_ms(20000);
    int rc = cuda_copy(me->d, way, in ? device : me->host, in ? me->host : device, bytes,
                       me->stream, &err);
    if (rc == 0)
        rc = cuda_event_record(me->d, me->event, me->stream, &err);
    while (rc == 0 && (rc = cuda_event_done(me->d, me->event, &err)) == 1)
        rc = deadline_passed(deadline) ? -ETIMEDOUT : 0;
    return rc < 0 ? FAIL("%s", err.msg) : 0;
}

/* The user's stream fills the input, and the operation waits for that. */
static int run(struct rank *me, struct coll_op *op, size_t bytes)
{
    static void *ready[FUSED];
    struct err err = {0};
    int rc = 0;
    /* The stream has other work first. */
    for (int i = 0; i < 8 && rc == 0; i++)
        rc = cuda_copy(me->d, CUDA_COPY_INSIDE, me->out.at, me->in.at, 8, me->stream, &err);
    if (rc == 0)
        rc = cuda_copy(me->d, CUDA_COPY_IN, me->in.at, me->host, bytes, me->stream, &err);
    if (rc == 0)
        rc = cuda_event_record(me->d, me->event, me->stream, &err);
    if (rc < 0)
        return FAIL("%s", err.msg);
    for (size_t i = 0; i < op->n; i++)
        ready[i] = me->event;
    op->ready = ready;
    op->device = me->d->ordinal;
    rc = coll_rank_run(&me->r, op);
    return rc < 0 ? FAIL("kind %d: %d", (int)op->kind, rc) : 0;
}

static int allreduce(struct rank *me, enum hvd_dtype dtype, enum hvd_op o, const size_t *counts,
                     size_t n, bool in_place)
{
    static struct coll_tensor t[FUSED];
    size_t elem = hvd_dtype_size(dtype), at = 0;
    unsigned salt = me->salt++;
    int rank = me->r.mesh->rank, size = me->r.mesh->size;
    memset(me->host, 0xee, ROOM / 4);
    for (size_t i = 0; i < n; i++) {
        pattern_fill(dtype, o, rank, size, 0, counts[i], salt + (unsigned)i, me->host + at);
        uint8_t *in = (uint8_t *)me->in.at + at, *out = (uint8_t *)me->out.at + at;
        t[i] = (struct coll_tensor){.in = in, .out = in_place ? in : out, .count = counts[i]};
        at += (counts[i] + 3) * elem;
    }
    struct coll_op op = coll_rank_op(&me->r, HVD_ALLREDUCE, dtype, o, t, n);
    int rc = at > ROOM ? FAIL("no room") : run(me, &op, at);
    if (rc == 0)
        rc = copy(me, CUDA_COPY_OUT, in_place ? me->in.at : me->out.at, at);
    at = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        size_t bad = pattern_check(dtype, o, size, 0, counts[i], salt + (unsigned)i, me->host + at);
        if (bad < counts[i])
            rc = FAIL("%s %s, tensor %zu of %zu, element %zu of %zu is wrong",
                      hvd_dtype_name(dtype), hvd_op_name(o), i, n, bad, counts[i]);
        at += (counts[i] + 3) * elem;
    }
    if (rc == 0 && strcmp(coll_algorithm(me->r.coll), "staged") != 0)
        rc = FAIL("%s ran", coll_algorithm(me->r.coll));
    return rc;
}

static int sizes(void *arg)
{
    struct rank *me = arg;
    const size_t counts[] = {0, 1, 1000, FLOATS - 1, FLOATS, FLOATS + 1, 5 * FLOATS + 5};
    int rc = 0;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && rc == 0; i++) {
        rc = allreduce(me, HVD_FLOAT32, HVD_SUM, &counts[i], 1, i % 2);
        if (rc == 0)
            rc = allreduce(me, HVD_BFLOAT16, HVD_AVERAGE, &counts[i], 1, i % 2 == 0);
    }
    return rc;
}

static int fused(void *arg)
{
    struct rank *me = arg;
    static size_t counts[FUSED];
    const size_t mixed[] = {1, FLOATS - 8, 3, 0, 2 * FLOATS + 1, 17, FLOATS / 2, FLOATS / 2, 1};
    for (size_t i = 0; i < FUSED; i++)
        counts[i] = i * 31 % 400;
    int rc = allreduce(me, HVD_FLOAT32, HVD_SUM, counts, FUSED, false);
    if (rc == 0)
        rc = allreduce(me, HVD_INT64, HVD_MAX, counts, FUSED, true);
    if (rc == 0)
        rc = allreduce(me, HVD_UINT8, HVD_SUM, counts, FUSED / 2, true);
    if (rc == 0)
        rc = allreduce(me, HVD_FLOAT32, HVD_AVERAGE, mixed, sizeof(mixed) / sizeof(mixed[0]), true);
    return rc;
}

/* ---- the other kinds: float32, patterns ---- */

#define SUM HVD_FLOAT32, HVD_SUM

static int broadcast(struct rank *me, size_t n, int root, bool in_place)
{
    struct coll_tensor t = {me->in.at, in_place ? me->in.at : me->out.at, n};
    struct coll_op op = coll_rank_op(&me->r, HVD_BROADCAST, SUM, &t, 1);
    unsigned salt = me->salt++;
    op.root = root;
    memset(me->host, 0xee, n * 4);
    if (me->r.mesh->rank == root)
        pattern_fill(SUM, 1, 1, 0, n, salt, me->host);
    int rc = run(me, &op, n * 4);
    if (rc == 0)
        rc = copy(me, CUDA_COPY_OUT, t.out, n * 4);
    pattern_fill(SUM, 1, 1, 0, n, salt, me->host + ROOM / 2);
    if (rc == 0 && memcmp(me->host, me->host + ROOM / 2, n * 4) != 0)
        rc = FAIL("broadcast of %zu from %d", n, root);
    return rc;
}

/* Elements from one rank to another; some are 0. */
static size_t share(int from, int to, size_t scale)
{
    return (from + 2 * to) % 3 == 2 ? 0 : scale / (size_t)(1 + (from + to) % 4) + (size_t)to;
}

/* What rank `from` sends to rank `to`. */
static void give(uint8_t *dst, int from, int to, size_t n, unsigned salt)
{
    pattern_fill(SUM, from, 8, (size_t)to * 1000, n, salt, dst);
}

/* all: every rank gets the same, as in an allgather. */
static int exchange(struct rank *me, size_t scale, bool all)
{
    int rank = me->r.mesh->rank, size = me->r.mesh->size;
    size_t to[8], from[8], sent = 0, at = 0;
    unsigned salt = me->salt++;
    for (int i = 0; i < size; i++) {
        to[i] = share(rank, i, scale);
        from[i] = share(i, all ? 0 : rank, scale);
        if (!all || i == 0) {
            give(me->host + sent * 4, rank, i, to[i], salt);
            sent += to[i];
        }
    }
    struct coll_tensor t = {me->in.at, me->out.at, sent};
    struct coll_op op = coll_rank_op(&me->r, all ? HVD_ALLGATHER : HVD_ALLTOALL, SUM, &t, 1);
    op.send_counts = all ? NULL : to;
    op.recv_counts = from;
    int rc = run(me, &op, sent * 4);
    for (int i = 0; i < size; i++)
        at += from[i];
    if (rc == 0)
        rc = copy(me, CUDA_COPY_OUT, me->out.at, at * 4);
    at = 0;
    for (int i = 0; i < size && rc == 0; at += from[i++] * 4) {
        give(me->host + ROOM / 2, i, all ? 0 : rank, from[i], salt);
        if (memcmp(me->host + at, me->host + ROOM / 2, from[i] * 4) != 0)
            rc = FAIL("%s: the part of rank %d", hvd_kind_name(op.kind), i);
    }
    return rc;
}

static int reducescatter(struct rank *me, size_t scale, bool in_place)
{
    int rank = me->r.mesh->rank, size = me->r.mesh->size;
    size_t counts[8], all = 0, first = 0;
    unsigned salt = me->salt++;
    for (int i = 0; i < size; i++) {
        first = i == rank ? all : first;
        all += counts[i] = share(i, 1, scale);
    }
    pattern_fill(SUM, rank, size, 0, all, salt, me->host);
    struct coll_tensor t = {me->in.at, in_place ? me->in.at : me->out.at, all};
    struct coll_op op = coll_rank_op(&me->r, HVD_REDUCESCATTER, SUM, &t, 1);
    op.recv_counts = counts;
    int rc = run(me, &op, all * 4);
    if (rc == 0)
        rc = copy(me, CUDA_COPY_OUT, t.out, counts[rank] * 4);
    size_t bad = rc ? 0 : pattern_check(SUM, size, first, counts[rank], salt, me->host);
    return rc == 0 && bad < counts[rank] ? FAIL("reducescatter: element %zu", bad) : rc;
}

static int kinds(void *arg)
{
    static const size_t scales[] = {0, 1, 1000, 1500000};
    struct rank *me = arg;
    int rc = 0;
    for (size_t s = 0; s < sizeof(scales) / sizeof(scales[0]) && rc == 0; s++) {
        for (int root = 0; root < me->r.mesh->size && rc == 0; root++)
            rc = broadcast(me, scales[s], root, root % 2);
        if (rc == 0)
            rc = exchange(me, scales[s], true);
        if (rc == 0)
            rc = exchange(me, scales[s], false);
        if (rc == 0)
            rc = reducescatter(me, scales[s], s % 2);
    }
    return rc;
}

/* Kinds other than allreduce use one pinned buffer, however large they are. */
static int locked(void *arg)
{
    struct rank *me = arg;
    const size_t count = 3 * FLOATS, bytes = count * 4, before = me->fake->locked();
    int rc = broadcast(me, count, 0, true);
    size_t used = me->fake->locked() - before;
    if (rc == 0 && (used < bytes || used > bytes + bytes / 4))
        rc = FAIL("%zu bytes of locked memory for %zu", used, bytes);
    return rc;
}

/* Repeating an operation creates nothing. */
static int steady(void *arg)
{
    static const char *const makes[] = {"cuMemAlloc_v2", "cuMemHostAlloc", "cuEventCreate",
                                        "cuStreamCreateWithPriority"};
    struct rank *me = arg;
    long before[4] = {0};
    int rc = 0;
    for (int round = 0; round < 3 && rc == 0; round++) {
        rc = fused(me);
        for (int i = 0; i < 4 && rc == 0; i++) {
            if (round > 0 && me->fake->calls(makes[i]) != before[i])
                rc = FAIL("round %d: %s", round, makes[i]);
            before[i] = me->fake->calls(makes[i]);
        }
    }
    return rc;
}

/* Rank 0 alone begins an operation and cancels it: its memory is unchanged. */
static int taken_back(void *arg)
{
    struct rank *me = arg;
    struct coll_rank *r = &me->r;
    const size_t count = 5 * FLOATS;
    struct coll_tensor t = {me->in.at, me->in.at, count};
    struct coll_op op = coll_rank_op(r, HVD_ALLREDUCE, SUM, &t, 1);
    struct coll_op barrier = coll_rank_op(r, HVD_BARRIER, SUM, NULL, 0);
    struct err err = {0};
    op.device = me->d->ordinal;
    memset(me->host, 0x3c, count * 4);
    int rc = copy(me, CUDA_COPY_IN, me->in.at, count * 4);
    if (rc == 0 && r->mesh->rank == 0) {
        rc = coll_start(r->coll, &op, &err) < 0 ? FAIL("%s", err.msg) : 0;
        for (int i = 0; i < 2000 && rc == 0; i++)
            rc = coll_progress(r->coll) == 1 ? 0
                                             : FAIL("the operation finished with one rank alone");
        coll_cancel(r->coll);
    }
    memset(me->host, 0, count * 4);
    if (rc == 0)
        rc = copy(me, CUDA_COPY_OUT, me->in.at, count * 4);
    for (size_t i = 0; i < count * 4 && rc == 0; i++)
        if (me->host[i] != 0x3c)
            rc = FAIL("byte %zu was overwritten", i);
    mesh_next_generation(r->mesh);
    if (rc == 0 && coll_rank_run(r, &barrier) < 0)
        rc = FAIL("no barrier");
    return rc == 0 ? fused(me) : rc;
}

static int broken(void *arg)
{
    struct rank *me = arg;
    const size_t count = 5 * FLOATS;
    struct coll_tensor t = {me->in.at, me->in.at, count};
    struct coll_op op = coll_rank_op(&me->r, HVD_ALLREDUCE, SUM, &t, 1);
    struct err err = {0};
    op.device = me->d->ordinal;
    me->r.quiet = true;
    log_set_level(LOG_ERROR);
    if (coll_start(me->r.coll, &op, &err) < 0)
        return FAIL("%s", err.msg);
    me->fake->break_device(me->d->ordinal, CUDA_ILLEGAL_ADDRESS);
    int rc;
    while ((rc = coll_progress(me->r.coll)) == 1)
        ;
    if (rc != -EFAULT)
        return FAIL("a device that fails: %d", rc);
    if (coll_start(me->r.coll, &op, &err) != -EBUSY)
        return FAIL("the failed device can still be used");
    return 0;
}

/* ---- ranks ---- */

static int open_device(struct rank *me, struct err *err)
{
    int rc = cuda_device_open(me->r.mesh->rank % 2, &me->d, err);
    if (rc == 0)
        rc = cuda_enter(me->d, &me->visit, err);
    if (rc == 0)
        rc = cuda_stream_create(me->d, &me->stream, err);
    if (rc == 0)
        rc = cuda_event_get(me->d, &me->event, err);
    if (rc == 0)
        rc = cuda_memory_reserve(me->d, &me->in, ROOM, err);
    if (rc == 0)
        rc = cuda_memory_reserve(me->d, &me->out, ROOM, err);
    me->locked.host = true;
    if (rc == 0)
        rc = cuda_memory_reserve(me->d, &me->locked, ROOM, err);
    me->host = me->locked.at;
    return rc;
}

static void close_device(struct rank *me)
{
    if (me->visit.device && !me->d->lost.code) {
        cuda_memory_free(me->d, &me->in);
        cuda_memory_free(me->d, &me->out);
        cuda_memory_free(me->d, &me->locked);
        cuda_event_put(me->d, me->event);
        cuda_stream_destroy(me->d, me->stream);
    }
    cuda_leave(&me->visit);
    cuda_device_close(me->d);
}

/* The ranks choose the way, as in an epoch's first operation on a GPU. */
static int set_up(struct rank *me)
{
    struct coll_op setup = coll_barrier;
    setup.device = me->d->ordinal;
    return coll_rank_run(&me->r, &setup) < 0 ? FAIL("no setup") : 0;
}

static int rank_main(int rank, int size, void *arg)
{
    static const struct device_ways ways = {.staged = true};
    const struct job *job = arg;
    struct gpu_home home = {0};
    struct device *device = NULL;
    struct rank me = {0};
    struct err err = {0};
    setenv("FAKE_CUDA", job->script ? job->script : "", 1);
    me.fake = fake_cuda_use("cuda");
    if (coll_rank_open(&me.r, rank, job->hosts) < 0)
        return 10;
    int rc = open_device(&me, &err);
    if (rc == 0)
        rc = device_create(&ways, &home, &device, &err);
    if (rc == 0)
        rc = coll_add_algorithms(me.r.coll, device_algorithms, device, &err);
    me.fake->delay(job->delay_us);
    rc = rc < 0 ? FAIL("%s", err.msg) : set_up(&me);
    if (rc == 0)
        rc = job->body(&me);
    coll_rank_close(&me.r);
    device_destroy(device);
    close_device(&me);
    if (rc == 0 && job->body != broken && me.fake->live() != 0)
        rc = FAIL("%ld objects were not freed", me.fake->live());
    return rc;
}

static void run_job(const char *hosts, int (*body)(void *), const char *script, unsigned delay_us)
{
    struct job job = {hosts, script, delay_us, body};
    printf("ranks on hosts %s %s\n", hosts, script ? script : "");
    assert_int_equal(world_run((int)strlen(hosts), rank_main, &job), 0);
}

static void test_sizes(void **state)
{
    static const char *const worlds[] = {"a", "aa", "ab", "aab"};
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++)
        run_job(worlds[i], sizes, NULL, 0);
}

static void test_fused(void **state)
{
    run_job("aa", fused, NULL, 0);
    run_job("ab", fused, NULL, 300);
    run_job("aa", fused, "cuModuleLoadData=209", 0);
    run_job("aa", steady, NULL, 0);
}

static void test_kinds(void **state)
{
    run_job("aa", kinds, NULL, 0);
    run_job("aab", kinds, NULL, 100);
    run_job("aa", locked, NULL, 0);
}

static void test_taken_back(void **state)
{
    run_job("aa", taken_back, NULL, 0);
    run_job("ab", taken_back, NULL, 500);
}

static void test_broken(void **state)
{
    run_job("a", broken, NULL, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),  cmocka_unit_test(test_fused),
        cmocka_unit_test(test_kinds),  cmocka_unit_test(test_taken_back),
        cmocka_unit_test(test_broken),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return cmocka_run_group_tests_name("multi/coll_staged", tests, NULL, NULL);
}
