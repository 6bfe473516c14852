/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of running: batches that finish in any order, compared with a simple model.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/negotiate/running.h"

enum { STEPS = 20000, MODEL = 4096 };

static struct tensor *fake(uint64_t i)
{
    return (struct tensor *)(uintptr_t)(i + 1); /* never dereferenced */
}

/* Which batches the model has, by number modulo MODEL. */
static struct {
    bool live;
    uint32_t n;
    uint64_t start; /* number of its first tensor */
} model[MODEL];

static void check(const struct running *r, uint64_t number)
{
    const struct running_batch *b = running_get(r, number);
    if (!model[number % MODEL].live) {
        assert_null(b);
        return;
    }
    assert_int_equal(b->n, model[number % MODEL].n);
    assert_int_equal(b->bound, number % 3 == 0);
    for (uint32_t i = 0; i < b->n; i++)
        assert_ptr_equal(running_tensor(r, b, i), fake(model[number % MODEL].start + i));
}

static void test_against_model(void **state)
{
    struct running r = {0};
    uint64_t first = 0, next = 0, tensors = 0, rng = 7;
    size_t live = 0, bound = 0;
    assert_null(running_get(&r, 0));
    for (int k = 0; k < STEPS; k++) {
        rng = rng * 6364136223846793005ULL + 1442695040888963407ULL;
        if ((rng >> 33) % 2 && next - first < MODEL) {
            uint32_t n = 1 + (uint32_t)(rng >> 40) % 9;
            assert_int_equal(running_reserve(&r, n), 0);
            model[next % MODEL].live = true;
            model[next % MODEL].n = n;
            model[next % MODEL].start = tensors;
            for (uint32_t i = 0; i < n; i++)
                running_add(&r, fake(tensors++));
            uint64_t got = running_close(&r, (struct running_batch){.bound = next % 3 == 0});
            assert_int_equal(got, next);
            bound += next++ % 3 == 0;
            live++;
        } else if (live) {
            /* One of the oldest, so that the ring buffers wrap; sometimes any. */
            uint64_t most = (rng >> 36) % 8 ? 4 : next - first, number = first;
            for (uint64_t skip = (rng >> 40) % most;
                 number + 1 < next && (skip || !model[number % MODEL].live); number++)
                skip -= skip ? 1 : 0;
            if (!model[number % MODEL].live)
                number = first;
            running_remove(&r, number);
            model[number % MODEL].live = false;
            bound -= number % 3 == 0;
            live--;
        }
        while (first < next && !model[first % MODEL].live)
            first++;
        assert_int_equal(r.n, live);
        assert_int_equal(r.nbound, bound);
        assert_int_equal(r.first, first);
        assert_int_equal(r.next, next);
        for (uint64_t number = first; number < next && number < first + 9; number++)
            check(&r, number);
        if (next > first)
            check(&r, next - 1);
        assert_null(running_get(&r, next));
    }
    assert_true(next > 5000);
    running_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
