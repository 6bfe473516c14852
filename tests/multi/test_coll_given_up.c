/* SPDX-License-Identifier: Apache-2.0
 *
 * Of three ranks on one host one gives the epoch up while another has an operation nearly done:
 * what the first one reports and what the other one returns are never apart. Each case is a given
 * order of what the ranks do: a word in shared memory says whose turn it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "tests/harness/coll_rank.h"
#include "tests/harness/world.h"

/* Gives up and reports; may finish; only helps. */
enum { QUITTER, LAST, HELPER, RANKS };

/* Whose turn it is to work (to start, if it has not yet, and to get as far as it gets), a letter
 * each: Q, L, H; q: QUITTER gives up, and then looks. */
#define BEHIND_REPORT       "QHqL"   /* LAST comes when the report is out */
#define SLICE_BEHIND_REPORT "LQHQqL" /* it has staged before; its slice is summed only then */
#define BEFORE_REPORT       "QHLq"
#define SLICE_BEFORE_REPORT "LQHQLq"

struct job {
    const char *name;
    enum hvd_kind kind;
    size_t count; /* floats that a rank gives; of each part, where it has parts */
    const char *turns;
    bool inelastic;
    struct seen {
        _Atomic int turn;
        _Atomic int last_rc;      /* of LAST's final turn: coll_progress() */
        _Atomic int said, agreed; /* pieces that are final: in the report; as LAST sees it */
        _Atomic int wrong;        /* elements of LAST's result */
    } * seen;
};

static size_t parts_of(enum hvd_kind kind)
{
    return kind == HVD_ALLTOALL || kind == HVD_REDUCESCATTER ? RANKS : 1;
}

static size_t results_of(const struct job *job)
{
    bool many = job->kind == HVD_ALLTOALL || job->kind == HVD_ALLGATHER;
    return job->count * (many ? RANKS : 1);
}

static float expected(const struct job *job, size_t i)
{
    switch (job->kind) {
    case HVD_ALLTOALL:
    case HVD_ALLGATHER:
        return (float)(i / job->count + 1);
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

static int final_pieces(const struct coll_rank *r)
{
    struct coll_standing st;
    int n = 0;
    coll_standing(r->coll, &st);
    for (uint32_t i = 0; i < st.pieces; i++)
        n += st.final[i] > 0;
    return n == (int)st.pieces ? n : -n;
}

/* The rest of it comes from the segment. */
static int settle(const struct coll_rank *r, const struct job *job, const float *out)
{
    struct coll_rest rest = {0};
    int rc = coll_settle(r->coll, NULL, &rest);
    atomic_store(&job->seen->wrong, rc < 0 || rest.n > 0 ? -1 : wrong_in(job, out));
    coll_rest_fini(&rest);
    return rc;
}

static int take_turn(struct coll_rank *r, const struct job *job, const struct coll_op *op,
                     char turn, bool *started)
{
    struct err err = {0};
    if (turn == 'q') {
        mesh_abort(r->mesh, "the test has it so");
        atomic_store(&job->seen->said, final_pieces(r));
        return 0;
    }
    if (!*started && coll_start(r->coll, op, &err) < 0)
        return 11;
    *started = true;
    int rc = 1;
    for (int i = 0; i < 10 && rc == 1; i++)
        rc = coll_progress(r->coll);
    if (r->mesh->rank != LAST)
        return 0;
    atomic_store(&job->seen->last_rc, rc);
    atomic_store(&job->seen->agreed, final_pieces(r));
    if (rc == -ECONNRESET && settle(r, job, op->tensors[0].out) < 0)
        return 12;
    return 0;
}

static int whose(char turn)
{
    return turn == 'L' ? LAST : turn == 'H' ? HELPER : QUITTER;
}

static int play(struct coll_rank *r, const struct job *job, const struct coll_op *op)
{
    uint64_t deadline = deadline_in_ms(20000);
    bool started = false;
    for (int at = 0; job->turns[at]; at++) {
        while (atomic_load(&job->seen->turn) < at && !deadline_passed(deadline))
            usleep(100);
        if (whose(job->turns[at]) != r->mesh->rank)
            continue;
        int rc = take_turn(r, job, op, job->turns[at], &started);
        atomic_store(&job->seen->turn, at + 1);
        if (rc != 0)
            return rc;
    }
    return deadline_passed(deadline) ? 13 : 0;
}

static int rank_main(int rank, int size, void *arg)
{
    const struct job *job = arg;
    size_t parts[RANKS], n = job->count * parts_of(job->kind);
    struct coll_rank r;
    if (coll_rank_open(&r, rank, "aaa") < 0)
        return 10;
    if (!job->inelastic)
        coll_set_elastic(r.coll);
    auto_free float *in = calloc(n, sizeof(*in));
    auto_free float *out = calloc(job->count * (size_t)size, sizeof(*out));
    for (size_t i = 0; in && i < n; i++)
        in[i] = (float)(1 + rank);
    struct coll_tensor t = {in, out, n};
    struct coll_op op = coll_rank_op(&r, job->kind, HVD_FLOAT32, HVD_SUM, &t, 1);
    for (int i = 0; i < size; i++)
        parts[i] = job->count;
    op.send_counts = op.recv_counts = parts;
    op.root = LAST;
    /* Nobody writes to the segment before all have come to it. */
    struct coll_op barrier = coll_rank_op(&r, HVD_BARRIER, HVD_FLOAT32, HVD_SUM, NULL, 0);
    int rc = in && out ? coll_rank_run(&r, &barrier) : 14;
    if (rc == 0)
        rc = play(&r, job, &op);
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
    print_message("%s\n", job->name);
    assert_int_equal(world_start(&o, rank_main, job, &w), 0);
    world_wait(w, status);
    for (int i = 0; i < RANKS; i++) {
        assert_true(WIFEXITED(status[i]));
        assert_int_equal(WEXITSTATUS(status[i]), 0);
    }
}

/* Done here, and the report does not say so: it is not returned, and LAST reports that it is. */
static void test_not_returned(void **state)
{
    struct job jobs[] = {
        {"beside the flags", HVD_ALLREDUCE, 3, .turns = BEHIND_REPORT},
        {"symmetric", HVD_ALLREDUCE, 3000, .turns = BEHIND_REPORT},
        {"slice owners", HVD_ALLREDUCE, 150000, .turns = SLICE_BEHIND_REPORT},
        {"allgather", HVD_ALLGATHER, 100, .turns = BEHIND_REPORT},
        {"broadcast", HVD_BROADCAST, 100, .turns = BEHIND_REPORT},
        {"alltoall", HVD_ALLTOALL, 100, .turns = BEHIND_REPORT},
        {"reducescatter", HVD_REDUCESCATTER, 100, .turns = BEHIND_REPORT},
    };
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        run(&jobs[i]);
        assert_true(jobs[i].seen->said <= 0);
        assert_int_equal(jobs[i].seen->last_rc, -ECONNRESET);
        assert_true(jobs[i].seen->agreed > 0);
        assert_int_equal(jobs[i].seen->wrong, 0);
    }
}

/* Returned, and then the report says so, whatever becomes of LAST. */
static void test_reported(void **state)
{
    struct job jobs[] = {
        {"beside the flags", HVD_ALLREDUCE, 3, .turns = BEFORE_REPORT},
        {"symmetric", HVD_ALLREDUCE, 3000, .turns = BEFORE_REPORT},
        {"slice owners", HVD_ALLREDUCE, 150000, .turns = SLICE_BEFORE_REPORT},
        {"allgather", HVD_ALLGATHER, 100, .turns = BEFORE_REPORT},
        {"broadcast", HVD_BROADCAST, 100, .turns = BEFORE_REPORT},
        {"alltoall", HVD_ALLTOALL, 100, .turns = BEFORE_REPORT},
        {"reducescatter", HVD_REDUCESCATTER, 100, .turns = BEFORE_REPORT},
    };
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        run(&jobs[i]);
        assert_int_equal(jobs[i].seen->last_rc, 0);
        assert_true(jobs[i].seen->said > 0);
    }
}

/* Nobody goes on behind a loss: whoever has a result keeps it. */
static void test_inelastic(void **state)
{
    struct job job = {"inelastic", HVD_ALLREDUCE, 3000, .turns = BEHIND_REPORT, .inelastic = true};
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
