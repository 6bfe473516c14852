/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a set as its user sees them, from world to world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/engine/set_view.h"
#include "tests/unit/engine/worlds.h"

static struct world *make(uint32_t epoch, struct worlds_masks masks, int rank, struct world *older)
{
    struct world *w = worlds_make(epoch, masks, older);
    assert_non_null(w);
    w->rank = rank;
    return w;
}

static void expect(const struct set_view *v, int rank, int n, const int *ranks,
                   const uint32_t *members)
{
    assert_int_equal(v->rank, rank);
    assert_int_equal(v->size, n);
    assert_memory_equal(v->ranks, ranks, (size_t)n * sizeof(*ranks));
    assert_memory_equal(v->members, members, (size_t)n * sizeof(*members));
}

/* The set is members 5, 1, 3, in this order; this rank is member 3. Member 1 is lost, then member
 * 5, and member 1's place has a joiner. */
static void test_follow(void **state)
{
    struct set_view v = {.rank = -1}, copy = {.rank = -1};
    struct world *w = make(4, (struct worlds_masks){.members = 0x3f}, 3, NULL);
    (void)state;
    assert_int_equal(set_view_init(&v, w, (const int[]){5, 1, 3}, 3, 4, NULL), 0);
    assert_int_equal(set_view_init(&copy, w, (const int[]){0}, 1, 4, NULL), 0);
    expect(&v, 2, 3, (const int[]){5, 1, 3}, (const uint32_t[]){5, 1, 3});
    assert_int_equal(copy.rank, -1);
    set_view_copy(&copy, &v);
    w = make(5, (struct worlds_masks){.members = 0x3d}, 2, w);
    set_view_follow(&v, w, 4, true);
    expect(&v, 1, 2, (const int[]){4, 2}, (const uint32_t[]){5, 3});
    expect(&copy, 2, 3, (const int[]){5, 1, 3}, (const uint32_t[]){5, 1, 3});
    w = make(6, (struct worlds_masks){.members = 0x1d}, 2, w);
    set_view_follow(&v, w, 4, true);
    expect(&v, 0, 1, (const int[]){2}, (const uint32_t[]){3});
    /* The copy goes there at once. A member that comes anew stays out. */
    w = make(7, (struct worlds_masks){.members = 0x1f, .fresh = 0x2}, 3, w);
    set_view_follow(&copy, w, 4, true);
    expect(&copy, 0, 1, (const int[]){3}, (const uint32_t[]){3});
    set_view_fini(&v);
    set_view_fini(&copy);
    assert_null(v.ranks);
    world_destroy(w);
}

/* A broken unit's ranks leave a set that shrinks, and stay in others. */
static void test_broken(void **state)
{
    struct set_view working = {.rank = -1}, all = {.rank = -1};
    struct world *w = make(4, (struct worlds_masks){.members = 0xf}, 2, NULL);
    (void)state;
    assert_int_equal(set_view_init(&working, w, (const int[]){2, 3, 0}, 3, 3, NULL), 0);
    assert_int_equal(set_view_init(&all, w, (const int[]){2, 3, 0}, 3, 3, NULL), 0);
    w = make(5, (struct worlds_masks){.members = 0xd, .broken = 0x4}, 1, w);
    set_view_follow(&working, w, 4, true);
    expect(&working, -1, 2, (const int[]){2, 0}, (const uint32_t[]){3, 0});
    set_view_follow(&all, w, 4, false);
    expect(&all, 0, 3, (const int[]){1, 2, 0}, (const uint32_t[]){2, 3, 0});
    /* The unit is whole again. That alone brings nobody back. */
    w = make(6, (struct worlds_masks){.members = 0xf, .fresh = 0x2}, 2, w);
    set_view_follow(&working, w, 4, true);
    expect(&working, -1, 2, (const int[]){3, 0}, (const uint32_t[]){3, 0});
    set_view_become(&working, w, (const uint32_t[]){2, 3, 0}, 3);
    expect(&working, 0, 3, (const int[]){2, 3, 0}, (const uint32_t[]){2, 3, 0});
    set_view_fini(&working);
    set_view_fini(&all);
    world_destroy(w);
}

/* The set had four places when it was made; three of its members are lost, and come back. */
static void test_become(void **state)
{
    struct set_view v = {.rank = -1};
    struct world *w = make(4, (struct worlds_masks){.members = 0xf}, 0, NULL);
    (void)state;
    assert_int_equal(set_view_init(&v, w, (const int[]){3, 2, 1, 0}, 4, 4, NULL), 0);
    w = make(5, (struct worlds_masks){.members = 0x1}, 0, w);
    set_view_follow(&v, w, 4, true);
    expect(&v, 0, 1, (const int[]){0}, (const uint32_t[]){0});
    w = make(6, (struct worlds_masks){.members = 0xe1, .fresh = 0xe0}, 0, w);
    set_view_become(&v, w, (const uint32_t[]){7, 5, 6, 0}, 4);
    expect(&v, 3, 4, (const int[]){3, 1, 2, 0}, (const uint32_t[]){7, 5, 6, 0});
    set_view_become(&v, w, (const uint32_t[]){7, 5}, 2);
    expect(&v, -1, 2, (const int[]){3, 1}, (const uint32_t[]){7, 5});
    set_view_fini(&v);
    world_destroy(w);
}

static void test_filter(void **state)
{
    struct world *w = make(4, (struct worlds_masks){.members = 0xff}, 0, NULL);
    w = make(5, (struct worlds_masks){.members = 0xfe, .broken = 0x6}, 0, w);
    w = make(6, (struct worlds_masks){.members = 0xee, .fresh = 0x80}, 0, w);
    const struct {
        uint32_t since;
        bool working;
        int n;
        uint32_t members[WORLDS_MAX];
    } rows[] = {
        {4, false, 5, {6, 5, 3, 2, 1}},
        {4, true, 3, {6, 5, 3}},
        {6, true, 6, {7, 6, 5, 3, 2, 1}},
        {6, false, 6, {7, 6, 5, 3, 2, 1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t members[WORLDS_MAX] = {7, 6, 5, 4, 3, 2, 1, 0};
        int n = set_view_filter(members, WORLDS_MAX, w, rows[i].since, rows[i].working);
        assert_int_equal(n, rows[i].n);
        assert_memory_equal(members, rows[i].members, (size_t)n * sizeof(*members));
    }
    world_destroy(w);
}

/* The view has members 4, 2, 6, 1. The mesh has lost some of them already, or has some that the
 * user does not see yet. */
static void test_maps(void **state)
{
    const struct {
        int n;
        uint32_t mesh[WORLDS_MAX];
        int to_mesh[4], to_view[WORLDS_MAX];
        bool same;
    } rows[] = {
        {4, {4, 2, 6, 1}, {0, 1, 2, 3}, {0, 1, 2, 3}, true},
        {3, {4, 6, 1}, {0, -1, 1, 2}, {0, 2, 3}, false},
        {2, {2, 6}, {-1, 0, 1, -1}, {1, 2}, false},
        {5, {4, 2, 7, 6, 1}, {0, 1, 3, 4}, {0, 1, -1, 2, 3}, false},
        {5, {4, 2, 6, 1, 7}, {0, 1, 2, 3}, {0, 1, 2, 3, -1}, false},
        {4, {4, 7, 6, 1}, {0, -1, 2, 3}, {0, -1, 2, 3}, false},
    };
    struct world *w = make(4, (struct worlds_masks){.members = 0xff}, 6, NULL);
    struct set_view v = {.rank = -1};
    struct world_map m = {.rank = -1};
    (void)state;
    assert_int_equal(set_view_init(&v, w, (const int[]){4, 2, 6, 1}, 4, WORLDS_MAX, NULL), 0);
    assert_int_equal(set_view_map_init(&m, WORLDS_MAX, NULL), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        set_view_map(&v, rows[i].mesh, rows[i].n, &m);
        assert_int_equal(m.rank, 2);
        assert_int_equal(m.size, 4);
        assert_int_equal(m.same, rows[i].same);
        assert_memory_equal(m.to_mesh, rows[i].to_mesh, sizeof(rows[i].to_mesh));
        assert_memory_equal(m.to_world, rows[i].to_view, (size_t)rows[i].n * sizeof(int));
    }
    world_map_fini(&m);
    set_view_fini(&v);
    world_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follow), cmocka_unit_test(test_broken), cmocka_unit_test(test_become),
        cmocka_unit_test(test_filter), cmocka_unit_test(test_maps),
    };
    return cmocka_run_group_tests_name("engine/set_view", tests, NULL, NULL);
}
