/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that cannot continue in an elastic job whose tensors are on GPUs: a joiner that lacks what
 * the others use, or a GPU that fails. The rank gives the reason and leaves. The others continue
 * without it.
 *
 * timeout: 300
 * takes: 5 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/fake/cuda/use.h"
#include "tests/harness/elastic.h"
#include "tests/harness/gpu_side.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define STEPS 60
#define COUNT 5000
#define UNFIT 7 /* exit code of a rank that could not continue */

struct board {
    _Atomic int at[ELASTIC_MAX];
    _Atomic int fails; /* the member whose GPU fails; -1: none */
    _Atomic int hold;  /* the others do not reach the last step while it is set */
    bool late;         /* no operation runs on GPUs until there are more than two ranks */
    char said[ELASTIC_MAX][512];
};

/* Each element is the number of ranks. NCCL sums this type only by our kernels. */
static int sum(struct gpu_side *g, int64_t n, bool breaks)
{
    static bool broken;
    hvd_handle h;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "sum", HVD_INT16, 1, &n);
    int16_t *host = (int16_t *)g->host;
    for (int64_t i = 0; i < n; i++)
        host[i] = 1;
    if (!broken && gpu_side_send(g, 0, (size_t)n * 2) < 0)
        return FAIL("%s", g->err.msg);
    int rc = hvd_submit(&r, 1, &h);
    if (breaks)
        g->fake->break_device(g->d->ordinal, CUDA_ILLEGAL_ADDRESS);
    broken = broken || breaks;
    if (rc < 0 || hvd_wait(h) < 0)
        return UNFIT;
    if (broken)
        return 0; /* the sum was done before the GPU failed: the next one fails */
    if (gpu_side_read(g, g->in.at, (size_t)n * 2) < 0)
        return FAIL("%s", g->err.msg);
    for (int64_t i = 0; i < n; i++)
        if (host[i] != host[0] || host[i] < 1 || host[i] > ELASTIC_MAX)
            return FAIL("element %d is %d, the first %d", (int)i, host[i], host[0]);
    return 0;
}

/* Each rank reads `hold` at a time of its own, so the ranks agree on it together with the step. */
static int train(struct gpu_side *g, int member, struct board *b)
{
    int rc = 0;
    for (int64_t step = 0; rc == 0 && step < STEPS;) {
        int64_t now[] = {step, atomic_load(&b->hold)};
        if (hvd_allreduce("step", now, now, 2, HVD_INT64, HVD_MAX) < 0)
            return FAIL("step: %s", hvd_error());
        step = now[0];
        bool held = now[1];
        atomic_store(&b->at[member], (int)step);
        if (!b->late || hvd_size() > 2 || !held)
            rc = sum(g, COUNT, atomic_load(&b->fails) == member && step > 10);
        if (rc == 0 && hvd_commit() < 0)
            rc = FAIL("commit: %s", hvd_error());
        step += step + 1 < STEPS || !held;
        nap_ms(1);
    }
    atomic_store(&b->at[member], STEPS);
    return rc;
}

static int work(int member, void *arg)
{
    static struct gpu_side g;
    struct board *b = arg;
    if (gpu_side_open(&g, member, (size_t)COUNT * 4, getenv("SCRIPT")) < 0)
        return FAIL("%s", g.err.msg);
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    int rc = hvd_enter() < 0 ? FAIL("enter: %s", hvd_error()) : train(&g, member, b);
    if (rc == UNFIT)
        snprintf(b->said[member], sizeof(b->said[0]), "%s", hvd_error());
    hvd_shutdown();
    gpu_side_close(&g);
    return rc;
}

static struct board *clean_board(int fails)
{
    static struct board *b;
    b = b ? b : world_shared(sizeof(*b));
    memset(b, 0, sizeof(*b));
    atomic_store(&b->fails, fails);
    return b;
}

static void expect_left(struct elastic *job, const struct board *b, int member, const char *words)
{
    printf("member %d: %s\n", member, b->said[member]);
    assert_int_equal(job->members[member].status, UNFIT << 8);
    if (!strstr(b->said[member], words))
        fail_msg("the error lacks \"%s\": %s", words, b->said[member]);
}

static bool is_over(struct elastic *job, void *arg)
{
    return job->members[*(int *)arg].over;
}

struct newcomer {
    const char *const *env;
    const char *words; /* words of the refusal */
    bool late;         /* the newcomer joins before the first operation on GPUs */
    bool beside;       /* another joiner comes that fits */
};

static void joins(const char *const *env, const struct newcomer *n)
{
    struct board *b = clean_board(-1);
    struct elastic job;
    elastic_init(&job);
    atomic_store(&b->hold, 1);
    b->late = n->late;
    for (int m = 0; m < 2; m++)
        elastic_add(&job, work, b, env);
    assert_true(elastic_run_to(&job, &b->at[0], 10, 60000));
    int member = elastic_add(&job, work, b, n->env), good = -1;
    assert_true(elastic_run(&job, elastic_joiners_wait, &member, 60000));
    if (n->beside) {
        good = elastic_add(&job, work, b, env);
        assert_true(elastic_run(&job, elastic_joiners_wait, &good, 60000));
    }
    elastic_announce(&job);
    assert_true(elastic_run(&job, is_over, &member, 60000));
    atomic_store(&b->hold, 0);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
    expect_left(&job, b, member, n->words);
    for (int m = 0; m < job.n; m++)
        if (m != member && job.members[m].status != 0)
            fail_msg("member %d ended with status %x: %s", m, job.members[m].status, b->said[m]);
    elastic_fini(&job);
}

static void test_joiners(void **state)
{
    char path[PATH_MAX], lib[PATH_MAX + 16], old[PATH_MAX + 16], other[PATH_MAX + 16];
    const char *const env[] = {lib, NULL}, *const none[] = {"HVD_NCCL_LIB=/none", NULL};
    const char *const older[] = {old, NULL}, *const mixed[] = {other, NULL};
    const char *const bare[] = {lib, "HVD_KERNELS=/none", NULL};
    const struct newcomer all[] = {
        {none, "cannot use NCCL", false, false}, {none, "cannot use NCCL", false, true},
        {none, "cannot use NCCL", true, false},  {older, "too old", false, false},
        {mixed, "2.18.6", false, false},         {bare, "kernels for GPUs", false, false},
        {bare, "kernels for GPUs", false, true},
    };
    fake_nccl_path("2.27", path);
    snprintf(lib, sizeof(lib), "HVD_NCCL_LIB=%s", path);
    fake_nccl_path("2.13", path);
    snprintf(old, sizeof(old), "HVD_NCCL_LIB=%s", path);
    fake_nccl_path("2.18", path);
    snprintf(other, sizeof(other), "HVD_NCCL_LIB=%s", path);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        joins(env, &all[i]);
}

static void fails(const char *const *env)
{
    struct board *b = clean_board(1);
    struct elastic job;
    elastic_init(&job);
    for (int m = 0; m < 3; m++)
        elastic_add(&job, work, b, env);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
    expect_left(&job, b, 1, "ILLEGAL_ADDRESS");
    assert_int_equal(job.members[0].status, 0);
    assert_int_equal(job.members[2].status, 0);
    elastic_fini(&job);
}

static void test_broken(void **state)
{
    char path[PATH_MAX], lib[PATH_MAX + 16];
    static const char *const staged[] = {"HVD_BACKEND=staged", NULL};
    const char *const nccl[] = {lib, NULL};
    fake_nccl_path("2.27", path);
    snprintf(lib, sizeof(lib), "HVD_NCCL_LIB=%s", path);
    fails(staged);
    fails(nccl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_broken),
                                       cmocka_unit_test(test_joiners)};
    return cmocka_run_group_tests_name("multi/test_gpu_unfit", tests, NULL, NULL);
}
