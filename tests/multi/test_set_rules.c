/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets by rule: in a job of fixed size; in elastic jobs on two hosts that lose ranks, take others
 * in and let some go, while other threads use the sets; with rules that differ between ranks, and
 * with joiners that lack a rule. This program defines inject_point() itself.
 *
 * timeout: 300
 * takes: 6 s
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

enum { MEMBERS = 5, MOST = 16, STEPS = 24, LIMIT = 60000 /* ms */, EPOCHS = 64 };
enum { HOST, EVERY, BLOCKS, STRIDE, RULES };

static const char *const rules[RULES] = {"host", "every 2", "blocks 2", "stride 3"};

struct board {
    _Atomic int at[ELASTIC_MAX]; /* the step of each member */
    _Atomic int go;              /* no member begins a later step */
    bool beside;                 /* a second thread of each member uses a set */
    bool keeps_places;
    _Atomic int dies;        /* the member that dies; -1: none */
    _Atomic int dies_at;     /* at so many more calls of inject_point() */
    _Atomic int differs;     /* the member whose rule gives something else; -1: none */
    _Atomic int leaves;      /* the member that is asked to leave; -1: none */
    _Atomic int whole;       /* results of all ranks that a rule gives, in the newest world */
    _Atomic int stale;       /* operations that have ended with -ESTALE */
    int okay[EPOCHS][MOST];  /* operations of the second thread that have succeeded, by epoch */
    int group[EPOCHS][MOST]; /* the lowest member of its group then, + 1 */
};

static struct {
    struct board *board;
    int number;
    _Atomic bool commits; /* all ranks have agreed that the world changes */
} me;

void inject_point(const char *place)
{
    if (strcmp(place, "view") == 0 || strcmp(place, "change") == 0)
        atomic_store(&me.commits, true);
    if (!me.board || atomic_load(&me.board->dies) != me.number)
        return;
    if (atomic_fetch_sub(&me.board->dies_at, 1) == 1)
        raise(SIGKILL);
}

/* ---- operations ----------------------------------------------------------------------------- */

static int reduce(int set, const char *name, enum hvd_op op, int64_t *values, int64_t n,
                  uint32_t epoch)
{
    hvd_handle h;
    struct hvd_request r = {.kind = HVD_ALLREDUCE,
                            .name = name,
                            .input = values,
                            .output = values,
                            .dtype = HVD_INT64,
                            .ndim = 1,
                            .shape = &n,
                            .op = op,
                            .device = -1,
                            .epoch = epoch,
                            .set = set};
    int rc = hvd_submit(&r, 1, &h);
    if (rc < 0)
        return rc;
    rc = hvd_wait(h);
    hvd_release(h);
    return rc;
}

/* ---- what the groups have to be ------------------------------------------------------------- */

/* A rule of the program. The argument is the member's own. */
static int stride(const struct hvd_roster *roster, int rank, int k, void *arg)
{
    const struct board *b = arg;
    int shift = b && atomic_load(&b->differs) == me.number && rank == roster->size - 1;
    int group = (rank + shift) % k;
    return group == 2 ? -1 : group;
}

static bool are_together(int rule, const int64_t *crew, int a, int b)
{
    switch (rule) {
    case HOST:
        return crew[a] % 2 == crew[b] % 2;
    case EVERY:
        return a % 2 == b % 2;
    case BLOCKS:
        return a / 2 == b / 2;
    default:
        return a % 3 != 2 && a % 3 == b % 3;
    }
}

/* The ranks of this rank's group. */
static int expect_group(int rule, const int64_t *crew, int *ret)
{
    int n = 0;
    for (int r = 0; r < hvd_size(); r++)
        if (are_together(rule, crew, hvd_rank(), r))
            ret[n++] = r;
    return n;
}

static int check_ranks(int rule, int set, const int64_t *crew, int64_t *ret_mask)
{
    int ranks[MOST], wanted[MOST], n = hvd_set_ranks(set, ranks, MOST);
    int want = expect_group(rule, crew, wanted), own = -ENOENT;
    *ret_mask = 0;
    if (n != want)
        return FAIL("%s: member %d has %d ranks, not %d", rules[rule], me.number, n, want);
    for (int i = 0; i < n; i++) {
        if (ranks[i] != wanted[i])
            return FAIL("%s: rank %d, not %d", rules[rule], ranks[i], wanted[i]);
        if (ranks[i] == hvd_rank())
            own = i;
        *ret_mask |= (int64_t)1 << crew[ranks[i]];
    }
    if (hvd_set_rank(set) != own || hvd_set_size(set) != n)
        return FAIL("%s: number %d of %d", rules[rule], hvd_set_rank(set), hvd_set_size(set));
    return 0;
}

/* Each rank of the group sends its member's number to the next one. */
static int pass_on(int rule, int set, const int64_t *crew)
{
    int ranks[MOST], n = hvd_set_ranks(set, ranks, MOST), own = hvd_set_rank(set);
    int64_t mine = me.number, got = -1;
    const struct hvd_message both[2] = {{.direction = HVD_SEND,
                                         .peer = (own + 1) % n,
                                         .tag = 3,
                                         .set = set,
                                         .device = -1,
                                         .data = &mine,
                                         .bytes = sizeof(mine)},
                                        {.direction = HVD_RECV,
                                         .peer = (own + n - 1) % n,
                                         .tag = 3,
                                         .set = set,
                                         .device = -1,
                                         .data = &got,
                                         .bytes = sizeof(got)}};
    hvd_handle h[2];
    int rc = hvd_exchange(both, 2, h);
    for (int i = 0; rc == 0 && i < 2; i++) {
        int its = hvd_wait(h[i]);
        hvd_release(h[i]);
        if (its < 0 && its != -EOWNERDEAD)
            return FAIL("%s, a message: %s", rules[rule], hvd_error());
        if (i == 1 && its == 0 && got != crew[ranks[(own + n - 1) % n]])
            return FAIL("%s: a message of member %d", rules[rule], (int)got);
    }
    return rc < 0 ? FAIL("%s, messages: %s", rules[rule], hvd_error()) : 0;
}

/* ---- a member ------------------------------------------------------------------------------- */

struct member {
    struct board *board;
    int set[RULES];
    int64_t step;
    bool lost; /* a result has lacked a rank */
    bool left; /* this rank was asked to leave, and has */
    _Atomic bool over;
    int failed; /* of the second thread */
};

/* All ranks of the group have the same outcomes: the numbers of those that have succeeded in this
 * world go along. Results of a world that has lost a rank since may be of fewer ranks. */
static int use_once(struct member *m, uint32_t epoch, int64_t *i)
{
    int64_t v[5] = {*i, -*i, epoch, -(int64_t)epoch, -me.number};
    int rc = reduce(m->set[EVERY], "beside", HVD_MAX, v, 5, epoch);
    if (rc == 0 && (v[0] != -v[1] || v[2] != -v[3]))
        return FAIL("beside: epochs %d to %d, operations %d to %d", -(int)v[3], (int)v[2],
                    -(int)v[1], (int)v[0]);
    if (rc == 0 && epoch < EPOCHS) {
        m->board->okay[epoch][me.number]++;
        m->board->group[epoch][me.number] = 1 - (int)v[4];
    }
    *i += rc == 0;
    if (rc == -ESTALE)
        atomic_fetch_add(&m->board->stale, 1);
    return rc == -ESTALE ? 0 : rc;
}

/* hvd_commit() begins when no operation is in flight. Once it has begun, most ranks hurry, and one
 * of them pauses, so that operations of the others are in flight when groups change. */
static void pause_between(uint32_t epoch)
{
    bool commits = atomic_load(&me.commits), pauses = epoch % 3 == (uint32_t)me.number % 3;
    while (atomic_load(&me.commits) && pauses)
        nap_ms(1);
    if (!commits)
        nap_ms(1);
}

static void *use(void *arg)
{
    struct member *m = arg;
    uint32_t last = 0;
    int64_t i = 0;
    while (!atomic_load(&m->over) && m->failed == 0) {
        struct hvd_world w = {.size_of_struct = sizeof(w)};
        if (hvd_world(&w) < 0)
            break;
        i = w.epoch == last ? i : 0;
        last = w.epoch;
        int rc = use_once(m, w.epoch, &i);
        if (rc < 0 && (atomic_load(&m->over) || atomic_load(&m->board->leaves) == me.number))
            break;
        if (rc != 0)
            m->failed = rc > 0 ? rc : FAIL("member %d, beside: %s", me.number, hvd_error());
        pause_between(w.epoch);
    }
    return NULL;
}

static int define(struct board *b)
{
    return hvd_rule_define("stride", stride, b) < 0 ? FAIL("%s", hvd_error()) : 0;
}

static int make_sets(struct member *m)
{
    for (int r = 0; r < RULES; r++)
        if (hvd_set_split(rules[r], &m->set[r]) < 0)
            return FAIL("%s: %s", rules[r], hvd_error());
    return 0;
}

static int find_sets(struct member *m)
{
    int sets[8];
    for (int r = 0; r < RULES; r++) {
        m->set[r] = hvd_set_find(rules[r]);
        if (m->set[r] < 0)
            return FAIL("%s: %s", rules[r], hvd_error());
    }
    return hvd_sets(sets, 8) == RULES ? 0 : FAIL("%d sets", hvd_sets(NULL, 0));
}

/* One operation without a name, one with a name, and messages, in each set. */
static int use_sets(struct member *m, const int64_t *crew)
{
    for (int r = 0; r < RULES; r++) {
        int64_t mask, got = (int64_t)1 << me.number, again = got;
        int rc = check_ranks(r, m->set[r], crew, &mask);
        if (rc)
            return rc;
        rc = reduce(m->set[r], NULL, HVD_BOR, &got, 1, 0);
        if (mask == 0 && rc != -EINVAL)
            return FAIL("%s: %d in no group", rules[r], rc);
        if (mask == 0)
            continue;
        if (rc == 0)
            rc = reduce(m->set[r], "again", HVD_BOR, &again, 1, 0);
        if (rc < 0)
            return FAIL("%s: member %d: %s", rules[r], me.number, hvd_error());
        if ((got & ~mask) || (again & ~got) || !(again >> me.number & 1))
            return FAIL("%s: members %x, then %x, of %x", rules[r], (int)got, (int)again,
                        (int)mask);
        m->lost = m->lost || again != mask;
        if (again == mask)
            atomic_fetch_add(&m->board->whole, 1);
        rc = pass_on(r, m->set[r], crew);
        if (rc)
            return rc;
    }
    return 0;
}

static int commit(void)
{
    int rc;
    while ((rc = hvd_commit()) == -EBUSY)
        nap_ms(1);
    atomic_store(&me.commits, false);
    return rc;
}

static int iterate(struct member *m)
{
    int64_t crew[MOST];
    bool whole = true;
    if (rank_crew(me.number, crew) < 0)
        return FAIL("crew: %s", hvd_error());
    for (int r = 0; r < hvd_size(); r++)
        whole = whole && crew[r] >= 0;
    m->lost = !whole;
    int rc = whole ? use_sets(m, crew) : 0;
    if (rc)
        return rc;
    m->step++;
    atomic_store(&m->board->at[me.number], (int)m->step);
    rc = commit();
    if (rc == -ESHUTDOWN && atomic_load(&m->board->leaves) == me.number)
        m->left = true;
    else if (rc < 0 || (m->lost && rc != 1))
        return FAIL("member %d: hvd_commit: %d, %s", me.number, rc, hvd_error());
    if (rc == 1 && reduce(0, "step", HVD_MAX, &m->step, 1, 0) < 0)
        return FAIL("the step: %s", hvd_error());
    return 0;
}

/* Every rank removes the sets, also one that has joined since they were made. */
static int remove_sets(struct member *m)
{
    for (int r = 0; r < RULES; r++)
        if (hvd_set_remove(m->set[r]) < 0)
            return FAIL("%s is not removed: %s", rules[r], hvd_error());
    return hvd_sets(NULL, 0) == 0 ? 0 : FAIL("%d sets are left", hvd_sets(NULL, 0));
}

static int enter(struct member *m)
{
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    if (hvd_init() < 0 || hvd_world(&w) < 0)
        return FAIL("%s", hvd_error());
    if (!w.is_new)
        return make_sets(m);
    if (hvd_commit() != 1 || reduce(0, "step", HVD_MAX, &m->step, 1, 0) < 0)
        return FAIL("member %d joins: %s", me.number, hvd_error());
    return find_sets(m);
}

static int train(int number, void *arg)
{
    struct member m = {.board = arg};
    pthread_t thread;
    me.board = m.board;
    me.number = number;
    int rc = define(m.board);
    if (rc == 0)
        rc = enter(&m);
    bool beside = rc == 0 && m.board->beside;
    if (beside && pthread_create(&thread, NULL, use, &m) != 0)
        return FAIL("no thread");
    while (rc == 0 && !m.left && m.step < STEPS) {
        while (m.step > atomic_load(&m.board->go))
            nap_ms(1);
        rc = iterate(&m);
        if (rc == 0 && m.failed)
            rc = m.failed;
    }
    atomic_store(&m.over, true);
    if (rc == 0 && !beside && !m.left) /* the last operation of each thread may lack a partner */
        rc = remove_sets(&m);
    if (rc == 0 && hvd_shutdown() < 0)
        rc = FAIL("%s", hvd_error());
    if (beside && rc == 0)
        pthread_join(thread, NULL);
    return rc;
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static const char *const hosts[2][2] = {{"HVD_LOCALITY=a", NULL}, {"HVD_LOCALITY=b", NULL}};

static struct board *new_board(void)
{
    struct board *b = world_board(sizeof(*b));
    assert_non_null(b);
    b->dies = b->differs = b->leaves = -1;
    return b;
}

static void add(struct elastic *job, struct board *b, elastic_rank_f fn)
{
    assert_true(elastic_add(job, fn, b, hosts[job->n % 2]) >= 0);
}

static void begin(struct elastic *job, struct board *b, elastic_rank_f fn)
{
    elastic_init(job);
    job->keep_places = b->keeps_places;
    job->numbers = true;
    for (int i = 0; i < MEMBERS; i++)
        add(job, b, fn);
}

static void run_to(struct elastic *job, struct board *b, int member, int step)
{
    atomic_store(&b->go, step + 1);
    if (!elastic_run_to(job, &b->at[member], step, LIMIT))
        fail_msg("member %d has not reached step %d", member, step);
}

static void admit(struct elastic *job, struct board *b, int n)
{
    int first = job->n;
    for (int i = 0; i < n; i++)
        add(job, b, train);
    if (!elastic_run(job, elastic_joiners_wait, &first, LIMIT))
        fail_msg("the joiners do not come");
    elastic_announce(job);
}

/* left: the members that have to end well. */
static void end(struct elastic *job, struct board *b, uint32_t left, const char *what)
{
    atomic_store(&b->go, STEPS);
    if (!elastic_run(job, elastic_all_over, NULL, LIMIT))
        fail_msg("%s: the job has not ended", what);
    int dies = atomic_load(&b->dies); /* perhaps it has not come to its place */
    uint32_t may = dies < 0 ? 0 : 1u << dies;
    if ((elastic_survivors(job) & ~may) != left)
        fail_msg("%s: members %x have ended well, not %x", what, elastic_survivors(job), left);
    elastic_fini(job);
}

static bool is_used(const struct board *b, int epoch)
{
    bool any = false;
    for (int m = 0; m < MOST; m++)
        any = any || b->group[epoch][m];
    return any;
}

/* Members of one group have ended the same operations well, in each world. In the last one they end
 * in the middle of them. */
static void expect_same(const struct board *b, uint32_t left)
{
    int last = EPOCHS - 1;
    while (last > 0 && !is_used(b, last))
        last--;
    for (int e = 0; e < EPOCHS && e < last; e++)
        for (int a = 0; a < MOST; a++)
            for (int c = 0; c < a; c++)
                if (left >> a & left >> c & 1 && b->group[e][a] &&
                    b->group[e][a] == b->group[e][c] && b->okay[e][a] != b->okay[e][c])
                    fail_msg("epoch %d: members %d and %d have ended %d and %d operations", e, a, c,
                             b->okay[e][a], b->okay[e][c]);
}

/* A loss, two joiners, a member that leaves, and a loss beside joiners. */
static void change_all(bool keeps_places, bool beside, const char *what)
{
    struct elastic job;
    struct board *b = new_board();
    b->keeps_places = keeps_places;
    b->beside = beside;
    begin(&job, b, train);
    run_to(&job, b, 0, 3);
    kill(job.members[1].pid, SIGKILL);
    run_to(&job, b, 0, 6);
    admit(&job, b, 2);
    run_to(&job, b, 6, 10);
    job.members[0].leaving = true;
    atomic_store(&b->leaves, 0);
    elastic_announce(&job);
    run_to(&job, b, 6, 14);
    int first = job.n;
    add(&job, b, train);
    kill(job.members[2].pid, SIGKILL);
    if (!elastic_run(&job, elastic_joiners_wait, &first, LIMIT))
        fail_msg("%s: the joiner does not come", what);
    elastic_announce(&job);
    run_to(&job, b, 7, 18);
    atomic_store(&b->whole, 0);
    end(&job, b, 0xf9, what);
    if (atomic_load(&b->whole) < 3 * RULES)
        fail_msg("%s: %d whole results after the last change", what, atomic_load(&b->whole));
    expect_same(b, 0xf8);
    if (beside && atomic_load(&b->stale) == 0)
        fail_msg("%s: no operation was in flight when groups changed", what);
}

static void test_changes(void **state)
{
    (void)state;
    change_all(false, false, "without places");
    change_all(true, false, "with places");
}

static void test_beside(void **state)
{
    (void)state;
    for (int i = 0; i < effort(6); i++)
        change_all(i % 2, true, "beside");
}

/* ---- losses beside a boundary ---------------------------------------------------------------- */

/* Two joiners come, and a member dies somewhere in that boundary, or after it. */
static void die_beside(int seed, int member, int at)
{
    struct elastic job;
    struct board *b = new_board();
    char what[64];
    snprintf(what, sizeof(what), "member %d dies at %d", member, at);
    b->keeps_places = seed % 2;
    b->beside = seed % 4 > 1;
    begin(&job, b, train);
    run_to(&job, b, 0, 2);
    int first = job.n;
    add(&job, b, train);
    add(&job, b, train);
    if (!elastic_run(&job, elastic_joiners_wait, &first, LIMIT))
        fail_msg("%s: the joiners do not come", what);
    atomic_store(&b->dies_at, at);
    atomic_store(&b->dies, member);
    elastic_announce(&job);
    end(&job, b, 0x7f & ~(1u << member), what);
}

static void test_losses(void **state)
{
    uint64_t random = 7;
    (void)state;
    for (int i = 0; i < effort(36); i++)
        die_beside(i, (int)(rank_random(&random) % 7), 1 + (int)(rank_random(&random) % 40));
}

/* ---- rules that differ ----------------------------------------------------------------------- */

static int expect_error(int rc, int code, const char *text, const char *what)
{
    if (rc == code && strstr(hvd_error(), text))
        return 0;
    return FAIL("%s: %d, %s", what, rc, hvd_error());
}

/* The rule of member 2 changes in step 6, when a rank is lost. All ranks get the same error, and go
 * on with the groups that are left. */
static int train_and_differ(int number, void *arg)
{
    struct member m = {.board = arg};
    int64_t ranks = 1, step;
    me.board = m.board;
    me.number = number;
    int rc = define(m.board);
    if (rc == 0)
        rc = enter(&m);
    for (step = 0; rc == 0 && step < 12; step++) {
        atomic_store(&m.board->at[number], (int)step);
        while (step > atomic_load(&m.board->go))
            nap_ms(1);
        int changed = hvd_commit();
        if (changed < 0)
            rc = expect_error(changed, -EINVAL,
                              "rank 0 puts rank 3 into group 0, rank 1 puts it into group 1",
                              "hvd_commit");
        atomic_fetch_add(&m.board->stale, changed < 0);
    }
    if (rc == 0 && hvd_set_rank(m.set[STRIDE]) >= 0)
        rc = reduce(m.set[STRIDE], "after", HVD_SUM, &ranks, 1, 0) < 0 ||
             ranks != hvd_set_size(m.set[STRIDE]);
    return rc ? rc : hvd_shutdown() < 0;
}

static void test_differs(void **state)
{
    struct elastic job;
    struct board *b = new_board();
    (void)state;
    begin(&job, b, train_and_differ);
    run_to(&job, b, 0, 4);
    atomic_store(&b->differs, 2);
    kill(job.members[1].pid, SIGKILL);
    end(&job, b, 0x1d, "a rule that differs");
    assert_int_equal(atomic_load(&b->stale), 4); /* once on each rank */
}

static int join_without_rule(int number, void *arg)
{
    struct board *b = arg;
    (void)number;
    int rc = hvd_init() < 0 ? FAIL("%s", hvd_error()) : 0;
    if (rc == 0)
        rc = expect_error(hvd_commit(), -ENOENT, "this rank has no rule 'stride'", "hvd_commit");
    atomic_fetch_add(&b->stale, rc == 0);
    hvd_shutdown();
    return rc;
}

static void test_joins_without(void **state)
{
    struct elastic job;
    struct board *b = new_board();
    (void)state;
    begin(&job, b, train);
    run_to(&job, b, 0, 3);
    int first = job.n;
    add(&job, b, join_without_rule);
    if (!elastic_run(&job, elastic_joiners_wait, &first, LIMIT))
        fail_msg("the joiner does not come");
    elastic_announce(&job);
    end(&job, b, 0x3f, "a joiner without a rule");
    assert_int_equal(atomic_load(&b->stale), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes),       cmocka_unit_test(test_beside),
        cmocka_unit_test(test_losses),        cmocka_unit_test(test_differs),
        cmocka_unit_test(test_joins_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
