/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets in an elastic job: ranks are killed at any moment while operations of the world and of sets
 * that overlap are in flight. The survivors of each set lose no operation and have the same bits;
 * the set changes its size at the boundary only. Sets are made and removed beside losses.
 *
 * timeout: 300
 * takes: 10 s
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

#include "tests/harness/deaths.h"
#include "tests/harness/effort.h"
#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define MEMBERS 5
#define MOST    8 /* members of a job in its life */
#define SETS    4
#define STEPS   40
#define LIMIT   60000 /* ms */
#define LARGE   30000 /* elements, enough for slice owners */

enum { SUM, GATHER, ROOT, OPS };

/* The end of an operation on one member. */
struct outcome {
    _Atomic bool there;
    int rc;
    uint32_t mask;     /* members that contributed to a result */
    uint64_t contents; /* of the result, for comparison */
};

struct board {
    _Atomic int at[ELASTIC_MAX]; /* the step in which each member is */
    _Atomic int hold;            /* no member begins this step; -1: all go on */
    int steps;
    int every;    /* a set is made and removed every so many steps; 0: never */
    bool forms;   /* by its members alone */
    bool removes; /* set 2, near the end */
    struct outcome of[STEPS][SETS][OPS][MOST];
    int size[STEPS][SETS][MOST]; /* of the set in that step, as each member sees it */
    int made[STEPS][MOST];       /* number of the set that was made, or an error */
    bool joined[MOST];
};

/* Members by their first ranks; the world is the last one. */
static const struct {
    int n, ranks[MEMBERS];
} sets[SETS] = {{4, {3, 1, 0, 2}}, {3, {4, 1, 2}}, {2, {0, 3}}, {0, {0}}};

struct member {
    struct board *board;
    int number;
    int set[SETS];
    float large[SETS][LARGE];
    int64_t gathered[SETS][3];
    int64_t root[SETS];
    hvd_handle handles[SETS][OPS];
};

static bool is_in(const struct member *m, int s)
{
    bool in = sets[s].n == 0;
    for (int i = 0; i < sets[s].n; i++)
        in = in || sets[s].ranks[i] == m->number;
    return in;
}

/* ---- operations ----------------------------------------------------------------------------- */

static int submit(struct member *m, int s)
{
    static const int64_t large = LARGE, three = 3, one = 1;
    struct hvd_request sum = rank_request("sum", m->large[s], &large), gather, root;
    for (int i = 0; i < LARGE; i++)
        m->large[s][i] = (float)(1u << m->number);
    for (int i = 0; i < 3; i++)
        m->gathered[s][i] = 1 << m->number;
    m->root[s] = 1 << m->number;
    gather = (struct hvd_request){.kind = HVD_ALLGATHER,
                                  .name = "gather",
                                  .input = m->gathered[s],
                                  .dtype = HVD_INT64,
                                  .ndim = 1,
                                  .shape = &three,
                                  .device = -1};
    root = (struct hvd_request){.kind = HVD_BROADCAST,
                                .name = "root",
                                .input = &m->root[s],
                                .output = &m->root[s],
                                .dtype = HVD_INT64,
                                .ndim = 1,
                                .shape = &one,
                                .root = hvd_set_size(m->set[s]) - 1,
                                .device = -1};
    sum.set = gather.set = root.set = m->set[s];
    const struct hvd_request *all[OPS] = {&sum, &gather, &root};
    for (int op = 0; op < OPS; op++)
        if (hvd_submit(all[op], 1, &m->handles[s][op]) < 0)
            return FAIL("member %d: %s", m->number, hvd_error());
    return 0;
}

static void note_sum(struct outcome *o, const float *data)
{
    for (int i = 0; i < LARGE; i++) {
        o->contents = (o->contents ^ (uint64_t)data[i]) * 1099511628211ULL;
        o->mask |= (uint32_t)data[i];
    }
}

static void note_gather(struct outcome *o, hvd_handle handle)
{
    struct hvd_result r;
    hvd_result(handle, &r);
    const int64_t *data = r.data;
    for (int i = 0; i < r.ranks; i++) {
        o->contents = (o->contents ^ (uint64_t)r.splits[i]) * 1099511628211ULL;
        for (int64_t k = 0; k < r.splits[i]; k++, data++) {
            o->contents = (o->contents ^ (uint64_t)*data) * 1099511628211ULL;
            o->mask |= (uint32_t)*data;
        }
    }
    hvd_release(handle);
}

static int finish(struct member *m, int step, int s)
{
    for (int op = 0; op < OPS; op++) {
        struct outcome own = {.mask = 0}, *o = &own, *to = &m->board->of[step][s][op][m->number];
        int rc = hvd_wait(m->handles[s][op]);
        if (rc < 0 && !(op == ROOT && rc == -EOWNERDEAD))
            return FAIL("member %d, step %d, set %d: %s", m->number, step, s, hvd_error());
        o->rc = rc;
        if (op == SUM)
            note_sum(o, m->large[s]);
        else if (op == GATHER)
            note_gather(o, m->handles[s][op]);
        else if (rc == 0)
            o->contents = (uint64_t)m->root[s];
        *to = own;
        atomic_store(&to->there, true); /* this rank may be killed before */
    }
    return 0;
}

/* All ranks of the world make a set of all, or those with an even rank and those with an odd one
 * each make a set of theirs. */
static int make(const struct member *m, int *ret_set, int *ret_most)
{
    int ranks[MOST], n = 0, size = hvd_size();
    for (int r = size - 1; r >= 0; r--)
        if (!m->board->forms || r % 2 == hvd_rank() % 2)
            ranks[n++] = r;
    *ret_most = n;
    return m->board->forms ? hvd_set_form(hvd_rank() % 2 ? "odd" : "even", ranks, n, ret_set)
                           : hvd_set_add(ranks, n, ret_set);
}

static int make_and_remove(struct member *m, int step)
{
    struct board *b = m->board;
    int set = 0, most, rc = make(m, &set, &most);
    b->made[step][m->number] = rc < 0 ? rc : set;
    if (rc == -EOWNERDEAD) /* a rank of the list was lost, before the boundary */
        return 0;
    if (rc < 0)
        return FAIL("member %d, step %d: no set: %s", m->number, step, hvd_error());
    int64_t one = 1, ranks = 1;
    hvd_handle h;
    struct hvd_request r = rank_request("count", NULL, &one);
    r.input = r.output = &ranks;
    r.dtype = HVD_INT64;
    r.set = set;
    if (rank_wait(&r, &h) < 0 || ranks < 1 || ranks > most)
        return FAIL("member %d, step %d, new set: %s", m->number, step, hvd_error());
    if (hvd_set_remove(set) < 0)
        return FAIL("member %d, step %d: hvd_set_remove: %s", m->number, step, hvd_error());
    return 0;
}

/* All ranks remove the second set, also those that have joined since it was made. */
static int remove_old(struct member *m)
{
    int ranks[MOST], n = hvd_set_ranks(2, ranks, MOST);
    bool mine = false;
    for (int i = 0; i < n; i++)
        mine = mine || ranks[i] == hvd_rank();
    if (n != 2 || mine != (m->set[1] == 2 && is_in(m, 1)) || (hvd_set_rank(2) >= 0) != mine)
        return FAIL("member %d sees %d ranks in set 2: %s", m->number, n, hvd_error());
    if (hvd_set_remove(2) != 0)
        return FAIL("member %d: hvd_set_remove(2): %s", m->number, hvd_error());
    if (hvd_set_size(2) != -EINVAL)
        return FAIL("member %d still knows set 2", m->number);
    m->set[1] = -1;
    return 0;
}

static int run_step(struct member *m, int step)
{
    struct board *b = m->board;
    int rc = 0;
    atomic_store(&b->at[m->number], step);
    while (step == atomic_load(&b->hold))
        nap_ms(1);
    for (int i = 0; rc == 0 && i < SETS; i++) {
        int s = (i + m->number) % SETS; /* each member in another order */
        b->size[step][s][m->number] = m->set[s] < 0 ? 0 : hvd_set_size(m->set[s]);
        if (is_in(m, s) && m->set[s] >= 0)
            rc = submit(m, s);
    }
    for (int i = 0; rc == 0 && i < SETS; i++) {
        int s = (i * 3 + m->number) % SETS;
        if (is_in(m, s) && m->set[s] >= 0)
            rc = finish(m, step, s);
    }
    if (rc == 0 && b->every && step % b->every == 1)
        rc = make_and_remove(m, step);
    if (rc == 0 && b->removes && step == STEPS - 2)
        rc = remove_old(m);
    return rc;
}

static int start(struct member *m, int *ret_step)
{
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    int64_t step = 0;
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    hvd_world(&w);
    if (w.is_new && hvd_broadcast("step", &step, 1, HVD_INT64, w.source) < 0)
        return FAIL("%s", hvd_error());
    m->board->joined[m->number] = w.is_new;
    for (int s = 0; s < SETS; s++) {
        m->set[s] = w.is_new && sets[s].n > 0 ? -1 : 0;
        if (!w.is_new && sets[s].n > 0 && hvd_set_add(sets[s].ranks, sets[s].n, &m->set[s]) < 0)
            return FAIL("%s", hvd_error());
    }
    *ret_step = (int)step;
    return 0;
}

static int train(int member, void *arg)
{
    struct member *m = calloc(1, sizeof(*m));
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    m->board = arg;
    m->number = member;
    int step = 0, rc = start(m, &step);
    for (; rc == 0 && step < m->board->steps; step++) {
        rc = run_step(m, step);
        int changed = rc == 0 ? hvd_commit() : 0;
        if (changed == -ESHUTDOWN)
            return 0;
        if (changed < 0)
            return FAIL("member %d: hvd_commit: %s", member, hvd_error());
        int64_t next = step + 1;
        hvd_world(&w);
        if (changed == 1 && w.joined > 0 &&
            hvd_broadcast("step", &next, 1, HVD_INT64, w.source) < 0)
            return FAIL("%s", hvd_error());
    }
    atomic_store(&m->board->at[member], m->board->steps);
    free(m);
    return rc ? rc : hvd_shutdown() < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* ---- checks --------------------------------------------------------------------------------- */

static void check_one(const struct outcome *of, const char *what)
{
    const struct outcome *first = NULL;
    for (int m = 0; m < MOST; m++) {
        if (!of[m].there)
            continue;
        first = first ? first : &of[m];
        if (of[m].rc != first->rc || of[m].contents != first->contents)
            fail_msg("%s: member %d has another result than %d: %d of %x, not %d of %x", what, m,
                     (int)(first - of), of[m].rc, of[m].mask, first->rc, first->mask);
        if (first->mask && !(first->mask & 1u << m))
            fail_msg("%s: not with member %d's part", what, m);
    }
}

static uint32_t mask_of(int s)
{
    uint32_t mask = sets[s].n == 0 ? (1u << MOST) - 1 : 0;
    for (int i = 0; i < sets[s].n; i++)
        mask |= 1u << sets[s].ranks[i];
    return mask;
}

/* All members have the same results and sizes, and no set has a part of another rank. */
static void check(const struct board *b)
{
    char what[80];
    for (int step = 0; step < b->steps; step++)
        for (int s = 0; s < SETS; s++) {
            int size = 0;
            for (int op = 0; op < OPS; op++) {
                snprintf(what, sizeof(what), "step %d, set %d, operation %d", step, s, op);
                check_one(b->of[step][s][op], what);
                for (int m = 0; m < MOST; m++)
                    assert_int_equal(b->of[step][s][op][m].mask & ~mask_of(s), 0);
            }
            for (int m = 0; m < MOST; m++) {
                int its = b->size[step][s][m];
                if (its && size && its != size)
                    fail_msg("step %d, set %d: member %d sees %d ranks, not %d", step, s, m, its,
                             size);
                size = its ? its : size;
            }
        }
}

static struct board *fresh_board(int every)
{
    struct board *b = world_board(sizeof(*b));
    b->steps = STEPS;
    b->every = every;
    b->hold = STEPS / 2;
    return b;
}

static void end(struct elastic *job, struct board *b, uint32_t left, const char *what)
{
    atomic_store(&b->hold, -1);
    deaths_expect_end(job, left, what);
    check(b);
    elastic_fini(job);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_kill(void **state)
{
    for (int lost = 0; lost < MEMBERS; lost++) {
        struct board *b = fresh_board(0);
        struct elastic job;
        elastic_init(&job);
        for (int m = 0; m < MEMBERS; m++)
            elastic_add(&job, train, b, NULL);
        assert_true(elastic_run_to(&job, &b->at[0], 10, LIMIT));
        kill(job.members[lost].pid, SIGKILL);
        end(&job, b, 0x1f & ~(1u << lost), "one is killed");
        for (int s = 0; s < SETS; s++) {
            int before = sets[s].n ? sets[s].n : MEMBERS, in = mask_of(s) >> lost & 1;
            int other = (lost + 1) % MEMBERS;
            assert_int_equal(b->size[5][s][other], before);
            assert_int_equal(b->size[STEPS - 1][s][other], before - in);
        }
    }
}

/* The members' hosts: one host, a host each, two hosts. */
static const char *const places_of[][MEMBERS] = {
    {"HVD_X=1", "HVD_X=1", "HVD_X=1", "HVD_X=1", "HVD_X=1"},
    {"HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0"},
    {"HVD_LOCALITY=a", "HVD_LOCALITY=a", "HVD_LOCALITY=b", "HVD_LOCALITY=b", "HVD_LOCALITY=a"},
};

/* Two ranks are killed at random moments, together or one after the other. */
static void test_kill_at_random(void **state)
{
    for (unsigned seed = 1; seed <= (unsigned)effort(24); seed++) {
        struct board *b = fresh_board(seed % 3 ? 2 : 0);
        b->forms = seed % 3 == 2;
        struct elastic job;
        char what[32];
        uint64_t random = seed;
        int first = (int)(rank_random(&random) % MEMBERS);
        int second = (first + 1 + (int)(rank_random(&random) % (MEMBERS - 1))) % MEMBERS;
        snprintf(what, sizeof(what), "seed %u", seed);
        elastic_init(&job);
        for (int m = 0; m < MEMBERS; m++) {
            const char *const env[] = {places_of[seed % 3][m], NULL};
            elastic_add(&job, train, b, env);
        }
        assert_true(
            elastic_run_to(&job, &b->at[second], 5 + (int)(rank_random(&random) % 6), LIMIT));
        nap_ms((unsigned)(rank_random(&random) % 4));
        kill(job.members[first].pid, SIGKILL);
        if (seed % 4 > 1)
            assert_true(elastic_run_to(&job, &b->at[second], 12, LIMIT));
        nap_ms((unsigned)(rank_random(&random) % 4));
        kill(job.members[second].pid, SIGKILL);
        end(&job, b, 0x1fu & ~(1u << first) & ~(1u << second), what);
    }
}

/* A second rank dies in each phase of the repair. */
static void test_kill_in_repair(void **state)
{
    static const char *const places[] = {"revoke",      "report", "connect", "settle:2",
                                         "set connect", "rest",   "barrier", "resubmit"};
    const size_t n = sizeof(places) / sizeof(places[0]);
    for (size_t i = 0; i < 2 * n; i += effort_share() == 1 ? 1 : 3) {
        struct board *b = fresh_board(i % 3 ? 2 : 0);
        b->forms = i % 3 == 2;
        struct elastic job;
        char variable[64];
        const char *const env[] = {variable, NULL};
        snprintf(variable, sizeof(variable), "HVD_TEST_FAIL=%s", places[i / 2]);
        elastic_init(&job);
        job.late_deaths = i % 2;
        for (int m = 0; m < MEMBERS; m++)
            elastic_add(&job, train, b, m == 1 ? env : NULL);
        assert_true(elastic_run_to(&job, &b->at[0], 10, LIMIT));
        kill(job.members[2].pid, SIGKILL);
        atomic_store(&b->hold, -1);
        if (!elastic_run(&job, elastic_all_over, NULL, LIMIT))
            fail_msg("killed at %s: the job has not ended within a minute", places[i / 2]);
        /* A repair does not pass every place, so the second rank may live. */
        if ((elastic_survivors(&job) | 2) != 0x1b)
            fail_msg("killed at %s: members %x survived", places[i / 2], elastic_survivors(&job));
        check(b);
        elastic_fini(&job);
    }
}

/* A rank dies while a set is made: the others make it without that rank, at once or after the next
 * boundary. */
static void kill_in_making(bool forms)
{
    for (int at = 5; at <= 9; at++) {
        struct board *b = fresh_board(2);
        b->forms = forms;
        struct elastic job;
        char variable[64];
        const char *const env[] = {variable, NULL};
        /* three sets are made before the first step */
        snprintf(variable, sizeof(variable), "HVD_TEST_FAIL=set:%d", at);
        elastic_init(&job);
        for (int m = 0; m < MEMBERS; m++)
            elastic_add(&job, train, b, m == 1 ? env : NULL);
        end(&job, b, 0x1d, variable);
        int last = 0;
        for (int step = 1; step < STEPS; step += 2) {
            for (int m = 0; m < MEMBERS && !forms; m++)
                if (m != 1)
                    assert_int_equal(b->made[step][m], b->made[step][0]);
            if (b->made[step][0] > 0)
                assert_true(b->made[step][0] > last);
            last = b->made[step][0] > 0 ? b->made[step][0] : last;
        }
    }
}

static void test_kill_in_making(void **state)
{
    kill_in_making(false);
}

static void test_kill_in_forming(void **state)
{
    kill_in_making(true);
}

/* Joiners are in no older set; they number new ones like the others. A member leaves. */
static void test_grow_and_shrink(void **state)
{
    struct board *b = fresh_board(3);
    struct elastic job;
    b->hold = 10;
    b->removes = true;
    elastic_init(&job);
    for (int m = 0; m < MEMBERS; m++)
        elastic_add(&job, train, b, NULL);
    assert_true(elastic_run_to(&job, &b->at[0], 5, LIMIT));
    for (int m = 0; m < 2; m++)
        elastic_add(&job, train, b, NULL);
    assert_true(elastic_run(&job, elastic_joiners_wait, &(int){MEMBERS}, LIMIT));
    elastic_announce(&job);
    atomic_store(&b->hold, STEPS - 12);
    assert_true(elastic_run_to(&job, &b->at[MEMBERS], 12, LIMIT));
    job.members[1].leaving = true;
    elastic_announce(&job);
    end(&job, b, 0x7f, "grow and shrink");
    assert_true(b->joined[MEMBERS] && b->joined[MEMBERS + 1]);
    assert_int_equal(b->size[STEPS - 1][0][0], 3);
    assert_int_equal(b->size[STEPS - 2][1][2], 2);
    assert_int_equal(b->size[STEPS - 1][2][0], 2);
    assert_int_equal(b->size[STEPS - 1][3][0], 6);
    for (int step = 1; step < STEPS; step += 3)
        for (int m = 0; m < MOST; m++)
            if (b->made[step][m] && b->made[step][0])
                assert_int_equal(b->made[step][m], b->made[step][0]);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_kill_at_random),
        cmocka_unit_test(test_kill_in_repair),
        cmocka_unit_test(test_kill_in_making),
        cmocka_unit_test(test_kill_in_forming),
        cmocka_unit_test(test_grow_and_shrink),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
