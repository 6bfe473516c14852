/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_shutdown() of a rank that has submitted operations and does not wait for them, beside ranks
 * that do, also in a plan; ranks whose world fails beside sets; ranks that do not answer.
 *
 * takes: 15 s, waiting
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>
#include <hvd_messages.h>

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

/* ---- the world has failed, a set goes on ------------------------------------------------------
 */

static const int pair[] = {0, 1};

/* An operation of the world, which lacks rank 2. */
static int lacks_two(void)
{
    static const int64_t one = 1;
    static float x = 1;
    struct hvd_request r = rank_request("lacks", &x, &one);
    hvd_handle h;
    int rc = rank_wait(&r, &h);
    return rc == -ESHUTDOWN ? 0 : FAIL("%d: %s", rc, hvd_error());
}

static int sums(struct hvd_request *r, int rounds)
{
    hvd_handle h;
    for (int i = 0; i < rounds; i++) {
        if (rank_wait(r, &h) < 0)
            return FAIL("round %d: %s", i, hvd_error());
        hvd_release(h);
    }
    return 0;
}

static int end(int rc)
{
    return rc == 0 && hvd_shutdown() < 0 ? FAIL("%s", hvd_error()) : rc;
}

/* Rank 2 shuts down. Rank 0 has an operation that lacks it, and one in a set with rank 1, which
 * both have begun. The set goes on, with messages, also of the world. */
static int in_a_set(int rank, int size, void *arg)
{
    const int64_t many = 48 << 20;
    float *big = calloc((size_t)many, sizeof(*big)), x = 1;
    struct hvd_request r = rank_request("big", big, &many);
    hvd_handle h;
    int rc =
        !big || hvd_init() < 0 || hvd_set_add(pair, 2, &r.set) < 0 ? FAIL("%s", hvd_error()) : 0;
    if (rc == 0 && rank < 2) {
        nap_ms(300); /* until rank 2 has left */
        rc = hvd_submit(&r, 1, &h) < 0 ? FAIL("%s", hvd_error()) : 0;
        nap_ms(10); /* in most runs the operation has begun, and has not ended */
        rc = rc == 0 && rank == 0 ? lacks_two() : rc;
        rc = rc == 0 && hvd_wait(h) < 0 ? FAIL("%s", hvd_error()) : rc;
        rc = rc == 0 ? sums(&r, 2) : rc;
    }
    if (rc == 0 && rank == 0)
        rc = hvd_send(&x, sizeof(x), 1, 3, 0) < 0 ? FAIL("%s", hvd_error()) : 0;
    else if (rc == 0 && rank == 1)
        rc = hvd_recv(&x, sizeof(x), 0, 3, 0, NULL) < 0 ? FAIL("%s", hvd_error()) : 0;
    rc = end(rc);
    free(big);
    return rc;
}

static void test_in_a_set(void **state)
{
    assert_int_equal(world_run(3, in_a_set, NULL), 0);
}

/* The world fails on rank 1, which then shuts down, perhaps with an operation of the set that it
 * has announced. Rank 0 submits the set's next operation. */
static int ends_set(int rank, int size, void *arg)
{
    const struct plan *p = arg;
    const int64_t one = 1;
    float y = 1;
    struct hvd_request r = rank_request("in set", &y, &one);
    hvd_handle h;
    int rc = hvd_init() < 0 || hvd_set_add(pair, 2, &r.set) < 0 ? FAIL("%s", hvd_error()) : 0;
    rc = rc == 0 && rank < 2 ? sums(&r, p->steps) : rc;
    if (rc == 0 && rank == 1) {
        nap_ms(200);
        if (p->submits && hvd_submit(&r, 1, &h) < 0)
            return FAIL("%s", hvd_error());
        rc = lacks_two();
    }
    if (rc == 0 && rank == 0) {
        nap_ms(p->nap_ms);
        int ended = rank_wait(&r, &h);
        if (ended != -ESHUTDOWN && !(ended == 0 && p->submits))
            rc = FAIL("%d: %s", ended, hvd_error());
    }
    return end(rc);
}

static void test_ends_set(void **state)
{
    static const struct plan plans[] = {{40, 0, 500}, {2, 1, 500}, {40, 1, 100}, {40, 1, 250}};
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++)
        assert_int_equal(world_run(3, ends_set, (void *)(uintptr_t)&plans[i]), 0);
}

/* Rank 2 shuts down. Rank 0 has an operation that lacks it, and forms a set with rank 1 meanwhile,
 * uses it, and removes it. Once the operation has failed, it is no longer reported as waiting. */
static int forms(int rank, int size, void *arg)
{
    const int64_t one = 1;
    float x = 1, y = 1;
    struct hvd_request lacks = rank_request("lacks", &x, &one),
                       r = rank_request("in set", &y, &one);
    struct hvd_stats s = {.size = sizeof(s)};
    hvd_handle h;
    int rc = hvd_init() < 0 ? FAIL("%s", hvd_error()) : 0;
    if (rc == 0 && rank == 0)
        rc = hvd_submit(&lacks, 1, &h) < 0 ? FAIL("%s", hvd_error()) : 0;
    for (int round = 0; round < 2 && rc == 0 && rank < 2; round++) {
        nap_ms(rank == 1 ? 1200 : 0);
        if (hvd_set_form("x", pair, 2, &r.set) < 0)
            rc = FAIL("round %d: %s", round, hvd_error());
        rc = rc == 0 ? sums(&r, 40) : rc;
        nap_ms(rank == 1 ? 300 : 0);
        if (rc == 0 && hvd_set_remove(r.set) < 0)
            rc = FAIL("round %d: %s", round, hvd_error());
    }
    if (rc == 0 && rank == 0 && hvd_wait(h) != -ESHUTDOWN)
        rc = FAIL("%s", hvd_error());
    hvd_stats(&s);
    if (rank == 2)
        nap_ms(400);
    else if (rc == 0 && s.stalls > 0)
        rc = FAIL("%d stalls", (int)s.stalls);
    return end(rc);
}

static void test_forms(void **state)
{
    const char *const env[] = {"HVD_STALL_CHECK_TIME_SECONDS=2", NULL};
    const struct world_options o = {.size = 3, .env = env};
    assert_int_equal(world_run_options(&o, forms, NULL), 0);
}

/* ---- ranks that do not answer ------------------------------------------------------------------
 */

/* Rank 0, the root, is stopped. An idle rank leaves in order all the same. */
static int stopped(int rank, int size, void *arg)
{
    int rc = hvd_init() < 0 ? FAIL("%s", hvd_error()) : 0;
    if (rank == 0) {
        pid_t me = getpid();
        if (fork() == 0) {
            nap_ms(100);
            kill(me, SIGSTOP);
            nap_ms(7000);
            kill(me, SIGCONT);
            _exit(0);
        }
        nap_ms(300);
        rc = rc == 0 ? lacks_two() : rc;
    } else {
        nap_ms(300);
    }
    return end(rc);
}

static void test_stopped(void **state)
{
    assert_int_equal(world_run(2, stopped, NULL), 0);
}

/* Both ranks remove a set. On rank 1 a second thread calls hvd_shutdown() meanwhile. */
static void *removes(void *arg)
{
    hvd_set_remove(*(int *)arg);
    return NULL;
}

static int beside_removal(int rank, int size, void *arg)
{
    const struct plan *p = arg;
    pthread_t remover;
    int set, rc = hvd_init() < 0 || hvd_set_add(pair, 2, &set) < 0 ? FAIL("%s", hvd_error()) : 0;
    if (rc != 0 || pthread_create(&remover, NULL, removes, &set) != 0)
        return FAIL("no thread");
    if (rank == 1)
        usleep(p->nap_ms * 20);
    else
        pthread_join(remover, NULL);
    uint64_t before = clock_ns();
    rc = hvd_shutdown() < 0 ? FAIL("%s", hvd_error()) : 0;
    if (rank == 1)
        pthread_join(remover, NULL);
    return rc == 0 && clock_ns() - before > 4 * CLOCK_S ? FAIL("it took long") : rc;
}

static void test_beside_removal(void **state)
{
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(world_run(2, beside_removal, &(struct plan){.nap_ms = i}), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaves),   cmocka_unit_test(test_in_a_set),
        cmocka_unit_test(test_ends_set), cmocka_unit_test(test_forms),
        cmocka_unit_test(test_stopped),  cmocka_unit_test(test_beside_removal),
    };
    return cmocka_run_group_tests_name("multi/leave", tests, NULL, NULL);
}
