/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of device_fit() in core/backend/device_setup: which joiners have to leave because their
 * devices do not fit the job's other ranks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/backend/device_private.h"

#define RANKS 4

static const struct device_ways by_nccl = {.nccl = true}, by_host = {.staged = true};

/* Ranks 2 and 3 are joiners, and all ranks fit. */
static void all_well(struct nccl_fact all[RANKS])
{
    memset(all, 0, RANKS * sizeof(*all));
    for (int r = 0; r < RANKS; r++) {
        struct nccl_fact *f = &all[r];
        *f = (struct nccl_fact){.nccl = 22707, .cuda = 12080, .driver = 13000, .gpus = 8, .sm = 90};
        snprintf(f->host, sizeof(f->host), "boot-id");
        snprintf(f->name, sizeof(f->name), "node");
        f->gpu[0] = (uint8_t)(r + 1);
        f->rank = r;
        all[r].kernels = true;
        all[r].newcomer = r >= 2;
    }
}

static void no_nccl(struct nccl_fact *s)
{
    s->nccl = 0;
    snprintf(s->why, sizeof(s->why), "it is not here");
}

/* unfit: one bit per rank that has to leave. */
static void expect(const struct device_ways *ways, const struct nccl_fact *all, int me,
                   unsigned unfit, const char *words)
{
    bool found[RANKS] = {false};
    struct err why = {0};
    int n = device_fit(ways, all, RANKS, me, found, &why);
    assert_int_equal(n, __builtin_popcount(unfit));
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(found[r], unfit >> r & 1);
    if (n > 0 && !strstr(why.msg, words))
        fail_msg("\"%s\" is not in: %s", words, why.msg);
}

static void test_all_fit(void **state)
{
    struct nccl_fact all[RANKS];
    all_well(all);
    expect(&by_nccl, all, 0, 0, "");
    expect(&by_host, all, 3, 0, "");
}

static void test_one_does_not(void **state)
{
    struct nccl_fact all[RANKS];
    all_well(all);
    no_nccl(&all[2]);
    expect(&by_nccl, all, 0, 1U << 2, "cannot use NCCL");
    expect(&by_nccl, all, 2, 1U << 2, "cannot use NCCL");
    expect(&by_host, all, 2, 0, ""); /* no rank asks for NCCL */
    all[3].kernels = false;
    expect(&by_nccl, all, 0, 3U << 2, "cannot use NCCL");
    expect(&by_nccl, all, 3, 3U << 2, "kernels"); /* each joiner gets its own reason */
}

/* Two joiners exclude each other: the one with the lower rank stays. */
static void test_two_that_do_not_go_together(void **state)
{
    struct nccl_fact all[RANKS];
    all_well(all);
    memcpy(all[3].gpu, all[2].gpu, sizeof(all[3].gpu));
    expect(&by_nccl, all, 0, 1U << 3, "ranks 2 and 3 use the same GPU");
    all_well(all);
    no_nccl(&all[2]);
    memcpy(all[3].gpu, all[1].gpu, sizeof(all[3].gpu));
    expect(&by_nccl, all, 3, 3U << 2,
           "ranks 1 and 3 use the same GPU"); /* a joiner that has to leave gets the reason that
                                                 names it */
}

static void test_the_host_is_allowed(void **state)
{
    struct nccl_fact all[RANKS];
    all_well(all);
    no_nccl(&all[3]);
    for (int r = 0; r < RANKS; r++)
        all[r].fallback = true;
    expect(&by_nccl, all, 0, 1U << 3, "cannot use NCCL"); /* the others use NCCL */
    no_nccl(&all[0]);
    expect(&by_nccl, all, 0, 0, "");
    all[2].fallback = false; /* its NCCL is of no use */
    expect(&by_nccl, all, 0, 1U << 2, "set HVD_GPU_FALLBACK=1");
    all[1].fallback = false;
    expect(&by_nccl, all, 0, 0, ""); /* there is no way for those that were there before */
    /* If one of the others lacks kernels, a joiner without kernels fits. */
    all_well(all);
    all[1].kernels = all[3].kernels = false;
    expect(&by_nccl, all, 0, 0, "");
}

/* If the ranks that are no joiners do not fit either, or there are none, no joiner has to leave. */
static void test_nobody_to_judge_by(void **state)
{
    struct nccl_fact all[RANKS];
    all_well(all);
    no_nccl(&all[0]);
    expect(&by_nccl, all, 2, 0, "");
    all_well(all);
    no_nccl(&all[3]);
    all[0].newcomer = all[1].newcomer = true;
    expect(&by_nccl, all, 3, 0, "");
    all[0].newcomer = all[1].newcomer = all[2].newcomer = all[3].newcomer = false;
    expect(&by_nccl, all, 3, 0, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_fit),
        cmocka_unit_test(test_one_does_not),
        cmocka_unit_test(test_two_that_do_not_go_together),
        cmocka_unit_test(test_the_host_is_allowed),
        cmocka_unit_test(test_nobody_to_judge_by),
    };
    return cmocka_run_group_tests_name("backend/device_fit", tests, NULL, NULL);
}
