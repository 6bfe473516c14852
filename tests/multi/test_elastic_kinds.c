/* SPDX-License-Identifier: Apache-2.0
 *
 * An elastic world: every kind of operation while ranks are killed. Each rank's part is in the
 * result completely or not at all, and the same on all ranks. A broadcast from a lost root fails
 * with that reason.
 *
 * timeout: 300
 * takes: 12 s
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

#include "tests/harness/effort.h"
#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define STEPS 120
#define WIDE  5000 /* elements of a row: long enough to be killed in the middle */

struct board {
    _Atomic int at[ELASTIC_MAX];
    uint64_t gathered[ELASTIC_MAX][STEPS]; /* members whose rows an allgather had */
    uint64_t summed[ELASTIC_MAX][STEPS];   /* members whose parts a reducescatter had */
    int64_t told[ELASTIC_MAX][STEPS];      /* what a broadcast delivered; -1: its root was lost */
};

/* Members of the world by rank, as all reported them at the last boundary. */
struct crew {
    int64_t members[ELASTIC_MAX];
};

/* Member m contributes m + 1 rows of its number. */
static int gather(struct board *b, int member, int step, const struct crew *crew)
{
    int64_t shape[] = {member + 1, WIDE};
    size_t n = (size_t)(member + 1) * WIDE;
    float *rows = malloc(n * sizeof(*rows));
    for (size_t i = 0; i < n; i++)
        rows[i] = (float)member;
    struct hvd_request r = {.kind = HVD_ALLGATHER,
                            .name = "gather",
                            .input = rows,
                            .dtype = HVD_FLOAT32,
                            .ndim = 2,
                            .shape = shape,
                            .device = -1};
    struct hvd_result result;
    hvd_handle h;
    int rc = rank_wait(&r, &h);
    free(rows);
    if (rc < 0)
        return FAIL("gather: %s", hvd_error());
    hvd_result(h, &result);
    const float *data = result.data;
    for (int i = 0; i < hvd_size(); i++) {
        int64_t m = crew->members[i];
        if (result.splits[i] != 0 && (m < 0 || result.splits[i] != m + 1))
            return FAIL("gather: %d rows from member %d", (int)result.splits[i], (int)m);
        for (int64_t k = 0; k < result.splits[i] * WIDE; k++)
            if (*data++ != (float)m)
                return FAIL("gather: a row of member %d is not its own", (int)m);
        b->gathered[member][step] |= result.splits[i] ? 1ULL << m : 0;
    }
    hvd_release(h);
    return 0;
}

static int tell(struct board *b, int member, int step)
{
    static int64_t data[WIDE];
    int root = step % hvd_size();
    bool is_root = hvd_rank() == root;
    for (int i = 0; i < WIDE; i++)
        data[i] = is_root ? member * 1000 + step : -2;
    int rc = hvd_broadcast("tell", data, WIDE, HVD_INT64, root);
    b->told[member][step] = rc == -EOWNERDEAD ? -1 : data[0];
    if (rc == -EOWNERDEAD)
        return 0;
    for (int i = 0; rc == 0 && i < WIDE; i++)
        if (data[i] != data[0])
            return FAIL("tell: element %d is %d, the first %d", i, (int)data[i], (int)data[0]);
    return rc < 0 ? FAIL("tell: %s", hvd_error()) : 0;
}

/* Each rank sends every rank two rows that name sender and receiver. */
static int exchange(int member, const struct crew *crew)
{
    int size = hvd_size(), rank = hvd_rank();
    int64_t shape[] = {2 * size, WIDE};
    int32_t *rows = malloc((size_t)(2 * size) * WIDE * sizeof(*rows));
    for (int i = 0; i < 2 * size * WIDE; i++)
        rows[i] = member * 100 + i / (2 * WIDE);
    struct hvd_request r = {.kind = HVD_ALLTOALL,
                            .name = "exchange",
                            .input = rows,
                            .dtype = HVD_INT32,
                            .ndim = 2,
                            .shape = shape,
                            .device = -1};
    struct hvd_result result;
    hvd_handle h;
    int rc = rank_wait(&r, &h);
    free(rows);
    if (rc < 0)
        return FAIL("exchange: %s", hvd_error());
    hvd_result(h, &result);
    const int32_t *data = result.data;
    for (int i = 0; i < size; i++) {
        if (result.splits[i] != 0 && result.splits[i] != 2)
            return FAIL("exchange: %d rows from rank %d", (int)result.splits[i], i);
        for (int k = 0; k < result.splits[i] * WIDE; k++)
            if (*data++ != crew->members[i] * 100 + rank)
                return FAIL("exchange: not what rank %d gave", i);
    }
    hvd_release(h);
    return 0;
}

static int scatter(struct board *b, int member, int step)
{
    int size = hvd_size();
    int64_t shape[] = {2 * size, WIDE};
    size_t n = (size_t)(2 * size) * WIDE;
    float *rows = malloc(n * sizeof(*rows)), *mine = malloc((size_t)2 * WIDE * sizeof(*mine));
    for (size_t i = 0; i < n; i++)
        rows[i] = (float)(1 << member);
    struct hvd_request r = {.kind = HVD_REDUCESCATTER,
                            .name = "scatter",
                            .input = rows,
                            .output = step % 2 ? rows : mine, /* sometimes in place */
                            .dtype = HVD_FLOAT32,
                            .ndim = 2,
                            .shape = shape,
                            .op = HVD_SUM,
                            .device = -1};
    hvd_handle h;
    int rc = rank_wait(&r, &h);
    const float *sums = r.output;
    for (int i = 0; rc == 0 && i < 2 * WIDE; i++)
        if (sums[i] != sums[0])
            return FAIL("scatter: element %d is %g, the first %g", i, (double)sums[i],
                        (double)sums[0]);
    b->summed[member][step] = (uint64_t)sums[0];
    free(rows);
    free(mine);
    return rc < 0 ? FAIL("scatter: %s", hvd_error()) : 0;
}

static int work(int member, void *arg)
{
    struct board *b = arg;
    struct crew crew;
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    int rc = rank_crew(member, crew.members);
    for (int step = 0; step < STEPS && rc == 0; step++) {
        atomic_store(&b->at[member], step);
        rc = gather(b, member, step, &crew);
        rc = rc ? rc : tell(b, member, step);
        rc = rc ? rc : exchange(member, &crew);
        rc = rc ? rc : scatter(b, member, step);
        if (rc == 0 && hvd_barrier("all") < 0)
            rc = FAIL("barrier: %s", hvd_error());
        /* Lost ranks count in sizes until the next boundary, here every third step. */
        if (rc == 0 && step % 3 == 2) {
            rc = hvd_commit();
            rc = rc < 0    ? FAIL("commit: %s", hvd_error())
                 : rc == 1 ? rank_crew(member, crew.members)
                           : 0;
        }
    }
    atomic_store(&b->at[member], STEPS);
    hvd_shutdown();
    return rc < 0 ? 99 : rc;
}

static void check(const struct board *b, const struct elastic *job, unsigned seed)
{
    for (int step = 0; step < STEPS; step++) {
        for (int m = 1; m < job->n; m++) {
            if (!WIFEXITED(job->members[m].status))
                continue;
            if (b->gathered[m][step] != b->gathered[0][step])
                fail_msg("seed %u, step %d: member %d gathered other members' rows than member 0",
                         seed, step, m);
            if (b->told[m][step] != b->told[0][step])
                fail_msg("seed %u, step %d: member %d received another broadcast than member 0",
                         seed, step, m);
            if (b->summed[m][step] != b->summed[0][step])
                fail_msg("seed %u, step %d: member %d summed other members' parts than member 0",
                         seed, step, m);
        }
    }
}

static const char *const places_of[][4] = {
    {"HVD_X=1", "HVD_X=1", "HVD_X=1", "HVD_X=1"},
    {"HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0"},
    {"HVD_LOCALITY=a", "HVD_LOCALITY=a", "HVD_LOCALITY=b", "HVD_LOCALITY=b"},
};

static void test_kinds(void **state)
{
    static struct board *b;
    b = world_shared(sizeof(*b));
    for (unsigned seed = 1; seed <= (unsigned)effort(15); seed++) {
        struct elastic job;
        uint64_t random = seed;
        memset(b, 0, sizeof(*b));
        elastic_init(&job);
        for (int m = 0; m < 4; m++) {
            const char *const env[] = {places_of[seed % 3][m], NULL};
            elastic_add(&job, work, b, env);
        }
        for (int i = 0; i < 2; i++) {
            int step = 20 + 40 * i + (int)(rank_random(&random) % 20);
            assert_true(elastic_run_to(&job, &b->at[0], step, 60000));
            kill(job.members[i == 0 ? 1 : 3].pid, SIGKILL);
        }
        if (!elastic_run(&job, elastic_all_over, NULL, 60000))
            fail_msg("seed %u: it has not ended within a minute", seed);
        for (int m = 0; m < 4; m++)
            if (m % 2 == 0 && job.members[m].status != 0)
                fail_msg("seed %u: member %d ended with status %x", seed, m, job.members[m].status);
        check(b, &job, seed);
        elastic_fini(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
