/* SPDX-License-Identifier: Apache-2.0
 *
 * Random lives of three jobs in a simulated cluster (tests/harness/operator/cluster_sim.h): the
 * rules hold for every seed, and find every planted bug. HVD_SIM_SEED=n repeats one seed,
 * HVD_SIM_SEEDS=n runs that many.
 *
 * timeout: 900
 * takes: 40 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/harness/effort.h"
#include "tests/harness/operator/cluster_sim.h"

#define SEEDS     effort(1000)
#define BUG_SEEDS 400

static struct cluster_sim sim;

static void test_seeds(void **state)
{
    const char *one = getenv("HVD_SIM_SEED");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    const char *many = getenv("HVD_SIM_SEEDS");
    uint64_t last = (uint64_t)SEEDS;
    if (one || many)
        last = one ? first : strtoull(many, NULL, 10);
    int failed = 0, rollbacks = 0;
    (void)state;
    for (uint64_t seed = first; seed <= last && failed < 10; seed++) {
        if (!cluster_sim_run(&sim, seed, BUG_NONE)) {
            print_message("HVD_SIM_SEED=%llu: %s\n", (unsigned long long)seed, sim.why);
            failed++;
        }
        rollbacks += sim.rollbacks;
    }
    assert_int_equal(failed, 0);
    assert_true(one || rollbacks > 0); /* the seeds cover rollbacks */
}

static void test_planted(void **state)
{
    int missed = 0;
    (void)state;
    for (int bug = BUG_NONE + 1; bug < SIM_BUGS; bug++) {
        uint64_t seed = 1;
        while (seed <= BUG_SEEDS && cluster_sim_run(&sim, seed, (enum sim_bug)bug))
            seed++;
        if (seed <= BUG_SEEDS)
            print_message("planted \"%s\": seed %llu: %s\n",
                          cluster_sim_bug_name((enum sim_bug)bug), (unsigned long long)seed,
                          sim.why);
        else
            print_message("planted \"%s\": not found\n", cluster_sim_bug_name((enum sim_bug)bug));
        missed += seed > BUG_SEEDS;
    }
    assert_int_equal(missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds),
                                       cmocka_unit_test(test_planted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
