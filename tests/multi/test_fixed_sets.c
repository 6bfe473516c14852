/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of the policy fixed (hvd_set_fix()) in an elastic job: ranks are killed at any moment. No
 * operation of the set has a result without the lost rank's part, all survivors have the same ends
 * of each operation, the world and a set that shrinks go on, and the survivors replace the set.
 *
 * timeout: 300
 * takes: 5 s
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

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/effort.h"
#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

enum {
    MEMBERS = 5,
    IN_SET = 4,
    STEPS = 30,
    BEFORE = 15, /* steps that run before the ranks are killed, at most */
    OPS = 3,
    LARGE = 20000,
    LIMIT = 60000 /* ms */
};

struct end {
    bool there;
    int rc;
    uint32_t mask; /* of the sum's members */
};

struct board {
    _Atomic int at[ELASTIC_MAX];
    _Atomic int killed;                    /* the ranks have been killed, or need not be */
    bool forms;                            /* the set is made by its members alone */
    struct end of[STEPS][OPS][MEMBERS];    /* of the fixed set */
    struct end again[STEPS][OPS][MEMBERS]; /* of the one that replaces it */
};

struct member {
    struct board *board;
    int number, step;
    int fixed, shrinks; /* 0: this rank is in none */
    bool replaced;
    float data[OPS][LARGE];
};

/* Several operations of the set are in flight at a time. */
static int sum_all(struct member *m, int set, struct end (*to)[MEMBERS])
{
    static const int64_t large = LARGE;
    static const char *const names[OPS] = {"a", "b", "c"};
    hvd_handle h[OPS];
    for (int i = 0; i < OPS; i++) {
        for (int k = 0; k < LARGE; k++)
            m->data[i][k] = (float)(1 << m->number);
        struct hvd_request r = rank_request(names[i], m->data[i], &large);
        r.set = set;
        if (hvd_submit(&r, 1, &h[i]) < 0)
            return FAIL("member %d: %s", m->number, hvd_error());
    }
    for (int i = 0; i < OPS; i++) {
        struct end *e = &to[i][m->number];
        e->rc = hvd_wait(h[i]);
        if (e->rc < 0 && e->rc != -EOWNERDEAD)
            return FAIL("member %d, step %d: %s", m->number, m->step, hvd_error());
        e->mask = e->rc == 0 ? (uint32_t)m->data[i][0] : 0;
        if (set == m->fixed && e->rc == 0 && m->data[i][0] != m->data[i][LARGE - 1])
            return FAIL("member %d, step %d: mixed sums", m->number, m->step);
        e->there = true;
    }
    return 0;
}

static int make_sets(struct member *m)
{
    const int ranks[IN_SET] = {3, 1, 0, 2}, pair[] = {0, 1, 4};
    bool in = m->number < IN_SET;
    int rc = 0;
    if (!m->board->forms)
        rc = hvd_set_add(ranks, IN_SET, &m->fixed);
    else if (in)
        rc = hvd_set_form("fixed", ranks, IN_SET, &m->fixed);
    if (rc == 0)
        rc = hvd_set_add(pair, 3, &m->shrinks);
    m->fixed = in ? m->fixed : 0;
    m->shrinks = m->number < 2 || m->number == 4 ? m->shrinks : 0;
    if (rc == 0 && in)
        rc = hvd_set_fix(m->fixed);
    if (rc < 0)
        return FAIL("member %d: %s", m->number, hvd_error());
    if (hvd_set_fix(0) != -EINVAL || hvd_set_fix(77) != -EINVAL)
        return FAIL("fixes what is no set");
    return 0;
}

/* All ranks of the world hear whether the set has lost a rank, and replace it together. */
static int replace(struct member *m, int *was)
{
    int ranks[MEMBERS], n = hvd_size(), rc = 0;
    for (int r = 0; r < n; r++)
        ranks[r] = n - 1 - r;
    if (!m->board->forms || m->fixed)
        rc = hvd_set_remove(*was);
    if (rc == 0 && m->fixed && hvd_set_rank(*was) != -EINVAL)
        rc = FAIL("the set is still there");
    if (rc == 0)
        rc = hvd_set_add(ranks, n, &m->fixed);
    if (rc == 0)
        rc = hvd_set_fix(m->fixed);
    m->replaced = true;
    return rc < 0 ? FAIL("member %d, step %d: %s", m->number, m->step, hvd_error()) : rc;
}

static int run_step(struct member *m, int was)
{
    struct board *b = m->board;
    int32_t broken = 0;
    struct end others[OPS][MEMBERS] = {{{0}}};
    int rc = m->fixed ? sum_all(m, m->fixed, m->replaced ? b->again[m->step] : b->of[m->step]) : 0;
    for (int i = 0; i < OPS && m->fixed && !m->replaced; i++)
        broken |= b->of[m->step][i][m->number].rc != 0;
    if (rc == 0 && m->shrinks)
        rc = sum_all(m, m->shrinks, others);
    if (rc == 0 && m->shrinks && others[OPS - 1][m->number].rc != 0)
        rc = FAIL("member %d, step %d: a set that shrinks has failed", m->number, m->step);
    if (rc == 0 && hvd_allreduce("broken", &broken, &broken, 1, HVD_INT32, HVD_MAX) < 0)
        rc = FAIL("%s", hvd_error());
    if (rc == 0 && hvd_commit() < 0)
        rc = FAIL("%s", hvd_error());
    return rc == 0 && broken && !m->replaced ? replace(m, &was) : rc;
}

/* On a busy machine all steps could be over before the test gets to killing a rank. */
static void await_kill(struct board *b)
{
    for (int ms = 0; ms < LIMIT && !atomic_load(&b->killed); ms++)
        nap_ms(1);
}

static int train(int member, void *arg)
{
    struct member *m = calloc(1, sizeof(*m));
    m->board = arg;
    m->number = member;
    int rc = hvd_init() < 0 ? FAIL("%s", hvd_error()) : make_sets(m), was = m->fixed ? m->fixed : 1;
    for (; rc == 0 && m->step < STEPS; m->step++) {
        atomic_store(&m->board->at[member], m->step);
        if (m->step == BEFORE)
            await_kill(m->board);
        rc = run_step(m, was);
    }
    atomic_store(&m->board->at[member], STEPS);
    free(m);
    return rc ? rc : hvd_shutdown() < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* ---- checks --------------------------------------------------------------------------------- */

/* A killed rank may have had the result of an operation that the others have to fail: two ranks can
 * be killed that alone knew that all had run it. So ends are compared among survivors. */
static void check(const struct board *b, uint32_t survivors, uint32_t whole, const char *what)
{
    int failed = 0, again = 0;
    for (int step = 0; step < STEPS; step++)
        for (int op = 0; op < OPS; op++) {
            const struct end *of = b->of[step][op], *first = NULL;
            for (int m = 0; m < MEMBERS; m++) {
                if (b->again[step][op][m].there && b->again[step][op][m].rc == 0)
                    again++;
                if (of[m].there && of[m].rc == 0 && of[m].mask != whole)
                    fail_msg("%s, step %d: a sum of %x", what, step, of[m].mask);
                if (!of[m].there || !(survivors & 1u << m))
                    continue;
                first = first ? first : &of[m];
                if (of[m].rc != first->rc || of[m].mask != first->mask)
                    fail_msg("%s, step %d: member %d: %d of %x, not %d of %x", what, step, m,
                             of[m].rc, of[m].mask, first->rc, first->mask);
                failed += of[m].rc != 0;
            }
        }
    if (failed == 0 || again == 0)
        fail_msg("%s: %d operations have failed, %d were run afterwards", what, failed, again);
}

static void run_job(struct board *b, const char *const (*places)[MEMBERS], const int *killed,
                    const char *at, uint64_t seed)
{
    struct elastic job;
    char what[64], variable[64];
    snprintf(what, sizeof(what), "seed %llu %s", (unsigned long long)seed, at ? at : "");
    snprintf(variable, sizeof(variable), "HVD_TEST_FAIL=%s", at ? at : "none");
    elastic_init(&job);
    for (int m = 0; m < MEMBERS; m++) {
        const char *const env[] = {(*places)[m], m == killed[1] ? variable : NULL, NULL};
        elastic_add(&job, train, b, env);
    }
    assert_true(elastic_run_to(&job, &b->at[4], 4 + (int)(rank_random(&seed) % 6), LIMIT));
    nap_ms((unsigned)(rank_random(&seed) % 3));
    kill(job.members[killed[0]].pid, SIGKILL);
    if (!at && killed[1] >= 0) {
        nap_ms((unsigned)(rank_random(&seed) % 3));
        kill(job.members[killed[1]].pid, SIGKILL);
    }
    atomic_store(&b->killed, 1);
    if (!elastic_run(&job, elastic_all_over, NULL, LIMIT))
        fail_msg("%s: the job has not ended within a minute", what);
    uint32_t left = elastic_survivors(&job), sure = 0x1fu & ~(1u << killed[0]);
    sure = killed[1] >= 0 ? sure & ~(1u << killed[1]) : sure;
    if ((left & sure) != sure)
        fail_msg("%s: members %x survived", what, left);
    check(b, left, 0xf, what);
    elastic_fini(&job);
}

static const char *const places[][MEMBERS] = {
    {"HVD_X=1", "HVD_X=1", "HVD_X=1", "HVD_X=1", "HVD_X=1"},
    {"HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0"},
    {"HVD_LOCALITY=a", "HVD_LOCALITY=a", "HVD_LOCALITY=b", "HVD_LOCALITY=b", "HVD_LOCALITY=a"},
};

static void test_kill_at_random(void **state)
{
    for (unsigned seed = 1; seed <= (unsigned)effort(24); seed++) {
        struct board *b = world_board(sizeof(*b));
        b->forms = seed % 2;
        const int killed[2] = {(int)(seed % 4), seed % 3 ? -1 : (int)((seed + 1) % 4)};
        run_job(b, &places[seed % 3], killed, NULL, seed);
    }
}

/* A second rank dies in each phase of the repair: some ranks have acted on the meeting, others not.
 */
static void test_kill_in_repair(void **state)
{
    static const char *const phases[] = {"revoke", "report",   "install",     "connect",
                                         "settle", "resubmit", "set connect", "lost"};
    for (unsigned i = 0; i < 2 * sizeof(phases) / sizeof(phases[0]); i++) {
        struct board *b = world_board(sizeof(*b));
        b->forms = i % 2;
        const int killed[2] = {2, i % 2 ? 0 : 1};
        run_job(b, &places[i % 3], killed, phases[i / 2], i);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill_at_random),
        cmocka_unit_test(test_kill_in_repair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
