/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_wait_stream(): a program's stream waits for an operation on a GPU, its host does not. On the
 * fake driver: the results that the stream sees, also while the schedule is frozen; a device that
 * stands still; results of a size that is not known before; operations that end on the host; wrong
 * calls.
 *
 * takes: 5 s
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

#include "core/backend/cuda.h"
#include "tests/fake/cuda/use.h"
#include "tests/harness/gpu_job.h"
#include "tests/harness/rank.h"
#include "tests/harness/values.h"

#define TENSORS 12
#define COUNT   20000

/* Submits TENSORS sums in place, each behind the copy that fills it. */
static int submit(struct gpu_side *g, int rank, int size, int salt, hvd_handle *ret)
{
    const int64_t n = COUNT;
    for (int i = 0; i < TENSORS; i++) {
        size_t at = (size_t)i * COUNT * 4;
        char name[16];
        snprintf(name, sizeof(name), "g%d", i);
        struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, name, HVD_FLOAT32, 1, &n);
        r.input = r.output = (uint8_t *)g->in.at + at;
        values_fill(HVD_FLOAT32, HVD_SUM, rank, size, g->host + at, COUNT, salt + i);
        if (gpu_side_send(g, at, COUNT * 4) < 0)
            return FAIL("%s", g->err.msg);
        if (hvd_submit(&r, 1, &ret[i]) < 0)
            return FAIL("%s", hvd_error());
    }
    return 0;
}

static int await_all(const hvd_handle *handles, void *stream)
{
    for (int i = 0; i < TENSORS; i++)
        if (stream ? hvd_wait_stream(handles[i], stream) < 0 : hvd_wait(handles[i]) < 0)
            return FAIL("%s", hvd_error());
    return 0;
}

/* The copies that read results are on the stream that waits. */
static int check(struct gpu_side *g, int size, int salt)
{
    if (gpu_side_read(g, g->in.at, (size_t)TENSORS * COUNT * 4) < 0)
        return FAIL("%s", g->err.msg);
    for (int i = 0; i < TENSORS; i++)
        if (values_check(HVD_FLOAT32, HVD_SUM, size, g->host + (size_t)i * COUNT * 4, 0, COUNT,
                         salt + i) >= 0)
            return FAIL("salt %d: tensor %d is wrong", salt, i);
    return 0;
}

static int steps(struct gpu_side *g, int rank, int size)
{
    struct hvd_stats s = {.size = sizeof(s)};
    hvd_handle handles[TENSORS];
    int rc = 0;
    for (int k = 0; k < 12 && rc == 0; k++) {
        rc = submit(g, rank, size, 20 * k, handles);
        if (rc == 0)
            rc = await_all(handles, g->stream);
        if (rc == 0)
            rc = check(g, size, 20 * k);
        if (rc == 0)
            rc = await_all(handles, NULL);
    }
    hvd_stats(&s);
    if (rc == 0 && size > 1 && s.frozen == 0)
        rc = FAIL("the schedule did not freeze");
    return rc;
}

/* The device does nothing, so no operation can end: the calls return all the same. */
static int standing_still(struct gpu_side *g, int rank, int size)
{
    hvd_handle handles[TENSORS];
    int rc = 0;
    for (int k = 0; k < 10 && rc == 0; k++) {
        g->fake->stall(true);
        rc = submit(g, rank, size, 20 * k, handles);
        if (rc == 0)
            rc = await_all(handles, g->stream);
        for (int i = 0; i < TENSORS && rc == 0; i++)
            if (hvd_poll(handles[i]) != 0)
                rc = FAIL("operation %d has ended", i);
        g->fake->stall(false);
        if (rc == 0)
            rc = await_all(handles, NULL);
        if (rc == 0)
            rc = check(g, size, 20 * k);
    }
    return rc;
}

/* The size of an allgather's result is known when the stream waits for it. */
static int gather(struct gpu_side *g, int rank, int size)
{
    const int64_t shape[] = {rank + 1, 33};
    struct hvd_request r = gpu_side_request(g, HVD_ALLGATHER, "gather", HVD_INT32, 2, shape);
    struct hvd_result result;
    hvd_handle h;
    int32_t *host = (int32_t *)g->host;
    int64_t rows = (int64_t)size * (size + 1) / 2;
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < (rank + 1) * 33; i++)
            host[i] = 10 * k + rank;
        r.output = NULL;
        if (gpu_side_send(g, 0, (size_t)(rank + 1) * 132) < 0 || hvd_submit(&r, 1, &h) < 0 ||
            hvd_wait_stream(h, g->stream) < 0 || hvd_result(h, &result) < 0)
            return FAIL("%s %s", g->err.msg, hvd_error());
        if (result.shape[0] != rows)
            return FAIL("%d rows", (int)result.shape[0]);
        if (gpu_side_read(g, result.data, (size_t)rows * 132) < 0)
            return FAIL("%s", g->err.msg);
        for (int s = 0, at = 0; s < size; s++)
            for (int i = 0; i < (s + 1) * 33; i++)
                if (host[at++] != 10 * k + s)
                    return FAIL("a row of rank %d", s);
        if (hvd_wait(h) < 0)
            return FAIL("%s", hvd_error());
        hvd_release(h);
    }
    return 0;
}

static int wrong_calls(struct gpu_side *g, int rank, int size)
{
    const int64_t n = 10;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "x", HVD_FLOAT32, 1, &n);
    float host = 1;
    hvd_handle h;
    if (hvd_wait_stream(12345, g->stream) != -EINVAL)
        return FAIL("an unknown handle");
    if (hvd_submit(&r, 1, &h) < 0)
        return FAIL("%s", hvd_error());
    if (g->fake) {
        g->fake->capture(g->stream, 1);
        int rc = hvd_wait_stream(h, g->stream);
        g->fake->capture(g->stream, 0);
        if (rc != -EBUSY && rc != 0) /* 0: it has ended */
            return FAIL("a captured stream: %d", rc);
    }
    if (hvd_wait_stream(h, g->stream) < 0 || hvd_wait(h) < 0)
        return FAIL("%s", hvd_error());
    if (hvd_wait_stream(h, g->stream) != -EINVAL)
        return FAIL("a released handle");
    /* Of the host: it is done. */
    r.device = -1;
    r.input = r.output = &host;
    r.shape = (int64_t[]){1};
    r.name = "y";
    if (hvd_submit(&r, 1, &h) < 0 || hvd_wait_stream(h, g->stream) < 0 || hvd_poll(h) != 1 ||
        host != (float)size || hvd_wait(h) < 0)
        return FAIL("on the host: %s, %f", hvd_error(), (double)host);
    return 0;
}

static void run_all(int size, const char *const *env, const char *way)
{
    gpu_job_run(size, env, (struct gpu_job){way, NULL, 0, -1, steps});
    gpu_job_run(size, env, (struct gpu_job){way, NULL, 200, -1, steps});
    gpu_job_run(size, env, (struct gpu_job){way, NULL, 0, -1, gather});
    gpu_job_run(size, env, (struct gpu_job){way, NULL, 0, -1, wrong_calls});
}

static void test_nccl(void **state)
{
    for (int size = 1; size <= 3; size++)
        run_all(size, gpu_job_nccl("2.27", NULL), "nccl");
    run_all(2, gpu_job_nccl("2.18", NULL), "nccl");
}

static void test_standing_still(void **state)
{
    gpu_job_run(2, gpu_job_nccl("2.27", NULL),
                (struct gpu_job){"nccl", NULL, 0, -1, standing_still});
}

static void test_staged(void **state)
{
    run_all(2, gpu_job_fallback, "staged");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl),
        cmocka_unit_test(test_standing_still),
        cmocka_unit_test(test_staged),
    };
    return cmocka_run_group_tests_name("multi/gpu_stream", tests, NULL, NULL);
}
