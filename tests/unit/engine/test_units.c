/* SPDX-License-Identifier: Apache-2.0
 *
 * Units: random fixed sets of places, beside a search that goes from set to set.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/engine/units.h"

enum { PLACES = 96, SETS = 24, MEMBERS = 6, ROUNDS = 4000 };

struct sets {
    int n, size[SETS], places[SETS][MEMBERS];
    bool filled[PLACES];
};

static uint64_t random_state = 1;

static int below(int n)
{
    random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int)((random_state >> 33) % (uint64_t)n);
}

/* Few places make large units, many places make small ones. A set may have a place twice: it comes
 * from another rank. */
static void draw(struct sets *s)
{
    int places = 2 + below(PLACES - 1), of_ten = below(11);
    *s = (struct sets){.n = below(SETS + 1)};
    for (int i = 0; i < s->n; i++) {
        s->size[i] = 1 + below(MEMBERS);
        for (int k = 0; k < s->size[i]; k++)
            s->places[i][k] = below(places);
    }
    for (int p = 0; p < PLACES; p++)
        s->filled[p] = below(10) < of_ten;
}

static bool has(const struct sets *s, int set, int place)
{
    for (int k = 0; k < s->size[set]; k++)
        if (s->places[set][k] == place)
            return true;
    return false;
}

/* Marks what can be reached from a place by common sets, and says whether a place is empty there.
 */
static bool reaches_empty(const struct sets *s, int place, bool *seen)
{
    bool empty = false;
    seen[place] = true;
    for (int i = 0; i < s->n; i++) {
        if (!has(s, i, place))
            continue;
        for (int k = 0; k < s->size[i]; k++) {
            int other = s->places[i][k];
            empty = empty || !s->filled[other];
            empty = (!seen[other] && reaches_empty(s, other, seen)) || empty;
        }
    }
    return empty;
}

/* Sets and places come in a random order, as the cards do. */
static void tell(const struct sets *s, struct units *u)
{
    int first = s->n ? below(s->n) : 0, from = below(PLACES);
    for (int p = 0; p < from; p++)
        if (s->filled[p])
            assert_int_equal(units_fill(u, p, NULL), 0);
    for (int i = 0; i < s->n; i++) {
        int set = (first + i) % s->n;
        assert_int_equal(units_add(u, s->places[set], s->size[set], NULL), 0);
    }
    for (int p = from; p < PLACES; p++)
        if (s->filled[p])
            assert_int_equal(units_fill(u, p, NULL), 0);
    units_settle(u);
}

static void test_random_sets(void **state)
{
    int broken = 0, whole = 0;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct sets s;
        struct units u = {.n = 0};
        draw(&s);
        tell(&s, &u);
        for (int p = 0; p < PLACES; p++) {
            bool seen[PLACES] = {false}, expected = reaches_empty(&s, p, seen);
            if (units_is_broken(&u, p) != expected)
                fail_msg("round %d: place %d is %s", round, p, expected ? "not broken" : "broken");
            broken += expected;
            whole += !expected;
        }
        units_fini(&u);
    }
    assert_true(broken > ROUNDS && whole > ROUNDS); /* both are common */
}

/* A unit between the last possible place and the first one. */
static void test_far_places(void **state)
{
    const int far[] = {65535, 3}, near[] = {3, 0}, other[] = {7, 40000};
    struct units u = {.n = 0};
    (void)state;
    assert_false(units_is_broken(&u, 65535)); /* nothing is known */
    assert_int_equal(units_add(&u, far, 2, NULL), 0);
    assert_int_equal(units_add(&u, other, 2, NULL), 0);
    assert_int_equal(units_add(&u, near, 2, NULL), 0);
    const int filled[] = {0, 3, 7, 40000};
    for (int i = 0; i < 4; i++)
        assert_int_equal(units_fill(&u, filled[i], NULL), 0);
    units_settle(&u);
    assert_true(units_is_broken(&u, 0));
    assert_true(units_is_broken(&u, 3));
    assert_true(units_is_broken(&u, 65535));
    assert_false(units_is_broken(&u, 7));
    assert_false(units_is_broken(&u, 40000));
    assert_false(units_is_broken(&u, 1)); /* in no set */
    units_fini(&u);
    assert_int_equal(u.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_sets),
        cmocka_unit_test(test_far_places),
    };
    return cmocka_run_group_tests_name("engine/units", tests, NULL, NULL);
}
