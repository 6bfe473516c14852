/* SPDX-License-Identifier: Apache-2.0
 *
 * All-to-all among the ranks of one host, through staging. Random rows of all types: many are
 * empty, some are longer than all staging, and other operations use the same cells between two
 * rounds. In elastic worlds ranks are killed in the middle: each rank's rows then arrive complete
 * or not at all.
 *
 * timeout: 300
 * takes: 40 s
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/cleanup.h"
#include "core/transport/shm.h"
#include "tests/harness/coll_rank.h"
#include "tests/harness/deaths.h"
#include "tests/harness/effort.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define MAX_RANKS 8
#define ROUNDS    effort(60)
#define SEEDS     (unsigned)effort(9)
#define BASE      (EFFORT_WHOLE ? 30000 : 5000) /* rows */

/* ---- against a reference -------------------------------------------------------------------- */

/* Elements from each rank to each other rank: the same table on all ranks. */
struct table {
    enum hvd_dtype dtype;
    size_t rows[MAX_RANKS][MAX_RANKS];
};

static size_t row_length(uint64_t *random, int shape)
{
    switch (shape) {
    case 0: /* a few elements to every rank */
        return rank_random(random) % 70;
    case 1: /* most rows empty */
        return rank_random(random) % 5 ? 0 : rank_random(random) % 100000;
    case 2: /* around the sizes of cells */
        return (64u << 10) * (1 + rank_random(random) % 3) + rank_random(random) % 5 - 2;
    default:
        return rank_random(random) % 3 ? rank_random(random) % 3000 : 0;
    }
}

static void make_table(struct table *t, int size, uint64_t *random)
{
    int shape = (int)(rank_random(random) % 5);
    t->dtype = (enum hvd_dtype)(rank_random(random) % HVD_DTYPES);
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++)
            t->rows[i][j] = row_length(random, shape);
    /* One row that is longer than a rank's staging, all others empty. */
    if (shape == 4) {
        memset(t->rows, 0, sizeof(t->rows));
        int from = (int)(rank_random(random) % (unsigned)size);
        int to = (int)(rank_random(random) % (unsigned)size);
        t->rows[from][to] = (4u << 20) / hvd_dtype_size(t->dtype) + rank_random(random) % 1000;
    }
}

static uint8_t mark(int from, int to, size_t i, int round)
{
    return (uint8_t)((unsigned)from * 37 + (unsigned)to * 11 + (unsigned)round * 5 + i + i / 251);
}

static int check_rows(const struct table *t, int rank, int size, int round, const uint8_t *out)
{
    size_t elem = hvd_dtype_size(t->dtype);
    for (int from = 0; from < size; from++)
        for (size_t i = 0; i < t->rows[from][rank] * elem; i++)
            if (*out++ != mark(from, rank, i, round)) {
                printf("rank %d of %d, round %d: byte %zu from rank %d is wrong\n", rank, size,
                       round, i, from);
                return -EBADMSG;
            }
    return *out == 0xee ? 0 : -EOVERFLOW;
}

static int one_round(struct coll_rank *r, const struct table *t, int round)
{
    int rank = r->mesh->rank, size = r->mesh->size;
    size_t to[MAX_RANKS], from[MAX_RANKS], sent = 0, received = 0;
    size_t elem = hvd_dtype_size(t->dtype), at = 0;
    for (int i = 0; i < size; i++) {
        sent += to[i] = t->rows[rank][i];
        received += from[i] = t->rows[i][rank];
    }
    auto_free uint8_t *in = malloc(sent * elem + 1), *out = malloc(received * elem + 1);
    if (!in || !out)
        return -ENOMEM;
    memset(out, 0xee, received * elem + 1);
    for (int i = 0; i < size; i++)
        for (size_t k = 0; k < to[i] * elem; k++)
            in[at++] = mark(rank, i, k, round);
    struct coll_tensor tensor = {in, out, sent};
    struct coll_op op = coll_rank_op(r, HVD_ALLTOALL, t->dtype, HVD_SUM, &tensor, 1);
    op.send_counts = to;
    op.recv_counts = from;
    int rc = coll_rank_run(r, &op);
    if (rc == 0 && size > 1 && strcmp(coll_algorithm(r->coll), "shm_alltoall") != 0)
        rc = -ENOTSUP;
    memset(in, 0x5a, sent * elem + 1);
    return rc < 0 ? rc : check_rows(t, rank, size, round, out);
}

static int reference_main(int rank, int size, void *arg)
{
    struct coll_rank r;
    struct table t;
    uint64_t random = (uint64_t)size;
    if (coll_rank_open(&r, rank, arg) < 0)
        return 10;
    int rc = 0;
    for (int round = 0; round < ROUNDS && rc == 0; round++) {
        make_table(&t, size, &random);
        rc = one_round(&r, &t, round);
        if (rc == 0 && round % 4 == 0)
            rc = coll_rank_sum(&r, round % 8 ? 20 : 300000);
    }
    if (rc < 0)
        printf("rank %d: %s\n", rank, strerror(-rc));
    coll_rank_close(&r);
    return rc < 0 ? 1 : 0;
}

static void test_reference(void **state)
{
    char hosts[] = "aaaaaaaa";
    for (int size = 1; size <= MAX_RANKS; size++) {
        char *layout = hosts + MAX_RANKS - size;
        struct world_options o = {.size = size, .timeout_s = 150};
        assert_int_equal(world_run_options(&o, reference_main, layout), 0);
    }
}

/* A table with impossible values fails the operation. Nothing is read outside the cell. */
static int nonsense_main(int rank, int size, void *arg)
{
    struct coll_rank r;
    size_t parts[2] = {70000, 70000};
    static uint8_t in[140000], out[140000];
    if (coll_rank_open(&r, rank, arg) < 0)
        return 10;
    r.quiet = true;
    struct coll_tensor t = {in, out, 140000};
    struct coll_op op = coll_rank_op(&r, HVD_ALLTOALL, HVD_UINT8, HVD_SUM, &t, 1);
    op.send_counts = op.recv_counts = parts;
    int rc = coll_start(r.coll, &op, NULL);
    if (rank == 0)
        shm_tables_of(r.mesh->shm, 0)[0].place[1] = 0xffff;
    for (int i = 0; i < 20000 && rc == 0; i++) {
        rc = coll_progress(r.coll);
        usleep(rc == 1 ? 100 : 0);
        rc = rc == 1 ? 0 : rc == 0 ? 1 : rc;
    }
    coll_destroy(r.coll);
    r.coll = NULL;
    coll_rank_close(&r);
    return rank == 1 ? rc != -EPROTO : 0;
}

static void test_nonsense(void **state)
{
    char hosts[] = "aa";
    struct world_options o = {.size = 2, .timeout_s = 60};
    assert_int_equal(world_run_options(&o, nonsense_main, hosts), 0);
}

/* ---- deaths --------------------------------------------------------------------------------- */

/* Rows in this step: some to every rank, or many from one rank to one other and no others, as when
 * a joiner gets the training state. */
static int64_t rows_of(int step, int size, int from, int to)
{
    if (step % 2 == 0)
        return from == step / 2 % size && to == (step / 2 + 1) % size ? 24 * BASE + 1 : 0;
    return BASE * (1 + (from + to + step) % 4);
}

/* An element's value names the step, the sender and the receiver. */
static int32_t word(int step, int from, int to)
{
    return step * 10000 + from * 100 + to;
}

static int check_exchange(const struct hvd_result *res, int step, int size)
{
    const int32_t *data = res->data;
    const int me = hvd_rank();
    for (int from = 0; from < size; from++) {
        int64_t due = rows_of(step, size, from, me);
        int32_t value = word(step, from, me);
        if (res->splits[from] != 0 && res->splits[from] != due)
            return FAIL("step %d: %d rows from rank %d", step, (int)res->splits[from], from);
        for (int64_t i = 0; i < res->splits[from]; i++)
            if (*data++ != value)
                return FAIL("step %d: row %d from rank %d is wrong", step, (int)i, from);
    }
    return 0;
}

static int exchange(int step)
{
    int64_t to[ELASTIC_MAX], rows = 0, room = 0;
    int size = hvd_size(), me = hvd_rank();
    for (int i = 0; i < size; i++) {
        rows += to[i] = rows_of(step, size, me, i);
        room += rows_of(step, size, i, me);
    }
    auto_free int32_t *in = malloc((size_t)rows * sizeof(*in) + 1);
    auto_free int32_t *out = malloc((size_t)room * sizeof(*out) + 1);
    for (int i = 0, at = 0; i < size; i++)
        for (int64_t k = 0, value = word(step, me, i); k < to[i]; k++)
            in[at++] = (int32_t)value;
    struct hvd_request r = {.kind = HVD_ALLTOALL,
                            .name = "exchange",
                            .input = in,
                            .output = step % 3 ? out : NULL,
                            .output_rows = room,
                            .dtype = HVD_INT32,
                            .ndim = 1,
                            .shape = &rows,
                            .splits = to,
                            .device = -1};
    struct hvd_result res;
    hvd_handle h;
    int rc = hvd_submit(&r, 1, &h);
    if (rc < 0 || (rc = hvd_wait(h)) < 0)
        return FAIL("exchange %d: %s", step, hvd_error());
    memset(in, 0x5a, (size_t)rows * sizeof(*in));
    hvd_result(h, &res);
    rc = check_exchange(&res, step, size);
    hvd_release(h);
    return rc;
}

static int death_step(int member, int step, void *arg)
{
    (void)member, (void)arg;
    return exchange(step);
}

static void test_deaths(void **state)
{
    struct deaths *d = world_shared(sizeof(*d));
    d->step = death_step;
    d->gap = 16;
    d->within_us = 3000;
    deaths_run_all(d, SEEDS);
}

/* The ranks' splits change in each step, and the schedule freezes nevertheless. */
static int changing(int rank, int size, void *arg)
{
    struct hvd_stats stats = {.size = sizeof(stats)};
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int step = 0; step < 200; step++) {
        int rc = exchange(step);
        if (rc)
            return rc;
    }
    hvd_stats(&stats);
    if (stats.frozen < 150 || stats.thaws > 0)
        return FAIL("%d frozen, %d thaws", (int)stats.frozen, (int)stats.thaws);
    return hvd_shutdown() != 0;
}

static void test_changing(void **state)
{
    for (int size = 1; size <= 4; size += 3)
        assert_int_equal(world_run(size, changing, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_changing),
        cmocka_unit_test(test_deaths),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("multi/alltoall", tests, NULL, NULL);
}
