/* SPDX-License-Identifier: Apache-2.0
 *
 * wide: 16-bit floats to float32 and back: every value, odd addresses, and rounding.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/backend/wide.h"

enum { ALL = 65536 };

static bool is_nan16(enum hvd_dtype dtype, uint16_t h)
{
    return dtype == HVD_FLOAT16 ? (h & 0x7fff) > 0x7c00 : (h & 0x7fff) > 0x7f80;
}

static void round_trip(enum hvd_dtype dtype)
{
    uint8_t *in = malloc(2 * ALL + 1), *wide = malloc(4 * ALL + 3), *out = malloc(2 * ALL + 1);
    assert_true(in && wide && out);
    for (unsigned i = 0; i < ALL; i++) {
        uint16_t h = (uint16_t)i;
        memcpy(in + 1 + 2 * i, &h, 2);
    }
    wide_from(dtype, in + 1, wide + 3, ALL, 1.0);
    wide_to(dtype, wide + 3, out + 1, ALL);
    for (unsigned i = 0; i < ALL; i++) {
        uint16_t h;
        memcpy(&h, out + 1 + 2 * i, 2);
        if (is_nan16(dtype, (uint16_t)i))
            assert_true(is_nan16(dtype, h));
        else
            assert_int_equal(h, i);
    }
    free(in);
    free(wide);
    free(out);
}

static void test_round_trip(void **state)
{
    round_trip(HVD_FLOAT16);
    round_trip(HVD_BFLOAT16);
}

/* Values are scaled in float32 and rounded to nearest even once. */
static void test_scale(void **state)
{
    const uint16_t one_and_a_bit = 0x3c01; /* float16: 1 + 2^-10 */
    float f;
    uint16_t h;
    wide_from(HVD_FLOAT16, &one_and_a_bit, &f, 1, 0.5);
    assert_true(f == 0.5f + ldexpf(1, -11));
    f = 1 + ldexpf(1, -11); /* half way: to even */
    wide_to(HVD_FLOAT16, &f, &h, 1);
    assert_int_equal(h, 0x3c00);
    f = 1 + 3 * ldexpf(1, -11);
    wide_to(HVD_FLOAT16, &f, &h, 1);
    assert_int_equal(h, 0x3c02);
}

static void test_types(void **state)
{
    for (int d = 0; d < HVD_DTYPES; d++)
        assert_int_equal(wide_type(d), hvd_dtype_size(d) == 2 && d != HVD_INT16 && d != HVD_UINT16
                                           ? HVD_FLOAT32
                                           : d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip),
                                       cmocka_unit_test(test_scale), cmocka_unit_test(test_types)};
    return cmocka_run_group_tests_name("backend/wide", tests, NULL, NULL);
}
