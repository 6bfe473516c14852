/* SPDX-License-Identifier: Apache-2.0
 *
 * test_member_ends: member_ends returns how a member ended, forgets that when the member starts
 * again, and refuses member numbers that are out of range.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "agent/member_ends.h"
#include "core/member/protocol.h"

static void test_find(void **state)
{
    struct member_ends ends = {0};
    int member = -1;
    (void)state;
    assert_null(member_ends_get(&ends, 3));
    assert_null(member_ends_first(&ends, &member));
    assert_int_equal(member_ends_count(&ends), 0);
    *member_ends_entry(&ends, 40) = (struct member_end){.known = true, .code = 4};
    *member_ends_entry(&ends, 3) = (struct member_end){.known = true, .code = 7};
    assert_int_equal(member_ends_get(&ends, 40)->code, 4);
    assert_null(member_ends_get(&ends, 39));
    assert_int_equal(member_ends_first(&ends, &member)->code, 7);
    assert_int_equal(member, 3);
    assert_int_equal(member_ends_count(&ends), 41);
    member_ends_forget(&ends, 40);
    member_ends_forget(&ends, 1000);
    assert_null(member_ends_get(&ends, 40));
    assert_int_equal(member_ends_count(&ends), 4);
    member_ends_fini(&ends);
}

static void test_limits(void **state)
{
    struct member_ends ends = {0};
    (void)state;
    assert_null(member_ends_entry(&ends, -1));
    assert_null(member_ends_entry(&ends, MEMBER_NUMBER_MAX));
    assert_null(member_ends_get(&ends, -1));
    assert_null(member_ends_get(&ends, MEMBER_NUMBER_MAX));
    member_ends_forget(&ends, -1);
    member_ends_fini(&ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
