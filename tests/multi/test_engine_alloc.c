/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the engine: a whole life (init, timeline, every kind of operation, shutdown) with each
 * of its allocations failing in turn, on one rank, on the other, on all. The failing rank says
 * ENOMEM, the others name it in bounded time, no output is half written, nothing is leaked, and the
 * next life of the same processes is good.
 *
 * malloc() and its sisters are counted here, and fail on demand; not under sanitizers, which have
 * their own.
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
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/world.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTED 0
#endif
#endif
#ifndef COUNTED
#define COUNTED 1
#endif

static _Atomic long allocations, frees;
static _Atomic long fail_at = -1; /* the so many-th allocation from now fails */
static _Atomic int last_injected; /* it has */

#if COUNTED
/* glibc's own names for what is replaced here. NOLINTBEGIN(bugprone-reserved-identifier) */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *p);
/* NOLINTEND(bugprone-reserved-identifier) */

/* Visible, so that the C library's own calls (strdup, getaddrinfo) are counted too. */
#pragma GCC visibility push(default)

static bool fails(void)
{
    if (atomic_load(&fail_at) < 0 || atomic_fetch_sub(&fail_at, 1) != 0)
        return false;
    atomic_store(&last_injected, 1);
    errno = ENOMEM;
    return true;
}

static void *counted(void *p)
{
    if (p)
        atomic_fetch_add(&allocations, 1);
    return p;
}

void *malloc(size_t size)
{
    return fails() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : counted(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size)
{
    if (fails())
        return NULL;
    void *q = __libc_realloc(p, size);
    return p ? q : counted(q);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : counted(__libc_memalign(alignment, size));
}

void free(void *p)
{
    if (p)
        atomic_fetch_add(&frees, 1);
    __libc_free(p);
}

#pragma GCC visibility pop
#endif

#define COUNT  12 /* elements: a multiple of all sizes of worlds here */
#define GROUP  3
#define OPS    (HVD_KINDS + GROUP)
#define ROUNDS 6 /* enough for a frozen plan */

/* What the ranks of a world share. */
struct board {
    int victim; /* -1: all of them */
    char hosts[8];
    char trace[64]; /* pattern of the timelines' names */
    _Atomic int came[2], injected, bad;
    _Atomic unsigned turn;
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

/* All ranks are here; how many of them saw an allocation fail since the last time. */
static int together(struct board *b, int size, int injected)
{
    unsigned turn = atomic_load(&b->turn);
    atomic_fetch_add(&b->injected, injected);
    if (atomic_fetch_add(&b->came[turn % 2], 1) + 1 == size) {
        atomic_store(&b->came[turn % 2], 0);
        atomic_store(&b->turn, turn + 1);
    }
    for (int i = 0; i < 300000 && atomic_load(&b->turn) == turn; i++)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    return atomic_load(&b->injected);
}

/* ---- the operations ---- */

#define UNTOUCHED (-77.0F)

static void fill(struct op *o, int i, int size)
{
    *o = (struct op){.shape = COUNT};
    enum hvd_kind kind = i < HVD_KINDS ? (enum hvd_kind)i : HVD_ALLREDUCE;
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

/* Elements that an operation writes, and what element k must be. All ranks give the same input. */
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

/* All of the output is right, or, where the operation failed, all of it may be as it was. */
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

/* How a call may end: well, for want of memory where some failed, or because of the victim. */
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
    int size = hvd_size();
    for (int i = 0; i < OPS; i++)
        fill(&ops[i], i, size);
    for (int i = 0; i < GROUP; i++)
        group[i] = ops[HVD_KINDS + i].request;
    for (int i = 0; i <= HVD_KINDS && *ret_failed == 0; i++) {
        bool last = i == HVD_KINDS;
        int rc = hvd_submit(last ? group : &ops[i].request, last ? GROUP : 1, &handles[i]);
        if (!end_allowed(b, rc, rank) || rc > 0)
            return say(b, n, "submit");
        *ret_failed = rc;
        if (rc < 0)
            handles[i] = 0;
    }
    return 0;
}

/* Every kind at once. *ret_failed: how the first that failed did. */
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

/* Small ones in a row: to the frozen plan, and out of it. */
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

/* A life. 0, or -EBADMSG after a line; *ret_failed: something ended with an error, as it may. */
static int live(struct board *b, long n, int rank, int *ret_failed)
{
    int rc = hvd_init();
    *ret_failed = rc;
    if (rc < 0)
        return end_allowed(b, rc, rank) || (b->victim != rank && rc == -ETIMEDOUT)
                   ? 0
                   : say(b, n, "init");
    rc = hvd_start_timeline(b->trace, true);
    if (!end_allowed(b, rc, rank))
        return say(b, n, "timeline");
    int bad = every_kind(b, n, rank, ret_failed);
    if (bad == 0 && *ret_failed == 0)
        bad = steady(b, n, rank, ret_failed);
    if (hvd_stop_timeline() != 0 || hvd_shutdown() != 0)
        bad = say(b, n, "shutdown");
    return bad;
}

static int rank_main(int rank, int size, void *arg)
{
    struct board *b = arg;
    bool here = b->victim < 0 || b->victim == rank;
    char host[2] = {b->hosts[rank], 0};
    int failed, rc = 0;
    setenv("HVD_LOCALITY", host, 1);
    /* Once for what stays: buffers of stdio, caches of the C library. */
    for (int i = 0; i < 2; i++) {
        rc = live(b, -1, rank, &failed);
        if (rc < 0 || failed)
            return say(b, -1, "not even with memory"), 1;
    }
    for (long n = 0; n < 3000; n++) {
        together(b, size, 0);
        atomic_store(&b->injected, 0);
        together(b, size, 0);
        long balance = allocations - frees;
        uint64_t start = clock_ns();
        atomic_store(&last_injected, 0);
        atomic_store(&fail_at, here ? n : -1);
        rc = live(b, n, rank, &failed);
        atomic_store(&fail_at, -1);
        if (rc == 0 && allocations - frees != balance) {
            printf("balance %ld\n", allocations - frees - balance);
            rc = say(b, n, "a leak");
        }
        if (rc == 0 && clock_ns() - start > 6 * CLOCK_S)
            rc = say(b, n, "it took too long");
        if(getenv("T")) printf("%ld rank %d %d: %d %s\n", n, rank, failed, (int)((clock_ns() - start)/1000000), failed?hvd_error():"");
        if (rc < 0)
            atomic_store(&b->bad, 1);
        int injected = together(b, size, last_injected);
        if (injected == 0 || atomic_load(&b->bad))
            return failed || atomic_load(&b->bad);
    }
    return 1;
}

static void fail_in_turn(const char *hosts, int victim)
{
    static const char *const env[] = {"HVD_LOG_LEVEL=error", "HVD_START_TIMEOUT=0.3",
                                      "HVD_FREEZE_AFTER=2", NULL};
    char dir[] = "/tmp/hvd-alloc-XXXXXX";
    struct world_options o = {.size = (int)strlen(hosts), .timeout_s = 100, .env = env};
    struct board *b = world_shared(sizeof(*b));
    assert_non_null(b);
    assert_non_null(mkdtemp(dir));
    b->victim = victim;
    snprintf(b->hosts, sizeof(b->hosts), "%s", hosts);
    snprintf(b->trace, sizeof(b->trace), "%s/%%r.json", dir);
    int bad = world_run_options(&o, rank_main, b);
    for (int r = 0; r < o.size; r++) {
        char path[80];
        snprintf(path, sizeof(path), "%s/%d.json", dir, r);
        unlink(path);
    }
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(bad, 0);
}

static bool counted_here(void)
{
    if (!COUNTED)
        printf("SKIP: multi/engine_alloc: no sanitizer: it has its own malloc\n");
    return COUNTED;
}

static void test_alone(void **state)
{
    if (!counted_here())
        skip();
    fail_in_turn("a", 0);
}

static void test_one_host(void **state)
{
    if (!counted_here())
        skip();
    fail_in_turn("aa", 1);
    fail_in_turn("aa", 0);
}

static void test_two_hosts(void **state)
{
    if (!counted_here())
        skip();
    fail_in_turn("ab", 1);
    fail_in_turn("ab", 0);
}

static void test_all(void **state)
{
    if (!counted_here())
        skip();
    fail_in_turn("aa", -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_one_host),
        cmocka_unit_test(test_two_hosts),
        cmocka_unit_test(test_all),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("multi/engine_alloc", tests, NULL, NULL);
}
