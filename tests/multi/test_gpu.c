/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of a GPU through hvd.h, on the fake driver, by each way there is for them: every kind,
 * in place and not, results that the engine makes room for, fused and frozen steps on a slow device
 * that fills its inputs late, beside tensors of the host. Then what is refused, and what fails.
 *
 * With HVD_TEST_REAL_GPU=1 (make test-gpu) on the first GPU of this machine and with the real NCCL:
 * what ranks that share a GPU can do, and NCCL with one rank.
 *
 * timeout: 300
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/backend/cuda.h"
#include "tests/fake/cuda/use.h"
#include "tests/harness/gpu_side.h"
#include "tests/harness/rank.h"
#include "tests/harness/values.h"
#include "tests/harness/world.h"

#define ROOM    ((size_t)8 << 20)
#define TENSORS 60
#define LARGE   7 /* one of them is not packed with the others */

struct job {
    const char *way; /* "staged" or "nccl", which the counters of the engine must tell */
    const char *script;
    unsigned delay_us;
    int gpu; /* -1: each rank has its own */
    int (*body)(struct gpu_side *g, int rank, int size);
};

static struct hvd_request on_gpu(struct gpu_side *g, enum hvd_kind kind, const char *name,
                                 enum hvd_dtype dtype, int ndim, const int64_t *shape)
{
    return (struct hvd_request){.kind = kind,
                                .name = name,
                                .dtype = dtype,
                                .ndim = ndim,
                                .shape = shape,
                                .op = HVD_SUM,
                                .device = g->d->ordinal,
                                .stream = g->stream};
}

static int submit_wait(const struct hvd_request *r, hvd_handle *ret)
{
    int rc = hvd_submit(r, 1, ret);
    return rc < 0 ? rc : hvd_wait(*ret);
}

/* ---- allreduce ---- */

static int one_sum(struct gpu_side *g, int rank, int size, enum hvd_dtype dtype, enum hvd_op op,
                   size_t n, bool in_place, int salt)
{
    const int64_t shape = (int64_t)n;
    size_t bytes = n * hvd_dtype_size(dtype);
    hvd_handle h;
    values_fill(dtype, op, rank, size, g->host, n, salt);
    struct hvd_request r = on_gpu(g, HVD_ALLREDUCE, "one", dtype, 1, &shape);
    r.op = op;
    r.input = g->in.at;
    r.output = in_place ? g->in.at : g->out.at;
    int rc = gpu_side_send(g, 0, bytes);
    if (rc == 0 && submit_wait(&r, &h) < 0)
        return FAIL("%s %s: %s", hvd_dtype_name(dtype), hvd_op_name(op), hvd_error());
    if (rc == 0)
        rc = gpu_side_read(g, r.output, bytes);
    if (rc < 0)
        return FAIL("%s", g->err.msg);
    long bad = values_check(dtype, op, size, g->host, 0, n, salt);
    return bad >= 0
               ? FAIL("%s %s of %zu: element %ld", hvd_dtype_name(dtype), hvd_op_name(op), n, bad)
               : 0;
}

static int sums(struct gpu_side *g, int rank, int size)
{
    static const enum hvd_op ops[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX, HVD_PRODUCT};
    static const size_t counts[] = {1, 7, 4096, 100001};
    int rc = 0, salt = 0;
    for (int t = 0; t < HVD_DTYPES && rc == 0; t++)
        for (size_t o = 0; o < sizeof(ops) / sizeof(*ops) && rc == 0; o++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(*counts) && rc == 0; c++) {
                bool none = t == HVD_BOOL && ops[o] == HVD_AVERAGE;
                salt++;
                if (!none)
                    rc = one_sum(g, rank, size, (enum hvd_dtype)t, ops[o], counts[c], salt % 2,
                                 salt);
            }
    return rc;
}

static size_t size_of(int i)
{
    return i % 20 == LARGE ? 140000 + (size_t)i : (size_t)(i * 97 % 3000) + 1;
}

/* Steps as a program has them: gradients from the last to the first, waited for at the end. The
 * schedule freezes on the way. */
static int step(struct gpu_side *g, int rank, int size, int k)
{
    hvd_handle handles[TENSORS];
    size_t at[TENSORS], sum = 0;
    float mine = (float)rank;
    for (int i = 0; i < TENSORS; i++) {
        size_t n = size_of(i);
        at[i] = sum;
        values_fill(HVD_FLOAT32, HVD_SUM, rank, size, g->host + sum, n, k + i);
        sum += n * 4;
    }
    for (int i = 0; i < TENSORS; i++) {
        const int64_t n = (int64_t)size_of(i);
        char name[16];
        snprintf(name, sizeof(name), "g%d", i);
        struct hvd_request r = on_gpu(g, HVD_ALLREDUCE, name, HVD_FLOAT32, 1, &n);
        r.input = r.output = (uint8_t *)g->in.at + at[i];
        if (gpu_side_send(g, at[i], (size_t)n * 4) < 0)
            return FAIL("%s", g->err.msg);
        if (hvd_submit(&r, 1, &handles[i]) < 0)
            return FAIL("%s", hvd_error());
    }
    if (hvd_allreduce("host", &mine, &mine, 1, HVD_FLOAT32, HVD_SUM) < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < TENSORS; i++)
        if (hvd_wait(handles[i]) < 0)
            return FAIL("%s", hvd_error());
    if (gpu_side_read(g, g->in.at, sum) < 0)
        return FAIL("%s", g->err.msg);
    for (int i = 0; i < TENSORS; i++)
        if (values_check(HVD_FLOAT32, HVD_SUM, size, g->host + at[i], 0, size_of(i), k + i) >= 0)
            return FAIL("step %d: tensor %d is wrong", k, i);
    return mine == (float)(size * (size - 1) / 2) ? 0 : FAIL("the host's is %g", (double)mine);
}

static int steps(struct gpu_side *g, int rank, int size)
{
    struct hvd_stats s = {.size = sizeof(s)};
    int rc = 0;
    for (int k = 0; k < 12 && rc == 0; k++)
        rc = step(g, rank, size, k);
    hvd_stats(&s);
    if (rc == 0 && size > 1 && s.frozen == 0)
        rc = FAIL("the schedule did not freeze");
    return rc;
}

/* ---- the other kinds ---- */

static int gather(struct gpu_side *g, int rank, int size, bool room)
{
    const int64_t shape[] = {rank % 2 ? 0 : rank + 1, 33};
    struct hvd_request r = on_gpu(g, HVD_ALLGATHER, "gather", HVD_INT32, 2, shape);
    struct hvd_result result;
    hvd_handle h;
    int32_t *host = (int32_t *)g->host;
    for (int i = 0; i < (rank + 1) * 33; i++)
        host[i] = rank;
    r.input = g->in.at;
    r.output = room ? g->out.at : NULL;
    r.output_rows = room ? 1000 : 0;
    if (gpu_side_send(g, 0, (size_t)(rank + 1) * 132) < 0 || submit_wait(&r, &h) < 0)
        return FAIL("%s %s", g->err.msg, hvd_error());
    hvd_result(h, &result);
    if (room && result.data != g->out.at)
        return FAIL("the result is not where there was room");
    if (gpu_side_read(g, result.data, (size_t)result.shape[0] * 132) < 0)
        return FAIL("%s", g->err.msg);
    for (int s = 0; s < size; s++) {
        if (result.splits[s] != (s % 2 ? 0 : s + 1))
            return FAIL("%d rows from rank %d", (int)result.splits[s], s);
        for (int64_t i = 0; i < result.splits[s] * 33; i++)
            if (*host++ != s)
                return FAIL("a row of rank %d", s);
    }
    hvd_release(h);
    return 0;
}

static int exchange(struct gpu_side *g, int rank, int size)
{
    const int64_t shape[] = {(int64_t)size * 3, 5};
    struct hvd_request r = on_gpu(g, HVD_ALLTOALL, "exchange", HVD_INT64, 2, shape);
    struct hvd_result result;
    hvd_handle h;
    int64_t *host = (int64_t *)g->host;
    for (int i = 0; i < size * 15; i++)
        host[i] = rank * 100 + i / 15;
    r.input = g->in.at;
    if (gpu_side_send(g, 0, (size_t)size * 120) < 0 || submit_wait(&r, &h) < 0)
        return FAIL("%s %s", g->err.msg, hvd_error());
    hvd_result(h, &result);
    if (result.shape[0] != 3 * size || gpu_side_read(g, result.data, (size_t)size * 120) < 0)
        return FAIL("%s", g->err.msg);
    for (int i = 0; i < size * 15; i++)
        if (host[i] != i / 15 * 100 + rank)
            return FAIL("element %d is %d", i, (int)host[i]);
    hvd_release(h);
    return 0;
}

static int spread(struct gpu_side *g, int rank, int size)
{
    const int64_t n = 5003;
    struct hvd_request r = on_gpu(g, HVD_BROADCAST, "spread", HVD_FLOAT16, 1, &n);
    hvd_handle h;
    r.root = size - 1;
    r.input = r.output = g->in.at;
    memset(g->host, rank == r.root ? 0x21 : 0, (size_t)n * 2);
    if (gpu_side_send(g, 0, (size_t)n * 2) < 0 || submit_wait(&r, &h) < 0)
        return FAIL("%s %s", g->err.msg, hvd_error());
    memset(g->host, 0, (size_t)n * 2);
    if (gpu_side_read(g, g->in.at, (size_t)n * 2) < 0)
        return FAIL("%s", g->err.msg);
    for (int i = 0; i < n * 2; i++)
        if (g->host[i] != 0x21)
            return FAIL("byte %d", i);
    return 0;
}

static int scatter(struct gpu_side *g, int rank, int size)
{
    const int64_t rows = 4 * size + 1, shape[] = {rows, 11};
    struct hvd_request r = on_gpu(g, HVD_REDUCESCATTER, "scatter", HVD_FLOAT32, 2, shape);
    hvd_handle h;
    size_t n = (size_t)rows * 11;
    r.input = g->in.at;
    r.output = g->out.at;
    values_fill(HVD_FLOAT32, HVD_SUM, rank, size, g->host, n, 9);
    if (gpu_side_send(g, 0, n * 4) < 0 || submit_wait(&r, &h) < 0)
        return FAIL("%s %s", g->err.msg, hvd_error());
    size_t mine = (rank == 0 ? 5 : 4) * 11, first = rank == 0 ? 0 : (size_t)(4 * rank + 1) * 11;
    if (gpu_side_read(g, g->out.at, mine * 4) < 0)
        return FAIL("%s", g->err.msg);
    return values_check(HVD_FLOAT32, HVD_SUM, size, g->host, first, mine, 9) < 0
               ? 0
               : FAIL("a sum is wrong");
}

static int kinds(struct gpu_side *g, int rank, int size)
{
    int rc = 0;
    for (int i = 0; i < 6 && rc == 0; i++) {
        rc = gather(g, rank, size, i % 2);
        if (rc == 0)
            rc = exchange(g, rank, size);
        if (rc == 0)
            rc = spread(g, rank, size);
        if (rc == 0)
            rc = scatter(g, rank, size);
    }
    return rc;
}

/* ---- refused ---- */

static int refuse(const struct hvd_request *r, int code, const char *words)
{
    hvd_handle h;
    int rc = hvd_submit(r, 1, &h);
    if (rc != code || !strstr(hvd_error(), words))
        return FAIL("%d (%s), not %d with \"%s\"", rc, hvd_error(), code, words);
    return 0;
}

static int refused(struct gpu_side *g, int rank, int size)
{
    const int64_t n = 100;
    static float host[100];
    struct hvd_request good = on_gpu(g, HVD_ALLREDUCE, "r", HVD_FLOAT32, 1, &n), r = good;
    good.input = good.output = g->in.at;
    r = good;
    r.device = -2;
    int rc = refuse(&r, -EINVAL, "device -2");
    r.device = 77;
    rc = rc ? rc : refuse(&r, -ENODEV, "there is no GPU 77");
    rc = rc ? rc : one_sum(g, rank, size, HVD_FLOAT32, HVD_SUM, 10, true, 1);
    r.device = g->d->ordinal + 1;
    rc = rc ? rc : refuse(&r, -EINVAL, "uses one only");
    r = good;
    r.input = r.output = host;
    rc = rc ? rc : refuse(&r, -EINVAL, "its input is in the host's memory");
    r = good;
    g->fake->capture(g->stream, 1);
    rc = rc ? rc : refuse(&r, -EBUSY, "captured into a CUDA graph");
    g->fake->capture(g->stream, 0);
    return rc ? rc : one_sum(g, rank, size, HVD_FLOAT32, HVD_SUM, 10, true, 2);
}

/* On a GPU here and in the host's memory there: all are told. */
static int mixed(struct gpu_side *g, int rank, int size)
{
    const int64_t n = 10;
    static float host[10];
    hvd_handle h;
    struct hvd_request r = on_gpu(g, HVD_ALLREDUCE, "mixed", HVD_FLOAT32, 1, &n);
    r.input = r.output = g->in.at;
    if (rank == 0) {
        r.device = -1;
        r.input = r.output = host;
    }
    if (submit_wait(&r, &h) != -EINVAL || !strstr(hvd_error(), "on a GPU"))
        return FAIL("%s", hvd_error());
    return one_sum(g, rank, size, HVD_FLOAT32, HVD_SUM, 10, true, 3);
}

static int refusing(struct gpu_side *g, const char *words)
{
    const int64_t n = 10;
    float one = 1;
    hvd_handle h;
    struct hvd_request r = on_gpu(g, HVD_ALLREDUCE, "t", HVD_FLOAT32, 1, &n);
    r.input = r.output = g->in.at;
    if (submit_wait(&r, &h) != -ENOTSUP || !strstr(hvd_error(), words))
        return FAIL("%s", hvd_error());
    /* From then on there is nothing but that answer. */
    if (hvd_allreduce("x", &one, &one, 1, HVD_FLOAT32, HVD_SUM) != -ENOTSUP)
        return FAIL("%s", hvd_error());
    return 0;
}

static int no_way(struct gpu_side *g, int rank, int size)
{
    return refusing(g, "HVD_GPU_FALLBACK=1");
}

static int shared(struct gpu_side *g, int rank, int size)
{
    return refusing(g, "use the same GPU");
}

/* Rank 1's GPU fails in the middle; everybody hears of it, from whom it is known. */
static int broken(struct gpu_side *g, int rank, int size)
{
    const int64_t n = 1000000;
    hvd_handle h;
    struct hvd_request r = on_gpu(g, HVD_ALLREDUCE, "t", HVD_FLOAT32, 1, &n);
    r.input = r.output = g->in.at;
    int rc = one_sum(g, rank, size, HVD_FLOAT32, HVD_SUM, 1000, true, 4);
    if (rc)
        return rc;
    if (rank == 1)
        g->fake->break_device(g->d->ordinal, CUDA_ILLEGAL_ADDRESS);
    rc = submit_wait(&r, &h);
    if (rc >= 0 || !strstr(hvd_error(), "rank 1") || !strstr(hvd_error(), "ILLEGAL_ADDRESS"))
        return FAIL("%d: %s", rc, hvd_error());
    if (rank == 1 && gpu_side_read(g, g->in.at, 4) >= 0)
        return FAIL("the GPU still works");
    return 0;
}

/* ---- NCCL that fails: its operation is off the GPU when the ranks hear of it, else memory could
 * not be given back at their end ---- */

static int fail_second(struct gpu_side *g, int rank, int size, const char *const words[3])
{
    const int64_t n = 1000000;
    hvd_handle h;
    struct hvd_request r = on_gpu(g, HVD_ALLREDUCE, "t", HVD_FLOAT32, 1, &n);
    r.input = r.output = g->in.at;
    int rc = one_sum(g, rank, size, HVD_FLOAT32, HVD_SUM, 1000, true, 4);
    if (rc)
        return rc;
    rc = submit_wait(&r, &h);
    if (rc >= 0)
        return FAIL("it is done");
    for (int i = 0; i < 3 && words[i]; i++)
        if (!strstr(hvd_error(), words[i]))
            return FAIL("\"%s\" is not in: %s", words[i], hvd_error());
    return 0;
}

static int hangs(struct gpu_side *g, int rank, int size)
{
    static const char *const words[3] = {"allreduce 't' has run for", "on the GPUs"};
    if (rank == 1)
        setenv("FAKE_NCCL_HANG", "ncclAllReduce:2:async", 1);
    return fail_second(g, rank, size, words);
}

static int fails_later(struct gpu_side *g, int rank, int size)
{
    static const char *const words[3] = {"rank 1", "NCCL 2.27", "ncclAllReduce"};
    if (rank == 1)
        setenv("FAKE_NCCL_FAIL", "ncclAllReduce:2:async:6", 1);
    return fail_second(g, rank, size, words);
}

static void go(int signal)
{
    _exit(0);
}

/* Rank 1 ends without a word while NCCL runs. */
static int dies(struct gpu_side *g, int rank, int size)
{
    static const char *const words[3] = {"rank 1"};
    if (rank == 1) {
        setenv("FAKE_NCCL_HANG", "ncclAllReduce:2:async", 1);
        signal(SIGALRM, go);
        alarm(1);
    }
    return fail_second(g, rank, size, words);
}

/* ---- jobs ---- */

static int check_way(const char *way)
{
    struct hvd_backend b = {.size_of_struct = sizeof(b)};
    if (!way)
        return 0;
    if (hvd_backend(way, &b) < 0 || !b.open)
        return FAIL("%s is not what was used", way);
    return 0;
}

static int rank_main(int rank, int size, void *arg)
{
    const struct job *job = arg;
    struct gpu_side g;
    if (gpu_side_open(&g, job->gpu < 0 ? rank : job->gpu, ROOM, job->script) < 0)
        return FAIL("%s", g.err.msg);
    if (g.fake)
        g.fake->delay(job->delay_us);
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    int rc = job->body(&g, rank, size);
    if (rc == 0)
        rc = check_way(job->way);
    if (hvd_shutdown() < 0 && rc == 0)
        rc = FAIL("%s", hvd_error());
    if (!gpu_side_close(&g) && rc == 0)
        rc = FAIL("%ld things are left on the GPU", g.fake->live());
    return rc;
}

static const char *const fallback[] = {"HVD_GPU_FALLBACK=1", "HVD_NCCL_LIB=/none", NULL};

/* HVD_NCCL_LIB=<the fake of that version> */
static const char *const *with_nccl(const char *version, const char *more)
{
    static char lib[PATH_MAX + 16], part[64];
    static const char *env[3];
    char path[PATH_MAX];
    snprintf(part, sizeof(part), "tests/fake/nccl-%s/libnccl.so.2", version);
    fake_build_path(part, path);
    snprintf(lib, sizeof(lib), "HVD_NCCL_LIB=%s", path);
    env[0] = lib;
    env[1] = more;
    return env;
}

static void run_job(int size, const char *const *env, struct job job)
{
    struct world_options options = {.size = size, .env = env};
    assert_int_equal(world_run_options(&options, rank_main, &job), 0);
}

static void test_staged(void **state)
{
    for (int size = 1; size <= 4; size++) {
        run_job(size, fallback, (struct job){"staged", NULL, 0, -1, steps});
        run_job(size, fallback, (struct job){"staged", NULL, 0, -1, kinds});
    }
    run_job(2, fallback, (struct job){"staged", NULL, 0, -1, sums});
    run_job(2, fallback, (struct job){"staged", NULL, 200, -1, steps});
    run_job(2, fallback, (struct job){"staged", "count=8;cuModuleLoadData=209", 0, -1, steps});
    run_job(3, fallback, (struct job){"staged", NULL, 0, 0, steps});
}

static void test_nccl(void **state)
{
    static const char *const versions[] = {"2.8", "2.13", "2.14", "2.18", "2.27"};
    for (size_t v = 0; v < sizeof(versions) / sizeof(*versions); v++) {
        const char *const *env = with_nccl(versions[v], NULL);
        for (int size = v == 4 ? 1 : 2; size <= (v == 4 ? 4 : 2); size++) {
            run_job(size, env, (struct job){"nccl", NULL, 0, -1, steps});
            run_job(size, env, (struct job){"nccl", NULL, 0, -1, kinds});
        }
    }
    run_job(2, with_nccl("2.27", NULL), (struct job){"nccl", NULL, 0, -1, sums});
    run_job(2, with_nccl("2.27", NULL), (struct job){"nccl", "count=8;delay_us=200", 0, -1, steps});
    run_job(2, with_nccl("2.27", NULL), (struct job){"nccl", NULL, 0, -1, refused});
    run_job(2, with_nccl("2.27", NULL), (struct job){"nccl", NULL, 0, -1, mixed});
    /* Without our kernels NCCL scales by itself. */
    run_job(2, with_nccl("2.27", NULL),
            (struct job){"nccl", "count=8;cuModuleLoadData=209", 0, -1, steps});
    /* and what it cannot do goes through the host where that is allowed */
    run_job(2, with_nccl("2.27", "HVD_GPU_FALLBACK=1"),
            (struct job){"nccl", "count=8;cuModuleLoadData=209", 0, -1, sums});
}

/* Asked for by name, without a word of falling back. */
static void test_named(void **state)
{
    static const char *const env[] = {"HVD_BACKEND=staged", NULL};
    run_job(2, env, (struct job){"staged", NULL, 0, -1, steps});
}

static void test_refused(void **state)
{
    run_job(1, fallback, (struct job){"staged", NULL, 0, -1, refused});
    run_job(2, fallback, (struct job){"staged", NULL, 0, -1, refused});
    run_job(2, fallback, (struct job){"staged", NULL, 0, -1, mixed});
}

static void test_no_way(void **state)
{
    static const char *const none[] = {"HVD_NCCL_LIB=/none", NULL};
    run_job(2, none, (struct job){NULL, NULL, 0, -1, no_way});
    run_job(2, with_nccl("2.27", NULL), (struct job){NULL, NULL, 0, 0, shared});
    run_job(2, with_nccl("2.27", "HVD_GPU_FALLBACK=1"), (struct job){"staged", NULL, 0, 0, steps});
}

static void test_broken(void **state)
{
    run_job(2, fallback, (struct job){NULL, NULL, 0, -1, broken});
    run_job(3, fallback, (struct job){NULL, NULL, 100, -1, broken});
    run_job(3, with_nccl("2.27", NULL), (struct job){NULL, NULL, 0, -1, broken});
}

static void test_nccl_fails(void **state)
{
    const char *const *env = with_nccl("2.27", NULL);
    const char *const stall[] = {env[0], "HVD_STALL_CHECK_TIME_SECONDS=1",
                                 "HVD_STALL_SHUTDOWN_TIME_SECONDS=2", NULL};
    run_job(2, stall, (struct job){NULL, NULL, 0, -1, hangs});
    run_job(3, env, (struct job){NULL, NULL, 0, -1, fails_later});
    run_job(3, env, (struct job){NULL, NULL, 0, -1, dies});
    run_job(2, with_nccl("2.8", NULL), (struct job){NULL, NULL, 0, -1, dies});
}

/* ---- a real GPU ---- */

static void test_real_staged(void **state)
{
    for (int size = 1; size <= 4; size++) {
        run_job(size, fallback, (struct job){"staged", NULL, 0, 0, steps});
        run_job(size, fallback, (struct job){"staged", NULL, 0, 0, kinds});
    }
    run_job(2, fallback, (struct job){"staged", NULL, 0, 0, sums});
    run_job(2, fallback, (struct job){"staged", NULL, 0, 0, mixed});
}

static void test_real_nccl(void **state)
{
    run_job(1, NULL, (struct job){"nccl", NULL, 0, 0, steps});
    run_job(1, NULL, (struct job){"nccl", NULL, 0, 0, kinds});
    run_job(1, NULL, (struct job){"nccl", NULL, 0, 0, sums});
}

static int on_real_gpu(void)
{
    struct err why;
    if (!gpu_side_has_gpu(&why)) {
        printf("SKIP: gpu/device: GPU: %s\n", why.msg);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_staged),
        cmocka_unit_test(test_real_nccl),
    };
    return cmocka_run_group_tests_name("gpu/device", tests, NULL, NULL);
}

int main(void)
{
    if (gpu_side_is_real())
        return on_real_gpu();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_staged),     cmocka_unit_test(test_nccl),
        cmocka_unit_test(test_nccl_fails), cmocka_unit_test(test_named),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_no_way),
        cmocka_unit_test(test_broken),
    };
    return cmocka_run_group_tests_name("multi/test_gpu", tests, NULL, NULL);
}
