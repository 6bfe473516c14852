/* SPDX-License-Identifier: Apache-2.0
 *
 * A fixed set that lacks a rank is removed, in an elastic job that keeps places. Places 0, 1 and 2
 * are a unit of two fixed sets, and place 3 is alone. Place 2 is lost and not replaced: without the
 * set on the right places 0 and 1 are whole, and come back in the next hvd_commit(). Until then no
 * set can be made of them.
 *
 * timeout: 120
 * takes: 1 s
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

enum { RANKS = 4, LOST = 2, ALONE = 3, LIMIT = 60000 /* ms */ };

struct board {
    _Atomic int ready[RANKS];
    bool forms; /* the set on the right is made by its members */
};

static struct {
    struct board *board;
    int place, left, right, all;
} me;

static int sum(int set, int *ret)
{
    float one = 1;
    int64_t count = 1;
    hvd_handle h;
    struct hvd_request r = rank_request("sum", &one, &count);
    r.set = set;
    int rc = rank_wait(&r, &h);
    if (rc == 0)
        hvd_release(h);
    *ret = (int)one;
    return rc;
}

static int make_sets(void)
{
    static const int left[] = {0, 1}, right[] = {1, 2}, all[] = {0, 1, 2, 3};
    int rc = hvd_set_add(all, RANKS, &me.all);
    rc = rc == 0 ? hvd_set_add(left, 2, &me.left) : rc;
    rc = rc == 0 ? hvd_set_fix(me.left) : rc;
    bool member = me.place == 1 || me.place == 2;
    if (rc == 0 && !me.board->forms)
        rc = hvd_set_add(right, 2, &me.right);
    else if (rc == 0 && member)
        rc = hvd_set_form("right", right, 2, &me.right);
    return rc == 0 && me.right ? hvd_set_fix(me.right) : rc;
}

static int expect(int got, int wanted, const char *what)
{
    return got == wanted ? 0
                         : FAIL("place %d: %s: %d, not %d: %s", me.place, what, got, wanted,
                                got < 0 ? hvd_error() : "");
}

/* While the unit is broken. Ranks are numbered as in the world without place 2. */
static int use_broken(void)
{
    static const int mixed[] = {2, 0}, alone[] = {2};
    int n = 0, set = 0;
    int rc = expect(sum(me.all, &n), me.place == ALONE ? 0 : -EOWNERDEAD, "a sum of all");
    if (rc == 0 && me.place < 2)
        rc = expect(sum(me.left, &n), -EOWNERDEAD, "a sum on the left");
    rc = rc ? rc : expect(hvd_set_add(mixed, 2, &set), -EOWNERDEAD, "a set with a broken rank");
    if (rc == 0 && me.place % 3 == 0)
        rc = expect(hvd_set_form("mixed", mixed, 2, &set), -EOWNERDEAD, "a set of the two");
    rc = rc ? rc : expect(hvd_set_source(me.left), -ENODATA, "the source of the left");
    rc = rc ? rc : expect(hvd_set_add(alone, 1, &set), 0, "a set of the other");
    return rc ? rc : expect(hvd_set_remove(set), 0, "its end");
}

/* The broken set is gone. */
static int use_whole(void)
{
    int n = 0, rc = 0;
    if (me.place < 2)
        rc = expect(sum(me.left, &n), 0, "a sum on the left");
    rc = rc ? rc : expect(sum(me.all, &n), 0, "a sum of all");
    rc = rc ? rc : expect(n, 3, "its ranks");
    rc = rc ? rc : expect(sum(0, &n), 0, "a sum of the world");
    rc = rc ? rc : expect(hvd_set_source(me.all), 2, "the source of all");
    return rc ? rc : expect(hvd_commit(), 0, "one more boundary");
}

static int train(int member, void *arg)
{
    struct board *b = me.board = arg;
    int changed = 0, rc = hvd_init();
    me.place = hvd_place();
    rc = rc == 0 ? make_sets() : rc;
    if (rc < 0)
        return FAIL("member %d: %s", member, hvd_error());
    atomic_store(&b->ready[me.place], 1);
    while (changed == 0)
        changed = hvd_commit();
    rc = expect(changed, 1, "a loss");
    rc = rc ? rc : use_broken();
    if (rc == 0 && (!b->forms || me.place == 1))
        rc = expect(hvd_set_remove(me.right), 0, "the removal");
    rc = rc ? rc : expect(hvd_commit(), 1, "the boundary after it");
    rc = rc ? rc : use_whole();
    return rc ? rc : expect(hvd_shutdown(), 0, "the end");
}

static void run_job(bool forms)
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    b->forms = forms;
    elastic_init(&job);
    job.keep_places = job.numbers = true;
    for (int m = 0; m < RANKS; m++)
        elastic_add(&job, train, b, NULL);
    for (int p = 0; p < RANKS; p++)
        assert_true(elastic_run_to(&job, &b->ready[p], 1, LIMIT));
    int before = job.publishes;
    kill(job.members[LOST].pid, SIGKILL);
    if (!elastic_run(&job, elastic_all_over, NULL, LIMIT))
        fail_msg("the job has not ended");
    for (int m = 0; m < RANKS; m++)
        if (m != LOST && job.members[m].status != 0)
            fail_msg("member %d has failed", m);
    assert_int_equal(job.publishes - before, 2); /* the loss, and the removal */
    elastic_fini(&job);
}

static void test_of_all_ranks(void **state)
{
    (void)state;
    run_job(false);
}

static void test_of_its_members(void **state)
{
    (void)state;
    run_job(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_all_ranks),
        cmocka_unit_test(test_of_its_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
