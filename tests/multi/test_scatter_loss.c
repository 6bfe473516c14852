/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduce-scatter on one host when a rank is lost: an operation that a slow survivor finishes from
 * staging; elastic worlds whose ranks are killed in the middle.
 *
 * timeout: 300
 * takes: 6 s
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "tests/harness/coll_rank.h"
#include "tests/harness/deaths.h"
#include "tests/harness/effort.h"
#include "tests/harness/pattern.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define SEEDS effort(6)
#define BASE  (EFFORT_WHOLE ? 40000 : EFFORT_LEAST ? 5000 : 10000) /* rows */

/* ---- how survivors finish an operation ----------------------------------------------------- */

enum { SETTLERS = 3, SLOW = 1 };

#define ONE_HOST "aaa"

/* Two places where all ranks meet, each used once. */
struct shared {
    _Atomic int arrived[2];
};

static void meet(struct shared *s, int which)
{
    uint64_t deadline = deadline_in_ms(20000);
    atomic_fetch_add(&s->arrived[which], 1);
    while (atomic_load(&s->arrived[which]) < SETTLERS && !deadline_passed(deadline))
        usleep(100);
}

/* Each rank gets n elements. The slow rank's output is at the beginning of its input. */
static struct coll_op settle_op(struct coll_rank *r, struct coll_tensor *t, const size_t *counts)
{
    struct coll_op op = coll_rank_op(r, HVD_REDUCESCATTER, HVD_INT64, HVD_SUM, t, 1);
    op.recv_counts = counts;
    return op;
}

/* Not all ranks have started: nothing is final, and nothing was written. */
static int check_nothing(struct coll_rank *r, const struct coll_op *op)
{
    struct coll_standing st;
    struct coll_rest rest = {0};
    const struct coll_tensor *t = op->tensors;
    int rc = coll_start(r->coll, op, NULL);
    rc = rc < 0 ? rc : coll_progress(r->coll);
    if (rc != 1)
        return rc < 0 ? rc : -EBADMSG;
    coll_standing(r->coll, &st);
    if (!st.started || st.whole || st.pieces != 1 || st.final[0] != 0)
        return -EBADMSG;
    rc = coll_settle(r->coll, st.final, &rest);
    return rc < 0 || rest.n > 0 ? -EBADMSG
           : pattern_check(HVD_INT64, HVD_SUM, 1, 0, t->count, (unsigned)r->mesh->rank, t->in) <
                   t->count
               ? -EINVAL
               : 0;
}

/* All ranks have staged, and the others have finished and overwritten their memory. The slow rank
 * takes its result from the cells, twice. */
static int check_final(struct coll_rank *r, const struct coll_op *op)
{
    struct coll_standing st;
    struct coll_rest rest = {0};
    size_t n = op->recv_counts[0];
    coll_standing(r->coll, &st);
    if (!st.started || st.pieces != 1 || st.final[0] != 1)
        return -EBADMSG;
    for (int i = 0; i < 2; i++) {
        int rc = coll_settle(r->coll, i ? NULL : st.final, &rest);
        if (rc < 0 || rest.n > 0)
            return -EBADMSG;
        for (size_t k = 0; k < n; k++) {
            int64_t due = 0;
            for (unsigned from = 0; from < SETTLERS; from++)
                due += pattern_result(HVD_INT64, HVD_SUM, 1, n * SLOW + k, from);
            if (((const int64_t *)op->tensors[0].out)[k] != due)
                return -EINVAL;
        }
    }
    return 0;
}

static int settle_main(int rank, int size, void *arg)
{
    struct shared *shared = arg;
    enum { EACH = 9000 }; /* fits into a rank's cells */
    static int64_t in[SETTLERS * EACH], out[EACH];
    const size_t counts[SETTLERS] = {EACH, EACH, EACH};
    struct coll_rank r;
    if (coll_rank_open(&r, rank, ONE_HOST) < 0)
        return 10;
    pattern_fill(HVD_INT64, HVD_SUM, 0, 1, 0, SETTLERS * EACH, (unsigned)rank, in);
    struct coll_tensor t = {in, rank == SLOW ? in : out, SETTLERS * EACH};
    struct coll_op op = settle_op(&r, &t, counts);
    /* A first operation, so that staging needs no wait in the next one. */
    struct coll_tensor first = {in, out, SETTLERS * EACH};
    struct coll_op before = settle_op(&r, &first, counts);
    if (coll_rank_run(&r, &before) < 0)
        return 11;
    int rc = rank == SLOW ? check_nothing(&r, &op) : 0;
    meet(shared, 0);
    if (rank != SLOW)
        rc = coll_rank_run(&r, &op);
    memset(rank == SLOW ? (void *)out : in, 0x5a, rank == SLOW ? sizeof(out) : sizeof(in));
    meet(shared, 1);
    if (rank == SLOW && rc == 0)
        rc = check_final(&r, &op);
    if (rc < 0)
        printf("rank %d: %s\n", rank, strerror(-rc));
    coll_cancel(r.coll);
    coll_rank_close(&r);
    return rc < 0 ? 1 : 0;
}

static void test_settle(void **state)
{
    struct shared *shared = world_shared(sizeof(*shared));
    struct world_options o = {.size = SETTLERS, .timeout_s = 60};
    assert_non_null(shared);
    assert_int_equal(world_run_options(&o, settle_main, shared), 0);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

/* The members in a step's sums, a bit each: in some elements, and in all. */
struct found {
    int64_t some, all;
    int view; /* hvd_size() */
};

struct board {
    int64_t rows; /* of each rank */
    struct found found[ELASTIC_MAX][DEATHS_STEPS];
};

static int64_t word(int step, int64_t i)
{
    return 1 + (i + step) % 97;
}

/* Each element names the ranks that contributed to it. If a rank of the view was lost before the
 * operation, a reduce-scatter runs as an allreduce of which each rank takes its part: a second
 * death in it can leave slices that were final next to slices without that rank. Otherwise a rank's
 * part is in all elements or in none. */
static int look_at(const int64_t *got, int64_t n, int step, int64_t first, struct found *ret)
{
    *ret = (struct found){.all = -1, .view = hvd_size()};
    for (int64_t i = 0; i < n; i++) {
        int64_t who = got[i] / word(step, first + i);
        if (got[i] != who * word(step, first + i) || who <= 0 || who >= 1 << DEATHS_MEMBERS)
            return FAIL("step %d: element %d is no sum: %lld", step, (int)i, (long long)got[i]);
        ret->some |= who;
        ret->all &= who;
    }
    if (ret->some != ret->all && __builtin_popcountll((uint64_t)ret->some) == ret->view)
        return FAIL("step %d: some elements are the sum of %llx, some not", step,
                    (unsigned long long)ret->some);
    return 0;
}

static int scatter(int member, int step, void *arg)
{
    struct board *b = arg;
    int size = hvd_size(), rank = hvd_rank();
    int64_t each = step % 4 == 0 ? 11 : b->rows, rows = each * size;
    auto_free int64_t *in = malloc((size_t)rows * sizeof(*in));
    auto_free int64_t *out = malloc((size_t)each * sizeof(*out));
    for (int64_t i = 0; i < rows; i++)
        in[i] = word(step, i) << member;
    struct hvd_request r = {.kind = HVD_REDUCESCATTER,
                            .name = "scatter",
                            .input = in,
                            .output = step % 3 ? in : out,
                            .dtype = HVD_INT64,
                            .ndim = 1,
                            .shape = &rows,
                            .op = HVD_SUM,
                            .device = -1};
    hvd_handle h;
    int rc = hvd_submit(&r, 1, &h);
    if (rc < 0 || (rc = hvd_wait(h)) < 0)
        return FAIL("scatter %d: %s", step, hvd_error());
    return look_at(r.output, each, step, rank * each, &b->found[member][step]);
}

static bool is_mixed(const struct found *a, const struct found *b)
{
    return a->some != a->all || b->some != b->all || a->some != b->some;
}

/* Survivors are in all sums, and no lost rank reappears. Two members see the same sums, except in
 * the one operation in which a rank died after an earlier loss. Returns the number of such
 * operations. */
static int check_sums(const struct board *b, const struct elastic *job, unsigned seed)
{
    const int64_t living = 1 << 0 | 1 << 2;
    int mixed = 0;
    for (int m = 0; m < DEATHS_MEMBERS; m += 2) {
        const struct found *f = b->found[m];
        if (job->members[m].status != 0)
            fail_msg("seed %u: member %d ended with status %x", seed, m, job->members[m].status);
        for (int step = 0; step < DEATHS_STEPS; step++) {
            if (living & ~f[step].all)
                fail_msg("seed %u, step %d: member %d has the sum of %llx only", seed, step, m,
                         (unsigned long long)f[step].all);
            if (step > 0 && (f[step].some & ~f[step - 1].all))
                fail_msg("seed %u, step %d: a lost member is in a sum again", seed, step);
        }
    }
    for (int step = 0; step < DEATHS_STEPS; step++) {
        const struct found *x = &b->found[0][step], *y = &b->found[2][step];
        if (!is_mixed(x, y))
            continue;
        mixed++;
        if (__builtin_popcountll((uint64_t)(x->some | y->some)) == x->view)
            fail_msg("seed %u, step %d: member 0 has the sum of %llx, member 2 of %llx", seed, step,
                     (unsigned long long)x->some, (unsigned long long)y->some);
    }
    if (mixed > 1)
        fail_msg("seed %u: %d steps are the sum of some here and of others there", seed, mixed);
    return mixed;
}

static void run_deaths(struct deaths how, int64_t rows, unsigned seeds)
{
    struct board *b = world_shared(sizeof(*b));
    struct deaths *d = world_shared(sizeof(*d));
    int mixed = 0;
    how.step = scatter;
    how.arg = b;
    memcpy(d, &how, sizeof(*d));
    for (unsigned seed = 1; seed <= seeds; seed++) {
        struct elastic job;
        *b = (struct board){.rows = rows};
        elastic_init(&job);
        if (!deaths_run(&job, d, seed))
            fail_msg("seed %u: the job has not ended within two minutes", seed);
        mixed += check_sums(b, &job, seed);
        elastic_fini(&job);
    }
    print_message("%u jobs, %d with a step of several sums\n", seeds, mixed);
}

static void test_deaths(void **state)
{
    run_deaths((struct deaths){.gap = 16, .within_us = 3000}, BASE, SEEDS);
}

/* Both ranks die before a boundary, most times: the second one sometimes during an operation of
 * which some slices are final. */
static void test_deaths_together(void **state)
{
    run_deaths((struct deaths){.gap = 3, .within_us = 16000}, 10 * BASE, 2 * SEEDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settle),
        cmocka_unit_test(test_deaths),
        cmocka_unit_test(test_deaths_together),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("multi/scatter_loss", tests, NULL, NULL);
}
