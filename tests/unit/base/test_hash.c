/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/hash: equal bytes have equal hashes at every address, different bytes have
 * different ones, and every bit of a hash is good for the index of a table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/hash.h"

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void assert_all_differ(uint64_t *hashes, size_t n)
{
    qsort(hashes, n, sizeof(*hashes), compare);
    for (size_t i = 1; i < n; i++)
        assert_true(hashes[i - 1] != hashes[i]);
}

/* At every alignment, with any bytes after the input. */
static void test_same_bytes(void **state)
{
    const char text[] = "layer.12.attention.weight";
    char room[64];
    for (size_t n = 0; n < sizeof(text); n++) {
        uint64_t want = hash_bytes(text, n);
        for (size_t at = 0; at < 16; at++) {
            memset(room, (int)at + 1, sizeof(room));
            memcpy(room + at, text, n);
            assert_true(hash_bytes(room + at, n) == want);
        }
    }
    assert_true(hash_str(text) == hash_bytes(text, strlen(text)));
}

/* Strings of zeros of different lengths have different hashes. */
static void test_length_counts(void **state)
{
    const uint8_t zeros[100] = {0};
    uint64_t hashes[sizeof(zeros) + 1];
    for (size_t n = 0; n <= sizeof(zeros); n++)
        hashes[n] = hash_bytes(zeros, n);
    assert_all_differ(hashes, sizeof(zeros) + 1);
}

static void test_every_byte_counts(void **state)
{
    uint8_t bytes[21] = {0};
    uint64_t hashes[sizeof(bytes) * 8 + 1];
    size_t n = 0;
    hashes[n++] = hash_bytes(bytes, sizeof(bytes));
    for (size_t bit = 0; bit < sizeof(bytes) * 8; bit++) {
        bytes[bit / 8] = (uint8_t)(1 << bit % 8);
        hashes[n++] = hash_bytes(bytes, sizeof(bytes));
        bytes[bit / 8] = 0;
    }
    assert_all_differ(hashes, n);
}

/* Two words in the other order have another hash. */
static void test_order_counts(void **state)
{
    assert_true(hash_str("aaaaaaaabbbbbbbb") != hash_str("bbbbbbbbaaaaaaaa"));
    assert_true(hash_str("aaaaaaaab") != hash_str("baaaaaaaa"));
}

static void test_mix_keeps_apart(void **state)
{
    static uint64_t hashes[20000];
    for (uint64_t i = 0; i < 10000; i++) {
        hashes[i] = hash_mix(i + 1);
        hashes[10000 + i] = hash_mix((i + 1) << 40);
    }
    assert_all_differ(hashes, 20000);
}

/* Names that differ in a number, and consecutive ids: no bucket of a table gets far more than
 * its share, by the low bits or by the high bits. */
static void test_spreads(void **state)
{
    enum { BUCKETS = 256, N = BUCKETS * 64 };
    static unsigned low[BUCKETS], high[BUCKETS], ids[BUCKETS];
    for (uint32_t i = 0; i < N; i++) {
        char name[32];
        snprintf(name, sizeof(name), "DistributedOptimizer.%u", i);
        uint64_t h = hash_str(name);
        low[h % BUCKETS]++;
        high[h >> 56]++;
        ids[hash_mix((uint64_t)1 << 32 | i) % BUCKETS]++;
    }
    for (int i = 0; i < BUCKETS; i++) {
        assert_in_range(low[i], 16, 128);
        assert_in_range(high[i], 16, 128);
        assert_in_range(ids[i], 16, 128);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes),        cmocka_unit_test(test_length_counts),
        cmocka_unit_test(test_every_byte_counts), cmocka_unit_test(test_order_counts),
        cmocka_unit_test(test_mix_keeps_apart),   cmocka_unit_test(test_spreads),
    };
    return cmocka_run_group_tests_name("base/hash", tests, NULL, NULL);
}
