/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on a GPU by NCCL (core/backend/nccl_run), on real meshes without the engine. Each rank
 * has a GPU of the fake driver and the NCCL of tests/fake, whose launches run on the fake's
 * streams. Every kind, dtype and operation, odd sizes, fused tensors, in place and not, scaled,
 * with kernels and without, three versions of NCCL; late inputs, slow streams, several operations
 * in flight, and what the steady state creates. Failures are in test_nccl_run_faults.
 *
 * timeout: 600
 * takes: 9 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/coll/algorithm.h"
#include "core/coll/reduce.h"
#include "tests/harness/gpu_rank.h"
#include "tests/harness/pattern.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct job {
    struct gpu_rank_options o;
    int (*body)(struct gpu_rank *me);
    bool kernels;
};

static struct job job;

/* ---- what each version can do ---- */

static bool is_float(enum hvd_dtype t)
{
    return t == HVD_FLOAT16 || t == HVD_BFLOAT16 || t == HVD_FLOAT32 || t == HVD_FLOAT64;
}

static bool possible(const struct gpu_rank *me, enum hvd_dtype t, enum hvd_op o, bool scaled)
{
    if (t >= REDUCE_DTYPES || (t == HVD_BOOL && o == HVD_AVERAGE))
        return false;
    if (job.kernels)
        return true;
    if (t == HVD_BOOL || t == HVD_INT16 || t == HVD_UINT16)
        return false;
    bool average = o == HVD_AVERAGE && me->r.mesh->size > 1;
    if (!scaled && !average)
        return true;
    return is_float(t) && (o == HVD_SUM || o == HVD_AVERAGE);
}

/* The sum is refused before anything runs, with a reason. */
static int refused(struct gpu_rank *me, const struct gpu_rank_sum *s)
{
    struct coll_tensor t = {me->in, me->out, s->counts[0]};
    struct coll_op op = coll_rank_op(&me->r, HVD_ALLREDUCE, s->dtype, s->op, &t, 1);
    struct err err = {0};
    op.device = me->gpu->device->ordinal;
    op.prescale = s->scaled ? 2 : 1;
    op.postscale = s->scaled ? 0.5 : 1;
    int rc = nccl_run_possible(me->run, &op, &err);
    bool bool_average = s->dtype == HVD_BOOL && s->op == HVD_AVERAGE;
    if (rc != -ENOTSUP ||
        !strstr(err.msg, bool_average ? "NCCL has no average of bool" : "HVD_KERNELS"))
        return FAIL("%s %s: %d %s", hvd_dtype_name(s->dtype), hvd_op_name(s->op), rc, err.msg);
    return 0;
}

static int sum(struct gpu_rank *me, const struct gpu_rank_sum *s)
{
    /* a third is not exact in any of these types */
    if (s->scaled && s->op == HVD_AVERAGE && me->r.mesh->size == 3)
        return 0;
    return possible(me, s->dtype, s->op, s->scaled) ? gpu_rank_allreduce(me, s) : refused(me, s);
}

/* ---- allreduce ---- */

static int dtypes(struct gpu_rank *me)
{
    static const size_t odd[] = {1, 0, 999, 17, 33, 4097};
    static const enum hvd_op ops[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX, HVD_PRODUCT};
    int rc = gpu_rank_allreduce(
        me, &(struct gpu_rank_sum){HVD_FLOAT32, HVD_SUM, odd, 1, false, false, 0});
    for (int t = 0; t < REDUCE_DTYPES && rc == 0; t++) {
        for (size_t o = 0; o < COUNT(ops) && rc == 0; o++) {
            struct gpu_rank_sum s = {(enum hvd_dtype)t, ops[o], odd + 2, 1, o % 2, false, 0};
            rc = sum(me, &s);
            s.counts = odd;
            s.n = COUNT(odd);
            s.in_place = !s.in_place;
            if (rc == 0)
                rc = sum(me, &s);
            s.scaled = ops[o] != HVD_PRODUCT;
            if (rc == 0)
                rc = sum(me, &s);
            s.n = 1;
            if (rc == 0)
                rc = sum(me, &s);
        }
    }
    return rc;
}

static int sizes(struct gpu_rank *me)
{
    static const size_t counts[] = {0, 1, 2, 3, 1023, 16385, 100003, 1000001};
    int rc = 0;
    for (size_t i = 0; i < COUNT(counts) && rc == 0; i++) {
        struct gpu_rank_sum s = {HVD_FLOAT32, HVD_SUM, &counts[i], 1, i % 2, false, 0};
        rc = sum(me, &s);
        s.dtype = HVD_INT16; /* packed */
        if (rc == 0)
            rc = sum(me, &s);
        s.dtype = HVD_FLOAT64;
        s.op = HVD_AVERAGE;
        if (rc == 0)
            rc = sum(me, &s);
    }
    return rc;
}

/* One launch packs as many tensors as fit into it, and one unpacks them. A single tensor that NCCL
 * can sum as it is needs no launch. */
static int fused(struct gpu_rank *me)
{
    static const size_t numbers[] = {1, 2, 3, 511, 512, 513, 700};
    static size_t counts[GPU_RANK_FUSED];
    int rc = gpu_rank_check(me);
    for (size_t i = 0; i < GPU_RANK_FUSED; i++)
        counts[i] = 1 + i * 31 % 400;
    for (size_t i = 0; i < COUNT(numbers) && rc == 0; i++) {
        size_t n = numbers[i], launches = n == 1 || !job.kernels ? 0 : 2 * ((n + 511) / 512);
        struct gpu_rank_sum s = {HVD_FLOAT32, HVD_SUM, counts, n, i % 2, false, 0};
        long before = me->fake->calls("cuLaunchKernel");
        rc = sum(me, &s);
        if (rc == 0 && me->fake->calls("cuLaunchKernel") - before != (long)launches)
            rc = FAIL("%zu tensors: %ld launches", n, me->fake->calls("cuLaunchKernel") - before);
        s.dtype = HVD_UINT16;
        s.op = HVD_AVERAGE;
        s.scaled = true;
        if (rc == 0)
            rc = sum(me, &s);
    }
    return rc;
}

/* Large tensors bypass the buffer, without launches of their own. Without small tensors there is no
 * buffer. */
static int large(struct gpu_rank *me)
{
    static const size_t mixed[] = {3, 140001, 17, 0, 200000, 1000, 131072},
                        alone[] = {140001, 0, 200000};
    static const enum hvd_dtype dtypes[] = {HVD_FLOAT32, HVD_INT32, HVD_INT16, HVD_BFLOAT16};
    int rc = gpu_rank_check(me);
    for (size_t t = 0; t < COUNT(dtypes) && rc == 0; t++)
        for (int way = 0; way < 4 && rc == 0; way++) {
            struct gpu_rank_sum s = {
                dtypes[t], way < 2 ? HVD_SUM : HVD_AVERAGE, mixed, COUNT(mixed), way % 2, false, 0};
            rc = sum(me, &s);
        }
    struct gpu_rank_sum s = {HVD_FLOAT32, HVD_AVERAGE, mixed, COUNT(mixed), true, false, 0};
    long before = me->fake->calls("cuLaunchKernel");
    if (rc == 0)
        rc = sum(me, &s);
    if (rc == 0 && job.kernels && me->fake->calls("cuLaunchKernel") - before != 2)
        rc = FAIL("%ld launches", me->fake->calls("cuLaunchKernel") - before);
    before = me->fake->calls("cuLaunchKernel");
    s.counts = alone;
    s.n = COUNT(alone);
    if (rc == 0)
        rc = sum(me, &s);
    if (rc == 0 && me->fake->calls("cuLaunchKernel") != before)
        rc = FAIL("a launch for nothing");
    return rc;
}

/* ---- the other kinds, of every dtype ---- */

static struct coll_op op_of(struct gpu_rank *me, enum hvd_kind kind, enum hvd_dtype dtype,
                            enum hvd_op op, const struct coll_tensor *t)
{
    return coll_rank_op(&me->r, kind, dtype, op, t, 1);
}

static int broadcast(struct gpu_rank *me, enum hvd_dtype t, size_t n, int root, bool in_place)
{
    size_t bytes = n * hvd_dtype_size(t);
    struct coll_tensor x = {me->in, in_place ? me->in : me->out, n};
    struct coll_op op = op_of(me, HVD_BROADCAST, t, HVD_SUM, &x);
    unsigned salt = me->salt++;
    op.root = root;
    memset(me->host, 0xee, bytes);
    if (me->r.mesh->rank == root)
        pattern_fill(t, HVD_SUM, 1, 1, 0, n, salt, me->host);
    int rc = gpu_rank_run(me, &op, bytes, 0);
    if (rc == 0)
        rc = gpu_rank_fetch(me, x.out, bytes);
    pattern_fill(t, HVD_SUM, 1, 1, 0, n, salt, me->host + GPU_RANK_ROOM / 2);
    if (rc == 0 && memcmp(me->host, me->host + GPU_RANK_ROOM / 2, bytes) != 0)
        rc = FAIL("broadcast of %zu %s from %d", n, hvd_dtype_name(t), root);
    return rc;
}

/* Elements from one rank to another. even: the same for all. */
static size_t share(int from, int to, size_t scale, bool even)
{
    if (even)
        return scale;
    return (from + 2 * to) % 3 == 2 ? 0 : scale / (size_t)(1 + (from + to) % 4) + (size_t)to;
}

static void give(enum hvd_dtype t, uint8_t *dst, int from, int to, size_t n, unsigned salt)
{
    pattern_fill(t, HVD_SUM, from, 8, (size_t)to * 1000, n, salt, dst);
}

/* all: every rank gets the same, as in an allgather. */
static int exchange(struct gpu_rank *me, enum hvd_dtype t, size_t scale, bool all, bool even)
{
    int rank = me->r.mesh->rank, size = me->r.mesh->size;
    size_t to[8], from[8], sent = 0, got = 0, elem = hvd_dtype_size(t);
    unsigned salt = me->salt++;
    for (int i = 0; i < size; i++) {
        to[i] = share(rank, i, scale, even);
        from[i] = share(i, all ? 0 : rank, scale, even);
        got += from[i];
        if (!all || i == 0) {
            give(t, me->host + sent * elem, rank, i, to[i], salt);
            sent += to[i];
        }
    }
    struct coll_tensor x = {me->in, me->out, sent};
    struct coll_op op = op_of(me, all ? HVD_ALLGATHER : HVD_ALLTOALL, t, HVD_SUM, &x);
    op.send_counts = all ? NULL : to;
    op.recv_counts = from;
    int rc = gpu_rank_run(me, &op, sent * elem, 0);
    if (rc == 0)
        rc = gpu_rank_fetch(me, me->out, got * elem);
    got = 0;
    for (int i = 0; i < size && rc == 0; got += from[i++] * elem) {
        give(t, me->host + GPU_RANK_ROOM / 2, i, all ? 0 : rank, from[i], salt);
        if (memcmp(me->host + got, me->host + GPU_RANK_ROOM / 2, from[i] * elem) != 0)
            rc =
                FAIL("%s of %s: the part of rank %d", hvd_kind_name(op.kind), hvd_dtype_name(t), i);
    }
    return rc;
}

static int reducescatter(struct gpu_rank *me, enum hvd_dtype t, enum hvd_op o, size_t scale,
                         bool even)
{
    int rank = me->r.mesh->rank, size = me->r.mesh->size;
    size_t counts[8], all = 0, first = 0, elem = hvd_dtype_size(t);
    unsigned salt = me->salt++;
    for (int i = 0; i < size; i++) {
        first = i == rank ? all : first;
        all += counts[i] = share(i, 1, scale, even);
    }
    pattern_fill(t, o, rank, size, 0, all, salt, me->host);
    struct coll_tensor x = {me->in, me->out, all};
    struct coll_op op = op_of(me, HVD_REDUCESCATTER, t, o, &x);
    op.recv_counts = counts;
    if (!possible(me, t, o, false))
        return 0;
    int rc = gpu_rank_run(me, &op, all * elem, 0);
    if (rc == 0)
        rc = gpu_rank_fetch(me, x.out, counts[rank] * elem);
    size_t bad = rc ? 0 : pattern_check(t, o, size, first, counts[rank], salt, me->host);
    return rc == 0 && bad < counts[rank]
               ? FAIL("reducescatter of %s %s: element %zu", hvd_dtype_name(t), hvd_op_name(o), bad)
               : rc;
}

static int kinds(struct gpu_rank *me)
{
    static const size_t scales[] = {0, 1, 1000, 70001};
    int rc = 0;
    for (size_t s = 0; s < COUNT(scales) && rc == 0; s++) {
        for (int t = 0; t < HVD_DTYPES && rc == 0; t++) {
            enum hvd_dtype type = (enum hvd_dtype)t;
            bool even = (t + (int)s) % 2;
            if (scales[s] > 1000 && t % 4 != 0)
                continue;
            rc = broadcast(me, type, scales[s], t % me->r.mesh->size, t % 2);
            if (rc == 0)
                rc = exchange(me, type, scales[s], true, even);
            if (rc == 0)
                rc = exchange(me, type, scales[s], false, !even);
            if (rc == 0)
                rc = reducescatter(me, type, t % 3 == 0 ? HVD_MAX : HVD_SUM, scales[s], even);
            if (rc == 0 && type != HVD_BOOL)
                rc = reducescatter(me, type, HVD_AVERAGE, scales[s], !even);
        }
    }
    return rc;
}

/* ---- cancelled operations, and what is kept ---- */

/* Repeating an operation creates nothing. */
static int steady(struct gpu_rank *me)
{
    static const char *const makes[] = {"cuMemAlloc_v2", "cuMemHostAlloc", "cuEventCreate",
                                        "cuStreamCreateWithPriority", "cuMemFree_v2"};
    long before[COUNT(makes)] = {0};
    int rc = 0;
    for (int round = 0; round < 4 && rc == 0; round++) {
        rc = fused(me);
        for (size_t i = 0; i < COUNT(makes) && rc == 0; i++) {
            if (round > 0 && me->fake->calls(makes[i]) != before[i])
                rc = FAIL("round %d: %s", round, makes[i]);
            before[i] = me->fake->calls(makes[i]);
        }
    }
    return rc;
}

/* Operations of growing size are in flight while the stream of the inputs stands still, with
 * retained inputs and without. None lands before it moves; then all do, in order, with the right
 * sums. */
#define FLOCK 7

static void flock_op(struct gpu_rank *me, size_t i, struct coll_tensor t[2], struct coll_op *op)
{
    const size_t count = (size_t)1000 << i;
    uint8_t *at = me->in + 8 * ((size_t)1000 << i);
    for (size_t k = 0; k < 2; k++)
        t[k] = (struct coll_tensor){at + 4 * k * count, at + 4 * k * count, count};
    *op = coll_rank_op(&me->r, HVD_ALLREDUCE, i % 3 ? HVD_FLOAT32 : HVD_INT32, HVD_SUM, t,
                       i % 2 ? 2 : 1);
    op->device = me->gpu->device->ordinal;
}

static int add_flock(struct gpu_rank *me)
{
    struct coll_tensor t[2];
    struct coll_op op;
    void *ready[2] = {me->event, me->event};
    for (size_t i = 0; i < FLOCK; i++) {
        flock_op(me, i, t, &op);
        op.ready = ready;
        int rc = nccl_run_add(me->run, &op, i % 2, &me->flight, &me->err);
        for (int k = 0; k < 5 && rc == 0; k++)
            rc = nccl_run_progress(me->run, &me->err);
        if (rc < 0)
            return rc;
        if (nccl_run_count(me->run, FLIGHT_DONE) > 0)
            return FAIL("operation %zu has landed", i);
    }
    return 0;
}

static int land_flock(struct gpu_rank *me)
{
    uint64_t deadline = deadline_in_ms(20000);
    int rc = 0;
    while (rc == 0 && nccl_run_count(me->run, FLIGHT_DONE) < FLOCK && !deadline_passed(deadline)) {
        rc = nccl_run_progress(me->run, &me->err);
        usleep(100);
    }
    if (rc == 0 && nccl_run_count(me->run, FLIGHT_DONE) != FLOCK)
        rc = FAIL("%zu have landed", nccl_run_count(me->run, FLIGHT_DONE));
    if (rc == 0)
        nccl_run_release(me->run, FLOCK);
    return rc;
}

static int check_flock(struct gpu_rank *me)
{
    int rc = gpu_rank_fetch(me, me->in, GPU_RANK_ROOM);
    const int32_t *ints = (const int32_t *)me->host;
    const float *floats = (const float *)me->host;
    for (size_t i = 0; i < FLOCK && rc == 0; i++) {
        struct coll_tensor t[2];
        struct coll_op op;
        flock_op(me, i, t, &op);
        size_t from = (size_t)((const uint8_t *)t[0].in - me->in) / 4;
        for (size_t k = 0; k < op.n * t[0].count && rc == 0; k++) {
            double got = i % 3 ? floats[from + k] : ints[from + k];
            if (got != 3.0 * (double)(k % 100))
                rc = FAIL("operation %zu, element %zu: %f", i, k, got);
        }
    }
    return rc;
}

static int flock(struct gpu_rank *me)
{
    int rc = gpu_rank_check(me);
    for (size_t i = 0; i < FLOCK; i++) {
        struct coll_tensor t[2];
        struct coll_op op;
        flock_op(me, i, t, &op);
        uint8_t *at = me->host + ((const uint8_t *)t[0].in - me->in);
        for (size_t k = 0; k < op.n * t[0].count; k++) {
            int32_t value = (me->r.mesh->rank + 1) * (int32_t)(k % 100);
            float real = (float)value;
            memcpy(at + 4 * k, i % 3 ? (void *)&real : (void *)&value, 4);
        }
    }
    me->fake->stall(true);
    if (rc == 0)
        rc = cuda_copy(me->gpu->device, CUDA_COPY_IN, me->in, me->host, GPU_RANK_ROOM, me->stream,
                       &me->err);
    if (rc == 0)
        rc = cuda_event_record(me->gpu->device, me->event, me->stream, &me->err);
    if (rc == 0)
        rc = add_flock(me);
    me->fake->stall(false);
    if (rc == 0)
        rc = land_flock(me);
    return rc == 0 ? check_flock(me) : rc;
}

static int words(struct gpu_rank *me)
{
    char text[512];
    int rc = gpu_rank_check(me);
    nccl_api_name(me->run->api, text, sizeof(text));
    if (rc == 0 && (!strstr(text, "2.27.7 (/") || !strstr(text, "libnccl.so.2, HVD_NCCL_LIB)")))
        rc = FAIL("%s", text);
    const struct nccl_fact *f = &me->mine;
    if (rc == 0 && (f->nccl != 22707 || f->driver != 13000 || f->gpus != 8 || f->sm != 90 ||
                    f->hides_gpus || f->gpu[0] != 0x40 + me->r.mesh->rank || !f->host[0] ||
                    !f->name[0] || !strstr(f->why, "/libnccl.so.2")))
        rc = FAIL("wrong facts: %d %d %d %d %s", f->nccl, f->driver, f->gpus, f->sm, f->why);
    return rc;
}

/* ---- ranks ---- */

static int rank_main(int rank, int size, void *arg)
{
    struct gpu_rank me = {0};
    if (gpu_rank_open(&me, rank, &job.o) < 0)
        return 10;
    int rc = job.body(&me);
    if (rc < 0)
        rc = FAIL("%d %s", rc, me.err.msg);
    if (rc == 0 && job.kernels != me.gpu->kernels)
        rc = FAIL("kernels: %d %s", me.gpu->kernels, me.gpu->no_kernels.msg);
    int left = gpu_rank_close(&me);
    return rc ? rc : left;
}

static const char newest[] = "2.27", between[] = "2.18", oldest[] = "2.14";

static void run_job(const char *hosts, const char *version, bool kernels,
                    int (*body)(struct gpu_rank *), unsigned delay_us)
{
    job = (struct job){.o = {.hosts = hosts,
                             .nccl = version,
                             .script = kernels ? NULL : "cuModuleLoadData=209",
                             .ordinal = -1,
                             .delay_us = delay_us},
                       .body = body,
                       .kernels = kernels};
    printf("ranks on hosts %s, NCCL %s%s\n", hosts, version, kernels ? "" : ", no kernels");
    assert_int_equal(world_run((int)strlen(hosts), rank_main, NULL), 0);
}

static void test_dtypes(void **state)
{
    run_job("a", newest, true, dtypes, 0);
    run_job("aa", newest, true, dtypes, 0);
    run_job("aab", newest, true, dtypes, 0);
    run_job("aa", newest, false, dtypes, 0);
    run_job("ab", oldest, true, dtypes, 0);
    run_job("aa", oldest, false, dtypes, 0);
    run_job("aa", between, true, dtypes, 0);
}

static void test_sizes(void **state)
{
    run_job("aa", newest, true, sizes, 0);
    run_job("ab", oldest, true, sizes, 0);
}

static void test_fused(void **state)
{
    run_job("aa", newest, true, fused, 0);
    run_job("ab", between, false, fused, 0);
    run_job("aa", newest, true, steady, 0);
    run_job("aa", newest, false, steady, 0);
}

static void test_kinds(void **state)
{
    run_job("a", newest, true, kinds, 0);
    run_job("aa", newest, false, kinds, 0);
    run_job("aab", newest, true, kinds, 0);
    run_job("aba", oldest, true, kinds, 0);
}

/* Streams are slow: inputs are late, and launches queue behind each other. */
static void test_slow(void **state)
{
    setenv("FAKE_NCCL_POLLS", "20", 1);
    run_job("aa", newest, true, fused, 300);
    run_job("aa", newest, true, large, 0);
    run_job("aab", newest, true, large, 0);
    run_job("ab", between, false, large, 0);
    run_job("aa", oldest, true, sizes, 300);
    run_job("ab", newest, false, sizes, 1000);
    unsetenv("FAKE_NCCL_POLLS");
}

static void test_flock(void **state)
{
    run_job("aa", newest, true, flock, 0);
    run_job("aa", newest, false, words, 0);
    run_job("aa", newest, true, words, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes), cmocka_unit_test(test_sizes), cmocka_unit_test(test_fused),
        cmocka_unit_test(test_kinds),  cmocka_unit_test(test_slow),  cmocka_unit_test(test_flock),
    };
    return cmocka_run_group_tests_name("multi/nccl_run", tests, NULL, NULL);
}
