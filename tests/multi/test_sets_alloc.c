/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of sets: a set is made, used and removed with each allocation failing in turn: on a
 * member, on the lowest rank, on a rank that is in no set. The failing rank returns ENOMEM, or
 * nothing fails. The others get an error that names it, in bounded time. Nothing leaks, and the
 * next life of the same processes succeeds.
 *
 * timeout: 500
 * takes: 45 s, waiting
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/rank.h"
#include "tests/harness/together.h"
#include "tests/harness/world.h"

/* Shared by the ranks of a world. */
struct board {
    int victim; /* rank whose allocations fail */
    struct together together;
    _Atomic int injected, bad;
};

static int say(const struct board *b, long n, int rc, const char *what)
{
    printf("victim %d, allocation %ld, rank %s: %s: %d (%s)\n", b->victim, n, getenv("HVD_RANK"),
           what, rc, hvd_error());
    return -EBADMSG;
}

/* Whether a call may end with rc. */
static bool end_allowed(const struct board *b, int rc, int rank)
{
    char name[16];
    snprintf(name, sizeof(name), "rank %d", b->victim);
    if (rc == 0 || (b->victim == rank && rc == -ENOMEM))
        return true;
    return strstr(hvd_error(), name) &&
           (rc == -ENOMEM || rc == -ECONNRESET || rc == -ESHUTDOWN || rc == -ETIMEDOUT);
}

/* Makes, uses and removes a set. Returns 0, the error of the first call that failed as it may, or
 * -EBADMSG. */
static int use(const struct board *b, long n, int rank)
{
    const int ranks[] = {1, 0};
    int set = 0, rc = hvd_set_add(ranks, 2, &set);
    if (!end_allowed(b, rc, rank))
        return say(b, n, rc, "add");
    for (int i = 0; i < 3 && rc == 0 && rank < 2; i++) {
        float x = (float)(rank + 1);
        int64_t count = 1;
        hvd_handle h;
        struct hvd_request r = rank_request("x", &x, &count);
        r.set = set;
        rc = rank_wait(&r, &h);
        if (!end_allowed(b, rc, rank) || (rc == 0 && x != 3))
            return say(b, n, rc, "sum");
    }
    if (rc != 0)
        return rc;
    rc = hvd_set_remove(set);
    return end_allowed(b, rc, rank) ? rc : say(b, n, rc, "remove");
}

/* One life, in which the n-th allocation between hvd_init() and hvd_shutdown() fails on the
 * victim. */
static int live(struct board *b, long n, int rank)
{
    long before = fail_alloc.live;
    uint64_t start = clock_ns();
    if (hvd_init() != 0)
        return say(b, n, 0, "init");
    together(&b->together, 3);
    fail_alloc.failed = 0;
    fail_alloc.fail_at = rank == b->victim ? n : -1;
    int rc = use(b, n, rank);
    fail_alloc.fail_at = -1;
    if (rc == -EBADMSG || hvd_shutdown() != 0)
        return rc == -EBADMSG ? rc : say(b, n, rc, "shutdown");
    if (n >= 0 && fail_alloc.live != before)
        return say(b, n, (int)(fail_alloc.live - before), "blocks are left");
    return clock_ns() - start > 30 * CLOCK_S ? say(b, n, 0, "it took too long") : 0;
}

static int rank_main(int rank, int size, void *arg)
{
    struct board *b = arg;
    for (int i = 0; i < 2; i++) /* what is allocated once and kept */
        if (live(b, -1, rank) != 0)
            return 1;
    for (long n = 0; n < 2000; n++) {
        if (live(b, n, rank) != 0)
            b->bad = 1;
        b->injected += fail_alloc.failed != 0;
        together(&b->together, size);
        bool ended = b->injected == 0 || b->bad;
        together(&b->together, size);
        b->injected = 0;
        together(&b->together, size);
        if (ended)
            return b->bad || n < 20;
    }
    return 1;
}

static void test_each_allocation(void **state)
{
    static const char *const env[] = {"HVD_LOG_LEVEL=error", "HVD_START_TIMEOUT=2", NULL};
    struct world_options o = {.size = 3, .timeout_s = 450, .env = env};
    struct world *worlds[3];
    int bad = 0;
    if (!FAIL_ALLOC) {
        printf("SKIP: multi/sets_alloc: a sanitizer has its own allocator\n");
        skip();
    }
    for (int v = 0; v < 3; v++) {
        struct board *b = world_shared(sizeof(*b));
        assert_non_null(b);
        b->victim = v;
        assert_int_equal(world_start(&o, rank_main, b, &worlds[v]), 0);
    }
    for (int v = 0; v < 3; v++)
        bad += world_wait(worlds[v], NULL);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allocation),
    };
    return cmocka_run_group_tests_name("multi/sets_alloc", tests, NULL, NULL);
}
