/* SPDX-License-Identifier: Apache-2.0
 *
 * Of three ranks on one host one gives the epoch up while another one is about to finish an
 * operation. The report of the first and the return value of the second must always agree. Each
 * case prescribes the order in which the ranks work: a word in shared memory names the rank whose
 * turn it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/transport/shm.h"
#include "tests/harness/coll_rank.h"
#include "tests/harness/world.h"

/* QUITTER gives the epoch up and reports; LAST may finish; HELPER only takes part. */
enum { QUITTER, LAST, HELPER, RANKS };

/* The order of turns, one letter each: in its turn Q, L or H starts the operation if it has not
 * yet, and progresses as far as it can. In the turn q QUITTER gives the epoch up and reports. */
#define BEHIND_REPORT       "QHqL"   /* LAST stages after the report */
#define SLICE_BEHIND_REPORT "LQHQqL" /* LAST stages early, its slice is summed after the report */
#define BEFORE_REPORT       "QHLq"
#define SLICE_BEFORE_REPORT "LQHQLq"

/* A kind and size of operation. */
struct way {
    const char *name;
    enum hvd_kind kind;
    size_t count; /* floats of input for each rank, or for each part where the kind has parts */
    bool slices;  /* each owner sums a slice */
    bool in_place;
};

struct job {
    struct way way;
    const char *turns;
    bool inelastic;
    struct seen {
        _Atomic int ready; /* ranks that have passed the barrier */
        _Atomic int turn;
        _Atomic int last_rc;             /* of LAST's final turn: coll_progress() */
        _Atomic int said, agreed;        /* pieces that are final: in the report; in LAST's view */
        _Atomic uint32_t decided[RANKS]; /* how far each piece is, as LAST sees it */
        _Atomic int wrong[RANKS];        /* wrong elements of the result; -1: no result available */
    } * seen;
};

static size_t parts_of(enum hvd_kind kind)
{
    return kind == HVD_ALLTOALL || kind == HVD_REDUCESCATTER ? RANKS : 1;
}

static size_t results_of(const struct job *job)
{
    bool many = job->way.kind == HVD_ALLTOALL || job->way.kind == HVD_ALLGATHER;
    return job->way.count * (many ? RANKS : 1);
}

static float expected(const struct job *job, size_t i)
{
    switch (job->way.kind) {
    case HVD_ALLTOALL:
    case HVD_ALLGATHER:
        return (float)(i / job->way.count + 1);
    case HVD_BROADCAST:
        return 1 + LAST;
    default:
        return 1 + 2 + 3;
    }
}

static int wrong_in(const struct job *job, const float *out)
{
    int wrong = 0;
    for (size_t i = 0; i < results_of(job); i++)
        wrong += out[i] != expected(job, i);
    return wrong;
}

/* The number of final pieces; negative or 0 if not all are final. */
static int final_pieces(const struct coll_standing *st)
{
    int n = 0;
    for (uint32_t i = 0; i < st->pieces; i++)
        n += st->final[i] > 0;
    return n == (int)st->pieces ? n : -n;
}

static int report(struct coll_rank *r, struct seen *seen)
{
    struct coll_standing st;
    mesh_abort(r->mesh, "the test has it so");
    coll_standing(r->coll, &st);
    atomic_store(&seen->said, final_pieces(&st));
    return st.started ? 0 : 11;
}

static int work(struct coll_rank *r, struct seen *seen, const struct coll_op *op, bool *started)
{
    struct coll_standing st;
    struct err err = {0};
    if (!*started && coll_start(r->coll, op, &err) < 0)
        return 12;
    *started = true;
    int rc = 1;
    for (int i = 0; i < 10 && rc == 1; i++)
        rc = coll_progress(r->coll);
    if (r->mesh->rank != LAST)
        return 0;
    coll_standing(r->coll, &st);
    atomic_store(&seen->last_rc, rc);
    atomic_store(&seen->agreed, final_pieces(&st));
    for (uint32_t i = 0; i < st.pieces && i < RANKS; i++)
        atomic_store(&seen->decided[i], st.final[i]);
    return 0;
}

static int whose(char turn)
{
    return turn == 'L' ? LAST : turn == 'H' ? HELPER : QUITTER;
}

static int wait_for(const _Atomic int *word, int least)
{
    uint64_t deadline = deadline_in_ms(20000);
    while (atomic_load(word) < least)
        if (deadline_passed(deadline) || usleep(100) < 0)
            return 13;
    return 0;
}

static int play(struct coll_rank *r, const struct job *job, const struct coll_op *op)
{
    struct seen *seen = job->seen;
    bool started = false;
    atomic_fetch_add(&seen->ready, 1);
    int rc = wait_for(&seen->ready, RANKS);
    for (int at = 0; job->turns[at] && rc == 0; at++) {
        rc = wait_for(&seen->turn, at);
        if (whose(job->turns[at]) != r->mesh->rank || rc != 0)
            continue;
        rc = job->turns[at] == 'q' ? report(r, seen) : work(r, seen, op, &started);
        atomic_store(&seen->turn, at + 1);
    }
    return rc ? rc : wait_for(&seen->turn, (int)strlen(job->turns));
}

/* What a survivor does next: LAST has returned the result, or reports. */
static void settle(struct coll_rank *r, const struct job *job, const float *out)
{
    struct seen *seen = job->seen;
    struct coll_rest rest = {0};
    uint32_t final[RANKS];
    for (int i = 0; i < RANKS; i++)
        final[i] = atomic_load(&seen->decided[i]);
    int rc = coll_settle(r->coll, atomic_load(&seen->last_rc) == 0 ? NULL : final, &rest);
    atomic_store(&seen->wrong[r->mesh->rank], rc < 0 || rest.n > 0 ? -1 : wrong_in(job, out));
    coll_rest_fini(&rest);
}

static int rank_main(int rank, int size, void *arg)
{
    const struct job *job = arg;
    size_t parts[RANKS], n = job->way.count * parts_of(job->way.kind);
    struct coll_rank r;
    if (coll_rank_open(&r, rank, "aaa") < 0)
        return 10;
    if (!job->inelastic)
        coll_set_elastic(r.coll);
    r.mesh->shm->cache_size = (size_t)16 << 20; /* a slice has no more steps than cells */
    auto_free float *in = calloc(n, sizeof(*in));
    auto_free float *out = calloc(job->way.count * (size_t)size, sizeof(*out));
    for (size_t i = 0; in && i < n; i++)
        in[i] = (float)(1 + rank);
    struct coll_tensor t = {in, job->way.in_place ? in : out, n};
    struct coll_op op = coll_rank_op(&r, job->way.kind, HVD_FLOAT32, HVD_SUM, &t, 1);
    for (int i = 0; i < size; i++)
        parts[i] = job->way.count;
    op.send_counts = op.recv_counts = parts;
    op.root = LAST;
    /* No rank may write to the segment before all have attached. */
    struct coll_op barrier = coll_rank_op(&r, HVD_BARRIER, HVD_FLOAT32, HVD_SUM, NULL, 0);
    int rc = in && out ? coll_rank_run(&r, &barrier) : 14;
    if (rc == 0)
        rc = play(&r, job, &op);
    if (rc == 0)
        settle(&r, job, t.out);
    coll_destroy(r.coll);
    mesh_destroy(r.mesh);
    boot_fini(&r.boot);
    return rc;
}

static void run(struct job *job)
{
    struct world_options o = {.size = RANKS, .timeout_s = 40};
    int status[RANKS];
    struct world *w = NULL;
    job->seen = world_shared(sizeof(*job->seen));
    assert_non_null(job->seen);
    print_message("%s\n", job->way.name);
    assert_int_equal(world_start(&o, rank_main, job, &w), 0);
    world_wait(w, status);
    for (int i = 0; i < RANKS; i++) {
        assert_true(WIFEXITED(status[i]));
        assert_int_equal(WEXITSTATUS(status[i]), 0);
    }
}

static void check_results(const struct job *job)
{
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(job->seen->wrong[i], 0);
}

static const struct way ways[] = {
    {"beside the flags", HVD_ALLREDUCE, 3, false, false},
    {"symmetric", HVD_ALLREDUCE, 3000, false, false},
    {"slice owners", HVD_ALLREDUCE, 150000, true, false},
    {"beside the flags, in place", HVD_ALLREDUCE, 3, false, true},
    {"symmetric, in place", HVD_ALLREDUCE, 3000, false, true},
    {"slice owners, in place", HVD_ALLREDUCE, 150000, true, true},
    {"allgather", HVD_ALLGATHER, 100, false, false},
    {"broadcast", HVD_BROADCAST, 100, false, false},
    {"alltoall", HVD_ALLTOALL, 100, false, false},
    {"reducescatter", HVD_REDUCESCATTER, 100, false, false},
};

/* Runs each operation in this order of turns: check must accept what the ranks saw, and every rank
 * must have the right result. */
static void run_all(const char *turns, const char *slice_turns, void (*check)(const struct seen *))
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct job job = {.way = ways[i], .turns = ways[i].slices ? slice_turns : turns};
        run(&job);
        check(job.seen);
        check_results(&job);
    }
}

static void is_reported_by_last(const struct seen *seen)
{
    assert_true(seen->said <= 0);
    assert_int_equal(seen->last_rc, -ECONNRESET);
    assert_true(seen->agreed > 0);
}

/* LAST has the result, but QUITTER's report does not contain it: LAST must not return it, and must
 * report it. */
static void test_not_returned(void **state)
{
    run_all(BEHIND_REPORT, SLICE_BEHIND_REPORT, is_reported_by_last);
}

static void is_returned_and_reported(const struct seen *seen)
{
    assert_int_equal(seen->last_rc, 0);
    assert_true(seen->said > 0);
}

/* LAST has returned the result: QUITTER's report must contain it. */
static void test_reported(void **state)
{
    run_all(BEFORE_REPORT, SLICE_BEFORE_REPORT, is_returned_and_reported);
}

/* In a fixed job no rank continues after a loss: a rank that has the result returns it. */
static void test_inelastic(void **state)
{
    struct job job = {.way = ways[1], .turns = BEHIND_REPORT, .inelastic = true};
    run(&job);
    assert_int_equal(job.seen->last_rc, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_returned),
        cmocka_unit_test(test_reported),
        cmocka_unit_test(test_inelastic),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("multi/coll_given_up", tests, NULL, NULL);
}
