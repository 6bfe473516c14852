/* SPDX-License-Identifier: Apache-2.0
 *
 * An elastic world whose tensors are on GPUs of the fake driver, while ranks are killed and one
 * joins. Each rank's part is in the result completely or not at all, the same on all ranks, also in
 * place; by each way to exchange GPU tensors, and in a set of all ranks.
 *
 * With HVD_TEST_REAL_GPU=1 (make test-gpu) all ranks share the first GPU of this machine: through
 * the host's memory, and through NCCL where it allows that (from 2.30 on).
 *
 * timeout: 600
 * takes: 70 s
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/fake/cuda/use.h"
#include "tests/harness/effort.h"
#include "tests/harness/deaths.h"
#include "tests/harness/elastic.h"
#include "tests/harness/gpu_side.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define STEPS   60
#define WIDE    (EFFORT_LEAST ? 1000 : 4000) /* elements of a row */
#define TENSORS 7
#define ROOM    ((size_t)4 << 20)
#define HELD    18
#define REAL    3      /* jobs of kill_two() on a real GPU */
#define LIMIT   180000 /* ms; a job with TSan takes a minute where the machine is busy */

struct board {
    bool grows; /* step HELD is repeated until a third rank is there */
    _Atomic int at[ELASTIC_MAX];
    _Atomic int batches[ELASTIC_MAX];
    uint64_t reduced[ELASTIC_MAX][STEPS][TENSORS]; /* members whose parts a sum had */
    uint64_t gathered[ELASTIC_MAX][STEPS];         /* members whose rows an allgather had */
    uint64_t summed[ELASTIC_MAX][STEPS];           /* members whose parts a reducescatter had */
    int64_t told[ELASTIC_MAX][STEPS]; /* what a broadcast delivered; -1: its root was lost */
};

struct member {
    struct gpu_side g;
    struct board *b;
    int number, step;
    int set;                   /* of all ranks, in which every other step is; 0: none */
    int64_t crew[ELASTIC_MAX]; /* member of each rank, as all reported at the last boundary */
};

static void fill(struct member *m, size_t n, float value)
{
    float *f = (float *)m->g.host;
    for (size_t i = 0; i < n; i++)
        f[i] = value;
}

/* Several tensors in place, fused. Each element is a sum of powers of two, one for each member. */
static int reduce(struct member *m)
{
    hvd_handle h[TENSORS];
    static const int64_t n[TENSORS] = {1, 17, WIDE, 3 * WIDE, 5, WIDE / 2, 40 * WIDE};
    size_t at = 0;
    float *host = (float *)m->g.host;
    fill(m, 60 * WIDE, (float)(1 << m->number));
    for (int i = 0; i < TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "r%d", i);
        struct hvd_request r = gpu_side_request(&m->g, HVD_ALLREDUCE, name, HVD_FLOAT32, 1, &n[i]);
        r.input = r.output = (uint8_t *)m->g.in.at + at;
        if (gpu_side_send(&m->g, at, (size_t)n[i] * 4) < 0 || hvd_submit(&r, 1, &h[i]) < 0)
            return FAIL("%s %s", m->g.err.msg, hvd_error());
        at += (size_t)n[i] * 4;
    }
    for (int i = 0; i < TENSORS; i++)
        if (hvd_wait(h[i]) < 0)
            return FAIL("reduce: %s", hvd_error());
    if (gpu_side_read(&m->g, m->g.in.at, at) < 0)
        return FAIL("%s", m->g.err.msg);
    for (int i = 0; i < TENSORS; i++) {
        const float first = *host;
        for (int64_t k = 0; k < n[i]; k++)
            if (*host++ != first)
                return FAIL("step %d: element %d of tensor %d is %g, the first %g", m->step, (int)k,
                            i, (double)host[-1], (double)first);
        m->b->reduced[m->number][m->step][i] = (uint64_t)first;
    }
    return 0;
}

/* Member m contributes m + 1 rows of its number. */
static int gather(struct member *m)
{
    int64_t shape[] = {m->number + 1, WIDE};
    size_t n = (size_t)(m->number + 1) * WIDE;
    struct hvd_request r = gpu_side_request(&m->g, HVD_ALLGATHER, "gather", HVD_FLOAT32, 2, shape);
    struct hvd_result result;
    hvd_handle h;
    r.output = NULL;
    fill(m, n, (float)m->number);
    if (gpu_side_send(&m->g, 0, n * 4) < 0 || rank_wait(&r, &h) < 0)
        return FAIL("gather: %s %s", m->g.err.msg, hvd_error());
    hvd_result(h, &result);
    if (gpu_side_read(&m->g, result.data, (size_t)result.shape[0] * WIDE * 4) < 0)
        return FAIL("%s", m->g.err.msg);
    const float *data = (float *)m->g.host;
    for (int i = 0; i < hvd_size(); i++) {
        int64_t who = m->crew[i];
        if (result.splits[i] != 0 && (who < 0 || result.splits[i] != who + 1))
            return FAIL("gather: %d rows from member %d", (int)result.splits[i], (int)who);
        for (int64_t k = 0; k < result.splits[i] * WIDE; k++)
            if (*data++ != (float)who)
                return FAIL("gather: a row of member %d is not its own", (int)who);
        m->b->gathered[m->number][m->step] |= result.splits[i] ? 1ULL << who : 0;
    }
    hvd_release(h);
    return 0;
}

static int tell(struct member *m)
{
    const int64_t n = 2 * WIDE;
    struct hvd_request r = gpu_side_request(&m->g, HVD_BROADCAST, "tell", HVD_FLOAT32, 1, &n);
    hvd_handle h;
    r.root = m->step % hvd_size();
    fill(m, 2 * WIDE, hvd_rank() == r.root ? (float)(m->number * 1000 + m->step) : -2);
    if (gpu_side_send(&m->g, 0, (size_t)n * 4) < 0)
        return FAIL("%s", m->g.err.msg);
    int rc = rank_wait(&r, &h);
    m->b->told[m->number][m->step] = -1;
    if (rc == -EOWNERDEAD) /* no operation waited for the copy to the device */
        return gpu_side_read(&m->g, m->g.in.at, 4) < 0 ? FAIL("%s", m->g.err.msg) : 0;
    if (rc < 0 || gpu_side_read(&m->g, m->g.in.at, (size_t)n * 4) < 0)
        return FAIL("tell: %s %s", m->g.err.msg, hvd_error());
    const float *data = (float *)m->g.host;
    for (int i = 0; i < n; i++)
        if (data[i] != data[0])
            return FAIL("tell: element %d is %g, the first %g", i, (double)data[i],
                        (double)data[0]);
    m->b->told[m->number][m->step] = (int64_t)data[0];
    return 0;
}

/* Each rank sends every rank two rows that name sender and receiver. */
static int exchange(struct member *m)
{
    int size = hvd_size(), rank = hvd_rank();
    int64_t shape[] = {2 * size, WIDE};
    size_t n = (size_t)(2 * size) * WIDE;
    struct hvd_request r = gpu_side_request(&m->g, HVD_ALLTOALL, "exchange", HVD_FLOAT32, 2, shape);
    struct hvd_result result;
    hvd_handle h;
    float *host = (float *)m->g.host;
    r.output = NULL;
    for (size_t i = 0; i < n; i++)
        host[i] = (float)(m->number * 100 + (int)(i / (2 * WIDE)));
    if (gpu_side_send(&m->g, 0, n * 4) < 0 || rank_wait(&r, &h) < 0)
        return FAIL("exchange: %s %s", m->g.err.msg, hvd_error());
    hvd_result(h, &result);
    if (gpu_side_read(&m->g, result.data, (size_t)result.shape[0] * WIDE * 4) < 0)
        return FAIL("%s", m->g.err.msg);
    for (int i = 0; i < size; i++) {
        if (result.splits[i] != 0 && result.splits[i] != 2)
            return FAIL("exchange: %d rows from rank %d", (int)result.splits[i], i);
        for (int k = 0; k < result.splits[i] * WIDE; k++)
            if (*host++ != (float)(m->crew[i] * 100 + rank))
                return FAIL("exchange: not what rank %d gave", i);
    }
    hvd_release(h);
    return 0;
}

static int scatter(struct member *m)
{
    int size = hvd_size();
    int64_t shape[] = {2 * size, WIDE};
    size_t n = (size_t)(2 * size) * WIDE;
    struct hvd_request r =
        gpu_side_request(&m->g, HVD_REDUCESCATTER, "scatter", HVD_FLOAT32, 2, shape);
    hvd_handle h;
    r.output = m->step % 2 ? m->g.in.at : m->g.out.at; /* sometimes in place */
    fill(m, n, (float)(1 << m->number));
    if (gpu_side_send(&m->g, 0, n * 4) < 0 || rank_wait(&r, &h) < 0 ||
        gpu_side_read(&m->g, r.output, (size_t)2 * WIDE * 4) < 0)
        return FAIL("scatter: %s %s", m->g.err.msg, hvd_error());
    const float *sums = (float *)m->g.host;
    for (int i = 0; i < 2 * WIDE; i++)
        if (sums[i] != sums[0])
            return FAIL("scatter: element %d is %g, the first %g", i, (double)sums[i],
                        (double)sums[0]);
    m->b->summed[m->number][m->step] = (uint64_t)sums[0];
    return 0;
}

static int one_step(struct member *m)
{
    m->g.set = m->step % 2 ? m->set : 0;
    int rc = reduce(m);
    rc = rc ? rc : gather(m);
    rc = rc ? rc : tell(m);
    rc = rc ? rc : exchange(m);
    rc = rc ? rc : scatter(m);
    if (rc == 0 && hvd_barrier("all") < 0)
        rc = FAIL("barrier: %s", hvd_error());
    return rc;
}

/* All ranks agree on the step. */
static int agree(struct member *m)
{
    int64_t step = m->step;
    if (hvd_allreduce("step", &step, &step, 1, HVD_INT64, HVD_MAX) < 0)
        return FAIL("step: %s", hvd_error());
    m->step = (int)step;
    return rank_crew(m->number, m->crew) < 0 ? FAIL("crew: %s", hvd_error()) : 0;
}

static int add_set(struct member *m)
{
    static const int all[] = {0, 1, 2, 3};
    return hvd_set_add(all, hvd_size(), &m->set) < 0 ? FAIL("set: %s", hvd_error()) : 0;
}

static int train(struct member *m)
{
    int rc = agree(m);
    if (rc == 0 && !m->b->grows)
        rc = add_set(m);
    while (rc == 0 && m->step < STEPS) {
        atomic_store(&m->b->at[m->number], m->step);
        rc = one_step(m);
        m->step += m->b->grows && m->step == HELD && hvd_size() < 3 ? 0 : 1;
        /* Lost ranks count in sizes until the next boundary, here every third step. */
        if (rc == 0 && m->step % 3 == 0) {
            rc = hvd_commit();
            rc = rc < 0 ? FAIL("commit: %s", hvd_error()) : rc == 1 ? agree(m) : 0;
        }
    }
    atomic_store(&m->b->at[m->number], STEPS);
    return rc;
}

static int work(int number, void *arg)
{
    static struct member m;
    m = (struct member){.b = arg, .number = number};
    if (gpu_side_open(&m.g, gpu_side_is_real() ? 0 : number, ROOM, NULL) < 0)
        return FAIL("%s", m.g.err.msg);
    if (m.g.fake)
        m.g.fake->delay(getenv("SLOW") ? 100 : 0);
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    int rc = hvd_enter() < 0 ? FAIL("enter: %s", hvd_error()) : train(&m);
    hvd_shutdown();
    if (!gpu_side_close(&m.g) && rc == 0)
        rc = FAIL("%ld things are left on the GPU", m.g.fake->live());
    return rc;
}

/* Members that were there all the time must have seen the same. */
static void check(const struct board *b, int other, const char *what)
{
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < TENSORS; i++)
            if (b->reduced[other][step][i] != b->reduced[0][step][i])
                fail_msg("%s, step %d: member %d has another sum %d: %lx, %lx", what, step, other,
                         i, (long)b->reduced[other][step][i], (long)b->reduced[0][step][i]);
        if (b->gathered[other][step] != b->gathered[0][step])
            fail_msg("%s, step %d: member %d gathered other rows", what, step, other);
        if (b->told[other][step] != b->told[0][step])
            fail_msg("%s, step %d: member %d received another broadcast", what, step, other);
        if (b->summed[other][step] != b->summed[0][step])
            fail_msg("%s, step %d: member %d summed other members' parts", what, step, other);
    }
}

/* Members 1 and 3 are killed. */
static void kill_two(const char *const *env, unsigned seed)
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    uint64_t random = seed;
    char what[32];
    snprintf(what, sizeof(what), "seed %u", seed);
    elastic_init(&job);
    for (int m = 0; m < 4; m++)
        elastic_add(&job, work, b, env);
    for (int i = 0; i < 2; i++) {
        int step = 8 + 20 * i + (int)(rank_random(&random) % 10);
        deaths_kill_at(&job, i == 0 ? 1 : 3, &b->at[0], step, LIMIT, &random, what);
    }
    if (!elastic_run(&job, elastic_all_over, NULL, LIMIT))
        fail_msg("%s: it has not ended in time", what);
    for (int m = 0; m < 4; m += 2)
        if (job.members[m].status != 0)
            fail_msg("%s: member %d ended with status %x", what, m, job.members[m].status);
    check(b, 2, what);
    elastic_fini(&job);
}

/* Member 2 joins, and then member 1 is killed. */
static void grow(const char *const *env)
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    b->grows = true;
    elastic_init(&job);
    for (int m = 0; m < 2; m++)
        elastic_add(&job, work, b, env);
    assert_true(elastic_run_to(&job, &b->at[0], 10, LIMIT));
    elastic_add(&job, work, b, env);
    assert_true(elastic_run(&job, elastic_joiners_wait, &(int){2}, LIMIT));
    elastic_announce(&job);
    assert_true(elastic_run_to(&job, &b->at[2], 25, LIMIT));
    kill(job.members[1].pid, SIGKILL);
    assert_true(elastic_run(&job, elastic_all_over, NULL, LIMIT));
    assert_int_equal(job.members[0].status, 0);
    assert_int_equal(job.members[2].status, 0);
    elastic_fini(&job);
}

static void test_staged(void **state)
{
    static const char *const env[] = {"HVD_BACKEND=staged", NULL};
    static const char *const slow[] = {"HVD_BACKEND=staged", "SLOW=1", NULL};
    for (unsigned seed = 1; seed <= (unsigned)effort(6); seed++)
        kill_two(seed % 3 ? env : slow, seed);
    grow(env);
}

/* Before 2.27 launches run on the communicator's thread. */
static void test_nccl(void **state)
{
    static const char *const versions[] = {"2.27", "2.18", "2.14"};
    for (size_t v = 0; v < sizeof(versions) / sizeof(*versions); v++) {
        char path[PATH_MAX], lib[PATH_MAX + 16];
        const char *const env[] = {lib, NULL}, *const slow[] = {lib, "SLOW=1", NULL};
        fake_nccl_path(versions[v], path);
        snprintf(lib, sizeof(lib), "HVD_NCCL_LIB=%s", path);
        printf("NCCL %s\n", versions[v]);
        for (unsigned seed = 1; seed <= (unsigned)effort(v == 0 ? 8 : 3); seed++)
            kill_two(seed % 3 ? env : slow, seed);
        grow(env);
    }
}

/* ---- a real GPU ---- */

static void kill_and_grow(const char *const *env)
{
    for (unsigned seed = 1; seed <= REAL; seed++)
        kill_two(env, seed);
    grow(env);
}

static void test_real_staged(void **state)
{
    static const char *const env[] = {"HVD_BACKEND=staged", NULL};
    kill_and_grow(env);
}

static void test_real_nccl(void **state)
{
    static const char *const env[] = {"NCCL_MULTI_RANK_GPU_ENABLE=1", NULL};
    if (!gpu_side_nccl_shares()) {
        printf("SKIP: gpu/elastic/nccl: nccl-2.30: no NCCL here lets ranks share a GPU\n");
        skip();
    }
    kill_and_grow(env);
}

static int on_real_gpu(void)
{
    struct err why;
    if (!gpu_side_has_gpu(&why)) {
        printf("SKIP: gpu/elastic: GPU: %s\n", why.msg);
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_real_staged),
                                       cmocka_unit_test(test_real_nccl)};
    return cmocka_run_group_tests_name("gpu/elastic", tests, NULL, NULL);
}

int main(void)
{
    if (gpu_side_is_real())
        return on_real_gpu();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_staged), cmocka_unit_test(test_nccl)};
    return cmocka_run_group_tests_name("multi/test_gpu_elastic", tests, NULL, NULL);
}
