/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of running: a queue of batches, compared with a simple model of it.
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

static void test_against_model(void **state)
{
    struct running r = {0};
    static uint32_t sizes[MODEL];
    static uint64_t starts[MODEL];
    size_t first = 0, n = 0;
    uint64_t next = 0, rng = 7;
    for (int k = 0; k < STEPS; k++) {
        rng = rng * 6364136223846793005ULL + 1442695040888963407ULL;
        uint32_t dice = (uint32_t)(rng >> 33) % 8;
        if (dice < 4 && n < MODEL) {
            uint32_t count = 1 + (uint32_t)(rng >> 40) % 9;
            assert_int_equal(running_reserve(&r, count), 0);
            sizes[(first + n) % MODEL] = count;
            starts[(first + n++) % MODEL] = next;
            for (uint32_t i = 0; i < count; i++)
                running_add(&r, fake(next++));
            running_close(&r, count);
        } else if (dice < 7 && n) {
            assert_int_equal(running_oldest(&r), sizes[first]);
            for (uint32_t i = 0; i < sizes[first]; i++)
                assert_ptr_equal(running_in_oldest(&r, i), fake(starts[first] + i));
            running_drop_oldest(&r);
            first = (first + 1) % MODEL;
            n--;
        } else if (n) {
            size_t last = (first + n - 1) % MODEL;
            assert_int_equal(running_newest(&r), sizes[last]);
            for (uint32_t i = 0; i < sizes[last]; i++)
                assert_ptr_equal(running_in_newest(&r, i), fake(starts[last] + i));
            running_drop_newest(&r);
            next = starts[last];
            n--;
        }
        assert_int_equal(r.n, n);
    }
    running_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
