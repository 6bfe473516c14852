/* SPDX-License-Identifier: Apache-2.0
 *
 * Units in an elastic job that keeps places, when ranks are lost in the middle of the boundary that
 * brings a replacement, or of the exchange of the table of sets after it. Places 0, 1 and 2 are a
 * unit of two fixed sets, and place 3 is alone. This program defines inject_point() itself.
 *
 * timeout: 300
 * takes: 9 s
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

#include "core/base/inject.h"
#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

enum { RANKS = 4, STEPS = 20, LIMIT = 60000 /* ms */, ALONE = 3, PAIRS = 150, FIXED = 120 };
enum { LEFT = 1, RIGHT, ALL }; /* sets, by hvd_set_add() */

struct board {
    _Atomic int go;                /* no rank begins a later step */
    _Atomic int at[RANKS];         /* the step of each place */
    _Atomic int dead[RANKS];       /* steps that have failed with -EOWNERDEAD, by place */
    _Atomic int size[RANKS];       /* of the last operation of all ranks */
    _Atomic(const char *) dies_in; /* a place of inject_point() */
    _Atomic int dies_at;           /* the place of the rank that dies there */
    bool loses;
};

static struct {
    struct board *board;
    _Atomic int place;
    int data;
    int64_t step;
    _Atomic bool slow; /* to make circles of sets */
} me;

void inject_point(const char *place)
{
    const char *dies_in = me.board ? atomic_load(&me.board->dies_in) : NULL;
    if (me.slow && strcmp(place, "set connect") == 0)
        nap_ms(1);
    if (!dies_in || strcmp(dies_in, place) != 0 || atomic_load(&me.board->dies_at) != me.place)
        return;
    nap_ms(50); /* the others have gone on */
    raise(SIGKILL);
}

/* ---- the program ---------------------------------------------------------------------------- */

static int run(struct hvd_request *r, int set)
{
    hvd_handle h;
    r->set = set;
    int rc = rank_wait(r, &h);
    if (rc == 0)
        hvd_release(h);
    return rc;
}

static int sum(int set, const char *name, int *ret)
{
    float one = 1;
    int64_t count = 1;
    struct hvd_request r = rank_request(name, &one, &count);
    int rc = run(&r, set);
    *ret = (int)one;
    return rc;
}

static int run_step(void)
{
    int n = 0, rc = me.place < 2 ? sum(LEFT, "left", &n) : 0;
    if (rc == 0 && (me.place == 1 || me.place == 2))
        rc = sum(RIGHT, "right", &n);
    if (rc == 0 && me.data)
        rc = sum(me.data, "data", &n);
    if (rc == 0)
        rc = sum(ALL, "all", &n);
    if (rc == 0)
        atomic_store(&me.board->size[me.place], n);
    return rc;
}

static int make_sets(void)
{
    static const int pairs[][2] = {{0, 1}, {1, 2}}, all[RANKS] = {0, 1, 2, 3};
    int set = 0, rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = hvd_set_add(pairs[i], 2, &set);
        rc = rc == 0 ? hvd_set_fix(set) : rc;
    }
    if (rc == 0)
        rc = hvd_set_add(all, RANKS, &set);
    if (rc == 0 && me.place > 0)
        rc = hvd_set_form("data", all + 1, RANKS - 1, &me.data);
    return rc < 0 ? FAIL("place %d: %s", me.place, hvd_error()) : 0;
}

static int take_step(void)
{
    int64_t one = 1;
    int source = hvd_set_source(ALL);
    struct hvd_request r = {.kind = HVD_BROADCAST,
                            .name = "step",
                            .input = &me.step,
                            .output = &me.step,
                            .dtype = HVD_INT64,
                            .ndim = 1,
                            .shape = &one,
                            .root = source,
                            .device = -1};
    int rc = source < 0 ? source : run(&r, ALL);
    return rc == -ENODATA || rc == -EOWNERDEAD ? 0 : rc;
}

static int enter(void)
{
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    int rc = hvd_world(&w);
    bool joins = rc == 0 && w.is_new;
    rc = joins ? hvd_commit() : rc;
    if (rc < 0)
        return FAIL("%s", hvd_error());
    me.place = hvd_place();
    if (!joins)
        return make_sets();
    me.data = me.place > 0 ? hvd_set_find("data") : 0;
    rc = me.data < 0 ? me.data : take_step();
    return rc < 0 ? FAIL("place %d: %s", me.place, hvd_error()) : 0;
}

static int iterate(void)
{
    struct board *b = me.board;
    int rc = run_step();
    if (rc < 0 && rc != -EOWNERDEAD)
        return FAIL("place %d: %s", me.place, hvd_error());
    if (rc < 0)
        atomic_fetch_add(&b->dead[me.place], 1);
    else
        me.step++;
    atomic_store(&b->at[me.place], (int)me.step);
    rc = hvd_commit();
    if (rc == 1)
        rc = take_step();
    return rc < 0 ? FAIL("place %d: %s", me.place, hvd_error()) : 0;
}

static int train(int member, void *arg)
{
    me.board = arg;
    me.place = -1;
    int rc = hvd_init() < 0 ? FAIL("member %d: %s", member, hvd_error()) : enter();
    while (rc == 0 && me.step < STEPS) {
        while (me.step > atomic_load(&me.board->go))
            nap_ms(1);
        rc = iterate();
    }
    return rc ? rc : hvd_shutdown() < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static const char *const env[] = {"HVD_X=1", NULL};

static void start(struct elastic *job, struct board **ret, elastic_rank_f program)
{
    elastic_init(job);
    job->keep_places = job->numbers = true;
    *ret = world_board(sizeof(**ret));
    atomic_store(&(*ret)->dies_at, -2);
    for (int m = 0; m < RANKS; m++)
        elastic_add(job, program, *ret, env);
}

static void begin(struct elastic *job, struct board **ret)
{
    start(job, ret, train);
}

static void run_to(struct elastic *job, struct board *b, int place, int step)
{
    atomic_store(&b->go, step + 1);
    if (!elastic_run_to(job, &b->at[place], step, LIMIT))
        fail_msg("place %d has not reached step %d", place, step);
}

static void kill_at(struct elastic *job, struct board *b, int member, int noticed_by)
{
    atomic_store(&b->dead[noticed_by], 0);
    kill(job->members[member].pid, SIGKILL);
    atomic_fetch_add(&b->go, 2);
    if (!elastic_run_to(job, &b->dead[noticed_by], 1, LIMIT))
        fail_msg("place %d has not noticed the loss", noticed_by);
}

static bool is_over(struct elastic *job, void *arg)
{
    return job->members[*(const int *)arg].over;
}

/* A member for the lowest free place comes, and member `dies` is lost meanwhile; -1: none. */
static void admit(struct elastic *job, struct board *b, int dies)
{
    int first = job->n;
    elastic_add(job, train, b, env);
    assert_true(elastic_run(job, elastic_joiners_wait, &first, LIMIT));
    elastic_announce(job);
    atomic_fetch_add(&b->go, 2);
    if (dies >= 0 && !elastic_run(job, is_over, &dies, LIMIT))
        fail_msg("member %d has not been lost", dies);
    atomic_store(&b->dies_at, -2);
}

static void end(struct elastic *job, struct board *b, int lost)
{
    atomic_store(&b->go, STEPS);
    if (!elastic_run(job, elastic_all_over, NULL, LIMIT))
        fail_msg("the job has not ended");
    for (int m = 0; m < job->n; m++)
        if (job->members[m].status != 0 && !(lost & 1 << m))
            fail_msg("member %d has failed", m);
    for (int p = 0; p < RANKS; p++)
        if (b->size[p] != RANKS)
            fail_msg("place %d has ended in a set of %d", p, b->size[p]);
    elastic_fini(job);
}

/* Place 2 is free, and place 1 becomes free in the boundary that brings a replacement for one of
 * them. So no rank is left of the set on the right when the next epoch begins. */
static void test_lost_at_the_boundary(void **state)
{
    struct elastic job;
    struct board *b;
    begin(&job, &b);
    run_to(&job, b, ALONE, 2);
    kill_at(&job, b, 2, 1);
    atomic_store(&b->dies_in, "change");
    atomic_store(&b->dies_at, 1);
    admit(&job, b, 1);
    run_to(&job, b, ALONE, 10);
    assert_int_equal(b->size[ALONE], 1);
    admit(&job, b, -1);
    end(&job, b, 1 << 1 | 1 << 2);
}

/* The only rank that knows the set on the right and is a member of it is lost before the
 * replacement knows the set. It is also the rank that has to tell of the set "data". */
static void test_lost_in_the_share(void **state)
{
    struct elastic job;
    struct board *b;
    begin(&job, &b);
    run_to(&job, b, ALONE, 2);
    kill_at(&job, b, 1, 0);
    atomic_store(&b->dies_in, "share");
    atomic_store(&b->dies_at, 2);
    admit(&job, b, 2);
    run_to(&job, b, ALONE, 10);
    admit(&job, b, -1);
    end(&job, b, 1 << 1 | 1 << 2);
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Ranks 0 and 1 are a unit, and rank 2 has many sets with rank 0. Rank 1 is lost while the others
 * wait for it in the boundary that brings its replacement. So the circles of these sets may not
 * have been made anew while rank 0 was out of them. */
static int make_pairs(int *ret_last)
{
    static const int unit[] = {0, 1}, pair[] = {0, 2};
    int rc = hvd_set_add(unit, 2, ret_last);
    rc = rc == 0 ? hvd_set_fix(*ret_last) : rc;
    for (int i = 0; i < PAIRS && rc == 0; i++)
        rc = hvd_set_add(pair, 2, ret_last);
    return rc;
}

static int exchange(int set, int value)
{
    int peer = 1 - hvd_set_rank(set), got = 0;
    int rc = me.place == 0 ? hvd_send(&value, sizeof(value), peer, 0, set)
                           : hvd_recv(&got, sizeof(got), peer, 0, set, NULL);
    if (rc == 0)
        rc = me.place == 0 ? hvd_recv(&got, sizeof(got), peer, 0, set, NULL)
                           : hvd_send(&value, sizeof(value), peer, 0, set);
    return rc == 0 && got != value ? FAIL("place %d got %d, not %d", me.place, got, value) : rc;
}

static int talk(int member, void *arg)
{
    struct board *b = me.board = arg;
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    int set = 1 + PAIRS, rc = hvd_init() < 0 ? -1 : hvd_world(&w);
    bool joins = rc == 0 && w.is_new;
    me.place = -1;
    if (rc == 0)
        rc = joins ? hvd_commit() - 1 : make_pairs(&set);
    me.place = hvd_place();
    me.slow = me.place == 2;
    for (int i = 0; i < 3 && rc == 0 && me.place % 2 == 0; i++)
        rc = exchange(set, i);
    atomic_store(&b->at[me.place], 1);
    while (!joins && !atomic_load(&b->go))
        nap_ms(1);
    if (me.place == 1 && !joins) {
        nap_ms(50); /* the others are in hvd_commit() */
        raise(SIGKILL);
    }
    if (rc == 0 && !joins)
        rc = hvd_commit() - 1;
    if (me.place == ALONE && b->loses)
        raise(SIGKILL); /* while rank 2 has not made the circles of all sets */
    for (int i = 5; i < 8 && rc == 0 && me.place % 2 == 0; i++)
        rc = exchange(set, i);
    if (rc == 0)
        rc = sum(0, "end", &set);
    return rc < 0 ? FAIL("member %d: %s", member, hvd_error()) : rc ? rc : hvd_shutdown();
}

/* The job ends. All members succeed, but those of the mask, which are lost. */
static void expect_end(struct elastic *job, unsigned lost)
{
    if (!elastic_run(job, elastic_all_over, NULL, LIMIT))
        fail_msg("the job has not ended");
    for (int m = 0; m < job->n; m++)
        if (!(lost >> m & 1) && job->members[m].status != 0)
            fail_msg("member %d has failed", m);
    elastic_fini(job);
}

/* loses: rank 3 is lost as soon as it has heard that the replacement is there. */
static void return_and_talk(bool loses)
{
    struct elastic job;
    struct board *b = world_board(sizeof(*b));
    int first = RANKS;
    b->loses = loses;
    elastic_init(&job);
    job.keep_places = job.numbers = true;
    for (int m = 0; m < RANKS; m++)
        elastic_add(&job, talk, b, env);
    for (int p = 0; p < RANKS; p++)
        assert_true(elastic_run_to(&job, &b->at[p], 1, LIMIT));
    elastic_add(&job, talk, b, env);
    assert_true(elastic_run(&job, elastic_joiners_wait, &first, LIMIT));
    elastic_announce(&job);
    atomic_store(&b->go, 1);
    expect_end(&job, 1U << 1 | (loses ? 1U << ALONE : 0));
}

static void test_messages_after_the_return(void **state)
{
    return_and_talk(true);
    return_and_talk(false);
}

/* ---- many fixed sets ------------------------------------------------------------------------ */

/* Ranks 0 and 1 have many fixed sets, and rank 1 has one with rank 2, which is lost. So when a
 * replacement comes, all of these sets meet with the ranks that they had, and rank 0, which is
 * slow, hears of the return while some of their circles are made and others are not. */
static int make_fixed(int *ret_last)
{
    static const int pair[] = {0, 1}, other[] = {1, 2};
    int rc = hvd_set_add(other, 2, ret_last);
    rc = rc == 0 ? hvd_set_fix(*ret_last) : rc;
    for (int i = 0; i < FIXED && rc == 0; i++) {
        rc = hvd_set_add(pair, 2, ret_last);
        rc = rc == 0 ? hvd_set_fix(*ret_last) : rc;
    }
    return rc;
}

static int sum_in_all(void)
{
    int rc = 0, n = 0;
    if (me.place == 1 || me.place == 2)
        rc = sum(1, "other", &n);
    for (int set = 2; rc == 0 && me.place < 2 && set <= 1 + FIXED; set++)
        rc = sum(set, "pair", &n) < 0 || n != 2 ? FAIL("set %d: %s", set, hvd_error()) : 0;
    return rc;
}

static int come_back(int member, void *arg)
{
    struct board *b = me.board = arg;
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    int last, rc = hvd_init() < 0 ? -1 : hvd_world(&w);
    bool joins = rc == 0 && w.is_new;
    me.place = -1;
    if (rc == 0)
        rc = joins ? hvd_commit() - 1 : make_fixed(&last);
    me.place = hvd_place();
    if (rc == 0 && !joins)
        rc = sum_in_all();
    atomic_store(&b->at[me.place], 1);
    while (!joins && !atomic_load(&b->go))
        nap_ms(1);
    me.slow = me.place == 0;
    if (rc == 0 && !joins)
        rc = hvd_commit() - 1;
    if (rc == 0)
        rc = sum_in_all();
    return rc < 0 ? FAIL("member %d: %s", member, hvd_error()) : rc ? rc : hvd_shutdown();
}

static void test_many_fixed_sets(void **state)
{
    struct elastic job;
    struct board *b;
    int first = RANKS;
    start(&job, &b, come_back);
    for (int p = 0; p < RANKS; p++)
        assert_true(elastic_run_to(&job, &b->at[p], 1, LIMIT));
    kill(job.members[2].pid, SIGKILL);
    elastic_add(&job, come_back, b, env);
    assert_true(elastic_run(&job, elastic_joiners_wait, &first, LIMIT));
    elastic_announce(&job);
    atomic_store(&b->go, 1);
    expect_end(&job, 1U << 2);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lost_at_the_boundary),
        cmocka_unit_test(test_lost_in_the_share),
        cmocka_unit_test(test_messages_after_the_return),
        cmocka_unit_test(test_many_fixed_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
