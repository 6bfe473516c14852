/* SPDX-License-Identifier: Apache-2.0
 *
 * world: which ranks are without the training state at a boundary, whatever happened since the last
 * boundary.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "core/boot/boot.h"
#include "core/engine/world.h"
#include "core/transport/mesh.h"

enum { MAX = 8 };

/* Makes a world. members: a bit per member, in the order of ranks; news: those that joined in
 * this epoch. */
static struct world *make(uint32_t epoch, uint32_t members, uint32_t news, struct world *older)
{
    uint32_t list[MAX];
    bool is_new[MAX];
    int local_size = 0;
    for (uint32_t m = 0; m < MAX; m++) {
        if (!(members & 1U << m))
            continue;
        is_new[local_size] = news & 1U << m;
        list[local_size++] = m;
    }
    const struct boot boot = {.is_new = is_new};
    const struct mesh mesh = {.epoch = epoch,
                              .size = local_size,
                              .hosts = 1,
                              .local_size = local_size,
                              .local_size_of = &local_size,
                              .members = list};
    struct world *w = world_make(&boot, &mesh);
    assert_non_null(w);
    w->older = older;
    return w;
}

static void test_first(void **state)
{
    struct world *w = make(5, 0xb, 0x9, NULL);
    (void)state;
    assert_int_equal(w->size, 3);
    assert_int_equal(w->joined, 2);
    assert_int_equal(w->source, 1);
    assert_true(w->is_new);
    assert_int_equal(world_rank_of(w, 3), 2);
    assert_int_equal(world_rank_of(w, 2), -1);
    world_destroy(w);
}

/* Members of the world before, of the one between and of the last one; the joiners of each. */
static void test_joined(void **state)
{
    const struct {
        uint32_t members[3], news[3];
        int joined;
    } rows[] = {
        {{0x3, 0x3, 0x3}, {0}, 0},
        {{0x3, 0x3, 0x7}, {0, 0, 0x4}, 1},
        {{0x3, 0x7, 0x7}, {0, 0x4, 0}, 1},
        {{0x7, 0x3, 0x3}, {0}, 0},
        {{0x3, 0x7, 0x3}, {0, 0x4, 0}, 0},
        {{0x7, 0x3, 0xb}, {0, 0, 0x8}, 1},
        /* A member of the world before has dropped out and joined again: it has no state. */
        {{0x7, 0x3, 0x7}, {0x4, 0, 0x4}, 1},
        {{0x7, 0x7, 0x7}, {0, 0x4, 0}, 1},
        /* A joiner of the world before got the state at that boundary. */
        {{0x7, 0x7, 0x7}, {0x4, 0}, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world *before = make(8, rows[i].members[0], rows[i].news[0], NULL);
        struct world *between = make(9, rows[i].members[1], rows[i].news[1], before);
        struct world *last = make(10, rows[i].members[2], rows[i].news[2], between);
        assert_int_equal(world_joined(last, before), rows[i].joined);
        world_destroy(last);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first),
        cmocka_unit_test(test_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
