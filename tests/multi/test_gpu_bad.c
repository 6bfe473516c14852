/* SPDX-License-Identifier: Apache-2.0
 *
 * Machines on which GPU tensors cannot be exchanged, on the fake driver and NCCL. Every rank gets
 * an error of one line with the doctor's code. Nothing falls back to the host unless the user
 * allows it.
 *
 * timeout: 300
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
#include "tests/harness/gpu_side.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define RANKS 2

struct machine {
    const char *script;  /* FAKE_CUDA */
    const char *nccl;    /* version of the fake; NULL: none */
    const char *mapped;  /* another NCCL that the process has mapped already */
    const char *visible; /* CUDA_VISIBLE_DEVICES; NULL: not set */
};

struct job {
    struct machine machine[RANKS]; /* machine of each rank */
    int gpu;                       /* the GPU that all ranks use; -1: one each */
    bool driver;                   /* the machine has a driver */
    const char *backend, *fallback;
    const char *words[3]; /* words that the error must have */
    bool init;            /* hvd_init() returns the error */
    bool works;           /* the job works after all */
};

static void set(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void set_machine(const struct job *job, const struct machine *m)
{
    char path[PATH_MAX];
    set("HVD_BACKEND", job->backend);
    set("HVD_GPU_FALLBACK", job->fallback);
    set("CUDA_VISIBLE_DEVICES", m->visible);
    setenv("HVD_NCCL_LIB", "/none", 1);
    if (m->nccl) {
        fake_nccl_path(m->nccl, path);
        setenv("HVD_NCCL_LIB", path, 1);
    }
    if (m->mapped) {
        fake_nccl_path(m->mapped, path);
        dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
}

/* The error must be one line with all of the words. */
static int check_said(const struct job *job, const char *said)
{
    for (size_t i = 0; i < 3 && job->words[i]; i++)
        if (!strstr(said, job->words[i]))
            return FAIL("\"%s\" is not in: %s", job->words[i], said);
    return strchr(said, '\n') ? FAIL("several lines: %s", said) : 0;
}

static int sum(struct gpu_side *g, int size)
{
    const int64_t n = 1000;
    hvd_handle h;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "t", HVD_FLOAT32, 1, &n);
    float *host = (float *)g->host;
    for (int i = 0; i < n; i++)
        host[i] = 1;
    int rc = gpu_side_send(g, 0, (size_t)n * 4);
    rc = rc < 0 ? rc : rank_wait(&r, &h);
    if (rc == 0 && (gpu_side_read(g, g->in.at, (size_t)n * 4) < 0 || host[n - 1] != (float)size))
        return FAIL("a wrong sum");
    return rc;
}

static int rank_main(int rank, int size, void *arg)
{
    const struct job *job = arg;
    const struct machine *m = &job->machine[rank];
    struct gpu_side g;
    set_machine(job, m);
    if (job->driver && gpu_side_open(&g, job->gpu < 0 ? rank : job->gpu, 1 << 16, m->script) < 0)
        return check_said(job, g.err.msg); /* any CUDA program would get this error */
    int rc = hvd_init();
    if (job->init) {
        rc = rc < 0 ? check_said(job, hvd_error()) : FAIL("hvd_init() succeeded");
        if (job->driver)
            gpu_side_close(&g);
        return rc;
    }
    if (rc < 0)
        return FAIL("%s", hvd_error());
    rc = sum(&g, size);
    if (job->works && rc < 0)
        rc = FAIL("%s", hvd_error());
    else if (!job->works)
        rc = rc == -ENOTSUP ? check_said(job, hvd_error()) : FAIL("%d: %s", rc, hvd_error());
    hvd_shutdown();
    gpu_side_close(&g);
    return rc;
}

static void run_job(struct job job)
{
    assert_int_equal(world_run(RANKS, rank_main, &job), 0);
}

#define BOTH(...)                                                                                  \
    {                                                                                              \
        {__VA_ARGS__},                                                                             \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define GOOD .script = "count=8", .nccl = "2.27"

static void test_driver(void **state)
{
    /* no driver, where the user asks for a back end that needs one */
    run_job((struct job){.machine = BOTH(.nccl = "2.27"),
                         .backend = "nccl",
                         .words = {"rank 0 cannot use it", "NVIDIA driver", "nvml-load, HVD5001"},
                         .init = true});
    run_job((struct job){.machine = BOTH(.nccl = "2.27"),
                         .backend = "staged",
                         .words = {"NVIDIA driver", "nvml-load, HVD5001"},
                         .init = true});
    /* a driver too old for anything */
    run_job((struct job){.machine = BOTH(.script = "version=10020"),
                         .driver = true,
                         .words = {"CUDA 10.2", "cuda-driver-version, HVD5022"}});
    /* a driver too old for the runtime that NCCL brings */
    run_job((struct job){
        .machine = BOTH(.script = "count=8;version=12020", .nccl = "2.27"),
        .driver = true,
        .gpu = -1,
        .words = {"built for CUDA 13.0", "12.2 at most", "cuda-driver-version, HVD5022"}});
}

static void test_nccl(void **state)
{
    /* an NCCL too old for the GPU: it works, slowly at first */
    run_job((struct job){.machine = BOTH(.script = "count=8;sm=120", .nccl = "2.18"),
                         .driver = true,
                         .gpu = -1,
                         .works = true});
    /* a GPU too old for the NCCL */
    run_job((struct job){.machine = BOTH(.script = "count=8;sm=70", .nccl = "2.27"),
                         .driver = true,
                         .gpu = -1,
                         .words = {"sm_70", "nccl-known-bad, HVD6003"}});
    run_job((struct job){
        .machine = BOTH(.script = "count=8", .nccl = "2.13"),
        .driver = true,
        .gpu = -1,
        .words = {"NCCL 2.13.4 (/", "hvd needs NCCL 2.14 or newer", "nccl-known-bad, HVD6003"}});
    setenv("NCCL_COMM_BLOCKING", "1", 1);
    run_job((struct job){.machine = BOTH(GOOD),
                         .driver = true,
                         .gpu = -1,
                         .words = {"NCCL_COMM_BLOCKING=1", "NCCL 2.27.7 (/", "unset it"}});
    unsetenv("NCCL_COMM_BLOCKING");
    run_job((struct job){.machine = BOTH(GOOD, .mapped = "2.18"),
                         .driver = true,
                         .gpu = -1,
                         .words = {"nccl-multiple, HVD6002", "HVD_NCCL_LIB"}});
    run_job((struct job){.machine = {{GOOD}, {.script = "count=8", .nccl = "2.18"}},
                         .driver = true,
                         .gpu = -1,
                         .words = {"rank 0", "2.18", "xw-version-skew, HVD9601"}});
    run_job((struct job){.machine = {{GOOD}, {.script = "count=8", .nccl = "2.18"}},
                         .driver = true,
                         .gpu = -1,
                         .backend = "nccl",
                         .words = {"rank 0 has NCCL 2.27", "2.18", "xw-version-skew, HVD9601"},
                         .init = true});
    /* no NCCL, without permission to fall back */
    run_job((struct job){.machine = BOTH(.script = "count=8"),
                         .driver = true,
                         .gpu = -1,
                         .words = {"cannot use NCCL", "nccl-load, HVD6001", "HVD_GPU_FALLBACK=1"}});
    run_job((struct job){.machine = {{GOOD}, {.script = "count=8"}},
                         .driver = true,
                         .gpu = -1,
                         .words = {"rank 1", "cannot use NCCL", "nccl-load, HVD6001"}});
    run_job((struct job){.machine = BOTH(.script = "count=8"),
                         .driver = true,
                         .gpu = -1,
                         .fallback = "1",
                         .works = true});
    run_job((struct job){
        .machine = BOTH(GOOD), .backend = "nccl,staged", .driver = true, .gpu = 0, .works = true});
}

static void test_gpus(void **state)
{
    run_job((struct job){.machine = BOTH(GOOD),
                         .driver = true,
                         .gpu = 0,
                         .words = {"ranks 0 and 1", "same GPU", "gpu-count, HVD5004"}});
    /* GPU 1 of a machine that has only GPU 0, as when there are more ranks than GPUs */
    run_job((struct job){
        .machine = {{.script = "count=1", .nccl = "2.27"}, {.script = "count=1", .nccl = "2.27"}},
        .driver = true,
        .gpu = 1,
        .words = {"there is no GPU 1", "sees 1", "gpu-count, HVD5004"}});
    run_job((struct job){
        .machine = BOTH(GOOD, .visible = ""),
        .driver = true,
        .words = {"CUDA_VISIBLE_DEVICES= leaves no GPU", "cuda-visible-devices, HVD5005"}});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_driver),
        cmocka_unit_test(test_nccl),
        cmocka_unit_test(test_gpus),
    };
    return cmocka_run_group_tests_name("multi/test_gpu_bad", tests, NULL, NULL);
}
