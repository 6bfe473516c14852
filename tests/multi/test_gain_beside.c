/* SPDX-License-Identifier: Apache-2.0
 *
 * A set that shrinks, in a job that keeps places, while operations are in flight: this program
 * defines inject_point() itself, and each rank submits some for the set in the middle of the
 * hvd_commit() in which a replacement comes to it. They end with the sum of the ranks that have
 * submitted them, or with -ESTALE, each in the same way on all of these, and the set goes on with
 * the replacement. A thread calls hvd_set_add() there, too: it is made after the boundary, together
 * with the replacement.
 *
 * timeout: 300
 * takes: 3 s
 */
#include <errno.h>
#include <pthread.h>
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
#include "tests/harness/effort.h"
#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

enum { RANKS = 4, OPS = 4, ALL = (1 << RANKS) - 1, LIMIT = 60000 /* ms */ };

struct board {
    _Atomic int at[ELASTIC_MAX];
    _Atomic int rc[RANKS][OPS]; /* by place */
    _Atomic int gained[RANKS];
    int lost;      /* the place */
    int64_t count; /* elements of an operation */
    unsigned wait_us;
};

static struct {
    struct board *board;
    int set, place, added;
    bool submitted;
    pthread_t adder;
    float *data[OPS];
    hvd_handle handle[OPS];
} me;

static float value_of(int place)
{
    return (float)(1 << place);
}

static void submit_all(void)
{
    static const char *const names[OPS] = {"a", "b", "c", "d"};
    for (int i = 0; i < OPS; i++) {
        for (int64_t k = 0; k < me.board->count; k++)
            me.data[i][k] = value_of(me.place);
        struct hvd_request r = rank_request(names[i], me.data[i], &me.board->count);
        r.set = me.set;
        if (hvd_submit(&r, 1, &me.handle[i]) < 0)
            me.handle[i] = FAIL("%s", hvd_error()) ? 0 : 0;
    }
    me.submitted = true;
}

static const int order[RANKS] = {2, 0, 3, 1};

static void *add_set(void *unused)
{
    int rc = hvd_set_add(order, RANKS, &me.added);
    if (rc < 0)
        me.added = FAIL("%s", hvd_error()) ? rc : rc;
    return unused;
}

void inject_point(const char *place)
{
    if (strcmp(place, "change") != 0 || !me.set || me.submitted)
        return;
    submit_all();
    pthread_create(&me.adder, NULL, add_set, NULL);
    struct timespec t = {.tv_nsec = (long)me.board->wait_us * 1000};
    nanosleep(&t, NULL); /* some of them may run here */
}

/* What all ranks have submitted that the set had before. */
static int wait_all(void)
{
    float sum = (float)(ALL & ~(1 << me.board->lost)), mine = value_of(me.place);
    for (int i = 0; i < OPS; i++) {
        int rc = hvd_wait(me.handle[i]);
        if (rc < 0 && rc != -ESTALE)
            return FAIL("%s", hvd_error());
        for (int64_t k = 0; k < me.board->count; k++)
            if (me.data[i][k] != (rc == 0 ? sum : mine))
                return FAIL("operation %d: %d, element %d is %g", i, rc, (int)k,
                            (double)me.data[i][k]);
        atomic_store(&me.board->rc[me.place][i], rc == 0 ? 1 : rc);
    }
    return 0;
}

static int sum_again(int set)
{
    float one = value_of(me.place);
    int64_t count = 1;
    hvd_handle h;
    struct hvd_request r = rank_request("again", &one, &count);
    r.set = set;
    int rc = rank_wait(&r, &h);
    if (rc < 0 || one != ALL)
        return FAIL("afterwards: %g, %s", (double)one, rc < 0 ? hvd_error() : "");
    hvd_release(h);
    return hvd_set_size(set) == RANKS ? 0 : FAIL("a set of %d", hvd_set_size(set));
}

static int train(int member, void *arg)
{
    struct board *b = me.board = arg;
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    for (int i = 0; i < OPS; i++)
        me.data[i] = calloc((size_t)b->count, sizeof(float));
    if (hvd_init() < 0 || hvd_world(&w) < 0)
        return FAIL("%s", hvd_error());
    bool joins = w.is_new;
    int rc = joins ? hvd_commit() : hvd_set_add(order, RANKS, &me.set);
    if (rc < 0)
        return FAIL("%s", hvd_error());
    me.place = hvd_place();
    for (int step = 1; !joins && !me.submitted; step++) {
        atomic_store(&b->at[member], step);
        nap_ms(1);
        if (hvd_commit() < 0)
            return FAIL("%s", hvd_error());
    }
    me.set = 1;
    rc = joins ? 0 : wait_all();
    if (rc == 0)
        rc = sum_again(me.set);
    if (joins)
        add_set(NULL);
    else
        pthread_join(me.adder, NULL);
    if (rc == 0)
        rc = me.added == 2 ? sum_again(me.added) : FAIL("set %d was added", me.added);
    atomic_store(&b->gained[me.place], rc == 0);
    for (int i = 0; i < OPS; i++)
        free(me.data[i]);
    return rc ? rc : hvd_shutdown() < 0 ? FAIL("%s", hvd_error()) : 0;
}

static void check(const struct board *b, const char *what)
{
    for (int i = 0; i < OPS; i++) {
        int first = b->rc[(b->lost + 1) % RANKS][i];
        for (int p = 0; p < RANKS; p++)
            if (p != b->lost && b->rc[p][i] != first)
                fail_msg("%s: operation %d: %d at place %d, not %d", what, i, b->rc[p][i], p,
                         first);
    }
    for (int p = 0; p < RANKS; p++)
        if (!b->gained[p])
            fail_msg("%s: place %d has failed", what, p);
}

static void run_job(unsigned seed)
{
    static const char *const hosts[][2] = {{"HVD_X=1", NULL}, {"HVD_SHM=0", NULL}};
    static const int64_t counts[] = {1, 3000, 400000};
    uint64_t random = seed;
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    char what[32];
    int first = RANKS;
    snprintf(what, sizeof(what), "seed %u", seed);
    b->lost = (int)(rank_random(&random) % RANKS);
    b->count = counts[seed % 3];
    b->wait_us = (unsigned)(rank_random(&random) % 3) * 300;
    elastic_init(&job);
    job.keep_places = job.numbers = true;
    for (int m = 0; m < RANKS; m++)
        elastic_add(&job, train, b, hosts[seed % 2]);
    assert_true(elastic_run_to(&job, &b->at[0], 3, LIMIT));
    kill(job.members[b->lost].pid, SIGKILL);
    elastic_add(&job, train, b, hosts[seed % 2]);
    assert_true(elastic_run(&job, elastic_joiners_wait, &first, LIMIT));
    elastic_announce(&job);
    if (!elastic_run(&job, elastic_all_over, NULL, LIMIT))
        fail_msg("%s: the job has not ended", what);
    check(b, what);
    elastic_fini(&job);
}

static void test_in_flight(void **state)
{
    for (unsigned seed = 1; seed <= (unsigned)effort(36); seed++)
        run_job(seed);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_flight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
