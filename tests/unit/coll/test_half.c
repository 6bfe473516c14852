/* SPDX-License-Identifier: Apache-2.0
 *
 * test_half: every float16 and bfloat16 compared with its definition, and rounding at and around
 * every tie.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/coll/half.h"

/* The value by definition: sign, exponent, fraction. */
static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double v = exponent == 31  ? (fraction ? NAN : INFINITY)
               : exponent == 0 ? ldexp(fraction, -24)
                               : ldexp(1024 + fraction, exponent - 25);
    return h & 0x8000 ? -v : v;
}

static void test_half_all(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = half_to_float((uint16_t)h);
        double want = half_value((uint16_t)h);
        if (isnan(want)) {
            assert_true(isnan(f));
            assert_int_equal(half_from_float(f), h | 0x200);
            continue;
        }
        assert_true(f == want);
        assert_int_equal(signbit(f) != 0, h >> 15);
        assert_int_equal(half_from_float(f), h);
    }
}

/* Between two neighbours: below the middle rounds down, above it up, a tie to the even one. */
static void test_half_ties(void **state)
{
    (void)state;
    for (uint16_t h = 0; h < 0x7bff; h++) {
        float low = half_to_float(h), high = half_to_float((uint16_t)(h + 1));
        float middle = (float)(((double)low + (double)high) / 2);
        assert_int_equal(half_from_float(middle), h % 2 ? h + 1 : h);
        assert_int_equal(half_from_float(nextafterf(middle, 0)), h);
        assert_int_equal(half_from_float(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(half_from_float(-middle), (h % 2 ? h + 1 : h) | 0x8000);
    }
    assert_int_equal(half_from_float(65519.99f), 0x7bff);
    assert_int_equal(half_from_float(65520.0f), 0x7c00);
    assert_int_equal(half_from_float(1e30f), 0x7c00);
    assert_int_equal(half_from_float(-INFINITY), 0xfc00);
    assert_int_equal(half_from_float(1e-30f), 0);
}

static void test_bfloat_all(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < 65536; b++) {
        float f = bfloat_to_float((uint16_t)b);
        assert_int_equal(half_float_bits(f), b << 16);
        assert_int_equal(bfloat_from_float(f), isnan(f) ? b | 0x40 : b);
    }
}

static void test_bfloat_ties(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < 0x7f80; b++) {
        uint32_t middle = b << 16 | 0x8000;
        assert_int_equal(bfloat_from_float(half_bits_float(middle)), b % 2 ? b + 1 : b);
        assert_int_equal(bfloat_from_float(half_bits_float(middle - 1)), b);
        assert_int_equal(bfloat_from_float(half_bits_float(middle + 1)), b + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_all),
        cmocka_unit_test(test_half_ties),
        cmocka_unit_test(test_bfloat_all),
        cmocka_unit_test(test_bfloat_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
