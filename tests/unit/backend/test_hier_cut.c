/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hier_cut: how a chunk is cut into shards. Every element is in one shard, shards do not
 * overlap and fit their memory, and the shards of a piece depend on its own element count only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/backend/hier.h"

static struct staged_chunk chunk;
static struct hier_part parts[STAGED_PIECES];

static void add(size_t count)
{
    chunk.pieces[chunk.n++].count = count;
}

static void check(int shards, size_t elem)
{
    size_t size = hier_cut(&chunk, shards, elem, parts), end = 0;
    assert_true(size % 16 == 0 && size <= hier_shard_max(shards));
    for (size_t i = 0; i < chunk.n; i++) {
        size_t sum = 0, before = SIZE_MAX;
        assert_true(parts[i].at >= end && parts[i].at % 16 == 0);
        for (int s = 0; s < shards; s++) {
            size_t count = hier_count(&parts[i], chunk.pieces[i].count, s);
            /* Chunks come in order, so only the last one may be shorter. */
            assert_true(count <= before && (count == 0 || (size_t)s * parts[i].each == sum));
            assert_true(parts[i].at + count * elem <= size);
            before = count;
            sum += count;
        }
        assert_int_equal(sum, chunk.pieces[i].count);
        end = parts[i].at + parts[i].each * elem;
    }
}

static void test_all(void **state)
{
    static const size_t elems[] = {1, 2, 4, 8};
    for (size_t e = 0; e < 4; e++)
        for (int shards = 2; shards <= 9; shards++) {
            chunk.n = 0;
            add(STAGED_CHUNK / elems[e]);
            check(shards, elems[e]);
            chunk.n = 0;
            add(1);
            add(shards - 1);
            add(shards);
            add(shards + 1);
            add(4099);
            check(shards, elems[e]);
            chunk.n = 0;
            while (chunk.n < STAGED_PIECES)
                add(1 + chunk.n * 7 % (STAGED_CHUNK / STAGED_PIECES / elems[e] - 1));
            check(shards, elems[e]);
        }
}

/* int16 is converted to int32 for NCCL. */
static void test_wider(void **state)
{
    for (int shards = 2; shards <= 9; shards++) {
        chunk.n = 0;
        add(STAGED_CHUNK / 2);
        check(shards, 4);
    }
}

static void test_alone(void **state)
{
    for (int shards = 2; shards <= 9; shards++) {
        chunk.n = 0;
        add(12345);
        hier_cut(&chunk, shards, 4, parts);
        size_t each = parts[0].each;
        chunk.n = 0;
        add(77);
        add(12345);
        hier_cut(&chunk, shards, 4, parts);
        assert_int_equal(parts[1].each, each);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all), cmocka_unit_test(test_wider),
                                       cmocka_unit_test(test_alone)};
    return cmocka_run_group_tests_name("backend/test_hier_cut", tests, NULL, NULL);
}
