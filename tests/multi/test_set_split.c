/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_set_split() in a job of fixed size, on two hosts: the groups of each rule, operations in all
 * of them at a time, and calls that are refused. test_set_rules has elastic jobs.
 *
 * timeout: 60
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

#include "tests/harness/rank.h"
#include "tests/harness/world.h"

enum { SIZE = 5, RULES = 4 };

static const char *const rules[RULES] = {"host", "every 2", "blocks 2", "stride 3"};

/* Bits of the ranks in each rank's group. Odd ranks are on another host. */
static const int64_t groups[RULES][SIZE] = {{0x15, 0x0a, 0x15, 0x0a, 0x15},
                                            {0x15, 0x0a, 0x15, 0x0a, 0x15},
                                            {0x03, 0x03, 0x0c, 0x0c, 0x10},
                                            {0x09, 0x12, 0x00, 0x09, 0x12}};

/* arg: what is added on this rank to the last rank's group. */
static int stride(const struct hvd_roster *roster, int rank, int k, void *arg)
{
    const int *more = arg;
    int group = (rank + (rank == roster->size - 1 ? *more : 0)) % k;
    return group == 2 ? -1 : group;
}

static int check_group(int rule, int set, int64_t group)
{
    int ranks[SIZE], n = hvd_set_ranks(set, ranks, SIZE), own = -ENOENT;
    int64_t got = 0;
    for (int i = 0; i < n; i++) {
        got |= (int64_t)1 << ranks[i];
        own = ranks[i] == hvd_rank() ? i : own;
    }
    if (got != group || hvd_set_rank(set) != own || hvd_set_find(rules[rule]) != set)
        return FAIL("%s: ranks %x, not %x; number %d, set %d", rules[rule], (int)got, (int)group,
                    hvd_set_rank(set), hvd_set_find(rules[rule]));
    return 0;
}

/* All groups at a time. A rank in no group cannot use the set. */
static int use_all(const int *sets)
{
    int64_t one = 1, got[RULES];
    hvd_handle h[RULES];
    for (int r = 0; r < RULES; r++) {
        got[r] = (int64_t)1 << hvd_rank();
        const struct hvd_request sum = {.kind = HVD_ALLREDUCE,
                                        .name = "ranks",
                                        .input = &got[r],
                                        .output = &got[r],
                                        .dtype = HVD_INT64,
                                        .ndim = 1,
                                        .shape = &one,
                                        .op = HVD_BOR,
                                        .device = -1,
                                        .set = sets[r]};
        int rc = hvd_submit(&sum, 1, &h[r]);
        if (rc != (groups[r][hvd_rank()] ? 0 : -EINVAL))
            return FAIL("%s: %d, %s", rules[r], rc, hvd_error());
    }
    for (int r = RULES - 1; r >= 0; r--) {
        if (groups[r][hvd_rank()] == 0)
            continue;
        if (hvd_wait(h[r]) < 0 || got[r] != groups[r][hvd_rank()])
            return FAIL("%s: ranks %x, %s", rules[r], (int)got[r], hvd_error());
        hvd_release(h[r]);
    }
    return 0;
}

static int expect_error(int rc, int code, const char *text, const char *what)
{
    if (rc == code && strstr(hvd_error(), text))
        return 0;
    return FAIL("%s: %d, %s", what, rc, hvd_error());
}

static int refuse(int rank, int *more)
{
    int set = 0;
    int rc = expect_error(hvd_set_split("every", &set), -EINVAL, "is no rule", "every");
    if (rc == 0)
        rc = expect_error(hvd_set_split("none", &set), -ENOENT, "no rule 'none'", "none");
    if (rc == 0)
        rc = expect_error(hvd_set_split(rank == 1 ? "blocks 2" : "every 2", &set), -EINVAL,
                          "rank 0 divides the ranks by 'every 2', rank 1 divides the ranks by "
                          "'blocks 2'",
                          "two rules");
    if (rank == 2)
        hvd_rule_define("other", stride, more);
    if (rc == 0)
        rc = expect_error(hvd_set_split("other 2", &set), -ENOENT, "rank 0: this rank has no rule",
                          "a rule of one rank");
    *more = rank == 2;
    if (rc == 0)
        rc =
            expect_error(hvd_set_split("stride 3", &set), -EINVAL,
                         "rank 0 puts rank 4 into group 1, rank 2 puts it into no group", "stride");
    return rc == 0 && set != 0 ? FAIL("set %d", set) : rc;
}

static int split(int rank, int size, void *arg)
{
    int sets[RULES], more = 0, rc = 0;
    (void)size;
    (void)arg;
    putenv(rank % 2 ? "HVD_LOCALITY=b" : "HVD_LOCALITY=a");
    if (hvd_rule_define("stride", stride, &more) < 0 || hvd_init() < 0)
        return FAIL("%s", hvd_error());
    for (int r = 0; r < RULES && rc == 0; r++) {
        rc = hvd_set_split(rules[r], &sets[r]) < 0 ? FAIL("%s", hvd_error()) : 0;
        if (rc == 0)
            rc = check_group(r, sets[r], groups[r][rank]);
    }
    for (int i = 0; i < 100 && rc == 0; i++)
        rc = use_all(sets);
    if (rc == 0)
        rc = refuse(rank, &more);
    if (rc == 0)
        rc = expect_error(hvd_set_fix(sets[0]), -EINVAL, "is a set by rule", "hvd_set_fix");
    for (int r = 0; r < RULES && rc == 0; r++)
        rc = hvd_set_remove(sets[r]) < 0 ? FAIL("%s: %s", rules[r], hvd_error()) : 0;
    if (rc == 0 && (hvd_sets(NULL, 0) != 0 || hvd_set_find("host") != -ENOENT))
        rc = FAIL("%d sets are left", hvd_sets(NULL, 0));
    return rc ? rc : hvd_shutdown() < 0;
}

static void test_split(void **state)
{
    (void)state;
    assert_int_equal(world_run(SIZE, split, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_split)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
