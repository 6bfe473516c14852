/* SPDX-License-Identifier: Apache-2.0
 *
 * The claims of ranks about sets that are being formed or removed.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/engine/engine.h"

/* A rank with one set. */
struct side {
    _Alignas(64) struct engine e;
    struct set set, *table[1];
};

static struct side *side_new(int number, enum circle_state state)
{
    struct side *s = aligned_alloc(64, sizeof(*s));
    assert_non_null(s);
    memset(s, 0, sizeof(*s));
    s->set.number = number;
    s->set.circle.state = state;
    s->table[0] = &s->set;
    s->e.sets.table = s->table;
    s->e.sets.n = 1;
    return s;
}

static int tell(struct side *from, struct side *to)
{
    struct buf b = {0};
    struct err err = {0};
    set_claims_put(&from->e, &b);
    int rc = set_claims_take(&to->e, &b, &err);
    assert_int_equal(rc == 0 ? b.len : 0, 0);
    buf_fini(&b);
    return rc;
}

static void test_a_set_is_made(void **state)
{
    struct side *knows = side_new(SETS_FORMED + 5, CIRCLE_MAKING);
    struct side *waits = side_new(SETS_FORMED + 5, CIRCLE_MAKING);
    struct side *other = side_new(SETS_FORMED + 6, CIRCLE_MAKING);
    struct err err;
    assert_int_equal(set_claims_begin(&knows->e, &knows->set, &err), 0);
    assert_int_equal(set_claims_begin(&waits->e, &waits->set, &err), 0);
    assert_int_equal(set_claims_begin(&other->e, &other->set, &err), 0);
    assert_int_equal(tell(knows, waits), 0); /* nothing is known yet */
    assert_false(waits->set.made);
    knows->set.made = true;
    knows->e.sets.claims.serial = 17;
    assert_int_equal(tell(knows, waits), 0);
    assert_int_equal(tell(knows, other), 0);
    assert_true(waits->set.made);
    assert_false(other->set.made);
    assert_int_equal(other->e.sets.claims.serial, 17);
    /* The claim ends when all members know. */
    waits->set.made = false;
    set_claims_end(&knows->e, &knows->set);
    assert_int_equal(tell(knows, waits), 0);
    assert_false(waits->set.made);
    free(knows);
    free(waits);
    free(other);
}

static void test_a_set_is_removed(void **state)
{
    struct side *knows = side_new(SETS_FORMED + 1, CIRCLE_WORKS);
    struct side *waits = side_new(SETS_FORMED + 9, CIRCLE_WORKS);
    waits->set.circle.ending = true;
    struct side *uses = side_new(SETS_FORMED + 9, CIRCLE_WORKS);
    for (int i = 0; i < SET_CLAIMS_MAX; i++)
        set_claims_removed(&knows->e, SETS_FORMED + 100 + i);
    set_claims_removed(&knows->e, SETS_FORMED + 9);
    assert_int_equal(tell(knows, waits), 0);
    assert_int_equal(tell(knows, uses), 0);
    assert_true(waits->set.removed);
    assert_false(uses->set.removed);
    free(knows);
    free(waits);
    free(uses);
}

static void test_too_many(void **state)
{
    struct side *s = side_new(SETS_FORMED + 1, CIRCLE_MAKING);
    static struct set sets[SET_CLAIMS_MAX];
    struct err err = {0};
    for (int i = 0; i < SET_CLAIMS_MAX; i++)
        assert_int_equal(set_claims_begin(&s->e, &sets[i], &err), 0);
    assert_int_equal(set_claims_begin(&s->e, &s->set, &err), -EBUSY);
    for (int i = 0; i < SET_CLAIMS_MAX; i++) {
        sets[i].made = true;
        set_claims_removed(&s->e, i);
        set_claims_removed(&s->e, i);
    }
    struct buf b = {0};
    set_claims_put(&s->e, &b);
    assert_int_equal(b.len, SET_CLAIMS_BYTES_MAX);
    buf_fini(&b);
    for (int i = 0; i < SET_CLAIMS_MAX; i++)
        set_claims_end(&s->e, &sets[i]);
    assert_int_equal(s->e.sets.claims.nforming, 0);
    free(s);
}

static void test_cut_short(void **state)
{
    struct side *s = side_new(SETS_FORMED + 1, CIRCLE_MAKING);
    struct buf whole = {0};
    struct err err = {0};
    assert_int_equal(set_claims_begin(&s->e, &s->set, &err), 0);
    s->set.made = true;
    set_claims_removed(&s->e, SETS_FORMED + 2);
    set_claims_put(&s->e, &whole);
    for (size_t n = 0; n < whole.len; n++) {
        struct buf cut = {0};
        buf_put(&cut, whole.data, n);
        assert_int_equal(set_claims_take(&s->e, &cut, &err), -EPROTO);
        buf_fini(&cut);
    }
    buf_fini(&whole);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_set_is_made),
        cmocka_unit_test(test_a_set_is_removed),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_cut_short),
    };
    return cmocka_run_group_tests_name("engine/set_claims", tests, NULL, NULL);
}
