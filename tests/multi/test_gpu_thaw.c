/* SPDX-License-Identifier: Apache-2.0
 *
 * The frozen schedule is left while batches that NCCL has begun cannot be taken back: programs that
 * submit in a different order on each rank, with more tensors or other ones now and then, end with
 * the right sums. Programs whose ranks wait in orders that cannot meet, or that change a tensor,
 * get a sentence on every rank within seconds.
 *
 * timeout: 300
 * takes: 15 s
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/gpu_job.h"
#include "tests/harness/rank.h"
#include "tests/harness/values.h"

#define TENSORS 10
#define COUNT   3000
#define ROUNDS  60

/* Tensor t is on the GPU, unless t is odd and mixed. */
static bool on_gpu(int t, bool mixed)
{
    return !mixed || t % 2 == 0;
}

static int submit_one(struct gpu_side *g, int rank, int size, int t, bool mixed, int salt,
                      hvd_handle *ret)
{
    static float host[TENSORS][COUNT];
    const int64_t n = 300 * t + 7;
    size_t at = (size_t)t * COUNT * 4;
    char name[16];
    snprintf(name, sizeof(name), "t%d", t);
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, name, HVD_FLOAT32, 1, &n);
    r.input = r.output = (uint8_t *)g->in.at + at;
    void *fill = g->host + at;
    if (!on_gpu(t, mixed)) {
        r.device = -1;
        r.input = r.output = fill = host[t];
    }
    values_fill(HVD_FLOAT32, HVD_SUM, rank, size, fill, (size_t)n, salt + t);
    if (on_gpu(t, mixed) && gpu_side_send(g, at, (size_t)n * 4) < 0)
        return FAIL("%s", g->err.msg);
    return hvd_submit(&r, 1, ret) < 0 ? FAIL("%s", hvd_error()) : 0;
}

static int check_all(struct gpu_side *g, int size, int last, bool mixed, int salt)
{
    if (gpu_side_read(g, g->in.at, (size_t)TENSORS * COUNT * 4) < 0)
        return FAIL("%s", g->err.msg);
    for (int t = 0; t < last; t++)
        if (on_gpu(t, mixed) &&
            values_check(HVD_FLOAT32, HVD_SUM, size, g->host + (size_t)t * COUNT * 4, 0,
                         (size_t)(300 * t + 7), salt + t) >= 0)
            return FAIL("salt %d: tensor %d is wrong", salt, t);
    return 0;
}

/* Each rank submits in an order of its own, and waits in another one. In some rounds there is one
 * tensor more. */
static int disorder(struct gpu_side *g, int rank, int size, bool mixed)
{
    uint64_t seed = (uint64_t)rank * 77 + 5;
    struct hvd_stats s = {.size = sizeof(s)};
    int rc = 0;
    for (int k = 0; k < ROUNDS && rc == 0; k++) {
        hvd_handle handles[TENSORS];
        int order[TENSORS], wait[TENSORS], last = k % 17 == 16 ? TENSORS : TENSORS - 1;
        rank_shuffle(order, last, &seed);
        rank_shuffle(wait, last, &seed);
        for (int i = 0; i < last && rc == 0; i++)
            rc = submit_one(g, rank, size, order[i], mixed, 20 * k, &handles[order[i]]);
        for (int i = 0; i < last && rc == 0; i++)
            if (hvd_wait(handles[wait[i]]) < 0)
                rc = FAIL("round %d, tensor %d: %s", k, wait[i], hvd_error());
        if (rc == 0)
            rc = check_all(g, size, last, mixed, 20 * k);
    }
    hvd_stats(&s);
    if (rc == 0 && size > 1 && (s.frozen == 0 || s.thaws == 0))
        rc = FAIL("%d batches by the frozen schedule, %d thaws", (int)s.frozen, (int)s.thaws);
    return rc;
}

static int all_on_gpu(struct gpu_side *g, int rank, int size)
{
    return disorder(g, rank, size, false);
}

static int mixed(struct gpu_side *g, int rank, int size)
{
    return disorder(g, rank, size, true);
}

/* ---- programs that cannot go on ---- */

static int one_at_a_time(struct gpu_side *g, int rank, int size, int first, int second, int64_t n)
{
    static const char *const names[] = {"a", "b"};
    for (int i = 0; i < 2; i++) {
        struct hvd_request r =
            gpu_side_request(g, HVD_ALLREDUCE, names[i ? second : first], HVD_FLOAT32, 1, &n);
        hvd_handle h;
        int rc = hvd_submit(&r, 1, &h);
        if (rc == 0)
            rc = hvd_wait(h);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int expect(int rc, const char *words)
{
    if (rc != -EINVAL || !strstr(hvd_error(), words))
        return FAIL("%d %s", rc, hvd_error());
    return 0;
}

static int until_frozen(struct gpu_side *g, int rank, int size)
{
    struct hvd_stats s = {.size = sizeof(s)};
    for (int k = 0; k < 200; k++) {
        int rc = one_at_a_time(g, rank, size, 0, 1, 50);
        if (rc < 0)
            return FAIL("%s", hvd_error());
    }
    hvd_stats(&s);
    return s.frozen > 20 ? 0 : FAIL("the schedule did not freeze");
}

static int crossed(struct gpu_side *g, int rank, int size)
{
    int rc = until_frozen(g, rank, size);
    if (rank == 1)
        usleep(300000); /* the others have begun 'a' before this rank leaves the plan */
    uint64_t begin = clock_ns();
    if (rc == 0)
        rc = one_at_a_time(g, rank, size, rank == 1, rank != 1, 50);
    rc = rc > 0 ? rc : expect(rc, "rank 1 waits for 'b', which comes after 'a'");
    if (rc == 0 && clock_ns() - begin > 10 * CLOCK_S)
        rc = FAIL("it took %.1f s", (double)(clock_ns() - begin) / CLOCK_S);
    return rc;
}

static int changed(struct gpu_side *g, int rank, int size)
{
    int rc = until_frozen(g, rank, size);
    if (rank == 1)
        usleep(300000); /* the others have begun it */
    if (rc == 0)
        rc = one_at_a_time(g, rank, size, 0, 1, rank == 1 ? 60 : 50);
    return rc > 0 ? rc : expect(rc, "rank 1: float32 [60] sum on a GPU; other ranks: float32 [50]");
}

/* The last rank's program ends although the others have begun a sum that it owes. */
static int leaves(struct gpu_side *g, int rank, int size)
{
    int rc = until_frozen(g, rank, size);
    if (rank == size - 1) {
        static float other = 1;
        const int64_t n = 1;
        struct hvd_request r = rank_request("not in the plan", &other, &n);
        hvd_handle h;
        usleep(300000); /* the others have begun 'a' */
        rc = rc ? rc : hvd_submit(&r, 1, &h);
        usleep(300000); /* the schedule has thawed */
        return rc;
    }
    if (rc == 0)
        rc = one_at_a_time(g, rank, size, 0, 1, 50);
    return rc < 0 && strstr(hvd_error(), "shut") ? 0 : FAIL("%d %s", rc, hvd_error());
}

/* ---- tests ---- */

static void run_both(int (*body)(struct gpu_side *, int, int))
{
    gpu_job_run(2, gpu_job_nccl("2.27", NULL), (struct gpu_job){"nccl", NULL, 0, -1, body});
    gpu_job_run_on("aab", gpu_job_nccl("2.27", NULL), (struct gpu_job){"nccl", NULL, 0, -1, body});
}

static void test_disorder(void **state)
{
    run_both(all_on_gpu);
    run_both(mixed);
    gpu_job_run(2, gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, -1, all_on_gpu});
    gpu_job_run(2, gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, -1, mixed});
}

static void test_crossed(void **state)
{
    run_both(crossed);
}

static void test_changed(void **state)
{
    run_both(changed);
}

static void test_leaves(void **state)
{
    run_both(leaves);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disorder),
        cmocka_unit_test(test_crossed),
        cmocka_unit_test(test_changed),
        cmocka_unit_test(test_leaves),
    };
    return cmocka_run_group_tests_name("multi/gpu_thaw", tests, NULL, NULL);
}
