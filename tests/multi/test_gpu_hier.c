/* SPDX-License-Identifier: Apache-2.0
 *
 * Allreduce of GPU tensors in two levels through hvd.h, on the fake driver and the fake NCCL, ranks
 * on several hosts (HVD_LOCALITY): every dtype and operation, sizes of several chunks, in place and
 * not, fused and frozen steps, the same bits whatever is fused; other kinds between the sums;
 * worlds that cannot use two levels; ranks with different settings; a GPU that fails.
 *
 * timeout: 900
 * takes: 30 s
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/fake/cuda/use.h"
#include "tests/harness/effort.h"
#include "tests/harness/gpu_job.h"
#include "tests/harness/gpu_side.h"
#include "tests/harness/rank.h"
#include "tests/harness/values.h"
#include "tests/harness/world.h"

#define ROOM    ((size_t)LARGE * 4) /* bytes of the largest sums */
#define LITTLE  ((size_t)2 << 20)   /* for other sums */
#define TENSORS 60
#define LARGE   (EFFORT_LEAST ? 2100037 : 4000037) /* chunks of a million and a short one */

#define STRIDE (EFFORT_WHOLE ? 1 : 3) /* of sizes and worlds */

struct job {
    const char *hosts; /* a character a rank */
    const char *script;
    unsigned delay_us;
    bool unused; /* NCCL over all ranks must run instead */
    int (*body)(struct gpu_side *g, int rank, int size, const struct job *job);
};

/* One operation. through_host: whether its shards must go through the host. */
static int submit_wait(struct gpu_side *g, const struct hvd_request *r, bool through_host)
{
    hvd_handle h;
    long before = g->fake->calls("cuMemcpyDtoHAsync_v2");
    int rc = rank_wait(r, &h);
    bool went = g->fake->calls("cuMemcpyDtoHAsync_v2") > before;
    return rc < 0 || went == through_host ? rc : -EXDEV;
}

/* One allreduce and the check of its result, which is one more copy through the host. */
static int one_sum(struct gpu_side *g, int rank, int size, enum hvd_dtype dtype, enum hvd_op op,
                   size_t n, bool in_place, bool through_host)
{
    static int salt;
    long before = g->fake->calls("cuMemcpyDtoHAsync_v2");
    int rc = gpu_job_sum(g, rank, size, dtype, op, n, in_place, ++salt);
    bool went = g->fake->calls("cuMemcpyDtoHAsync_v2") > before + 1;
    return rc || went == through_host
               ? rc
               : FAIL("%s %s of %zu went another way", hvd_dtype_name(dtype), hvd_op_name(op), n);
}

static int sums(struct gpu_side *g, int rank, int size, const struct job *job)
{
    static const enum hvd_op ops[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX, HVD_PRODUCT};
    static const size_t counts[] = {1, 2, 7, 4096, 100001};
    int rc = 0, k = 0;
    for (int t = 0; t < HVD_DTYPES; t += STRIDE)
        for (size_t o = 0; o < sizeof(ops) / sizeof(*ops); o++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(*counts) && rc == 0; c += STRIDE)
                if (t != HVD_BOOL || ops[o] != HVD_AVERAGE)
                    rc =
                        one_sum(g, rank, size, (enum hvd_dtype)t, ops[o], counts[c], k++ % 2, true);
    if (rc == 0)
        rc = one_sum(g, rank, size, HVD_FLOAT32, HVD_AVERAGE, LARGE, true, true);
    if (rc == 0)
        rc = one_sum(g, rank, size, HVD_INT16, HVD_SUM, 2 * LARGE, false, true);
    return rc;
}

static int scaled(struct gpu_side *g, int rank, int size, const struct job *job)
{
    const int64_t n = 1001;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "scaled", HVD_FLOAT32, 1, &n);
    float *f = (float *)g->host;
    r.prescale = 0.5;
    r.postscale = 4;
    for (int i = 0; i < n; i++)
        f[i] = (float)(rank + i % 10);
    if (gpu_side_send(g, 0, (size_t)n * 4) < 0 || submit_wait(g, &r, true) < 0 ||
        gpu_side_read(g, g->in.at, (size_t)n * 4) < 0)
        return FAIL("%s %s", g->err.msg, hvd_error());
    for (int i = 0; i < n; i++)
        if (f[i] != (float)(2 * (size * (size - 1) / 2 + size * (i % 10))))
            return FAIL("element %d is %g", i, (double)f[i]);
    return 0;
}

/* ---- fused ---- */

static size_t length(int i)
{
    return (size_t)(i * 97 % 3000) + 1 + (i % 20 == 7 ? 70000 : 0);
}

/* Submits many gradients and waits for them at the end. alone: waits for each at once. */
static int submit_all(struct gpu_side *g, bool alone)
{
    hvd_handle handles[TENSORS];
    size_t at = 0;
    for (int i = 0; i < TENSORS; i++) {
        const int64_t n = (int64_t)length(i);
        char name[16];
        snprintf(name, sizeof(name), "%c%d", alone ? 'a' : 'g', i);
        struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, name, HVD_FLOAT32, 1, &n);
        r.input = r.output = (uint8_t *)g->in.at + at;
        if (hvd_submit(&r, 1, &handles[i]) < 0 || (alone && hvd_wait(handles[i]) < 0))
            return FAIL("%s", hvd_error());
        at += (size_t)n * 4;
    }
    for (int i = 0; i < TENSORS && !alone; i++)
        if (hvd_wait(handles[i]) < 0)
            return FAIL("%s", hvd_error());
    return gpu_side_read(g, g->in.at, at) < 0 ? FAIL("%s", g->err.msg) : 0;
}

static int steps(struct gpu_side *g, int rank, int size, const struct job *job)
{
    struct hvd_stats s = {.size = sizeof(s)};
    int rc = 0;
    for (int k = 0; k < 12 && rc == 0; k++) {
        size_t at = 0;
        for (int i = 0; i < TENSORS; at += length(i++) * 4)
            values_fill(HVD_FLOAT32, HVD_SUM, rank, size, g->host + at, length(i), k + i);
        rc = gpu_side_send(g, 0, at) < 0 ? FAIL("%s", g->err.msg) : submit_all(g, false);
        at = 0;
        for (int i = 0; i < TENSORS && rc == 0; at += length(i++) * 4)
            if (values_check(HVD_FLOAT32, HVD_SUM, size, g->host + at, 0, length(i), k + i) >= 0)
                rc = FAIL("step %d: tensor %d is wrong", k, i);
    }
    hvd_stats(&s);
    if (rc == 0 && s.frozen == 0)
        rc = FAIL("the schedule did not freeze");
    return rc;
}

/* Values whose sum depends on the order. */
static void fill(struct gpu_side *g, int rank, size_t bytes)
{
    uint64_t random = (uint64_t)rank + 5;
    float *f = (float *)g->host;
    for (size_t i = 0; i < bytes / 4; i++)
        f[i] = (float)(int64_t)rank_random(&random) * 1e-9f;
}

static int same_bits(struct gpu_side *g, int rank, int size, const struct job *job)
{
    size_t bytes = 0;
    for (int i = 0; i < TENSORS; i++)
        bytes += length(i) * 4;
    uint8_t *alone = malloc(bytes);
    fill(g, rank, bytes);
    int rc = gpu_side_send(g, 0, bytes) < 0 ? FAIL("%s", g->err.msg) : submit_all(g, true);
    if (alone)
        memcpy(alone, g->host, bytes);
    fill(g, rank, bytes);
    if (rc == 0)
        rc = gpu_side_send(g, 0, bytes) < 0 ? FAIL("%s", g->err.msg) : submit_all(g, false);
    if (rc == 0 && (!alone || memcmp(alone, g->host, bytes) != 0))
        rc = FAIL("other bits where tensors are fused");
    free(alone);
    return rc;
}

/* ---- other kinds between sums ---- */

static int gather(struct gpu_side *g, int rank, int size, const struct job *job)
{
    const int64_t n = 33;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "gather", HVD_INT32, 1, &n);
    int32_t *host = (int32_t *)g->host;
    int rc = 0;
    r.kind = HVD_ALLGATHER;
    r.output = g->out.at;
    r.output_rows = 33 * size;
    for (int k = 0; k < 8 && rc == 0; k++) {
        for (int i = 0; i < n; i++)
            host[i] = rank + k;
        if (gpu_side_send(g, 0, (size_t)n * 4) < 0 || submit_wait(g, &r, false) < 0 ||
            gpu_side_read(g, g->out.at, (size_t)(n * size) * 4) < 0)
            return FAIL("%s %s", g->err.msg, hvd_error());
        for (int i = 0; i < n * size; i++)
            if (host[i] != i / n + k)
                return FAIL("element %d is %d", i, (int)host[i]);
        rc = one_sum(g, rank, size, HVD_FLOAT64, HVD_SUM, 3001, k % 2, !job->unused);
    }
    return rc;
}

static int different(struct gpu_side *g, int rank, int size, const struct job *job)
{
    const int64_t n = 10;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "t", HVD_FLOAT32, 1, &n);
    if (submit_wait(g, &r, false) != -ENOTSUP ||
        !strstr(hvd_error(), "HVD_HIERARCHICAL_ALLREDUCE is 1 on rank 0 and not set on rank 2"))
        return FAIL("%s", hvd_error());
    return 0;
}

static int broken(struct gpu_side *g, int rank, int size, const struct job *job)
{
    const int64_t n = LARGE;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "t", HVD_FLOAT32, 1, &n);
    int rc = one_sum(g, rank, size, HVD_FLOAT32, HVD_SUM, 1000, true, true);
    if (rc)
        return rc;
    if (rank == 1)
        g->fake->break_device(g->d->ordinal, CUDA_ILLEGAL_ADDRESS);
    rc = submit_wait(g, &r, true);
    if (rc >= 0 || !strstr(hvd_error(), "rank 1") || !strstr(hvd_error(), "ILLEGAL_ADDRESS"))
        return FAIL("%d: %s", rc, hvd_error());
    if (rank == 1 && gpu_side_read(g, g->in.at, 4) >= 0)
        return FAIL("the GPU still works");
    return 0;
}

/* ---- jobs ---- */

static int check_text(const struct job *job)
{
    struct hvd_backend b = {.size_of_struct = sizeof(b)};
    bool two = hvd_backend("nccl", &b) == 0 && strstr(b.text, "inside hosts, TCP between them");
    return two == !job->unused ? 0 : FAIL("nccl is \"%s\"", b.text);
}

static int rank_main(int rank, int size, void *arg)
{
    const struct job *job = arg;
    const char word[] = {job->hosts[rank], 0};
    struct gpu_side g;
    setenv("HVD_LOCALITY", word, 1);
    if (job->body == different && rank == 2)
        unsetenv("HVD_HIERARCHICAL_ALLREDUCE");
    bool large = job->body == sums || job->body == broken;
    if (gpu_side_open(&g, rank, large ? ROOM : LITTLE, job->script) < 0)
        return FAIL("%s", g.err.msg);
    g.fake->delay(job->delay_us);
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    int rc = job->body(&g, rank, size, job);
    if (rc == 0 && job->body != different)
        rc = check_text(job);
    if (hvd_shutdown() < 0 && rc == 0)
        rc = FAIL("%s", hvd_error());
    if (!gpu_side_close(&g) && rc == 0)
        rc = FAIL("%ld things are left on the GPU", g.fake->live());
    return rc;
}

/* more: a setting. Unless it says otherwise NCCL has only sockets between hosts. */
static void run_job(const char *version, const char *more, struct job job)
{
    const char *const env[] = {*gpu_job_nccl(version, NULL), "NCCL_NET=Socket", more, NULL};
    struct world_options options = {.size = (int)strlen(job.hosts), .env = env};
    printf("ranks on hosts %s, NCCL %s\n", job.hosts, version);
    assert_int_equal(world_run_options(&options, rank_main, &job), 0);
}

static const char *const yes = "HVD_HIERARCHICAL_ALLREDUCE=1";

/* The ranks choose by themselves whether to use two levels; only the last job has the setting. */
static void test_by_itself(void **state)
{
    run_job("2.27", NULL, (struct job){"aabb", NULL, 0, false, gather});
    run_job("2.27", "NCCL_NET=IB", (struct job){"aabb", NULL, 0, true, gather});
    run_job("2.27", NULL, (struct job){"aab", NULL, 0, true, gather});
    run_job("2.27", yes, (struct job){"aabb", NULL, 0, false, gather});
}

static void test_sums(void **state)
{
    run_job("2.27", yes, (struct job){"aabb", NULL, 0, false, sums});
    if (STRIDE == 1)
        run_job("2.8", yes, (struct job){"abab", NULL, 0, false, sums});
    run_job("2.27", yes, (struct job){"aaabbb", NULL, 0, false, sums});
    run_job("2.27", "HOROVOD_HIERARCHICAL_ALLREDUCE=1",
            (struct job){"aabbcc", NULL, 0, false, scaled});
}

static void test_fused(void **state)
{
    static const char *const worlds[] = {"aabb", "abcabc", "abab"};
    for (size_t i = 0; i < sizeof(worlds) / sizeof(*worlds); i += STRIDE) {
        run_job("2.27", yes, (struct job){worlds[i], NULL, 0, false, steps});
        run_job("2.27", yes, (struct job){worlds[i], NULL, 0, false, same_bits});
    }
    run_job("2.14", yes, (struct job){"aabb", NULL, 200, false, steps});
    run_job("2.27", yes, (struct job){"aabb", "count=8;delay_us=200", 0, false, steps});
}

static void test_beside(void **state)
{
    run_job("2.27", yes, (struct job){"aabb", NULL, 0, false, gather});
    run_job("2.18", yes, (struct job){"abcabc", NULL, 100, false, gather});
}

static void test_unused(void **state)
{
    static const char *const worlds[] = {"aa", "ab", "aab", "aaab"};
    for (size_t i = 0; i < sizeof(worlds) / sizeof(*worlds); i++)
        run_job("2.27", yes, (struct job){worlds[i], NULL, 0, true, gather});
    run_job("2.27", yes, (struct job){"aabb", "count=8;cuModuleLoadData=209", 0, true, gather});
    run_job("2.27", "HVD_HIERARCHICAL_ALLREDUCE=0", (struct job){"aabb", NULL, 0, true, gather});
}

static void test_bad(void **state)
{
    run_job("2.27", yes, (struct job){"aabb", NULL, 0, false, different});
    run_job("2.27", yes, (struct job){"aabb", NULL, 0, false, broken});
    run_job("2.27", yes, (struct job){"abab", NULL, 100, false, broken});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),   cmocka_unit_test(test_fused),
        cmocka_unit_test(test_beside), cmocka_unit_test(test_unused),
        cmocka_unit_test(test_bad),    cmocka_unit_test(test_by_itself),
    };
    return cmocka_run_group_tests_name("multi/test_gpu_hier", tests, NULL, NULL);
}
