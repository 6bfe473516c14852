/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations submitted as a group: one call, tensors of several types and sizes, thousands of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/rank.h"
#include "tests/harness/values.h"
#include "tests/harness/world.h"

static int groups(int rank, int size, void *arg)
{
    static char data[5][5600];
    static const enum hvd_dtype dtypes[] = {HVD_FLOAT32, HVD_FLOAT32, HVD_INT64, HVD_BFLOAT16,
                                            HVD_FLOAT32};
    char names[5][16];
    int64_t counts[5];
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < 30; k++) {
        struct hvd_request r[5];
        hvd_handle handles[5];
        for (int i = 0; i < 5; i++) {
            snprintf(names[i], sizeof(names[i]), "g%d", i);
            counts[i] = i == 1 ? 0 : i * 100 + 3;
            values_fill(dtypes[i], HVD_SUM, rank, size, data[i], (size_t)counts[i], k + i);
            r[i] = rank_request(names[i], (float *)data[i], &counts[i]);
            r[i].dtype = dtypes[i];
        }
        if (hvd_submit(r, 5, handles) != 0)
            return FAIL("%s", hvd_error());
        for (int i = 4; i >= 0; i--) {
            if (hvd_wait(handles[i]) != 0)
                return FAIL("%s: %s", names[i], hvd_error());
            if (values_check(dtypes[i], HVD_SUM, size, data[i], 0, (size_t)counts[i], k + i) >= 0)
                return FAIL("round %d: %s is wrong", k, names[i]);
        }
    }
    return hvd_shutdown() != 0;
}

static void test_groups(void **state)
{
    for (int size = 1; size <= 4; size++)
        assert_int_equal(world_run(size, groups, NULL), 0);
}

static int large_group(int rank, int size, void *arg)
{
    enum { MANY = 5000 };
    static float data[MANY];
    static struct hvd_request r[MANY];
    static hvd_handle handles[MANY];
    static char names[MANY][16];
    int64_t one = 1;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof(names[i]), "m%d", i);
        data[i] = (float)(i + rank);
        r[i] = rank_request(names[i], &data[i], &one);
    }
    if (hvd_submit(r, MANY, handles) != 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < MANY; i++) {
        if (hvd_wait(handles[i]) != 0)
            return FAIL("%s: %s", names[i], hvd_error());
        if (data[i] != (float)(size * i) + (float)(size * (size - 1)) / 2)
            return FAIL("%s is %g", names[i], (double)data[i]);
    }
    return hvd_shutdown() != 0;
}

static void test_large_group(void **state)
{
    assert_int_equal(world_run(2, large_group, NULL), 0);
}

static void test_hosts(void **state)
{
    if (!world_can_netns("multi/submit_groups/hosts"))
        return;
    struct world_options o = {.size = 4, .hosts = 2};
    assert_int_equal(world_run_options(&o, groups, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_large_group),
        cmocka_unit_test(test_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
