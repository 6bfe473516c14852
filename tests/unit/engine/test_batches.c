/* SPDX-License-Identifier: Apache-2.0
 *
 * batches: what a thaw does to batches that negotiation has handed out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/engine/engine.h"

static struct slot slots[2];

static void hand_out(struct engine *e, uint64_t id)
{
    const struct negotiate_tensor t = {.id = id};
    assert_int_equal(ids_put(&e->circle.ids, id, &slots[id]), 0);
    batches_on_batch(&e->circle, &(struct negotiate_batch){
                                     .number = 10 + id, .tensors = &t, .n = 1, .frozen = true});
}

static int setup(void **state)
{
    struct err err;
    struct engine *e = aligned_alloc(_Alignof(struct engine), sizeof(*e));
    if (!e)
        return -1;
    memset(e, 0, sizeof(*e));
    e->circle.engine = e;
    memset(slots, 0, sizeof(slots));
    e->circle.size = 1;
    *state = e;
    return batches_init(&e->circle, &err);
}

static int teardown(void **state)
{
    struct engine *e = *state;
    batches_fini(&e->circle);
    ids_fini(&e->circle.ids);
    free(e);
    return 0;
}

/* Batches of the plan that stay are batches of the log: each rank runs them. */
static void test_kept(void **state)
{
    struct engine *e = *state;
    hand_out(e, 0);
    hand_out(e, 1);
    assert_true(e->circle.batches.first->frozen);
    batches_on_thawed(&e->circle);
    const struct batch *b = e->circle.batches.first;
    for (int i = 0; i < 2; i++, b = b->next) {
        assert_ptr_equal(b->slots[0], &slots[i]);
        assert_false(b->frozen);
    }
    assert_true(b->generation);
    assert_null(b->next);
}

static void test_dropped(void **state)
{
    struct engine *e = *state;
    hand_out(e, 0);
    hand_out(e, 1);
    batches_on_dropped(&e->circle, 11);
    batches_on_thawed(&e->circle);
    assert_int_equal(slots[0].state, SLOT_BATCHED);
    assert_int_equal(slots[1].state, SLOT_NEGOTIATING);
    assert_ptr_equal(e->circle.batches.first->slots[0], &slots[0]);
    assert_true(e->circle.batches.first->next->generation);
    assert_null(e->circle.batches.first->next->next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dropped, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
