/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_job: see gpu_job.h.
 */
#include "tests/harness/gpu_job.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/fake/cuda/use.h"
#include "tests/harness/rank.h"
#include "tests/harness/values.h"
#include "tests/harness/world.h"

const char *const gpu_job_fallback[] = {"HVD_GPU_FALLBACK=1", "HVD_NCCL_LIB=/none", NULL};

int gpu_job_sum(struct gpu_side *g, int rank, int size, enum hvd_dtype dtype, enum hvd_op op,
                size_t n, bool in_place, int salt)
{
    const int64_t shape = (int64_t)n;
    size_t bytes = n * hvd_dtype_size(dtype);
    hvd_handle h;
    values_fill(dtype, op, rank, size, g->host, n, salt);
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "one", dtype, 1, &shape);
    r.op = op;
    r.output = in_place ? g->in.at : g->out.at;
    int rc = gpu_side_send(g, 0, bytes);
    if (rc == 0 && rank_wait(&r, &h) < 0)
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

/* ---- the job ---- */

static int check_way(const char *way)
{
    struct hvd_backend b = {.size_of_struct = sizeof(b)};
    if (!way)
        return 0;
    if (hvd_backend(way, &b) < 0 || !b.open)
        return FAIL("the job did not use %s", way);
    return 0;
}

struct placed {
    struct gpu_job job;
    const char *hosts; /* NULL: one host */
};

static int rank_main(int rank, int size, void *arg)
{
    const struct placed *placed = arg;
    const struct gpu_job *job = &placed->job;
    struct gpu_side g;
    if (placed->hosts)
        setenv("HVD_LOCALITY", (char[]){placed->hosts[rank], 0}, 1);
    if (gpu_side_open(&g, job->gpu < 0 ? rank : job->gpu, GPU_JOB_ROOM, job->script) < 0)
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
        rc = FAIL("%ld objects on the GPU were not freed", g.fake->live());
    return rc;
}

const char *const *gpu_job_nccl(const char *version, const char *more)
{
    static char lib[PATH_MAX + 16];
    static const char *env[3];
    char path[PATH_MAX];
    fake_nccl_path(version, path);
    snprintf(lib, sizeof(lib), "HVD_NCCL_LIB=%s", path);
    env[0] = lib;
    env[1] = more;
    return env;
}

void gpu_job_run(int size, const char *const *env, struct gpu_job job)
{
    struct world_options options = {.size = size, .env = env};
    struct placed placed = {job, NULL};
    assert_int_equal(world_run_options(&options, rank_main, &placed), 0);
}

void gpu_job_run_on(const char *hosts, const char *const *env, struct gpu_job job)
{
    struct world_options options = {.size = (int)strlen(hosts), .env = env};
    struct placed placed = {job, hosts};
    assert_int_equal(world_run_options(&options, rank_main, &placed), 0);
}
