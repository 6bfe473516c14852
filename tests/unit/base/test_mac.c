/* SPDX-License-Identifier: Apache-2.0
 *
 * test_mac: a proof is valid for its key, role and parts, and for no others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/mac.h"

static const uint8_t key[MAC_KEY_SIZE] = {1, 2, 3};

static void test_right_key(void **state)
{
    (void)state;
    uint8_t mac[MAC_SIZE];
    struct mac_part parts[] = {{"abc", 3}, {NULL, 0}, {"de", 2}};
    mac_make(key, "role", parts, 3, mac);
    assert_true(mac_check(key, "role", parts, 3, mac));
    for (size_t i = 0; i < sizeof(mac); i++) {
        mac[i] ^= 1;
        assert_false(mac_check(key, "role", parts, 3, mac));
        mac[i] ^= 1;
    }
}

static void test_everything_counts(void **state)
{
    (void)state;
    uint8_t mac[MAC_SIZE], other[MAC_KEY_SIZE] = {1, 2, 4};
    struct mac_part parts[] = {{"abc", 3}, {"de", 2}};
    struct mac_part moved[] = {{"ab", 2}, {"cde", 3}};
    struct mac_part changed[] = {{"abc", 3}, {"dE", 2}};
    mac_make(key, "role", parts, 2, mac);
    assert_false(mac_check(other, "role", parts, 2, mac));
    assert_false(mac_check(key, "rule", parts, 2, mac));
    assert_false(mac_check(key, "role", parts, 1, mac));
    assert_false(mac_check(key, "role", moved, 2, mac));
    assert_false(mac_check(key, "role", changed, 2, mac));
}

static void test_random_and_wipe(void **state)
{
    (void)state;
    uint8_t a[32], b[32], zero[32] = {0};
    mac_random(a, sizeof(a));
    mac_random(b, sizeof(b));
    assert_memory_not_equal(a, b, sizeof(a));
    mac_wipe(a, sizeof(a));
    assert_memory_equal(a, zero, sizeof(a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_key),
        cmocka_unit_test(test_everything_counts),
        cmocka_unit_test(test_random_and_wipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
