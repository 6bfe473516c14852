/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_shutdown() of a rank that has submitted operations and does not wait for them, beside ranks
 * that do, also in a plan; and a rank whose world fails while others wait for it in a set.
 *
 * takes: 4 s
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

struct plan {
    int steps, submits; /* steps before the last one, and what the last rank submits of that */
    unsigned nap_ms;    /* before it leaves */
};

enum { TENSORS = 4 };

static int submit(int step, int count, hvd_handle *ret)
{
    static const char *const names[TENSORS] = {"a", "b", "c", "d"};
    static const int64_t n = 3;
    static float data[TENSORS][3];
    int rc = 0;
    for (int i = 0; i < count && rc == 0; i++) {
        data[i][0] = data[i][1] = data[i][2] = (float)step;
        struct hvd_request r = rank_request(names[i], data[i], &n);
        rc = hvd_submit(&r, 1, &ret[i]) < 0 ? FAIL("%s", hvd_error()) : 0;
    }
    return rc;
}

/* Of the last step each operation ends well, or says why it cannot; the operations behind one that
 * has failed fail, too. */
static int collect(const hvd_handle *h, int count, bool last)
{
    bool failed = false;
    for (int i = 0; i < count; i++) {
        int rc = hvd_wait(h[i]);
        bool told =
            rc == -ESHUTDOWN || (rc == -ECONNRESET && strstr(hvd_error(), "hvd_shutdown()"));
        if (rc == 0 ? failed : !last || !told)
            return FAIL("operation %d: %d: %s", i, rc, hvd_error());
        failed = rc < 0;
        hvd_release(h[i]);
    }
    return 0;
}

static int leaves(int rank, int size, void *arg)
{
    const struct plan *p = arg;
    hvd_handle h[TENSORS];
    int rc = hvd_init() < 0 ? FAIL("%s", hvd_error()) : 0;
    for (int i = 0; i < p->steps && rc == 0; i++) {
        rc = submit(i, TENSORS, h);
        rc = rc == 0 ? collect(h, TENSORS, false) : rc;
    }
    bool leaver = rank == size - 1;
    rc = rc == 0 ? submit(p->steps, leaver ? p->submits : TENSORS, h) : rc;
    if (leaver)
        nap_ms(p->nap_ms);
    uint64_t before = clock_ns();
    rc = rc == 0 && !leaver ? collect(h, TENSORS, true) : rc;
    if (rc == 0 && clock_ns() - before > 9 * CLOCK_S)
        return FAIL("the error took long");
    return rc == 0 && hvd_shutdown() < 0 ? FAIL("%s", hvd_error()) : rc;
}

static void test_leaves(void **state)
{
    for (int i = 0; i < 12; i++) {
        struct plan p = {.steps = i % 2 ? 40 : 1,
                         .submits = i % 3 == 0 ? TENSORS : i % (TENSORS + 1),
                         .nap_ms = i % 4 == 0 ? 2 : 0};
        assert_int_equal(world_run(2 + i % 3, leaves, &p), 0);
    }
}

/* Rank 2 shuts down. Rank 0 has an operation that lacks it, and one in a set with rank 1, which
 * both have begun. Rank 0's engine fails, and rank 1 learns of that. */
static int in_a_set(int rank, int size, void *arg)
{
    const int ranks[] = {0, 1};
    const int64_t many = 48 << 20, one = 1;
    float *big = calloc((size_t)many, sizeof(*big)), x = 1;
    struct hvd_request r = rank_request("big", big, &many), lacks = rank_request("lacks", &x, &one);
    hvd_handle h, lacking;
    int rc =
        !big || hvd_init() < 0 || hvd_set_add(ranks, 2, &r.set) < 0 ? FAIL("%s", hvd_error()) : 0;
    if (rc == 0 && rank < 2) {
        nap_ms(300); /* until rank 2 has left */
        rc = hvd_submit(&r, 1, &h) < 0 ? FAIL("%s", hvd_error()) : 0;
        nap_ms(10); /* in most runs the operation has begun, and has not ended */
        if (rc == 0 && rank == 0 &&
            (hvd_submit(&lacks, 1, &lacking) < 0 || hvd_wait(lacking) != -ESHUTDOWN))
            rc = FAIL("%s", hvd_error());
        int end = rc == 0 ? hvd_wait(h) : 0;
        if (end != 0 && end != -ESHUTDOWN && end != -ECONNRESET)
            rc = FAIL("%d: %s", end, hvd_error());
    }
    rc = rc == 0 && hvd_shutdown() < 0 ? FAIL("%s", hvd_error()) : rc;
    free(big);
    return rc;
}

static void test_in_a_set(void **state)
{
    assert_int_equal(world_run(3, in_a_set, NULL), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_in_a_set),
    };
    return cmocka_run_group_tests_name("multi/leave", tests, NULL, NULL);
}
