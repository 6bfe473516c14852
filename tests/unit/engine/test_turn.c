/* SPDX-License-Identifier: Apache-2.0
 *
 * turn: a rank's answer when other ranks ask in which call it waits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/engine/engine.h"
#include "core/engine/turn.h"
#include "tests/harness/rank.h"

static int setup(void **state)
{
    struct err err;
    struct engine *e = aligned_alloc(_Alignof(struct engine), sizeof(*e));
    if (!e)
        return -1;
    memset(e, 0, sizeof(*e));
    e->circle.engine = e;
    e->circle.size = 1;
    *state = e;
    return queue_create(0, 1, 0, &e->queue, &err);
}

static int teardown(void **state)
{
    struct engine *e = *state;
    queue_destroy(e->queue);
    free(e);
    return 0;
}

static void expect_waiting(struct engine *e, const char *want)
{
    char text[100];
    turn_negotiate_ops.waiting_in(&e->circle, text, sizeof(text));
    assert_string_equal(text, want);
}

static struct slot *submitted(struct engine *e, const char *name)
{
    static float x;
    static const int64_t one = 1;
    struct hvd_request r = rank_request(name, &x, &one);
    struct err err;
    hvd_handle handle;
    assert_int_equal(queue_submit(e->queue, &r, 1, 0, &handle, &err), 0);
    return queue_find(e->queue, handle);
}

/* A frozen schedule starts an operation when it is submitted, before a caller waits for it. */
static void test_waits_in_what_runs(void **state)
{
    struct engine *e = *state;
    expect_waiting(e, "nothing: it has not called anything yet");
    struct slot *slot = submitted(e, "grad");
    assert_ptr_equal(queue_take(e->queue), slot);
    slot->state = SLOT_BATCHED;
    turn_prioritize(e, slot, PRIORITY_WAITED);
    expect_waiting(e, "hvd_wait(grad)");
}

static void test_waits_in_the_fast_path(void **state)
{
    struct engine *e = *state;
    memcpy(e->fast.name, "step", 5);
    e->fast_busy = true;
    e->fast.state = SLOT_BATCHED;
    turn_prioritize(e, &e->fast, PRIORITY_WAITED);
    expect_waiting(e, "hvd_wait(step)");
}

static void test_waits_in_many(void **state)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    struct engine *e = *state;
    char text[100];
    for (int i = 0; i < 5; i++)
        turn_prioritize(e, submitted(e, names[i]), PRIORITY_WAITED);
    turn_negotiate_ops.waiting_in(&e->circle, text, sizeof(text));
    assert_non_null(strstr(text, "hvd_wait("));
    assert_non_null(strstr(text, " and 2 more"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_waits_in_what_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_waits_in_the_fast_path, setup, teardown),
        cmocka_unit_test_setup_teardown(test_waits_in_many, setup, teardown),
    };
    return cmocka_run_group_tests_name("engine/turn", tests, NULL, NULL);
}
