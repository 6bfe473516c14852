/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks say about their fixed sets, and which ranks are part of a broken unit by that.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/engine/engine.h"
#include "core/engine/set_units.h"

enum { SETS = 600, RANKS = 6, LIST = 400 };

/* A rank, the sets that it knows, and the newest world. */
struct side {
    _Alignas(64) struct engine e;
    struct set sets[SETS], *table[SETS];
    struct world world;
    int places[RANKS];
    bool fresh[RANKS], broken[RANKS];
};

/* A rank of a world of n ranks that have these places. */
static struct side *side_new(const int *places, int n)
{
    struct side *s = aligned_alloc(64, sizeof(*s));
    assert_non_null(s);
    memset(s, 0, sizeof(*s));
    memcpy(s->places, places, (size_t)n * sizeof(*places));
    s->world = (struct world){.size = n, .places = s->places, .fresh = s->fresh};
    s->e.worlds = &s->world;
    s->e.sets.table = s->table;
    s->e.boot.keeps_places = true;
    s->e.boot.size = n;
    s->e.boot.places = s->places;
    s->e.boot.broken = s->broken;
    return s;
}

/* Numbers rise. in: this rank is in the set. */
static struct set *add(struct side *s, int number, const int *places, int n, bool fixed, bool in)
{
    struct set *set = &s->sets[s->e.sets.n];
    set->number = number;
    set->places = malloc((size_t)n * sizeof(*places));
    assert_non_null(set->places);
    memcpy(set->places, places, (size_t)n * sizeof(*places));
    set->whole = n;
    set->fixed = fixed;
    set->view.rank = in ? 0 : -1;
    s->table[s->e.sets.n++] = set;
    return set;
}

static void side_free(struct side *s)
{
    for (size_t i = 0; i < s->e.sets.n; i++)
        free(s->sets[i].places);
    free(s);
}

static size_t bytes_of(const struct side *s)
{
    struct buf b = {0};
    set_units_put(&s->e, &b);
    size_t n = b.len;
    buf_fini(&b);
    return n;
}

/* All that `from` says is read, and what follows it stays. */
static void tell(const struct side *from, struct side *to, struct set_units *u)
{
    struct buf b = {0};
    struct err err = {0};
    set_units_put(&from->e, &b);
    buf_put_u8(&b, 0x77);
    assert_int_equal(set_units_take(&to->e, u, &b, &err), 0);
    assert_int_equal(b.len, 1);
    assert_int_equal(b.data[0], 0x77);
    buf_fini(&b);
}

static void test_fixed_is_learned(void **state)
{
    const int all[] = {0, 1, 2, 3}, pair[] = {0, 1}, turned[] = {1, 0}, more[] = {0, 1, 2};
    struct side *knows = side_new(all, 4), *waits = side_new(all, 4);
    struct set_units u = {.places = NULL};
    (void)state;
    add(knows, 2, pair, 2, true, true);
    add(knows, 3, pair, 2, false, true);
    add(knows, 4, pair, 2, true, true);
    add(knows, 5, pair, 2, true, true);
    add(knows, 6, pair, 2, true, true);
    struct set *same = add(waits, 2, pair, 2, false, true);
    struct set *shrinks = add(waits, 3, pair, 2, false, true);
    struct set *order = add(waits, 4, turned, 2, false, true);
    struct set *larger = add(waits, 5, more, 3, false, true);
    struct set *without = add(waits, 6, pair, 2, false, true);
    free(without->places);
    without->places = NULL; /* as in a job that does not keep places */
    assert_int_equal(bytes_of(waits), 2);
    tell(waits, knows, &u);
    tell(knows, waits, &u);
    assert_true(same->fixed);
    assert_false(shrinks->fixed || order->fixed || larger->fixed || without->fixed);
    assert_false(knows->sets[1].fixed);
    assert_int_equal(bytes_of(waits), 2 + 4 + 16); /* it tells others from now on */
    set_units_fini(&u);
    side_free(knows);
    side_free(waits);
}

/* Two pipelines of three places, each made of two pairs. Place 4 is empty. Rank 0 has heard of the
 * pairs of the others by their cards alone. */
static void test_broken(void **state)
{
    const int all[] = {0, 1, 2, 3, 5, 6};
    struct side *sides[RANKS];
    struct set_units u = {.places = NULL};
    (void)state;
    for (int r = 0; r < RANKS; r++) {
        sides[r] = side_new(all, RANKS);
        for (int p = 0; p < 6; p++) {
            const int pair[] = {p, p + 1};
            bool in = p == all[r] || p + 1 == all[r];
            if (p != 2 && p != 5 && in)
                add(sides[r], SETS_FORMED + 1 + p, pair, 2, true, in);
        }
        tell(sides[r], sides[0], &u);
    }
    assert_int_equal(set_units_end(&sides[0]->e, &u, NULL), 0);
    const bool broken[RANKS] = {false, false, false, true, true, false};
    assert_memory_equal(sides[0]->broken, broken, sizeof(broken));
    set_units_fini(&u);
    for (int r = 0; r < RANKS; r++)
        side_free(sides[r]);
}

/* A set without members is told by all others, if they can know it. */
static void test_told_by_others(void **state)
{
    const int all[] = {0, 1, 4, 5}, lost[] = {2, 3}, half[] = {3, 4}, link[] = {1, 2};
    struct side *s = side_new(all, 4);
    struct set_units u = {.places = NULL};
    (void)state;
    add(s, 1, half, 2, true, false); /* the rank at place 4 tells */
    assert_int_equal(bytes_of(s), 2);
    s->fresh[2] = true; /* it has joined, so it does not know the set */
    assert_int_equal(bytes_of(s), 2 + 20);
    s->fresh[2] = false;
    add(s, 2, lost, 2, false, false); /* it shrinks: nobody needs it */
    assert_int_equal(bytes_of(s), 2);
    struct set *gone = add(s, 3, lost, 2, true, false);
    assert_int_equal(bytes_of(s), 2 + 20);
    gone->number = SETS_FORMED + 3; /* only its members knew it */
    assert_int_equal(bytes_of(s), 2);
    gone->number = 3;
    add(s, 4, link, 2, true, true);
    tell(s, s, &u);
    assert_int_equal(set_units_end(&s->e, &u, NULL), 0);
    const bool broken[] = {false, true, false, false};
    assert_memory_equal(s->broken, broken, sizeof(broken));
    set_units_fini(&u);
    side_free(s);
}

static void test_places_are_not_kept(void **state)
{
    const int all[] = {0, 1};
    struct side *s = side_new(all, 2);
    struct set_units u = {.places = NULL};
    struct set *set = add(s, 1, all, 2, true, true);
    (void)state;
    free(set->places);
    set->places = NULL;
    s->e.boot.keeps_places = false;
    s->e.boot.broken = NULL; /* not to be touched */
    assert_int_equal(bytes_of(s), 2);
    assert_int_equal(set_units_fit(&s->e, set, NULL), 0);
    tell(s, s, &u);
    assert_int_equal(set_units_end(&s->e, &u, NULL), 0);
    assert_null(u.places);
    set_units_fini(&u);
    side_free(s);
}

/* Places without a pattern: a run each, or one for two. */
static int scatter(int *places, int n, int from)
{
    for (int i = 0; i < n; i++)
        places[i] = from + i * i;
    return n;
}

/* Fixes sets until one is refused: all sets before it fit, and it would not have fit. What
 * set_units_fit() says is what set_units_put() writes. */
static void fill(int step)
{
    const int all[] = {0};
    struct side *s = side_new(all, 1);
    struct err err = {0};
    int rc = 0;
    size_t before = 0, n = 0, need = 0, limit = 0;
    while (rc == 0 && n < SETS) {
        int places[LIST];
        int length = scatter(places, 1 + (int)n * step % LIST, (int)n);
        struct set *set = add(s, (int)++n, places, length, false, true);
        before = bytes_of(s);
        rc = set_units_fit(&s->e, set, &err);
        set->fixed = true;
    }
    assert_int_equal(rc, -E2BIG);
    const char *numbers = strstr(err.msg, "need ");
    assert_non_null(numbers);
    assert_int_equal(sscanf(numbers, "need %zu bytes, %zu", &need, &limit), 2);
    assert_true(before <= limit && need > limit);
    assert_int_equal(limit, SET_UNITS_BYTES_MAX);
    /* Another rank may have fixed the last one all the same: the card stays as long. */
    assert_int_equal(bytes_of(s), before);
    /* It counts a set that is fixed already once. */
    s->table[n - 1]->fixed = false;
    assert_int_equal(set_units_fit(&s->e, s->table[0], &err), 0);
    side_free(s);
}

static void test_limit(void **state)
{
    (void)state;
    for (int step = 0; step < 50; step += 7)
        fill(step);
}

/* Sets of other ranks count: when their members are lost, this rank has to tell of them. */
static void test_limit_of_others(void **state)
{
    const int own[] = {0}, other[] = {1, 2};
    struct side *s = side_new(own, 1);
    int rc = 0;
    (void)state;
    while (rc == 0 && s->e.sets.n < SETS) {
        struct set *set = add(s, (int)s->e.sets.n + 1, other, 2, false, false);
        rc = set_units_fit(&s->e, set, NULL);
        set->fixed = rc == 0;
    }
    assert_int_equal(rc, -E2BIG);
    assert_int_equal(bytes_of(s), 2 + (s->e.sets.n - 1) * 20); /* nobody has place 1 or 2 */
    side_free(s);
}

static int take(struct side *s, const void *bytes, size_t n)
{
    struct buf b = {0};
    struct err err = {0};
    struct set_units u = {.places = NULL};
    buf_put(&b, bytes, n);
    int rc = set_units_take(&s->e, &u, &b, &err);
    assert_int_equal(rc < 0 ? b.len : n, n);
    set_units_fini(&u);
    buf_fini(&b);
    return rc;
}

static void test_cut_short(void **state)
{
    const int all[] = {0, 1, 2, 3};
    struct side *s = side_new(all, 4);
    struct buf whole = {0};
    (void)state;
    add(s, 1, all, 4, true, true);
    add(s, 2, all, 1, true, true);
    set_units_put(&s->e, &whole);
    assert_int_equal(take(s, whole.data, whole.len), 0);
    for (size_t n = 0; n < whole.len; n++)
        assert_int_equal(take(s, whole.data, n), -EPROTO);
    buf_fini(&whole);
    side_free(s);
}

static void test_foreign(void **state)
{
    const struct {
        uint32_t number, runs, first, step, length;
        int rc;
    } rows[] = {
        {1, 1, 0, 1, BOOT_SIZE_MAX, 0},    {INT32_MAX, 1, BOOT_SIZE_MAX - 1, 0, 2, 0},
        {UINT32_MAX, 1, 0, 1, 2, -EPROTO}, {1, 0, 0, 1, 2, -EPROTO},
        {1, 1, 0, 1, 0, -EPROTO},          {1, 1, 0, 1, BOOT_SIZE_MAX + 1, -EPROTO},
        {1, 1, 0, 0, UINT32_MAX, -EPROTO}, {1, 1, BOOT_SIZE_MAX, 0, 1, -EPROTO},
        {1, 1, 1, UINT32_MAX, 3, -EPROTO}, {1, BOOT_SIZE_MAX + 1, 0, 1, 1, -EPROTO},
    };
    const int all[] = {0};
    struct side *s = side_new(all, 1);
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf b = {0};
        buf_put_u16(&b, 1);
        buf_put_u32(&b, rows[i].number);
        buf_put_u32(&b, rows[i].runs);
        buf_put_u32(&b, rows[i].first);
        buf_put_u32(&b, rows[i].step);
        buf_put_u32(&b, rows[i].length);
        if (take(s, b.data, b.len) != rows[i].rc)
            fail_msg("row %zu", i);
        buf_fini(&b);
    }
    side_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixed_is_learned),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_told_by_others),
        cmocka_unit_test(test_places_are_not_kept),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_limit_of_others),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_foreign),
    };
    return cmocka_run_group_tests_name("engine/set_units", tests, NULL, NULL);
}
