/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithms that a back end adds (coll_add_algorithms), on real meshes without the engine. They
 * are tried before coll's own, in the order in which they were added. An algorithm that cannot be
 * cancelled begins only when every rank has started the operation. Until then the operation can be
 * cancelled.
 *
 * timeout: 120
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/coll/algorithm.h"
#include "tests/harness/coll_rank.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define DEVICE 5
#define TURNS  3 /* coll_progress() calls until an operation is done */

struct job {
    const char *hosts;
    _Atomic int *came; /* shared: calls of coll_start() for the operation under test */
};

/* Calls of this test's algorithm: how often it began, and how many ranks had started by then. */
struct played {
    _Atomic int *came;
    int starts, came_at_start, turns, inits;
};

struct state {
    struct played *played;
};

static int play_init(struct coll *coll, void *state, struct err *err)
{
    struct played *p = coll->backend;
    ((struct state *)state)->played = p;
    p->inits++;
    return 0;
}

static int play_start(struct coll *coll, void *state, struct err *err)
{
    struct played *p = ((struct state *)state)->played;
    p->starts++;
    p->turns = 0;
    p->came_at_start = atomic_load(p->came);
    return 0;
}

static int play_progress(struct coll *coll, void *state)
{
    struct played *p = ((struct state *)state)->played;
    coll->wait = ++p->turns < TURNS ? COLL_MOVES : COLL_WAKES;
    return coll->wait != COLL_WAKES;
}

static bool for_device(const struct mesh *mesh, const struct coll_op *op)
{
    return op->device == DEVICE && op->kind == HVD_BROADCAST;
}

static bool for_any(const struct mesh *mesh, const struct coll_op *op)
{
    return op->device >= 0;
}

#define PLAYED(what, fits, all)                                                                    \
    {                                                                                              \
        .name = what, .state_size = sizeof(struct state), .applies = fits, .together = all,        \
        .init = play_init, .start = play_start, .progress = play_progress                          \
    }
static const struct algorithm first = PLAYED("first", for_device, true);
static const struct algorithm second = PLAYED("second", for_any, false);
static const struct algorithm *const firsts[] = {&first, NULL};
static const struct algorithm *const seconds[] = {&second, NULL};

static struct coll_op broadcast_on(struct coll_rank *r, int device, struct coll_tensor *t)
{
    struct coll_op op = coll_rank_op(r, HVD_BROADCAST, HVD_FLOAT32, HVD_SUM, t, 1);
    op.device = device;
    return op;
}

/* A device without an algorithm is refused. Then this test's algorithms run in the order in which
 * they were added. */
static int order(struct coll_rank *r, struct played *p1, struct played *p2)
{
    static float data[8];
    struct coll_tensor t = {data, data, 8};
    struct coll_op op = broadcast_on(r, DEVICE, &t);
    struct err err = {0};
    if (coll_start(r->coll, &op, &err) != -ENOTSUP)
        return FAIL("an operation on a device ran without a back end");
    if (coll_add_algorithms(r->coll, firsts, p1, &err) < 0 ||
        coll_add_algorithms(r->coll, seconds, p2, &err) < 0)
        return FAIL("%s", err.msg);
    if (p1->inits != 1 || p2->inits != 1)
        return FAIL("init was not called once");
    atomic_fetch_add(p1->came, 1);
    if (coll_rank_run(r, &op) < 0 || strcmp(coll_algorithm(r->coll), "first") != 0)
        return FAIL("%s ran instead of first", coll_algorithm(r->coll));
    op.device = DEVICE + 1;
    if (coll_rank_run(r, &op) < 0 || strcmp(coll_algorithm(r->coll), "second") != 0)
        return FAIL("%s ran instead of second", coll_algorithm(r->coll));
    op.device = -1;
    if (coll_rank_run(r, &op) < 0 || p1->starts != 1 || p2->starts != 1)
        return FAIL("an operation of the host went to a back end");
    return 0;
}

static int waits_for_all(struct coll_rank *r, struct played *p)
{
    static float data[8];
    struct coll_tensor t = {data, data, 8};
    struct coll_op op = broadcast_on(r, DEVICE, &t);
    for (int round = 2; round < 12; round++) {
        nap_ms((unsigned)((r->mesh->rank + round) % r->mesh->size * 5));
        atomic_fetch_add(p->came, 1);
        if (coll_rank_run(r, &op) < 0)
            return FAIL("round %d", round);
        if (p->turns != TURNS || p->came_at_start < round * r->mesh->size)
            return FAIL("round %d began when %d of %d had come", round, p->came_at_start,
                        round * r->mesh->size);
    }
    return 0;
}

/* Rank 0 alone begins an operation and cancels it. */
static int taken_back(struct coll_rank *r, struct played *p)
{
    static float data[8];
    struct coll_tensor t = {data, data, 8};
    struct coll_op op = broadcast_on(r, DEVICE, &t), barrier = {0};
    struct err err = {0};
    int starts = p->starts, rc = 0;
    barrier = coll_rank_op(r, HVD_BARRIER, HVD_FLOAT32, HVD_SUM, NULL, 0);
    if (r->mesh->rank == 0) {
        rc = coll_start(r->coll, &op, &err);
        for (int i = 0; i < 200 && rc >= 0; i++)
            rc = coll_progress(r->coll) == 1 ? 0 : -EBADMSG;
        coll_cancel(r->coll);
    }
    if (rc < 0 || p->starts != starts)
        return FAIL("it began with one rank alone");
    mesh_next_generation(r->mesh);
    if (coll_rank_run(r, &barrier) < 0 || coll_rank_run(r, &op) < 0 || p->starts != starts + 1)
        return FAIL("it did not begin anew");
    return 0;
}

static int rank_main(int rank, int size, void *arg)
{
    const struct job *job = arg;
    struct played p1 = {.came = job->came}, p2 = {.came = job->came};
    struct coll_rank r;
    if (coll_rank_open(&r, rank, job->hosts) < 0)
        return 10;
    int rc = order(&r, &p1, &p2);
    if (rc == 0)
        rc = waits_for_all(&r, &p1);
    if (rc == 0)
        rc = taken_back(&r, &p1);
    coll_rank_close(&r);
    return rc;
}

static void test_worlds(void **state)
{
    static const char *const worlds[] = {"aa", "ab", "aab", "aaaa", "abcd"};
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        struct job job = {worlds[i], world_shared(sizeof(*job.came))};
        assert_non_null(job.came);
        printf("ranks on hosts %s\n", job.hosts);
        assert_int_equal(world_run((int)strlen(job.hosts), rank_main, &job), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_worlds)};
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("multi/coll_added", tests, NULL, NULL);
}
