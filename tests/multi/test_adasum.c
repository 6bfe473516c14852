/* SPDX-License-Identifier: Apache-2.0
 *
 * Adasum of one to eight ranks, in each type, beside the formula in double precision: of the ranks'
 * tensors and of the hosts' averages (HVD_HIERARCHICAL_ADASUM), in sets, and while members die.
 *
 * timeout: 300
 * takes: 5 s
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/deaths.h"
#include "tests/harness/effort.h"
#include "tests/harness/elastic.h"
#include "tests/harness/formula.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

enum { MOST = 8, LONGEST = EFFORT_LEAST ? 9000 : 70000 };

/* ---- one operation -------------------------------------------------------------------------- */

static double in[LONGEST], out[LONGEST];

/* hosts: see struct formula. */
static int one(int rank, int size, int t, int n, int seed, int set, const char *hosts)
{
    int64_t count = n;
    bool scaled = seed % 4 == 1;
    const struct formula f = {.dtype = formula_types[t],
                              .n = (size_t)n,
                              .seed = seed,
                              .prescale = scaled ? 0.5 : 0,
                              .postscale = scaled ? 3 : 0,
                              .hosts = hosts};
    struct hvd_request r = rank_request("a", (float *)(void *)in, &count);
    r.output = seed % 2 ? (void *)in : (void *)out;
    r.dtype = f.dtype;
    r.op = HVD_ADASUM;
    r.prescale = f.prescale;
    r.postscale = f.postscale;
    r.set = set;
    formula_fill(&f, rank, in);
    hvd_handle h;
    if (rank_wait(&r, &h) != 0)
        return FAIL("%s", hvd_error());
    return formula_check(&f, size, r.output);
}

/* An alltoall, which also keeps memory for its ranks, in between. */
static int exchange(int size)
{
    float x[MOST] = {0};
    int64_t count = size;
    hvd_handle h;
    struct hvd_request r = rank_request("x", x, &count);
    r.kind = HVD_ALLTOALL;
    r.output = NULL;
    if (rank_wait(&r, &h) != 0)
        return FAIL("%s", hvd_error());
    hvd_release(h);
    return 0;
}

static int all_sizes(int rank, int size, const char *hosts)
{
    static const int counts[] = {1, 2, 1000, LONGEST};
    int rc = hvd_init() != 0 ? FAIL("%s", hvd_error()) : 0;
    for (int t = 0; t < FORMULA_TYPES; t++)
        for (int c = 0; c < 4; c++)
            for (int seed = 0; seed < (c == 3 ? 2 : 6) && !rc; seed++)
                rc = one(rank, size, t, counts[c], seed, 0, hosts);
    rc = rc ? rc : exchange(size);
    rc = rc ? rc : one(rank, size, 0, LONGEST, 0, 0, hosts);
    return rc ? rc : hvd_shutdown() != 0;
}

static int formula(int rank, int size, void *arg)
{
    (void)arg;
    return all_sizes(rank, size, NULL);
}

static void test_formula(void **state)
{
    for (int size = 1; size <= MOST; size += size < 6 ? 1 : 2)
        assert_int_equal(world_run(size, formula, NULL), 0);
}

/* Rank 0 is in no set; the others number themselves from 0. */
static int in_set(int rank, int size, void *arg)
{
    const int ranks[] = {1, 2, 3};
    int set, rc = 0;
    if (hvd_init() != 0 || hvd_set_add(ranks, 3, &set) != 0)
        return FAIL("%s", hvd_error());
    for (int seed = 0; seed < 30 && !rc && rank > 0; seed++)
        rc = one(rank - 1, 3, seed % 4, 100, seed, set, NULL);
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_set(void **state)
{
    assert_int_equal(world_run(4, in_set, NULL), 0);
}

static void test_hosts(void **state)
{
    if (!world_can_netns("multi/adasum/hosts"))
        return;
    for (int size = 3; size <= 5; size++) {
        struct world_options o = {.size = size, .hosts = 2};
        assert_int_equal(world_run_options(&o, formula, NULL), 0);
    }
}

/* ---- hosts' averages ------------------------------------------------------------------------ */

static void be_on(const char *hosts, int rank)
{
    setenv("HVD_LOCALITY", (char[]){hosts[rank], 0}, 1);
    setenv("HVD_HIERARCHICAL_ADASUM", "1", 1);
}

static int by_host(int rank, int size, void *arg)
{
    be_on(arg, rank);
    return all_sizes(rank, size, arg);
}

/* A set numbers its hosts by its own ranks: here "bcab". */
static int by_host_in_set(int rank, int size, void *arg)
{
    const int ranks[] = {2, 4, 1, 3};
    int set, rc = 0;
    be_on("aabbcd", rank);
    if (hvd_init() != 0 || hvd_set_add(ranks, 4, &set) != 0)
        return FAIL("%s", hvd_error());
    int mine = hvd_set_rank(set);
    for (int seed = 0; seed < 12 && !rc && mine >= 0; seed++)
        rc = one(mine, 4, seed % 4, 100, seed, set, "bcab");
    return rc ? rc : hvd_shutdown() != 0;
}

/* With this seed the tensor of rank 1 is all 0: that of a rank which has joined, and counts in the
 * average. */
static int by_host_joined(int rank, int size, void *arg)
{
    be_on(arg, rank);
    int rc = hvd_init() != 0 ? FAIL("%s", hvd_error()) : 0;
    rc = rc || rank == 1 ? rc : one(rank, size, 1, 1000, 2, 0, arg);
    if (!rc && hvd_join() < 0)
        rc = FAIL("%s", hvd_error());
    return rc ? rc : hvd_shutdown() != 0;
}

static int differs(int rank, int size, void *arg)
{
    float x[3] = {0};
    int64_t count = 3;
    hvd_handle h;
    setenv("HVD_HIERARCHICAL_ADASUM", rank == 1 ? "1" : "0", 1);
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    struct hvd_request r = rank_request("x", x, &count);
    r.op = HVD_ADASUM;
    if (rank_wait(&r, &h) != -EINVAL ||
        !strstr(hvd_error(), "rank 1: float32 [3] adasum of hosts' averages"))
        return FAIL("%s", hvd_error());
    return hvd_shutdown() != 0;
}

static void test_by_host(void **state)
{
    static const char *const hosts[] = {"aaa", "aab", "abab", "abc", "abbcaacb"};
    for (size_t i = 0; i < sizeof(hosts) / sizeof(*hosts); i++)
        assert_int_equal(world_run((int)strlen(hosts[i]), by_host, (void *)(uintptr_t)hosts[i]), 0);
    assert_int_equal(world_run(6, by_host_in_set, NULL), 0);
    assert_int_equal(world_run(4, by_host_joined, "aabb"), 0);
    assert_int_equal(world_run(3, differs, NULL), 0);
}

/* ---- deaths --------------------------------------------------------------------------------- */

/* arg: NULL, or the members' hosts, whose averages are combined. */
static int death_step(int member, int step, void *arg)
{
    static float x[LONGEST];
    int64_t count = LONGEST;
    hvd_handle h;
    struct hvd_request r = rank_request("x", x, &count);
    r.op = HVD_ADASUM;
    r.prescale = FORMULA_PRESCALE;
    formula_fill_orthogonal(member, step, x, LONGEST);
    if (rank_wait(&r, &h) != 0)
        return FAIL("step %d: %s", step, hvd_error());
    return formula_check_orthogonal(member, step, x, LONGEST, arg);
}

static void run_deaths(const char *hosts, unsigned seeds)
{
    struct deaths *d = world_board(sizeof(*d));
    assert_non_null(d);
    d->step = death_step;
    d->arg = (void *)(uintptr_t)hosts;
    d->hosts = hosts;
    d->gap = 16;
    d->within_us = 3000;
    deaths_run_all(d, seeds);
}

/* Members 1 and 3 die: one of each host, or all of one host. */
static void test_deaths(void **state)
{
    run_deaths(NULL, (unsigned)effort(30));
    setenv("HVD_HIERARCHICAL_ADASUM", "1", 1);
    run_deaths("aabb", (unsigned)effort(12));
    run_deaths("abab", (unsigned)effort(12));
    unsetenv("HVD_HIERARCHICAL_ADASUM");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formula), cmocka_unit_test(test_set),    cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_by_host), cmocka_unit_test(test_deaths),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("multi/adasum", tests, NULL, NULL);
}
