/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hier_choice: which jobs use the two-level allreduce, the reason if a job does not, and ranks
 * whose settings differ.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/backend/hier_choice.h"

static struct err err;

static int choose(uint8_t wish, bool sockets, bool kernels, int hosts, int first, int second)
{
    const uint8_t wishes[] = {wish, wish, wish, wish};
    const int sizes[] = {first, second};
    const struct hier_facts facts = {wishes, 4, sockets, kernels, sizes, hosts};
    err = (struct err){0};
    return hier_choose(&facts, &err);
}

static void test_used(void **state)
{
    assert_int_equal(choose(HIER_YES, false, true, 2, 2, 2), 1);
    assert_string_equal(err.msg, "HVD_HIERARCHICAL_ALLREDUCE=1");
    assert_int_equal(choose(HIER_YES, true, true, 2, 2, 2), 1);
    assert_int_equal(choose(HIER_UNSET, true, true, 2, 2, 2), 1);
    assert_string_equal(err.msg, "NCCL has only sockets between the hosts");
}

static void test_not_wished(void **state)
{
    assert_int_equal(choose(HIER_UNSET, false, true, 2, 2, 2), 0);
    assert_string_equal(err.msg, "NCCL has more than sockets between hosts");
    assert_int_equal(choose(HIER_NO, true, true, 2, 2, 2), 0);
    assert_int_equal(choose(HIER_NO, false, false, 1, 4, 0), 0);
    assert_string_equal(err.msg, "HVD_HIERARCHICAL_ALLREDUCE=0");
}

static void refused(const char *words)
{
    assert_non_null(strstr(err.msg, words));
    assert_non_null(strstr(err.msg, "HVD_HIERARCHICAL_ALLREDUCE=1"));
    assert_int_equal(err.code, 0);
}

static void test_lacking(void **state)
{
    assert_int_equal(choose(HIER_YES, false, true, 1, 4, 0), 0);
    refused("one host");
    assert_int_equal(choose(HIER_YES, false, true, 2, 3, 1), 0);
    refused("one host has 3 of the ranks, another one 1");
    assert_int_equal(choose(HIER_YES, false, true, 2, 1, 1), 0);
    refused("every host has one rank");
    assert_int_equal(choose(HIER_YES, false, false, 2, 2, 2), 0);
    refused("hvd's kernels");
    assert_int_equal(choose(HIER_UNSET, true, true, 1, 4, 0), 0);
    assert_string_equal(err.msg, "there is one host");
}

static void test_different(void **state)
{
    const uint8_t wishes[] = {HIER_YES, HIER_YES, HIER_UNSET};
    const int sizes[] = {2, 1};
    const struct hier_facts facts = {wishes, 3, false, true, sizes, 2};
    assert_int_equal(hier_choose(&facts, &err), -ENOTSUP);
    assert_string_equal(err.msg, "HVD_HIERARCHICAL_ALLREDUCE is 1 on rank 0 and not set on rank 2: "
                                 "it must be the same on every rank");
}

static void test_read(void **state)
{
    enum hier_wish wish;
    unsetenv("HOROVOD_HIERARCHICAL_ALLREDUCE");
    unsetenv("HVD_HIERARCHICAL_ALLREDUCE");
    assert_int_equal(hier_wish_read(&wish, &err), 0);
    assert_int_equal(wish, HIER_UNSET);
    setenv("HOROVOD_HIERARCHICAL_ALLREDUCE", "1", 1);
    assert_int_equal(hier_wish_read(&wish, &err), 0);
    assert_int_equal(wish, HIER_YES);
    setenv("HVD_HIERARCHICAL_ALLREDUCE", "0", 1);
    assert_int_equal(hier_wish_read(&wish, &err), 0);
    assert_int_equal(wish, HIER_NO);
    setenv("HVD_HIERARCHICAL_ALLREDUCE", "perhaps", 1);
    assert_int_equal(hier_wish_read(&wish, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "perhaps"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_used),    cmocka_unit_test(test_not_wished),
        cmocka_unit_test(test_lacking), cmocka_unit_test(test_different),
        cmocka_unit_test(test_read),
    };
    return cmocka_run_group_tests_name("backend/test_hier_choice", tests, NULL, NULL);
}
