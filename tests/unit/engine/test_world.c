/* SPDX-License-Identifier: Apache-2.0
 *
 * world: which ranks are without the training state at a boundary, whatever happened since the last
 * boundary.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/engine/worlds.h"

/* Makes a world. members: a bit per member, in the order of ranks; news: those that joined in
 * this epoch. */
static struct world *make(uint32_t epoch, uint32_t members, uint32_t news, struct world *older)
{
    struct world *w =
        worlds_make(epoch, (struct worlds_masks){.members = members, .fresh = news}, older);
    assert_non_null(w);
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
    assert_int_equal(w->places[2], 3);
    assert_int_equal(w->place, 0);
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
        /* It heard of its admission after the next loss. */
        {{0x7, 0x7, 0x7}, {0x4, 0x4, 0}, 0},
        {{0x3, 0x7, 0x7}, {0, 0x4, 0x4}, 1},
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

/* A member has worked if it was in each world since then and in no broken unit, that world
 * included. */
static void test_worked(void **state)
{
    const struct {
        uint32_t members[3], fresh[3], broken[3], kept, worked;
    } rows[] = {
        {{0x7, 0x7, 0x7}, {0}, {0}, 0x7, 0x7},
        {{0x7, 0x7, 0x7}, {0}, {0, 0x2, 0}, 0x7, 0x5},
        {{0x7, 0x7, 0x7}, {0}, {0x1, 0, 0x4}, 0x7, 0x2},
        /* A member is lost, and a joiner breaks nothing. */
        {{0x7, 0x5, 0xd}, {0, 0, 0x8}, {0}, 0x5, 0x5},
        /* It dropped out, and came again. */
        {{0x7, 0x6, 0x7}, {0, 0, 0x1}, {0}, 0x6, 0x6},
        {{0x7, 0x7, 0x7}, {0, 0x1, 0}, {0}, 0x6, 0x6},
        /* A joiner of the first world got its state there. */
        {{0x7, 0x7, 0x7}, {0x2, 0, 0}, {0}, 0x7, 0x7},
        {{0x7, 0x7, 0x7}, {0x2, 0x2, 0x2}, {0}, 0x7, 0x7},
        {{0x7, 0x5, 0x7}, {0x2, 0, 0x2}, {0}, 0x5, 0x5},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world *w = NULL;
        for (uint32_t k = 0; k < 3; k++) {
            const struct worlds_masks m = {.members = rows[i].members[k],
                                           .fresh = rows[i].fresh[k],
                                           .broken = rows[i].broken[k]};
            w = worlds_make(8 + k, m, w);
            assert_non_null(w);
        }
        for (uint32_t m = 0; m < WORLDS_MAX; m++) {
            assert_int_equal(world_has_kept(w, 8, m), rows[i].kept >> m & 1);
            assert_int_equal(world_has_worked(w, 8, m), rows[i].worked >> m & 1);
        }
        world_destroy(w);
    }
}

/* A joiner that is still one in the next epoch has not come anew, unless its process has begun
 * anew.
 */
static void test_still_joining(void **state)
{
    const struct worlds_masks joins = {.members = 0x3, .fresh = 0x2, .starts = 0x2},
                              goes_on = {.members = 0x3, .fresh = 0x2};
    (void)state;
    struct world *w = worlds_make(9, goes_on, worlds_make(8, joins, NULL));
    assert_non_null(w);
    assert_true(world_has_kept(w, 8, 1));
    world_destroy(w);
    w = worlds_make(9, joins, worlds_make(8, joins, NULL));
    assert_non_null(w);
    assert_false(world_has_kept(w, 8, 1));
    world_destroy(w);
}

/* What happened before `since` does not count. */
static void test_worked_since(void **state)
{
    const struct worlds_masks all = {.members = 0x7}, broken = {.members = 0x7, .broken = 0x2};
    struct world *w = worlds_make(10, all, worlds_make(9, all, worlds_make(8, broken, NULL)));
    (void)state;
    assert_non_null(w);
    assert_int_equal(w->older->older->nbroken, 1);
    assert_false(world_has_worked(w, 8, 1));
    assert_true(world_has_worked(w, 9, 1));
    assert_true(world_has_worked(w, 8, 0));
    world_destroy(w);
}

static void test_places(void **state)
{
    (void)state;
    for (uint32_t mask = 1; mask < 1 << WORLDS_MAX; mask++) {
        struct world *w = make(5, mask, 0, NULL);
        int rank = 0;
        for (int place = -1; place <= WORLDS_MAX; place++) {
            bool filled = place >= 0 && mask >> place & 1;
            assert_int_equal(world_at_place(w, place), filled ? rank : -1);
            rank += filled;
        }
        world_destroy(w);
    }
}

/* A process that was in `since` is the same one later, also if it was in no world in between. */
static void test_process(void **state)
{
    const struct worlds_masks masks[] = {{.members = 0xf}, {.members = 0x3}, {0xf, 0xc, 0, 0x8}};
    struct world *w = NULL;
    (void)state;
    for (uint32_t k = 0; k < 3; k++) {
        w = worlds_make(8 + k, masks[k], w);
        assert_non_null(w);
    }
    assert_true(world_has_process(w, 8, 0));
    assert_true(world_has_process(w, 8, 2));  /* it has come again */
    assert_false(world_has_process(w, 8, 3)); /* another process has its number */
    assert_true(world_has_process(w, 10, 3));
    assert_false(world_has_process(w, 8, 4));
    world_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first),        cmocka_unit_test(test_joined),
        cmocka_unit_test(test_worked),       cmocka_unit_test(test_still_joining),
        cmocka_unit_test(test_worked_since), cmocka_unit_test(test_places),
        cmocka_unit_test(test_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
