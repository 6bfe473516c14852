/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads beside hvd_commit(): a second thread submits requests after all ranks have agreed on a
 * new world and before this rank is in it. This program defines inject_point() itself: the
 * committing thread calls it at exactly that place and waits there for the second thread.
 *
 * A planned change fails such requests with -ESTALE. After a loss they run in the world in which
 * they were submitted, or fail with -ESTALE on all ranks if one rank submitted its own later.
 * Behind their memory lie guard values that must stay.
 *
 * timeout: 300
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/inject.h"
#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define LIMIT 60000 /* ms: limit of every wait */
#define MAX   8     /* ranks */
#define WIDE  3     /* elements of a row */
#define ROWS  24    /* of a reducescatter: divisible by 1, 2, 3, 4, 6 and 8 ranks */
#define GUARD 77.0f

/* What the second thread submits: one operation of each kind, and a group. */
enum {
    ALLREDUCE,
    ALLGATHER,
    BROADCAST,
    ALLTOALL,
    REDUCESCATTER,
    BARRIER,
    GROUP,
    KINDS = GROUP + 2
};

struct board {
    _Atomic int at;
    _Atomic int entered[MAX]; /* worlds that each member has entered by hvd_commit() */
};

struct part {
    struct board *board;
    const char *place; /* the inject point at which the second threads submit */
    bool late;         /* member 1 reaches the place only when member 0 is past its boundary */
    int skips;         /* the member that submits after the boundary; -1: none */
    int expected;      /* return code of the operations submitted at the place */
    int ranks;         /* ranks of the next world */
    bool lost[MAX];
    bool any_lost;
};

struct operation {
    struct hvd_request request;
    hvd_handle handle;
    int rc, rank, size;
    int64_t shape[2];
    float *in, *out; /* followed by guard values */
    size_t nin, nout;
};

/* States of the second thread. */
enum { NOTHING, WANTED, SUBMITTED, OVER };

/* This member's state, shared by its two threads and inject_point(). */
static struct {
    const struct part *part;
    int member;
    const char *_Atomic place; /* where the second thread submits next; NULL: nowhere */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic int state;
    struct operation ops[KINDS];
    int failure;
} me = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static float *guarded(size_t n, float value)
{
    float *p = malloc((n + 1) * sizeof(*p));
    for (size_t i = 0; i < n; i++)
        p[i] = value;
    p[n] = GUARD;
    return p;
}

/* ---- one operation of each kind ---- */

static void prepare(struct operation *o, int kind, int rank, int size)
{
    static const char *const names[KINDS] = {"x.sum",  "x.gather", "x.root", "x.all",
                                             "x.rows", "x.end",    "x.g0",   "x.g1"};
    static const enum hvd_kind kinds[KINDS] = {HVD_ALLREDUCE, HVD_ALLGATHER,     HVD_BROADCAST,
                                               HVD_ALLTOALL,  HVD_REDUCESCATTER, HVD_BARRIER,
                                               HVD_ALLGATHER, HVD_ALLGATHER};
    const int rows[KINDS] = {1, 1, 1, size, ROWS, 0, 1, 1};
    const int out[KINDS] = {1, size, 1, size, ROWS / size, 0, size, size};
    *o = (struct operation){.rank = rank, .size = size, .shape = {rows[kind], WIDE}};
    o->nin = (size_t)rows[kind] * WIDE;
    o->nout = (size_t)out[kind] * WIDE;
    o->in = guarded(o->nin, (float)rank);
    o->out = guarded(o->nout, -1);
    o->request = (struct hvd_request){.kind = kinds[kind],
                                      .name = names[kind],
                                      .input = o->in,
                                      .output = o->out,
                                      .dtype = HVD_FLOAT32,
                                      .ndim = 2,
                                      .shape = o->shape,
                                      .op = HVD_SUM,
                                      .root = me.part->skips < 0 ? size - 1 : 0,
                                      .device = -1,
                                      .output_rows = out[kind]};
}

static int submit_all(void)
{
    int rank = hvd_rank(), size = hvd_size();
    for (int k = 0; k < KINDS; k++)
        prepare(&me.ops[k], k, rank, size);
    for (int k = 0; k < GROUP; k++)
        if (hvd_submit(&me.ops[k].request, 1, &me.ops[k].handle) < 0)
            return FAIL("submit %s: %s", me.ops[k].request.name, hvd_error());
    struct hvd_request group[2] = {me.ops[GROUP].request, me.ops[GROUP + 1].request};
    hvd_handle h[2];
    if (hvd_submit(group, 2, h) < 0)
        return FAIL("submit a group: %s", hvd_error());
    me.ops[GROUP].handle = h[0];
    me.ops[GROUP + 1].handle = h[1];
    return 0;
}

/* Checks this rank's output of an operation to which all ranks contributed except those in lost;
 * lost NULL: every rank contributed. */
static int check_done(const struct operation *o, int kind, const bool *lost)
{
    float sum = 0;
    size_t want = o->nout;
    for (int r = 0; r < o->size; r++)
        sum += lost && lost[r] ? 0 : (float)r;
    if (kind == ALLGATHER || kind == ALLTOALL || kind >= GROUP) {
        struct hvd_result result;
        if (hvd_result(o->handle, &result) < 0)
            return FAIL("result: %s", hvd_error());
        if (result.ranks != o->size)
            return FAIL("%s: parts of %d ranks", o->request.name, result.ranks);
        size_t at = 0;
        for (int r = 0; r < o->size; r++) {
            if (result.splits[r] != (lost && lost[r] ? 0 : 1))
                return FAIL("%s: %d rows from %d", o->request.name, (int)result.splits[r], r);
            for (int i = 0; result.splits[r] && i < WIDE; i++, at++)
                if (((const float *)result.data)[at] != (float)r)
                    return FAIL("%s: row of %d is wrong", o->request.name, r);
        }
        hvd_release(o->handle);
        return 0;
    }
    float value = kind == BROADCAST ? (float)o->request.root : sum;
    for (size_t i = 0; kind != BARRIER && i < want; i++)
        if (o->out[i] != value)
            return FAIL("%s: element %zu is %g", o->request.name, i, (double)o->out[i]);
    return 0;
}

static int check_untouched(const struct operation *o)
{
    for (size_t i = 0; i < o->nin; i++)
        if (o->in[i] != (float)o->rank)
            return FAIL("%s: its input was changed", o->request.name);
    for (size_t i = 0; i < o->nout; i++)
        if (o->out[i] != -1)
            return FAIL("%s: its output was changed", o->request.name);
    return 0;
}

/* Waits for all operations and checks them. expected: the return code of each, 0 or -errno. */
static int wait_all(int expected, const bool *lost)
{
    int bad = 0;
    for (int k = 0; k < KINDS; k++) {
        struct operation *o = &me.ops[k];
        int want = expected == 0 && k == BROADCAST && lost && lost[o->request.root] ? -EOWNERDEAD
                                                                                    : expected;
        o->rc = hvd_wait(o->handle);
        if (o->rc != want && !bad)
            bad = FAIL("%s: %d and not %d: %s", o->request.name, o->rc, want,
                       o->rc < 0 ? hvd_error() : "");
        if (!bad)
            bad = o->rc == 0 ? check_done(o, k, lost) : check_untouched(o);
        if (!bad && (o->in[o->nin] != GUARD || o->out[o->nout] != GUARD))
            bad = FAIL("%s: written behind its memory", o->request.name);
        free(o->in);
        free(o->out);
    }
    return bad;
}

/* ---- the second thread ---- */

static void go_to(int state)
{
    pthread_mutex_lock(&me.lock);
    me.state = state;
    pthread_cond_broadcast(&me.changed);
    pthread_mutex_unlock(&me.lock);
}

static void await(int state)
{
    pthread_mutex_lock(&me.lock);
    while (me.state != state && me.state != OVER)
        pthread_cond_wait(&me.changed, &me.lock);
    pthread_mutex_unlock(&me.lock);
}

static void *submitter(void *arg)
{
    (void)arg;
    for (;;) {
        await(WANTED);
        if (me.state == OVER)
            return NULL;
        me.failure = submit_all();
        go_to(SUBMITTED);
    }
}

/* Replaces inject_point() of base/inject. */
void inject_point(const char *place)
{
    if (!me.place || strcmp(me.place, place) != 0 || me.state != NOTHING)
        return;
    while (me.part->late && me.member == 1 && !atomic_load(&me.part->board->entered[0]))
        nap_ms(1);
    if (me.member == me.part->skips)
        return;
    go_to(WANTED);
    await(SUBMITTED);
}

/* ---- the members ---- */

/* Runs steps until this member enters another world. */
static int step_on(struct board *b, int member)
{
    int rc = 0;
    for (int step = 1; rc == 0; step++) {
        float one = 1;
        if (hvd_allreduce("step", &one, &one, 1, HVD_FLOAT32, HVD_SUM) < 0)
            return FAIL("step %d: %s", step, hvd_error());
        if (member == 0)
            atomic_store(&b->at, step);
        rc = hvd_commit();
        if (rc < 0)
            return FAIL("commit: %s", hvd_error());
    }
    atomic_fetch_add(&b->entered[member], 1);
    return 0;
}

static int train(int member, void *arg)
{
    const struct part *p = arg;
    pthread_t thread;
    me.part = p;
    me.member = member;
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    hvd_world(&w);
    int rc = pthread_create(&thread, NULL, submitter, NULL);
    if (!w.is_new) {
        me.place = p->place;
        rc = step_on(p->board, member);
        if (rc == 0 && me.state == NOTHING) /* after the boundary */
            rc = submit_all();
        rc = rc ? rc : me.failure;
        rc = rc ? rc : wait_all(p->expected, p->any_lost ? p->lost : NULL);
        me.place = NULL;
    }
    /* Checks the new world on all of its ranks. */
    if (rc == 0 && hvd_size() != p->ranks)
        rc = FAIL("a world of %d", hvd_size());
    rc = rc ? rc : submit_all();
    rc = rc ? rc : wait_all(0, NULL);
    struct hvd_request r = me.ops[0].request;
    hvd_handle h;
    float x = 0;
    r.input = r.output = &x;
    r.ndim = 0;
    r.epoch = w.epoch + 1000;
    if (rc == 0 && hvd_submit(&r, 1, &h) != -ESTALE)
        rc = FAIL("a request for another epoch is taken");
    go_to(OVER);
    pthread_join(thread, NULL);
    hvd_shutdown();
    return rc;
}

static void finish(struct elastic *job, int killed)
{
    assert_true(elastic_run(job, elastic_all_over, NULL, LIMIT));
    for (int m = 0; m < job->n; m++)
        if (m != killed)
            assert_int_equal(job->members[m].status, 0);
    elastic_fini(job);
}

static const char *const one[] = {"HVD_X=1", NULL}, *const many[] = {"HVD_SHM=0", NULL};

static struct part *fresh_part(const struct part *p)
{
    static struct part *part;
    if (!part)
        part = world_shared(sizeof(*part));
    *part = *p;
    part->board = world_board(sizeof(*part->board));
    return part;
}

/* From 2 to 4 ranks, in one change. */
static void test_grows(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct part *p = fresh_part(
            &(struct part){.place = "change", .skips = -1, .expected = -ESTALE, .ranks = 4});
        struct elastic job;
        elastic_init(&job);
        for (int m = 0; m < 2; m++)
            elastic_add(&job, train, p, i ? many : one);
        assert_true(elastic_run_to(&job, &p->board->at, 2, LIMIT));
        for (int m = 0; m < 2; m++)
            elastic_add(&job, train, p, i ? many : one);
        assert_true(elastic_run(&job, elastic_joiners_wait, &(int){2}, LIMIT));
        elastic_announce(&job);
        finish(&job, -1);
    }
}

static int leave(int member, void *arg)
{
    const struct part *p = arg;
    int rc = 0;
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    while (rc == 0) {
        float one_more = 1;
        if (hvd_allreduce("step", &one_more, &one_more, 1, HVD_FLOAT32, HVD_SUM) < 0)
            return FAIL("step: %s", hvd_error());
        rc = hvd_commit();
    }
    atomic_fetch_add(&p->board->entered[member], 1);
    hvd_shutdown();
    return rc == -ESHUTDOWN ? 0 : FAIL("commit of one that is to leave: %d", rc);
}

/* From 4 to 2 ranks. */
static void test_shrinks(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct part *p = fresh_part(
            &(struct part){.place = "change", .skips = -1, .expected = -ESTALE, .ranks = 2});
        struct elastic job;
        elastic_init(&job);
        for (int m = 0; m < 4; m++)
            elastic_add(&job, m < 2 ? train : leave, p, i ? many : one);
        assert_true(elastic_run_to(&job, &p->board->at, 2, LIMIT));
        job.members[2].leaving = job.members[3].leaving = true;
        elastic_announce(&job);
        finish(&job, -1);
    }
}

/* Rank 3 is lost. The others submit where part says when they reach their boundary; if part->late,
 * rank 1 submits only when rank 0 is past its boundary. */
static void lose(const struct part *part)
{
    for (int i = 0; i < 2; i++) {
        struct part *p = fresh_part(part);
        struct elastic job;
        elastic_init(&job);
        for (int m = 0; m < 4; m++)
            elastic_add(&job, train, p, i ? many : one);
        assert_true(elastic_run_to(&job, &p->board->at, 2, LIMIT));
        kill(job.members[3].pid, SIGKILL);
        finish(&job, 3);
    }
}

static void test_loss(void **state)
{
    lose(&(struct part){.place = "view",
                        .skips = -1,
                        .late = true,
                        .expected = 0,
                        .ranks = 3,
                        .lost = {[3] = true},
                        .any_lost = true});
}

static void test_loss_and_ranks_differ(void **state)
{
    lose(&(struct part){.place = "view", .skips = 2, .expected = -ESTALE, .ranks = 3});
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows),
        cmocka_unit_test(test_shrinks),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_loss_and_ranks_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
