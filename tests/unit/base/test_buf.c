/* SPDX-License-Identifier: Apache-2.0
 *
 * buf: written values are read back; no read past the end; a read of too much sets the failure
 * flag.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"

static void test_round_trip(void **state)
{
    struct buf b = {0};
    char text[8];
    buf_put_u8(&b, 0xfe);
    buf_put_u16(&b, 0x1234);
    buf_put_u32(&b, 0xdeadbeef);
    buf_put_u64(&b, 0x0123456789abcdefULL);
    buf_put_f64(&b, -0.5);
    buf_put_str(&b, "hello");
    buf_put_str(&b, "");
    buf_put(&b, "xyz", 3);
    assert_int_equal(b.data[1], 0x34); /* little endian on the wire */
    struct reader r = reader_over(b.data, b.len);
    assert_int_equal(reader_u8(&r), 0xfe);
    assert_int_equal(reader_u16(&r), 0x1234);
    assert_int_equal(reader_u32(&r), 0xdeadbeef);
    assert_true(reader_u64(&r) == 0x0123456789abcdefULL);
    assert_true(reader_f64(&r) == -0.5);
    reader_str(&r, text, sizeof(text));
    assert_string_equal(text, "hello");
    reader_str(&r, text, sizeof(text));
    assert_string_equal(text, "");
    assert_false(reader_ok(&r));
    assert_memory_equal(reader_bytes(&r, 3), "xyz", 3);
    assert_true(reader_ok(&r));
    assert_null(reader_bytes(&r, 1));
    assert_false(reader_ok(&r));
    assert_int_equal(reader_u64(&r), 0);
    buf_fini(&b);
    buf_fini(NULL);
}

static void test_cut(void **state)
{
    const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7};
    for (size_t n = 0; n < sizeof(bytes); n++) {
        uint8_t *exact = malloc(n ? n : 1);
        memcpy(exact, bytes, n);
        struct reader r = reader_over(exact, n);
        assert_int_equal(reader_u64(&r), 0);
        assert_true(r.failed);
        assert_int_equal(reader_u8(&r), 0); /* stays failed */
        free(exact);
    }
}

static void test_strings(void **state)
{
    char text[4] = "old";
    struct reader r = reader_over("\5\0ab", 4); /* longer than what is there */
    reader_str(&r, text, sizeof(text));
    assert_true(r.failed);
    assert_string_equal(text, "");
    r = reader_over("\4\0abcd", 6); /* does not fit */
    reader_str(&r, text, sizeof(text));
    assert_true(r.failed);
    r = reader_over("\3\0abc", 5);
    reader_str(&r, text, sizeof(text));
    assert_true(reader_ok(&r));
    assert_string_equal(text, "abc");
    r = reader_over("\3\0a\0c", 5); /* a NUL */
    reader_str(&r, text, sizeof(text));
    assert_true(r.failed);
    char *longer = malloc(70001);
    struct buf b = {0};
    memset(longer, 'a', 70000);
    longer[70000] = '\0';
    buf_put_str(&b, longer);
    assert_int_equal(b.len, 2 + 65535);
    free(longer);
    buf_fini(&b);
}

static void test_grow_and_consume(void **state)
{
    struct buf b = {0};
    for (uint32_t i = 0; i < 100000; i++)
        buf_put_u32(&b, i);
    assert_int_equal(b.len, 400000);
    buf_consume(&b, 4 * 99999);
    struct reader r = reader_over(b.data, b.len);
    assert_int_equal(reader_u32(&r), 99999);
    buf_consume(&b, 4);
    assert_int_equal(b.len, 0);
    buf_put(&b, NULL, 0);
    assert_false(b.failed);
    assert_non_null(buf_reserve(&b, 0));
    buf_fini(&b);
}

static void test_too_much(void **state)
{
    struct buf b = {0};
    buf_put_u8(&b, 7);
    assert_null(buf_reserve(&b, SIZE_MAX - 10));
    assert_true(b.failed);
    buf_put_u8(&b, 8); /* puts after a failure have no effect */
    assert_int_equal(b.len, 1);
    assert_int_equal(b.data[0], 7);
    buf_reset(&b);
    assert_false(b.failed);
    buf_put_u8(&b, 9);
    assert_int_equal(b.len, 1);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_strings),    cmocka_unit_test(test_grow_and_consume),
        cmocka_unit_test(test_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
