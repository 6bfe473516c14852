/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets: each operation in sets of any order and overlap beside the world's, in any order of
 * submission; what is refused; removal; the end of a rank.
 *
 * timeout: 300
 * takes: 6 s
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/open_fds.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define MOST 8
#define ROWS 3 /* of the inputs of an allgather, times the number in the set, plus one */

/* ---- one operation of each kind ------------------------------------------------------------- */

/* An operation in flight, with its tensors. */
struct op {
    int set, rank, size; /* this rank's number in the set, and the set's size */
    int ranks[MOST];
    int seed;
    enum hvd_kind kind;
    char name[32];
    int64_t shape[1], splits[MOST];
    float in[256], out[256];
    hvd_handle handle;
};

/* The value that rank r of the set puts into element i. */
static float value(const struct op *o, int r, int i)
{
    return (float)((o->ranks[r] + 1) * 10 + i % 7 + o->seed % 5);
}

static int rows_of(int r)
{
    return ROWS * r + 1;
}

static int start(struct op *o)
{
    struct hvd_request q = {.kind = o->kind,
                            .name = o->name,
                            .input = o->in,
                            .output = o->out,
                            .dtype = HVD_FLOAT32,
                            .ndim = 1,
                            .shape = o->shape,
                            .op = HVD_SUM,
                            .device = -1,
                            .set = o->set};
    int n = 64;
    snprintf(o->name, sizeof(o->name), "%s", hvd_kind_name(o->kind));
    switch (o->kind) {
    case HVD_ALLGATHER:
        n = rows_of(o->rank);
        q.output = NULL;
        break;
    case HVD_ALLTOALL:
        n = 0;
        for (int r = 0; r < o->size; r++)
            n += (int)(o->splits[r] = o->rank + r + o->seed % 3);
        q.splits = o->splits;
        q.output = NULL;
        break;
    case HVD_BROADCAST:
        q.root = o->seed % o->size;
        break;
    default:
        break;
    }
    o->shape[0] = n;
    for (int i = 0; i < n; i++)
        o->in[i] = value(o, o->rank, i);
    return hvd_submit(&q, 1, &o->handle);
}

static float sum(const struct op *o, int i)
{
    float s = 0;
    for (int r = 0; r < o->size; r++)
        s += value(o, r, i);
    return s;
}

static int wrong(const struct op *o, int i, float got, float want)
{
    return FAIL("set %d, %s of seed %d: element %d is %g, not %g", o->set, o->name, o->seed, i,
                (double)got, (double)want);
}

static int check_gather(const struct op *o)
{
    struct hvd_result result;
    if (hvd_result(o->handle, &result) != 0)
        return FAIL("%s", hvd_error());
    const float *data = result.data;
    if (result.ranks != o->size)
        return FAIL("a result of %d ranks in a set of %d", result.ranks, o->size);
    for (int r = 0, at = 0; r < o->size; r++) {
        bool gather = o->kind == HVD_ALLGATHER;
        int n = gather ? rows_of(r) : r + o->rank + o->seed % 3, first = 0;
        for (int k = 0; !gather && k < o->rank; k++)
            first += r + k + o->seed % 3;
        if (result.splits[r] != n)
            return FAIL("%d rows from %d, not %d", (int)result.splits[r], r, n);
        for (int i = 0; i < n; i++)
            if (data[at++] != value(o, r, first + i))
                return wrong(o, at - 1, data[at - 1], value(o, r, first + i));
    }
    hvd_release(o->handle);
    return 0;
}

static int finish(const struct op *o)
{
    if (hvd_wait(o->handle) != 0)
        return FAIL("set %d, %s: %s", o->set, o->name, hvd_error());
    int first = 0, n = 64;
    switch (o->kind) {
    case HVD_ALLGATHER:
    case HVD_ALLTOALL:
        return check_gather(o);
    case HVD_BROADCAST:
        for (int i = 0; i < n && o->rank != o->seed % o->size; i++)
            if (o->out[i] != value(o, o->seed % o->size, i))
                return wrong(o, i, o->out[i], value(o, o->seed % o->size, i));
        return 0;
    case HVD_REDUCESCATTER:
        for (int r = 0; r < o->rank; r++)
            first += n / o->size + (r < n % o->size);
        n = n / o->size + (o->rank < n % o->size);
        break;
    case HVD_BARRIER:
        return 0;
    default:
        break;
    }
    for (int i = 0; i < n; i++)
        if (o->out[i] != sum(o, first + i))
            return wrong(o, i, o->out[i], sum(o, first + i));
    return 0;
}

/* ---- many sets at a time -------------------------------------------------------------------- */

struct plan {
    int rounds, nsets;
    int sizes[16], ranks[16][MOST];
};

static int add(const struct plan *p, int k, int rank, struct op *o)
{
    if (hvd_set_add(p->ranks[k], p->sizes[k], &o->set) != 0)
        return FAIL("%s", hvd_error());
    o->size = p->sizes[k];
    o->rank = -1;
    for (int i = 0; i < o->size; i++) {
        o->ranks[i] = p->ranks[k][i];
        if (o->ranks[i] == rank)
            o->rank = i;
    }
    int seen[MOST] = {0}, n = hvd_set_rank(o->set);
    if (o->set != k + 1 || hvd_set_size(o->set) != o->size ||
        hvd_set_ranks(o->set, seen, MOST) != o->size ||
        memcmp(seen, o->ranks, (size_t)o->size * sizeof(int)) != 0 ||
        n != (o->rank < 0 ? -ENOENT : o->rank))
        return FAIL("set %d: rank %d, size %d", o->set, n, hvd_set_size(o->set));
    return 0;
}

/* Each round submits one operation in each set and in the world, waits in another order, both
 * different on each rank. */
static int beside(int rank, int size, void *arg)
{
    const struct plan *p = arg;
    static struct op ops[17];
    uint64_t seed = (uint64_t)rank * 31 + 7;
    int rc = 0;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < p->nsets && rc == 0; k++)
        rc = add(p, k, rank, &ops[k]);
    struct op *world = &ops[p->nsets];
    *world = (struct op){.rank = rank, .size = size};
    for (int i = 0; i < size; i++)
        world->ranks[i] = i;
    for (int round = 0; round < p->rounds && rc == 0; round++) {
        int submit[17], wait[17];
        rank_shuffle(submit, p->nsets + 1, &seed);
        rank_shuffle(wait, p->nsets + 1, &seed);
        for (int i = 0; i <= p->nsets && rc == 0; i++) {
            struct op *o = &ops[submit[i]];
            o->seed = round;
            o->kind = p->rounds > 100 ? HVD_ALLREDUCE
                                      : (enum hvd_kind)((round + submit[i]) % (HVD_BARRIER + 1));
            if (o->rank >= 0 && start(o) != 0)
                rc = FAIL("set %d: %s", o->set, hvd_error());
        }
        for (int i = 0; i <= p->nsets && rc == 0; i++)
            if (ops[wait[i]].rank >= 0)
                rc = finish(&ops[wait[i]]);
    }
    return rc ? rc : hvd_shutdown() != 0;
}

static const struct plan mixed = {
    .rounds = 60,
    .nsets = 5,
    .sizes = {2, 3, 1, 4, 2},
    .ranks = {{0, 2}, {3, 1, 0}, {2}, {3, 2, 1, 0}, {1, 3}},
};

static void test_mixed(void **state)
{
    struct plan p = mixed;
    assert_int_equal(world_run(4, beside, &p), 0);
}

/* The same sums again and again: the sets' schedules freeze. */
static void test_frozen(void **state)
{
    struct plan p = mixed;
    p.rounds = 400;
    assert_int_equal(world_run(4, beside, &p), 0);
}

static void test_pairs(void **state)
{
    struct plan p = {.rounds = 40};
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < a; b++) {
            p.sizes[p.nsets] = 2;
            p.ranks[p.nsets][0] = a;
            p.ranks[p.nsets++][1] = b;
        }
    assert_int_equal(world_run(6, beside, &p), 0);
}

static void test_hosts(void **state)
{
    if (!world_can_netns("multi/sets/hosts"))
        return;
    struct plan p = mixed;
    struct world_options o = {.size = 4, .hosts = 2};
    assert_int_equal(world_run_options(&o, beside, &p), 0);
    p.rounds = 200;
    assert_int_equal(world_run_options(&o, beside, &p), 0);
}

/* ---- refused -------------------------------------------------------------------------------- */

static int submit_in(int set, hvd_handle *ret)
{
    static float x[2];
    static const int64_t n = 2;
    struct hvd_request r = rank_request("x", x, &n);
    r.set = set;
    return hvd_submit(&r, 1, ret);
}

static int expect(int rc, int want, const char *text)
{
    if (rc != want || !strstr(hvd_error(), text))
        return FAIL("%d (%s), not %d (%s)", rc, hvd_error(), want, text);
    return 0;
}

static int refuse_lists(int rank)
{
    const int twice[] = {0, 1, 0}, far[] = {0, 3}, below[] = {-1}, other[] = {0, rank % 2};
    int set = 77;
    int rc = expect(hvd_set_add(twice, 3, &set), -EINVAL, "rank 0 is named twice");
    if (!rc)
        rc = expect(hvd_set_add(far, 2, &set), -EINVAL, "there is no rank 3 in a job of 3");
    if (!rc)
        rc = expect(hvd_set_add(below, 1, &set), -EINVAL, "there is no rank -1");
    if (!rc)
        rc = expect(hvd_set_add(NULL, 0, &set), -EINVAL, "at least one rank");
    if (!rc)
        rc = expect(hvd_set_add(other, 2, &set), -EINVAL,
                    "rank 0 adds ranks 0, 0, rank 1 adds ranks 0, 1");
    if (!rc)
        rc = expect(hvd_set_add(twice, rank == 2 ? -1 : 2, &set), -EINVAL,
                    "rank 0 adds ranks 0, 1, rank 2 adds no rank");
    return rc || set == 77 ? rc : FAIL("a set number was written");
}

static int refuse_requests(int rank, int set)
{
    float x = 1;
    int64_t n = 1;
    hvd_handle h;
    struct hvd_request r = rank_request("y", &x, &n), group[2] = {r, r};
    int rc = expect(submit_in(set + 1, &h), -EINVAL, "there is no set 2");
    if (!rc)
        rc = expect(submit_in(-1, &h), -EINVAL, "there is no set -1");
    if (!rc && rank == 2)
        rc = expect(submit_in(set, &h), -EINVAL, "this rank is not in set 1");
    group[1].name = "z";
    group[1].set = set;
    if (!rc)
        rc = expect(hvd_submit(group, 2, &h), -EINVAL, "a group in set 0 cannot have a request");
    r.kind = HVD_BROADCAST;
    r.root = 2;
    r.set = set;
    if (!rc && rank < 2)
        rc = expect(hvd_submit(&r, 1, &h), -EINVAL, "root 2 is no rank of 2");
    if (!rc)
        rc = expect(hvd_set_size(9), -EINVAL, "there is no set 9");
    if (!rc && rank == 2)
        rc = expect(hvd_set_rank(set), -ENOENT, "rank 2 is not in set 1 (ranks 1, 0)");
    return rc;
}

/* Ranks of a set that ask for different things get the same sentence, and the set works on. */
static int disagree(int rank, int set)
{
    float x[4] = {0};
    int64_t n = rank == 0 ? 3 : 4;
    hvd_handle h;
    struct hvd_request r = rank_request("d", x, &n);
    r.set = set;
    if (rank == 2)
        return 0;
    int rc = expect(rank_wait(&r, &h), -EINVAL, "rank 1: float32 [4] sum; rank 0: float32 [3] sum");
    return rc || submit_in(set, &h) != 0 || hvd_wait(h) != 0 ? rc ? rc : FAIL("%s", hvd_error())
                                                             : 0;
}

/* One rank has an operation in flight that the other one has not submitted. */
static int busy(int rank, int set)
{
    hvd_handle h;
    if (rank == 0 && submit_in(set, &h) != 0)
        return FAIL("%s", hvd_error());
    int rc = expect(hvd_set_remove(set), -EBUSY,
                    "rank 0: hvd_set_remove: operations of set 1 (ranks 1, 0) are in flight;");
    if (rc || rank == 2)
        return rc;
    if (rank == 1 && submit_in(set, &h) != 0)
        return FAIL("%s", hvd_error());
    return hvd_wait(h) != 0 ? FAIL("%s", hvd_error()) : 0;
}

static int refused(int rank, int size, void *arg)
{
    const int ranks[] = {1, 0};
    int set = 0;
    hvd_handle h;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    int rc = refuse_lists(rank);
    if (!rc && hvd_set_add(ranks, 2, &set) != 0)
        rc = FAIL("%s", hvd_error());
    if (!rc)
        rc = refuse_requests(rank, set);
    if (!rc)
        rc = disagree(rank, set);
    if (!rc)
        rc = busy(rank, set);
    if (!rc)
        rc = expect(rank == 1 ? hvd_set_remove(set) : hvd_set_add(ranks, 2, &set), -EINVAL,
                    "rank 0 adds ranks 1, 0, rank 1 removes set 1");
    if (!rc && hvd_set_remove(set) != 0)
        rc = FAIL("%s", hvd_error());
    if (!rc)
        rc = expect(submit_in(set, &h), -EINVAL, "there is no set 1");
    if (!rc)
        rc = expect(hvd_set_remove(set), -EINVAL, "there is no set 1 to remove");
    if (!rc)
        rc = expect(hvd_set_remove(0), -EINVAL, "there is no set 0 to remove");
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_refused(void **state)
{
    assert_int_equal(world_run(3, refused, NULL), 0);
}

/* ---- made and removed ----------------------------------------------------------------------- */

static int again(int rank, int size, void *arg)
{
    const int ranks[] = {2, 0, 1};
    int before = 0;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < 100; k++) {
        int set, n = 1 + k % 3;
        hvd_handle h;
        if (hvd_set_add(ranks, n, &set) != 0)
            return FAIL("%s", hvd_error());
        bool in = hvd_set_rank(set) >= 0;
        if (in && (submit_in(set, &h) != 0 || hvd_wait(h) != 0))
            return FAIL("%s", hvd_error());
        if (hvd_set_remove(set) != 0)
            return FAIL("%s", hvd_error());
        if (k == 10)
            before = open_fds();
    }
    int left = open_fds() - before;
    if (left > 0)
        return FAIL("%d descriptors are left", left);
    return hvd_shutdown() != 0;
}

static void test_again(void **state)
{
    assert_int_equal(world_run(3, again, NULL), 0);
}

/* ---- the end of a rank ---------------------------------------------------------------------- */

static int go_on(int set, int rounds)
{
    hvd_handle h;
    for (int k = 0; k < rounds; k++) {
        nap_ms(2);
        if (submit_in(set, &h) != 0 || hvd_wait(h) != 0)
            return FAIL("%s", hvd_error());
    }
    return 0;
}

/* Rank 2 leaves in order. Ranks 0 and 1 go on in their set, also after rank 0 has been told that
 * the set with rank 2 cannot go on. */
static int leaves(int rank, int size, void *arg)
{
    const int pair[] = {0, 1}, other[] = {0, 2};
    int a = 0, b = 0;
    hvd_handle h;
    if (hvd_init() != 0 || hvd_set_add(pair, 2, &a) != 0 || hvd_set_add(other, 2, &b) != 0)
        return FAIL("%s", hvd_error());
    if (rank == 2)
        return hvd_shutdown() != 0;
    int rc = go_on(a, 50);
    for (int k = 0; k < 2 && rank == 0 && !rc; k++)
        rc = submit_in(b, &h) != 0 ? FAIL("%s", hvd_error())
                                   : expect(hvd_wait(h), -ESHUTDOWN, "rank 2 has shut down");
    rc = rc ? rc : go_on(a, 50);
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_leaves(void **state)
{
    assert_int_equal(world_run(3, leaves, NULL), 0);
}

/* Rank 2 dies while 0 waits for it in one set, 1 in another one. */
static int dies(int rank, int size, void *arg)
{
    const int first[] = {2, 0}, second[] = {1, 2};
    int a = 0, b = 0;
    hvd_handle h;
    if (hvd_init() != 0 || hvd_set_add(first, 2, &a) != 0 || hvd_set_add(second, 2, &b) != 0)
        return FAIL("%s", hvd_error());
    if (rank == 2) {
        nap_ms(100);
        raise(SIGKILL);
    }
    if (submit_in(rank == 0 ? a : b, &h) != 0)
        return FAIL("%s", hvd_error());
    int rc = expect(hvd_wait(h), -ECONNRESET, "rank 2 ");
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_dies(void **state)
{
    struct world *w;
    int status[3];
    const struct world_options o = {.size = 3};
    assert_int_equal(world_start(&o, dies, NULL, &w), 0);
    world_wait(w, status);
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
}

/* Rank 1 dies while it connects to the others of a set. */
static int dies_in_add(int rank, int size, void *arg)
{
    const int ranks[] = {2, 1, 0};
    int set;
    if (rank == 1)
        setenv("HVD_TEST_FAIL", "set", 1);
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    uint64_t start = clock_ns();
    int rc = expect(hvd_set_add(ranks, 3, &set), -ECONNRESET, "rank 1 ");
    if (!rc && clock_ns() - start > 5 * CLOCK_S)
        rc = FAIL("it took too long");
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_dies_in_add(void **state)
{
    struct world *w;
    int status[3];
    const struct world_options o = {.size = 3};
    assert_int_equal(world_start(&o, dies_in_add, NULL, &w), 0);
    world_wait(w, status);
    assert_int_equal(status[0], 0);
    assert_true(status[1] != 0);
    assert_int_equal(status[2], 0);
}

/* ---- programs built before ------------------------------------------------------------------ */

int old_submit(const struct hvd_request *requests, size_t n, hvd_handle *ret) __asm__("hvd_submit");

/* In a program built before there were sets, the bytes of hvd_request.set are padding and may have
 * any value. */
static int built_before(int rank, int size, void *arg)
{
    float x = (float)rank;
    int64_t n = 1;
    hvd_handle h;
    struct hvd_request r = rank_request("x", &x, &n);
    r.set = 12345;
    if (hvd_init() != 0 || old_submit(&r, 1, &h) != 0 || hvd_wait(h) != 0 || x != 1)
        return FAIL("%s", hvd_error());
    int rc = expect(hvd_submit_sized(&r, 8, 1, &h), -EINVAL, "8 bytes");
    struct {
        struct hvd_request known;
        uint64_t unknown;
    } newer = {.known = rank_request("x", &x, &n)};
    if (!rc && (hvd_submit_sized(&newer.known, sizeof(newer), 1, &h) != 0 || hvd_wait(h) != 0))
        rc = FAIL("%s", hvd_error());
    newer.unknown = 1;
    if (!rc)
        rc = expect(hvd_submit_sized(&newer.known, sizeof(newer), 1, &h), -EINVAL, "does not have");
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_built_before(void **state)
{
    assert_int_equal(world_run(2, built_before, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed),        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_pairs),        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_again),        cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_dies),         cmocka_unit_test(test_dies_in_add),
        cmocka_unit_test(test_built_before), cmocka_unit_test(test_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
