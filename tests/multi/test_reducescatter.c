/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduce-scatter among the ranks of one host, through staging: random parts of all types, many of
 * them empty, the output beside the input and anywhere in it; the same bits as among hosts of one
 * rank each.
 *
 * timeout: 300
 * takes: 7 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/cleanup.h"
#include "core/coll/reduce.h"
#include "tests/harness/coll_rank.h"
#include "tests/harness/effort.h"
#include "tests/harness/pattern.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define MAX_RANKS 8

#define ROUNDS effort(48)

/* ---- against a reference -------------------------------------------------------------------- */

/* Where the output lies. */
enum place { BESIDE, AT_BEGIN, IN_ITS_PART, ACROSS, PLACES };

struct run {
    enum hvd_dtype dtype;
    enum hvd_op op;
    enum place place;
    unsigned salt;
    size_t counts[MAX_RANKS], all,
        first; /* elements of each rank; of all; before this rank's part */
};

static size_t part_length(uint64_t *random, int shape, size_t elem)
{
    switch (shape) {
    case 0:
        return rank_random(random) % 70;
    case 1: /* most parts empty */
        return rank_random(random) % 4 ? 0 : rank_random(random) % 50000;
    case 2: /* around the sizes of slices */
        return (64u << 10) / elem * (1 + rank_random(random) % 5) + rank_random(random) % 5 - 2;
    default:
        return rank_random(random) % 30000;
    }
}

/* Makes the same run on all ranks, except for `first`. */
static void make_run(struct run *u, int rank, int size, int round, uint64_t *random)
{
    int shape = (int)(rank_random(random) % 5);
    *u = (struct run){.dtype = (enum hvd_dtype)(round % REDUCE_DTYPES),
                      .place = (enum place)(rank_random(random) % PLACES),
                      .salt = (unsigned)round};
    enum hvd_op ops[] = {HVD_SUM, HVD_MAX, HVD_AVERAGE};
    u->op = u->dtype == HVD_BOOL ? HVD_MAX : ops[rank_random(random) % 3];
    u->place = size == 1 && u->place == ACROSS ? BESIDE : u->place;
    size_t elem = hvd_dtype_size(u->dtype);
    for (int i = 0; i < size; i++)
        u->counts[i] = part_length(random, shape, elem);
    /* One rank's part is everything, and longer than all staging. */
    if (shape == 4) {
        memset(u->counts, 0, sizeof(u->counts));
        u->counts[rank_random(random) % (unsigned)size] = (2u << 20) / elem + 3;
    }
    for (int i = 0; i < size; i++) {
        u->first = i == rank ? u->all : u->first;
        u->all += u->counts[i];
    }
}

static uint8_t *place_of(const struct run *u, uint8_t *in, uint8_t *out, size_t own)
{
    size_t elem = hvd_dtype_size(u->dtype);
    switch (u->place) {
    case AT_BEGIN:
        return in;
    case IN_ITS_PART:
        return in + u->first * elem;
    case ACROSS: /* over the end of the input */
        return own > 0 ? in + (u->all - 1) * elem : in;
    case BESIDE:
    case PLACES:
        break;
    }
    return out;
}

static int complain(const struct coll_rank *r, const struct run *u, const char *what, size_t at)
{
    printf("rank %d of %d, round %u, %s, place %d: %s %zu\n", r->mesh->rank, r->mesh->size, u->salt,
           hvd_dtype_name(u->dtype), (int)u->place, what, at);
    return -EBADMSG;
}

static int check_run(const struct coll_rank *r, const struct run *u, const uint8_t *got, size_t own,
                     const uint8_t *in, const uint8_t *before)
{
    size_t elem = hvd_dtype_size(u->dtype);
    size_t bad = pattern_check(u->dtype, u->op, r->mesh->size, u->first, own, u->salt, got);
    if (bad < own)
        return complain(r, u, "wrong is element", bad);
    if (got[own * elem] != 0xee && u->place == BESIDE)
        return complain(r, u, "written past the end,", own);
    if (u->place == BESIDE && memcmp(in, before, u->all * elem) != 0)
        return complain(r, u, "the input has changed,", u->all);
    return 0;
}

static int one_round(struct coll_rank *r, const struct run *u)
{
    int rank = r->mesh->rank, size = r->mesh->size;
    size_t elem = hvd_dtype_size(u->dtype), own = u->counts[rank];
    auto_free uint8_t *in = malloc((u->all + own + 1) * elem), *out = malloc(own * elem + 1);
    auto_free uint8_t *before = malloc(u->all * elem + 1);
    if (!in || !out || !before)
        return -ENOMEM;
    pattern_fill(u->dtype, u->op, rank, size, 0, u->all, u->salt, in);
    memcpy(before, in, u->all * elem);
    memset(out, 0xee, own * elem + 1);
    uint8_t *to = place_of(u, in, out, own);
    struct coll_tensor t = {in, to, u->all};
    struct coll_op op = coll_rank_op(r, HVD_REDUCESCATTER, u->dtype, u->op, &t, 1);
    op.recv_counts = u->counts;
    int rc = coll_rank_run(r, &op);
    if (rc == 0 && size > 1 && u->all > 0 && strcmp(coll_algorithm(r->coll), "shm_scatter") != 0)
        rc = -ENOTSUP;
    rc = rc < 0 ? rc : check_run(r, u, to, own, in, before);
    memset(in, 0x5a, u->all * elem);
    return rc;
}

static int reference_main(int rank, int size, void *arg)
{
    struct coll_rank r;
    struct run u;
    uint64_t random = (uint64_t)size + 100;
    if (coll_rank_open(&r, rank, arg) < 0)
        return 10;
    int rc = 0;
    for (int round = 0; round < ROUNDS && rc == 0; round++) {
        make_run(&u, rank, size, round, &random);
        rc = one_round(&r, &u);
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
    const int sizes[] = {1, 2, 3, 5, MAX_RANKS};
    for (int i = 0; i < 5; i++) {
        char *layout = hosts + MAX_RANKS - sizes[i];
        struct world_options o = {.size = sizes[i], .timeout_s = 150};
        assert_int_equal(world_run_options(&o, reference_main, layout), 0);
    }
}

/* ---- the same bits as without shared memory -------------------------------------------------- */

struct shared {
    uint64_t hash[MAX_RANKS];
};

struct job {
    const char *hosts;
    struct shared *shared;
};

/* Finite values of very different magnitudes, so that the order of summation shows. */
static void fill_random(enum hvd_dtype dtype, int rank, size_t n, void *to)
{
    uint64_t random = 4711 + (uint64_t)rank * 7919;
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = rank_random(&random) << 20 ^ rank_random(&random);
        float f = (float)((double)(int64_t)(bits % 2000001) - 1e6) * (float)(1 << (bits & 7));
        uint16_t half = (uint16_t)(0x2000 + (bits & 0x9fff));
        if (dtype == HVD_FLOAT32)
            ((float *)to)[i] = f;
        else
            ((uint16_t *)to)[i] = half;
    }
}

static int hash_sums(struct coll_rank *r, enum hvd_dtype dtype, size_t scale, uint64_t *hash)
{
    size_t counts[MAX_RANKS], all = 0, elem = hvd_dtype_size(dtype);
    for (int i = 0; i < r->mesh->size; i++)
        all += counts[i] = scale / (size_t)(i + 1) + (size_t)i;
    size_t own = counts[r->mesh->rank];
    auto_free uint8_t *in = malloc(all * elem), *out = malloc(own * elem + 1);
    if (!in || !out)
        return -ENOMEM;
    fill_random(dtype, r->mesh->rank, all, in);
    struct coll_tensor t = {in, out, all};
    struct coll_op op = coll_rank_op(r, HVD_REDUCESCATTER, dtype, HVD_AVERAGE, &t, 1);
    op.recv_counts = counts;
    op.prescale = 0.3;
    int rc = coll_rank_run(r, &op);
    for (size_t i = 0; i < own * elem; i++)
        *hash = (*hash ^ out[i]) * 1099511628211ULL;
    return rc;
}

static int bits_main(int rank, int size, void *arg)
{
    const struct job *job = arg;
    const enum hvd_dtype dtypes[] = {HVD_FLOAT32, HVD_FLOAT16, HVD_BFLOAT16};
    uint64_t hash = 14695981039346656037ULL;
    struct coll_rank r;
    if (coll_rank_open(&r, rank, job->hosts) < 0)
        return 10;
    int rc = 0;
    for (int i = 0; i < 3 && rc == 0; i++) {
        rc = hash_sums(&r, dtypes[i], 50, &hash);
        rc = rc < 0 ? rc : hash_sums(&r, dtypes[i], 200000, &hash);
    }
    job->shared->hash[rank] = hash;
    coll_rank_close(&r);
    return rc < 0 ? 1 : 0;
}

static void test_bits(void **state)
{
    const char *const layouts[] = {"aaaa", "abcd", "aabb"};
    uint64_t first[4] = {0};
    for (int i = 0; i < 3; i++) {
        struct job job = {layouts[i], world_shared(sizeof(struct shared))};
        struct world_options o = {.size = 4, .timeout_s = 90};
        assert_non_null(job.shared);
        assert_int_equal(world_run_options(&o, bits_main, &job), 0);
        for (int r = 0; r < 4; r++) {
            first[r] = i == 0 ? job.shared->hash[r] : first[r];
            if (job.shared->hash[r] != first[r])
                fail_msg("hosts %s: rank %d has other bits than on one host", layouts[i], r);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_bits),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("multi/reducescatter", tests, NULL, NULL);
}
