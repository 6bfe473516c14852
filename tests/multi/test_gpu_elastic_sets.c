/* SPDX-License-Identifier: Apache-2.0
 *
 * An elastic job whose ranks have operations of several overlapping sets in flight on their GPUs,
 * by NCCL, in an order of their own in each step. A rank is killed in the middle of that, and then
 * another one. The survivors' results have each member's part completely or not at all, the same on
 * all ranks of the set, and a set that has lost no rank loses no part.
 *
 * timeout: 400
 * takes: 15 s
 */
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/fake/cuda/use.h"
#include "tests/harness/effort.h"
#include "tests/harness/deaths.h"
#include "tests/harness/elastic.h"
#include "tests/harness/gpu_side.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define MEMBERS 4
/* Of a member: all, the pair with the next one, the pair with the one before, and every second
 * rank, which is made anew by its rule after a loss. */
#define GROUPS 4
#define STEPS  60
#define COUNT  3000
#define LIMIT  180000 /* ms */

struct board {
    _Atomic int at[ELASTIC_MAX];
    uint64_t saw[ELASTIC_MAX][STEPS][GROUPS]; /* members whose parts a sum had */
};

struct member {
    struct gpu_side g;
    struct board *b;
    int number;
    int sets[GROUPS];
    hvd_handle handles[GROUPS];
    uint64_t random;
};

static int add_sets(struct member *m)
{
    static const int all[MEMBERS] = {0, 1, 2, 3};
    if (hvd_set_add(all, MEMBERS, &m->sets[0]) < 0)
        return FAIL("all: %s", hvd_error());
    for (int i = 0; i < MEMBERS; i++) {
        int pair[2] = {i, (i + 1) % MEMBERS}, set;
        if (hvd_set_add(pair, 2, &set) < 0)
            return FAIL("pair %d: %s", i, hvd_error());
        if (i == m->number)
            m->sets[1] = set;
        if (pair[1] == m->number)
            m->sets[2] = set;
    }
    if (hvd_set_split("every 2", &m->sets[3]) < 0)
        return FAIL("every second: %s", hvd_error());
    return 0;
}

static size_t place(int group)
{
    return (size_t)group * COUNT * 4;
}

static int submit(struct member *m, int group)
{
    const int64_t n = group == 0 ? COUNT : COUNT / 2;
    float *host = (float *)(void *)(m->g.host + place(group));
    for (int64_t i = 0; i < n; i++)
        host[i] = (float)(1 << m->number);
    if (gpu_side_send(&m->g, place(group), (size_t)n * 4) < 0)
        return FAIL("%s", m->g.err.msg);
    struct hvd_request r = gpu_side_request(&m->g, HVD_ALLREDUCE, "sum", HVD_FLOAT32, 1, &n);
    r.set = m->sets[group];
    r.input = r.output = (uint8_t *)m->g.in.at + place(group);
    return hvd_submit(&r, 1, &m->handles[group]) < 0 ? FAIL("%s", hvd_error()) : 0;
}

static int look(struct member *m, int step, int group)
{
    const int64_t n = group == 0 ? COUNT : COUNT / 2;
    const float *sum = (float *)(void *)m->g.host;
    if (gpu_side_read(&m->g, (uint8_t *)m->g.in.at + place(group), (size_t)n * 4) < 0)
        return FAIL("%s", m->g.err.msg);
    for (int64_t i = 0; i < n; i++)
        if (sum[i] != sum[0])
            return FAIL("step %d, group %d: element %d is %g, the first %g", step, group, (int)i,
                        (double)sum[i], (double)sum[0]);
    m->b->saw[m->number][step][group] = (uint64_t)sum[0];
    return 0;
}

static int one_step(struct member *m, int step)
{
    int order[GROUPS], rc = 0;
    rank_shuffle(order, GROUPS, &m->random);
    for (int i = 0; i < GROUPS && rc == 0; i++)
        rc = submit(m, order[i]);
    rank_shuffle(order, GROUPS, &m->random);
    for (int i = 0; i < GROUPS && rc == 0; i++)
        if (hvd_wait(m->handles[order[i]]) < 0)
            rc = FAIL("step %d, group %d: %s", step, order[i], hvd_error());
    for (int i = 0; i < GROUPS && rc == 0; i++)
        rc = look(m, step, i);
    return rc;
}

static int train(struct member *m)
{
    int rc = add_sets(m);
    for (int step = 0; step < STEPS && rc == 0; step++) {
        atomic_store(&m->b->at[m->number], step);
        rc = one_step(m, step);
        if (rc == 0 && step % 7 == 6 && hvd_commit() < 0)
            rc = FAIL("commit: %s", hvd_error());
    }
    atomic_store(&m->b->at[m->number], STEPS);
    return rc;
}

static int work(int number, void *arg)
{
    static struct member m;
    m = (struct member){.b = arg, .number = number, .random = 31 + 7 * (uint64_t)number};
    if (gpu_side_open(&m.g, number, (size_t)1 << 20, NULL) < 0)
        return FAIL("%s", m.g.err.msg);
    m.g.fake->delay(getenv("SLOW") ? 100 : 0);
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    int rc = hvd_enter() < 0 ? FAIL("enter: %s", hvd_error()) : train(&m);
    hvd_shutdown();
    if (!gpu_side_close(&m.g) && rc == 0)
        rc = FAIL("%ld things are left on the GPU", m.g.fake->live());
    return rc;
}

/* ---- what the survivors have seen ---- */

static void same(const char *what, int step, uint64_t a, uint64_t b)
{
    if (a != b)
        fail_msg("%s, step %d: %lx and %lx", what, step, (long)a, (long)b);
}

static void check(const struct board *b, const char *what, int second)
{
    for (int step = 0; step < STEPS; step++) {
        same(what, step, b->saw[0][step][0], b->saw[2][step][0]);
        assert_int_equal(b->saw[0][step][0] & 5, 5);
        assert_int_equal(b->saw[0][step][3] & 1, 1);
        assert_int_equal(b->saw[2][step][3] & 4, 4);
        if (step < 10)
            same(what, step, b->saw[0][step][3], 5);
        if (step >= STEPS - 7) /* ranks 0 and 1 of two, or 0, 1 and 2 of three */
            same(what, step, b->saw[0][step][3], second ? 1 : 9);
        assert_int_equal(b->saw[0][step][1] & ~2u, 1); /* with member 1, as long as it lives */
        assert_int_equal(b->saw[2][step][2] & ~2u, 4);
        if (second) {
            assert_int_equal(b->saw[2][step][1] & ~8u, 4); /* and with member 3 */
            assert_int_equal(b->saw[0][step][2] & ~8u, 1);
        } else { /* these pairs lose no rank */
            same(what, step, b->saw[2][step][1], 12);
            same(what, step, b->saw[3][step][2], 12);
            same(what, step, b->saw[3][step][1], 9);
            same(what, step, b->saw[0][step][2], 9);
            same(what, step, b->saw[0][step][0], b->saw[3][step][0]);
        }
    }
}

/* Member 1 is killed, and if `second` then member 3. */
static void run(const char *const *env, unsigned seed)
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    uint64_t random = seed;
    char what[32];
    int kills = 1 + (int)(seed % 2);
    snprintf(what, sizeof(what), "seed %u", seed);
    elastic_init(&job);
    for (int m = 0; m < MEMBERS; m++)
        elastic_add(&job, work, b, env);
    for (int i = 0; i < kills; i++) {
        int step = 10 + 20 * i + (int)(rank_random(&random) % 10);
        deaths_kill_at(&job, i == 0 ? 1 : 3, &b->at[0], step, LIMIT, &random, what);
    }
    if (!elastic_run(&job, elastic_all_over, NULL, LIMIT))
        fail_msg("%s: it has not ended in time", what);
    for (int m = 0; m < MEMBERS; m++)
        if (m != 1 && (m != 3 || kills == 1) && job.members[m].status != 0)
            fail_msg("%s: member %d ended with status %x", what, m, job.members[m].status);
    check(b, what, kills == 2);
    elastic_fini(&job);
}

static void test_losses(void **state)
{
    char path[PATH_MAX], lib[PATH_MAX + 16];
    const char *const env[] = {lib, NULL}, *const slow[] = {lib, "SLOW=1", NULL};
    fake_nccl_path("2.27", path);
    snprintf(lib, sizeof(lib), "HVD_NCCL_LIB=%s", path);
    unsigned first = getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : 1;
    for (unsigned seed = first; seed < first + (unsigned)effort(8); seed++)
        run(seed % 3 ? env : slow, seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_losses)};
    return cmocka_run_group_tests_name("multi/gpu_elastic_sets", tests, NULL, NULL);
}
