/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages when ranks shut down: a receive from any rank when all others have, and what a rank has
 * sent before its farewell. A blocking receive that stalls.
 *
 * timeout: 120
 * takes: 10 s
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

#include "core/base/clock.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

/* A blocking receive after a time in which this rank was idle is reported, too. */
static int stalls(int rank, int size, void *arg)
{
    struct hvd_stats stats = {.size = sizeof(stats)};
    char x = 0;
    if (hvd_init() != 0 || hvd_barrier("all") != 0)
        return FAIL("%s", hvd_error());
    nap_ms(rank == 0 ? 1500 : 4500);
    int rc = rank == 0 ? hvd_recv(&x, 1, 1, 4, 0, NULL) : hvd_send(&x, 1, 0, 4, 0);
    if (rc != 0 || hvd_stats(&stats) != 0)
        return FAIL("%s", hvd_error());
    if (rank == 0 && stats.stalls == 0)
        return FAIL("there was no report");
    return hvd_shutdown() != 0;
}

static void test_stalls(void **state)
{
    const char *const env[] = {"HVD_STALL_CHECK_TIME_SECONDS=1", NULL};
    const struct world_options o = {.size = 2, .timeout_s = 20, .env = env};
    assert_int_equal(world_run_options(&o, stalls, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stalls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
