/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_join(): ranks whose data has run out take part in every kind of operation of the others, in
 * the world and in sets, before and after a schedule has frozen; what is refused meanwhile; ranks
 * that end. On one host, on several in name, and on fake GPUs.
 *
 * timeout: 300
 * takes: 12 s
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "core/coll/reduce.h"
#include "tests/harness/effort.h"
#include "tests/harness/gpu_job.h"
#include "tests/harness/rank.h"
#include "tests/harness/values.h"
#include "tests/harness/world.h"

#define MOST  6
#define COUNT 1003
#define STEPS 25 /* until a schedule is frozen, and some more */
#define AGAIN (int)effort(200)

/* Which ranks have data: a bit each. */
struct crew {
    unsigned active;
};

static int count_of(unsigned bits)
{
    return __builtin_popcount(bits);
}

/* This rank's number among those with data. */
static int number_of(unsigned active, int rank)
{
    return count_of(active & ((1U << rank) - 1));
}

static struct hvd_request request(enum hvd_kind kind, const char *name, void *in, void *out,
                                  const int64_t *shape)
{
    return (struct hvd_request){.kind = kind,
                                .name = name,
                                .input = in,
                                .output = out,
                                .dtype = HVD_FLOAT32,
                                .ndim = 1,
                                .shape = shape,
                                .op = HVD_SUM,
                                .device = -1};
}

static int run(const struct hvd_request *r)
{
    hvd_handle h;
    return rank_wait(r, &h) < 0 ? FAIL("%s: %s", r->name, hvd_error()) : 0;
}

/* ---- every kind -------------------------------------------------------------------------------
 */

/* As if the ranks with data were the only ones. */
static int reductions(unsigned active, int rank)
{
    static uint8_t in[COUNT * 8], out[COUNT * 8];
    const int64_t n = COUNT;
    int m = count_of(active), me = number_of(active, rank), salt = 0;
    for (int t = 0; t < HVD_DTYPES; t++)
        for (int op = 0; op < HVD_OPS; op++) {
            enum hvd_dtype dtype = (enum hvd_dtype)t;
            if (op == HVD_AVERAGE || op == HVD_ADASUM || !reduce_possible(dtype, (enum hvd_op)op))
                continue;
            struct hvd_request r = request(HVD_ALLREDUCE, "reduce", in, out, &n);
            r.dtype = dtype;
            r.op = (enum hvd_op)op;
            values_fill(dtype, r.op, me, m, in, COUNT, ++salt);
            if (run(&r) != 0)
                return 1;
            long bad = values_check(dtype, r.op, m, out, 0, COUNT, salt);
            if (bad >= 0)
                return FAIL("%s %s: element %ld is wrong", hvd_dtype_name(dtype), hvd_op_name(r.op),
                            bad);
        }
    return 0;
}

/* An average divides by all ranks. Minimum and product with a prescale. */
static int scaled(int m, int size)
{
    const int64_t n = 3;
    float in[3] = {6, 12, -6}, out[3];
    struct hvd_request r = request(HVD_ALLREDUCE, "scaled", in, out, &n);
    r.op = HVD_AVERAGE;
    if (run(&r) != 0 || fabsf(out[1] - 12.0F * (float)m / (float)size) > 1e-5F)
        return FAIL("the average is %g", (double)out[1]);
    r.op = HVD_MIN;
    r.prescale = -2;
    if (run(&r) != 0 || out[0] != -12 || out[2] != 12)
        return FAIL("the smallest are %g and %g", (double)out[0], (double)out[2]);
    r.op = HVD_PRODUCT;
    r.prescale = 0.5;
    if (run(&r) != 0 || out[0] != powf(3, (float)m))
        return FAIL("the product is %g", (double)out[0]);
    r.op = HVD_ADASUM;
    r.prescale = 1;
    if (run(&r) != 0 || fabsf(out[0] - 6) > 1e-4F) /* of equal tensors, and of zeros */
        return FAIL("adasum is %g", (double)out[0]);
    return 0;
}

/* Each rank with data has 2 rows, and gives one to every rank. */
static int rows(unsigned active, int rank, int size)
{
    float in[2 * MOST], out[2 * MOST];
    int64_t two = 2, all = size, splits[MOST], even = 2 * size;
    struct hvd_result result;
    hvd_handle h;
    for (int i = 0; i < 2 * MOST; i++)
        in[i] = (float)(rank + 1);
    struct hvd_request r = request(HVD_ALLGATHER, "gather", in, NULL, &two);
    if (rank_wait(&r, &h) < 0 || hvd_result(h, &result) < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < size; i++)
        if (result.splits[i] != (active >> i & 1 ? 2 : 0))
            return FAIL("%d rows from rank %d", (int)result.splits[i], i);
    hvd_release(h);
    for (int i = 0; i < size; i++)
        splits[i] = 1;
    r = request(HVD_ALLTOALL, "exchange", in, NULL, &all);
    r.splits = splits;
    if (rank_wait(&r, &h) < 0 || hvd_result(h, &result) < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < size; i++)
        if (result.splits[i] != (active >> i & 1))
            return FAIL("%d rows from rank %d by alltoall", (int)result.splits[i], i);
    hvd_release(h);
    r = request(HVD_REDUCESCATTER, "scatter", in, out, &even);
    if (run(&r) != 0)
        return 1;
    float sum = 0;
    for (int i = 0; i < size; i++)
        sum += active >> i & 1 ? (float)(i + 1) : 0;
    return out[0] == sum && out[1] == sum ? 0 : FAIL("a part of the sum is %g", (double)out[0]);
}

static int roots(unsigned active, int rank, int size)
{
    const int64_t n = 5;
    for (int root = 0; root < size; root++) {
        float data[5] = {(float)(rank + 7)};
        hvd_handle h;
        struct hvd_request r = request(HVD_BROADCAST, "tell", data, data, &n);
        r.root = root;
        int rc = rank_wait(&r, &h);
        if (active >> root & 1) {
            if (rc < 0 || data[0] != (float)(root + 7))
                return FAIL("from rank %d: %g, %s", root, (double)data[0], hvd_error());
        } else if (rc != -EINVAL || !strstr(hvd_error(), "which has joined")) {
            return FAIL("from rank %d, which has joined: %d %s", root, rc, hvd_error());
        }
    }
    return hvd_barrier("all") < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* A group is asked for one by one. */
static int group(unsigned active, int rank)
{
    enum { N = 4 };
    const int64_t n = 10;
    float data[N][10];
    struct hvd_request r[N];
    hvd_handle h[N];
    char names[N][8];
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "m%d", i);
        for (int k = 0; k < 10; k++)
            data[i][k] = (float)(rank + i);
        r[i] = request(HVD_ALLREDUCE, names[i], data[i], data[i], &n);
    }
    if (hvd_submit(r, N, h) < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < N; i++) {
        float sum = 0;
        for (int k = 0; k < MOST; k++)
            sum += active >> k & 1 ? (float)(k + i) : 0;
        if (hvd_wait(h[i]) < 0 || data[i][3] != sum)
            return FAIL("member %d of the group: %g, %s", i, (double)data[i][3], hvd_error());
    }
    return 0;
}

/* ---- joining ----------------------------------------------------------------------------------
 */

/* All ranks get the same rank, one of those with data. */
static int join(unsigned active)
{
    int64_t crew[MOST];
    int last = hvd_join();
    if (last < 0)
        return FAIL("hvd_join: %s", hvd_error());
    if (!(active >> last & 1))
        return FAIL("rank %d joined last, which was first", last);
    if (rank_crew(last, crew) < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < hvd_size(); i++)
        if (crew[i] != last)
            return FAIL("the last one is rank %d, on rank %d it is %d", last, i, (int)crew[i]);
    return 0;
}

static int all_kinds(unsigned active, int rank, int size)
{
    int rc = 0;
    if (active >> rank & 1) {
        rc = reductions(active, rank);
        rc = rc ? rc : scaled(count_of(active), size);
        rc = rc ? rc : rows(active, rank, size);
        rc = rc ? rc : roots(active, rank, size);
        rc = rc ? rc : group(active, rank);
    }
    return rc ? rc : join(active);
}

static int end(int rc)
{
    return hvd_shutdown() < 0 && rc == 0 ? FAIL("%s", hvd_error()) : rc;
}

static int kinds_rank(int rank, int size, void *arg)
{
    const struct crew *crew = arg;
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    int rc = all_kinds(crew->active, rank, size);
    rc = rc ? rc : all_kinds(crew->active, rank, size); /* once more: nothing is left behind */
    rc = rc ? rc : all_kinds((1U << size) - 1, rank, size);
    return end(rc);
}

static void test_kinds(void **state)
{
    static const struct {
        int size;
        unsigned active;
    } of[] = {{2, 1}, {2, 2}, {4, 1}, {4, 6}, {3, 6}, {6, 0x29}};
    for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
        struct crew crew = {.active = of[i].active};
        assert_int_equal(world_run(of[i].size, kinds_rank, &crew), 0);
    }
    assert_int_equal(world_run(1, kinds_rank, &(struct crew){.active = 1}), 0);
}

static int on_hosts(int rank, int size, void *arg)
{
    setenv("HVD_LOCALITY", rank < size / 2 ? "a" : "b", 1);
    return kinds_rank(rank, size, arg);
}

static void test_hosts(void **state)
{
    static const unsigned active[] = {1, 4, 8, 6, 12, 3};
    for (size_t i = 0; i < sizeof(active) / sizeof(*active); i++)
        assert_int_equal(world_run(4, on_hosts, &(struct crew){.active = active[i]}), 0);
}

/* ---- steps that freeze ------------------------------------------------------------------------
 */

#define TENSORS 5

/* `wait` false: the last operations are in flight when this rank joins. */
static int step(int rank, int k, bool wait)
{
    static float data[TENSORS][COUNT];
    static char names[TENSORS][8];
    static hvd_handle h[TENSORS];
    const int64_t n = COUNT;
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof(names[i]), "g%d", i);
        for (int c = 0; c < COUNT; c++)
            data[i][c] = (float)(1 << rank);
        struct hvd_request r = request(HVD_ALLREDUCE, names[i], data[i], data[i], &n);
        if (hvd_submit(&r, 1, &h[i]) < 0)
            return FAIL("step %d: %s", k, hvd_error());
    }
    for (int i = 0; i < TENSORS && wait; i++)
        if (hvd_wait(h[i]) < 0)
            return FAIL("step %d: %s", k, hvd_error());
    int ranks = (int)data[0][0];
    for (int i = 0; i < TENSORS && wait; i++)
        for (int c = 0; c < COUNT; c++)
            if (data[i][c] != (float)ranks || !(ranks >> rank & 1))
                return FAIL("step %d: element %d of tensor %d is %g, the first %d", k, c, i,
                            (double)data[i][c], ranks);
    return 0;
}

/* Rank r has r more steps than rank 0. */
static int uneven_rank(int rank, int size, void *arg)
{
    bool wait = !arg;
    struct hvd_stats before = {.size = sizeof(before)}, after = before;
    int rc = 0;
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    for (int epoch = 0; epoch < 3 && rc == 0; epoch++) {
        int steps = STEPS + rank * (epoch + 1);
        hvd_stats(&before);
        for (int k = 0; k < steps && rc == 0; k++)
            rc = step(rank, k, wait || k + 1 < steps);
        hvd_stats(&after);
        int last = rc == 0 ? hvd_join() : 0;
        if (rc == 0 && last != size - 1)
            rc = FAIL("hvd_join: %d %s", last, last < 0 ? hvd_error() : "");
        if (rc == 0 && epoch > 0 && rank == 0 && after.frozen == before.frozen)
            rc = FAIL("nothing froze any more after hvd_join()");
    }
    return end(rc);
}

static void test_frozen(void **state)
{
    for (int size = 2; size <= 4; size++)
        assert_int_equal(world_run(size, uneven_rank, NULL), 0);
}

static void test_in_flight(void **state)
{
    assert_int_equal(world_run(3, uneven_rank, &(int){1}), 0);
}

/* ---- sets --------------------------------------------------------------------------------------
 */

/* Set 1 is ranks 2, 0; set 2 is 1, 2. Rank 0 runs out first. */
static int sets_rank(int rank, int size, void *arg)
{
    static const int members[2][2] = {{2, 0}, {1, 2}};
    int set[2], rc = 0, more = 0;
    const int64_t n = 2;
    if (hvd_init() < 0 || hvd_set_add(members[0], 2, &set[0]) < 0 ||
        hvd_set_add(members[1], 2, &set[1]) < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < 60 && rank > 0 && rc == 0; i++)
        for (int s = 0; s < 2 && rc == 0; s++) {
            float data[2] = {(float)(rank + 1), 1};
            struct hvd_request r = request(HVD_ALLREDUCE, "x", data, data, &n);
            r.set = set[s];
            if (hvd_set_rank(set[s]) < 0)
                continue;
            rc = run(&r);
            float least = (float)(rank + 1);
            if (rc == 0 && data[0] < least)
                rc = FAIL("a sum in set %d is %g", set[s], (double)data[0]);
        }
    if (rc == 0 && rank > 0) {
        int answer = hvd_set_add(members[0], 2, &more);
        if (answer != -EBUSY || !strstr(hvd_error(), "rank 0: it is in hvd_join()"))
            rc = FAIL("a set beside a rank that has joined: %d %s", answer, hvd_error());
    }
    if (rc == 0 && hvd_join() < 0)
        rc = FAIL("%s", hvd_error());
    if (rc == 0 && (hvd_set_add(members[0], 2, &more) < 0 || hvd_set_remove(set[0]) < 0))
        rc = FAIL("after it: %s", hvd_error());
    return end(rc);
}

static void test_sets(void **state)
{
    assert_int_equal(world_run(3, sets_rank, NULL), 0);
}

/* Right after the end an operation of a set; and in between one of rank 0 alone. */
static int at_once_rank(int rank, int size, void *arg)
{
    int all[MOST], set;
    const int64_t n = 1;
    if (arg)
        setenv("HVD_LOCALITY", rank < size / 2 ? "a" : "b", 1);
    for (int i = 0; i < size; i++)
        all[i] = i;
    if (hvd_init() < 0 || hvd_set_add(all, size, &set) < 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < AGAIN; k++)
        for (int alone = 0; alone < 2; alone++) {
            float data[1] = {1};
            struct hvd_request r = request(HVD_ALLREDUCE, "x", data, data, &n);
            r.set = set;
            if (hvd_join() < 0)
                return FAIL("%s", hvd_error());
            if (alone && rank > 0)
                continue;
            if (run(&r) != 0 || data[0] != (float)(alone ? 1 : size))
                return FAIL("round %d: the sum is %g", k, (double)data[0]);
        }
    return hvd_join() < 0 ? FAIL("%s", hvd_error()) : end(0); /* rank 0 may be in its last one */
}

static void test_at_once(void **state)
{
    assert_int_equal(world_run(3, at_once_rank, NULL), 0);
    assert_int_equal(world_run(4, at_once_rank, &(int){1}), 0);
}

/* Submitted just before hvd_join(): another rank may have had it before. */
static int just_before_rank(int rank, int size, void *arg)
{
    const int64_t n = 1;
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < AGAIN; k++) {
        float data[1] = {1};
        hvd_handle h;
        struct hvd_request r = request(HVD_ALLREDUCE, "x", data, data, &n);
        if (rank == 0)
            nanosleep(&(struct timespec){.tv_nsec = k * 7 % 400 * 1000}, NULL);
        if (hvd_submit(&r, 1, &h) < 0 || hvd_join() < 0 || hvd_wait(h) < 0)
            return FAIL("round %d: %s", k, hvd_error());
        if (data[0] != (float)size)
            return FAIL("round %d: the sum is %g", k, (double)data[0]);
    }
    return end(0);
}

static void test_just_before(void **state)
{
    assert_int_equal(world_run(2, just_before_rank, NULL), 0);
}

/* Rank 0 has joined. Rank 1 adds a set, while rank 2 still needs rank 0 in another one. */
static int beside_set_call_rank(int rank, int size, void *arg)
{
    static const int members[2] = {0, 2};
    int set, more;
    const int64_t n = 1;
    float data[1] = {1};
    if (hvd_init() < 0 || hvd_set_add(members, 2, &set) < 0)
        return FAIL("%s", hvd_error());
    struct hvd_request r = request(HVD_ALLREDUCE, "x", data, data, &n);
    r.set = set;
    if (rank == 2) {
        nap_ms(200); /* rank 1 waits by then */
        if (run(&r) != 0)
            return 1;
    }
    if (rank > 0 && hvd_set_add(members, 2, &more) != -EBUSY)
        return FAIL("a set beside a rank that has joined: %s", hvd_error());
    return hvd_join() < 0 ? FAIL("%s", hvd_error()) : end(0);
}

static void test_beside_set_call(void **state)
{
    assert_int_equal(world_run(3, beside_set_call_rank, NULL), 0);
}

/* ---- what is refused, and ends -----------------------------------------------------------------
 */

struct joiner {
    _Atomic bool *tried;
    int last;        /* what hvd_join() has returned */
    int late, added; /* after -EBUSY: what hvd_submit() and hvd_set_add() have returned */
    char said[2][200];
};

static void *join_once(void *arg)
{
    struct joiner *j = arg;
    float data[1] = {1};
    const int64_t n = 1;
    int set;
    hvd_handle h;
    struct hvd_request r = request(HVD_ALLREDUCE, "late", data, data, &n);
    j->last = hvd_join();
    snprintf(j->said[0], sizeof(j->said[0]), "%s", hvd_error());
    if (j->last != -EBUSY)
        return NULL;
    j->late = hvd_submit(&r, 1, &h);
    snprintf(j->said[1], sizeof(j->said[1]), "%s", hvd_error());
    j->added = hvd_set_add((int[]){0, 1}, 2, &set);
    atomic_store(j->tried, true);
    return NULL;
}

/* On rank 1 two threads call hvd_join(), and one of them then submits. Rank 0 has work until then.
 */
static int busy_rank(int rank, int size, void *arg)
{
    _Atomic bool *tried = arg;
    float data[1] = {1};
    int rc = 0;
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    if (rank == 0) {
        while (rc == 0 && !atomic_load(tried))
            rc = hvd_allreduce("ready", data, data, 1, HVD_FLOAT32, HVD_MAX);
        return rc == 0 && hvd_join() >= 0 ? end(0) : FAIL("%s", hvd_error());
    }
    struct joiner two[2] = {{.tried = tried}, {.tried = tried}};
    pthread_t thread;
    if (pthread_create(&thread, NULL, join_once, &two[1]) != 0)
        return FAIL("no thread");
    join_once(&two[0]);
    pthread_join(thread, NULL);
    const struct joiner *j = &two[two[0].last >= 0]; /* the one that was refused */
    if (two[0].last + two[1].last < -EBUSY || j->last != -EBUSY || j->late != -EBUSY ||
        j->added != -EBUSY || !strstr(j->said[0], "another thread") ||
        !strstr(j->said[1], "in hvd_join()"))
        return FAIL("%d and %d; %s; %d %s", two[0].last, two[1].last, j->said[0], j->late,
                    j->said[1]);
    return end(0);
}

static void test_busy(void **state)
{
    assert_int_equal(world_run(2, busy_rank, world_shared(sizeof(bool))), 0);
}

/* Rank 1 shuts down without joining. */
static int leaves_rank(int rank, int size, void *arg)
{
    if (hvd_init() < 0 || hvd_barrier("begin") < 0)
        return FAIL("%s", hvd_error());
    if (rank == 1)
        return end(0);
    int rc = hvd_join();
    if (rc != -ESHUTDOWN || !strstr(hvd_error(), "rank 1 has shut down without hvd_join()"))
        return FAIL("%d %s", rc, hvd_error());
    return end(0);
}

static void test_leaves(void **state)
{
    assert_int_equal(world_run(3, leaves_rank, NULL), 0);
}

/* Rank 0 does nothing for a while: the stall report says who is in hvd_join() and who is not. */
static int quiet_rank(int rank, int size, void *arg)
{
    struct hvd_stats s = {.size = sizeof(s)};
    if (hvd_init() < 0 || hvd_barrier("begin") < 0)
        return FAIL("%s", hvd_error());
    while (rank == 0 && s.stalls == 0 && hvd_stats(&s) == 0)
        nap_ms(10);
    return hvd_join() == 0 ? end(0) : FAIL("%s", hvd_error());
}

static void test_quiet(void **state)
{
    static const char *const env[] = {"HVD_STALL_CHECK_TIME_SECONDS=1", NULL};
    const struct world_options options = {.size = 3, .env = env, .timeout_s = 60};
    assert_int_equal(world_run_options(&options, quiet_rank, NULL), 0);
}

/* Rank 2 is killed while rank 1 has joined and rank 0 has not. */
static int dies_rank(int rank, int size, void *arg)
{
    float data[1] = {1};
    int rc = 0;
    if (hvd_init() < 0 || hvd_barrier("begin") < 0)
        return FAIL("%s", hvd_error());
    if (rank == 1) {
        rc = hvd_join();
        return rc == -ECONNRESET ? 0 : FAIL("%d %s", rc, hvd_error());
    }
    for (int i = 0; i < 1000000 && rc == 0; i++) {
        if (rank == 2 && i == 20)
            raise(SIGKILL);
        rc = hvd_allreduce("x", data, data, 1, HVD_FLOAT32, HVD_MAX);
    }
    return rc == -ECONNRESET ? 0 : FAIL("%d %s", rc, hvd_error());
}

static void test_dies(void **state)
{
    struct world *w;
    int status[3];
    const struct world_options options = {.size = 3, .timeout_s = 60};
    assert_int_equal(world_start(&options, dies_rank, NULL, &w), 0);
    world_wait(w, status);
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
}

/* ---- GPUs --------------------------------------------------------------------------------------
 */

static int gpu_sums(struct gpu_side *g, int rank, int size)
{
    int rc = 0;
    for (int round = 0; round < 2 && rc == 0; round++) {
        for (int k = 0; k < STEPS + rank && rc == 0; k++) {
            const int64_t n = COUNT;
            hvd_handle h;
            float *f = (float *)g->host;
            for (int i = 0; i < COUNT; i++)
                f[i] = (float)(1 << rank);
            struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "sum", HVD_FLOAT32, 1, &n);
            if (gpu_side_send(g, 0, COUNT * 4) < 0 || rank_wait(&r, &h) < 0 ||
                gpu_side_read(g, g->in.at, COUNT * 4) < 0)
                return FAIL("%s %s", g->err.msg, hvd_error());
            int ranks = (int)f[0], all = (1 << size) - 1;
            int want = k < STEPS ? all : all & ~((1 << (k - STEPS + 1)) - 1);
            if (ranks != want || f[COUNT - 1] != f[0])
                rc = FAIL("step %d: of ranks %x, not %x", k, (unsigned)ranks, (unsigned)want);
        }
        int last = rc == 0 ? hvd_join() : 0;
        if (rc == 0 && last != size - 1)
            rc = FAIL("hvd_join: %d %s", last, hvd_error());
    }
    return rc;
}

static void test_gpus(void **state)
{
    gpu_job_run(3, gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, -1, gpu_sums});
    gpu_job_run(3, gpu_job_nccl("2.27", NULL), (struct gpu_job){"nccl", NULL, 0, -1, gpu_sums});
    gpu_job_run(2, gpu_job_nccl("2.18", NULL), (struct gpu_job){"nccl", NULL, 200, -1, gpu_sums});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),       cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_frozen),      cmocka_unit_test(test_in_flight),
        cmocka_unit_test(test_sets),        cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_just_before), cmocka_unit_test(test_beside_set_call),
        cmocka_unit_test(test_busy),        cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_quiet),       cmocka_unit_test(test_dies),
        cmocka_unit_test(test_gpus),
    };
    return cmocka_run_group_tests_name("multi/test_join", tests, NULL, NULL);
}
