/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the engine: a whole life (init, timeline, every kind of operation, shutdown) with each
 * of its allocations failing in turn: on one rank, on the other, on all. The failing rank returns
 * ENOMEM, the others name it in bounded time, no output is half written, nothing leaks, and the
 * next life of the same processes succeeds.
 *
 * timeout: 400
 * takes: 14 s, waiting
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
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/together.h"
#include "tests/harness/world.h"

static char trace_path[32]; /* an anonymous file, which ends with its rank */

#define COUNT  12 /* elements: divisible by every size of world here */
#define GROUP  3
#define KINDS  (HVD_BARRIER + 1)
#define OPS    (KINDS + GROUP)
#define ROUNDS 6 /* enough for a frozen plan */

/* A rank that cannot join makes the others wait. If the short wait is too short for a slow machine,
 * the attempt is repeated with the long one. */
#define START_SHORT "0.1"
#define START_LONG  "20"

/* Shared by the ranks of a world. */
struct board {
    int victim; /* rank whose allocations fail; -1: all ranks */
    char hosts[8];
    struct together together;
    _Atomic int injected, failed, bad, late;
};

struct op {
    struct hvd_request request;
    char name[16];
    float in[COUNT], out[COUNT];
    int64_t shape;
};

static int say(const struct board *b, long n, const char *what)
{
    printf("hosts %s, victim %d, allocation %ld, rank %s: %s (%s)\n", b->hosts, b->victim, n,
           getenv("HVD_RANK"), what, hvd_error());
    return -EBADMSG;
}

/* ---- the operations ---- */

#define UNTOUCHED (-77.0F)

static void fill(struct op *o, int i)
{
    *o = (struct op){.shape = COUNT};
    enum hvd_kind kind = i < KINDS ? (enum hvd_kind)i : HVD_ALLREDUCE;
    bool allocates = kind == HVD_ALLGATHER || kind == HVD_ALLTOALL;
    snprintf(o->name, sizeof(o->name), "t%d", i);
    for (int k = 0; k < COUNT; k++) {
        o->in[k] = (float)(k + i);
        o->out[k] = UNTOUCHED;
    }
    o->request = (struct hvd_request){.kind = kind,
                                      .name = o->name,
                                      .input = o->in,
                                      .output = allocates ? NULL : o->out,
                                      .dtype = HVD_FLOAT32,
                                      .ndim = 1,
                                      .shape = &o->shape,
                                      .op = HVD_SUM,
                                      .device = -1};
}

/* The number of elements that an operation writes, and the value that element k must have. All
 * ranks give the same input. */
static int written(const struct op *o, int size)
{
    switch (o->request.kind) {
    case HVD_ALLREDUCE:
    case HVD_BROADCAST:
        return COUNT;
    case HVD_REDUCESCATTER:
        return COUNT / size;
    default:
        return 0;
    }
}

static float expected(const struct op *o, int rank, int size, int k)
{
    if (o->request.kind == HVD_REDUCESCATTER)
        return o->in[rank * (COUNT / size) + k] * (float)size;
    return o->request.kind == HVD_BROADCAST ? o->in[k] : o->in[k] * (float)size;
}

/* True if all of the output is right, or, after a failure, all of it is unchanged. */
static bool output_whole(const struct op *o, int rank, int size, bool failed)
{
    int n = written(o, size);
    bool untouched = true, right = true;
    for (int k = 0; k < COUNT; k++) {
        untouched = untouched && o->out[k] == UNTOUCHED;
        right = right && o->out[k] == (k < n ? expected(o, rank, size, k) : UNTOUCHED);
    }
    return right || (failed && untouched);
}

static bool result_right(const struct op *o, hvd_handle h, int rank, int size)
{
    struct hvd_result r;
    if (hvd_result(h, &r) != 0)
        return false;
    const float *got = r.data;
    bool all = o->request.kind == HVD_ALLGATHER;
    bool right = r.shape[0] == (all ? COUNT * size : COUNT);
    int share = COUNT / size;
    for (int k = 0; right && k < (all ? COUNT * size : COUNT); k++)
        right = got[k] == o->in[all ? k % COUNT : rank * share + k % share];
    return right;
}

/* Returns whether a call may end with rc: it may succeed, fail for want of memory where an
 * allocation failed, or name the victim. */
static bool end_allowed(const struct board *b, int rc, int rank)
{
    char name[16];
    snprintf(name, sizeof(name), "rank %d", b->victim);
    bool here = b->victim < 0 || b->victim == rank;
    if (rc == 0 || (here && rc == -ENOMEM))
        return true;
    return (b->victim < 0 || (!here && strstr(hvd_error(), name))) &&
           (rc == -ECONNRESET || rc == -ESHUTDOWN);
}

static int submit_all(struct board *b, long n, struct op *ops, hvd_handle *handles, int rank,
                      int *ret_failed)
{
    struct hvd_request group[GROUP];
    for (int i = 0; i < OPS; i++)
        fill(&ops[i], i);
    for (int i = 0; i < GROUP; i++)
        group[i] = ops[KINDS + i].request;
    for (int i = 0; i <= KINDS && *ret_failed == 0; i++) {
        bool last = i == KINDS;
        int rc = hvd_submit(last ? group : &ops[i].request, last ? GROUP : 1, &handles[i]);
        if (!end_allowed(b, rc, rank) || rc > 0)
            return say(b, n, "submit");
        *ret_failed = rc;
        if (rc < 0)
            handles[i] = 0;
    }
    return 0;
}

/* Every kind at once. *ret_failed: the error of the first one that failed. */
static int every_kind(struct board *b, long n, int rank, int *ret_failed)
{
    struct op ops[OPS];
    hvd_handle handles[OPS] = {0};
    int size = hvd_size();
    int bad = submit_all(b, n, ops, handles, rank, ret_failed);
    for (int i = 0; i < OPS; i++) {
        int rc = handles[i] ? hvd_wait(handles[i]) : -ENOMEM;
        if (handles[i] && !end_allowed(b, rc, rank))
            bad = say(b, n, ops[i].name);
        if (rc == 0 && !ops[i].request.output && ops[i].request.kind != HVD_BARRIER) {
            if (!result_right(&ops[i], handles[i], rank, size))
                bad = say(b, n, "a result is wrong");
            hvd_release(handles[i]);
        }
        if (!output_whole(&ops[i], rank, size, rc < 0))
            bad = say(b, n, "an output is half written");
        if (rc < 0 && *ret_failed == 0)
            *ret_failed = rc;
    }
    return bad;
}

/* Small operations in a row: into the frozen plan and out of it. */
static int steady(struct board *b, long n, int rank, int *ret_failed)
{
    int size = hvd_size();
    for (int i = 0; i <= ROUNDS && *ret_failed == 0; i++) {
        float x[2] = {1, 2};
        int rc = hvd_allreduce(i < ROUNDS ? "again" : "new", x, x, 2, HVD_FLOAT32, HVD_SUM);
        bool right = x[0] == (float)size && x[1] == (float)(2 * size);
        bool before = x[0] == 1 && x[1] == 2;
        if (!end_allowed(b, rc, rank))
            return say(b, n, "allreduce");
        if (!right && !(rc < 0 && before))
            return say(b, n, "an allreduce is half done");
        *ret_failed = rc;
    }
    return 0;
}

/* hvd_init(). Returns 1 if it failed as it may, with the error in *ret_failed. */
static int join(struct board *b, long n, int rank, int *ret_failed)
{
    int rc = hvd_init();
    bool others_fail = b->victim != rank;
    *ret_failed = rc;
    if (rc == 0)
        return 0;
    if (end_allowed(b, rc, rank) || (others_fail && (rc == -ETIMEDOUT || rc == -ECONNREFUSED)))
        return 1;
    if (strcmp(getenv("HVD_START_TIMEOUT"), START_LONG) == 0)
        return say(b, n, "init");
    atomic_store(&b->late, 1);
    return 1;
}

/* One life. Returns 0, or -EBADMSG after a message. *ret_failed: a call failed as it may. */
static int live(struct board *b, long n, int rank, int *ret_failed)
{
    int rc = join(b, n, rank, ret_failed);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = hvd_start_timeline(trace_path, true);
    if (!end_allowed(b, rc, rank))
        return say(b, n, "timeline");
    int bad = every_kind(b, n, rank, ret_failed);
    if (bad == 0 && *ret_failed == 0)
        bad = steady(b, n, rank, ret_failed);
    if (hvd_stop_timeline() != 0 || hvd_shutdown() != 0)
        bad = say(b, n, "shutdown");
    return bad;
}

/* One life with the n-th allocation failing on this rank; -1: none fails. */
static int live_counted(struct board *b, long n, int rank, int *ret_failed)
{
    long before = fail_alloc.live;
    uint64_t start = clock_ns();
    fail_alloc.failed = 0;
    fail_alloc.fail_at = n;
    int rc = live(b, n, rank, ret_failed);
    fail_alloc.fail_at = -1;
    if (rc == 0 && fail_alloc.live != before) {
        printf("%ld allocations were not freed\n", fail_alloc.live - before);
        rc = say(b, n, "a leak");
    }
    /* A life takes milliseconds, or a second where a rank waits for one that does not join. */
    if (rc == 0 && clock_ns() - start > 60 * CLOCK_S)
        rc = say(b, n, "it took too long");
    return rc;
}

/* Runs one life on all ranks at once, with the n-th allocation of the victim failing. ret_late:
 * repeat with the long wait. Returns 1 if no allocation failed any more and all went well. */
static int attempt(struct board *b, long n, int rank, int size, const char *wait, bool *ret_late)
{
    bool here = b->victim < 0 || b->victim == rank;
    int failed = 0;
    setenv("HVD_START_TIMEOUT", wait, 1);
    together(&b->together, size);
    b->injected = b->failed = b->late = 0;
    together(&b->together, size);
    if (live_counted(b, here ? n : -1, rank, &failed) < 0)
        b->bad = 1;
    b->injected += fail_alloc.failed != 0;
    b->failed += failed != 0;
    together(&b->together, size);
    if (b->bad)
        return -EBADMSG;
    *ret_late = b->late || (b->failed && !b->injected);
    return b->injected || b->failed ? 0 : 1;
}

static int rank_main(int rank, int size, void *arg)
{
    struct board *b = arg;
    char host[2] = {b->hosts[rank], 0};
    int failed, rc = 0;
    int trace = memfd_create("trace", MFD_CLOEXEC);
    if (trace < 0)
        return 1;
    snprintf(trace_path, sizeof(trace_path), "/proc/self/fd/%d", trace);
    setenv("HVD_LOCALITY", host, 1);
    setenv("HVD_START_TIMEOUT", START_LONG, 1);
    /* What is allocated once and kept: buffers of stdio, caches of the C library. */
    for (int i = 0; i < 2; i++) {
        rc = live(b, -1, rank, &failed);
        if (rc < 0 || failed)
            return say(b, -1, "it failed before any allocation did"), 1;
    }
    for (long n = 0; n < 3000 && rc == 0; n++) {
        bool late = false;
        rc = attempt(b, n, rank, size, START_SHORT, &late);
        if (late)
            rc = attempt(b, n, rank, size, START_LONG, &late);
        if (late)
            return say(b, n, "it failed although no allocation did"), 1;
    }
    return rc != 1;
}

struct life {
    struct world *world;
    struct board *board;
};

/* hosts: a letter for each rank, equal letters share a host. */
static void life_start(struct life *l, const char *hosts, int victim)
{
    static const char *const env[] = {"HVD_LOG_LEVEL=error", "HVD_FREEZE_AFTER=2", NULL};
    struct world_options o = {.size = (int)strlen(hosts), .timeout_s = 300, .env = env};
    l->board = world_shared(sizeof(*l->board));
    assert_non_null(l->board);
    l->board->victim = victim;
    snprintf(l->board->hosts, sizeof(l->board->hosts), "%s", hosts);
    assert_int_equal(world_start(&o, rank_main, l->board, &l->world), 0);
}

static bool counted_here(void)
{
    if (!FAIL_ALLOC)
        printf("SKIP: multi/engine_alloc: a sanitizer has its own allocator\n");
    return FAIL_ALLOC;
}

static void test_alone(void **state)
{
    struct life life;
    if (!counted_here())
        skip();
    life_start(&life, "a", 0);
    assert_int_equal(world_wait(life.world, NULL), 0);
}

/* These worlds mostly wait, so all run at once. */
static void test_with_others(void **state)
{
    struct life lives[5];
    int bad = 0;
    if (!counted_here())
        skip();
    life_start(&lives[0], "aa", 1);
    life_start(&lives[1], "aa", 0);
    life_start(&lives[2], "ab", 1);
    life_start(&lives[3], "ab", 0);
    life_start(&lives[4], "aa", -1);
    for (int i = 0; i < 5; i++)
        bad += world_wait(lives[i].world, NULL);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_with_others),
    };
    return cmocka_run_group_tests_name("multi/engine_alloc", tests, NULL, NULL);
}
