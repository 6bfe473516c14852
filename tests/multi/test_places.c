/* SPDX-License-Identifier: Apache-2.0
 *
 * A job that keeps places: what each rank sees of ranks and places after losses, replacements and
 * planned changes, and the order of results, in the world and in a set, on one host and on several.
 * In test_elastic_messages messages are in flight meanwhile.
 *
 * timeout: 120
 * takes: 2 s
 */
#include <errno.h>
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

#include "tests/harness/deaths.h"
#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

enum { MEMBERS = 4, MOST = 12, LIMIT = 60000 /* ms */ };

struct board {
    _Atomic int at[ELASTIC_MAX]; /* the step in which each member is */
    _Atomic int place[ELASTIC_MAX], rank[ELASTIC_MAX];
    _Atomic int source[ELASTIC_MAX]; /* of a joiner: the place of the rank that gave it the state */
    _Atomic int stop;
};

/* ---- a member ------------------------------------------------------------------------------- */

/* Gathers one number of each rank of the set, in its order. Returns how many, or a negative errno.
 */
static int gather(const char *name, int set, int32_t mine, int32_t *ret)
{
    const int64_t one = 1;
    hvd_handle handle;
    struct hvd_result result;
    struct hvd_request r = {.kind = HVD_ALLGATHER,
                            .name = name,
                            .input = &mine,
                            .dtype = HVD_INT32,
                            .ndim = 1,
                            .shape = &one,
                            .device = -1,
                            .set = set};
    int rc = hvd_submit(&r, 1, &handle);
    if (rc == 0)
        rc = hvd_wait(handle);
    if (rc == 0)
        rc = hvd_result(handle, &result);
    if (rc < 0)
        return rc;
    int n = (int)result.shape[0];
    memcpy(ret, result.data, (size_t)n * sizeof(*ret));
    hvd_release(handle);
    return n;
}

/* Are the n places, of ranks that are alive, in the order of the ranks that this rank sees, and is
 * this rank among them? A rank that was lost since the last boundary may be missing. */
static bool in_order(const int32_t *some, int n, const int *places, int size)
{
    int at = 0;
    bool me = false;
    for (int i = 0; i < n; i++) {
        while (at < size && places[at] != some[i])
            at++;
        if (at == size)
            return false;
        me = me || places[at] == hvd_place();
        at++;
    }
    return me;
}

/* Each rank sends its place and that of the receiver to each other rank. */
static int swap(const int *places, int size)
{
    int32_t out[MOST];
    const int64_t n = size;
    hvd_handle handle;
    struct hvd_result result;
    for (int r = 0; r < size; r++)
        out[r] = 100 * hvd_place() + places[r];
    struct hvd_request r = {.kind = HVD_ALLTOALL,
                            .name = "swap",
                            .input = out,
                            .dtype = HVD_INT32,
                            .ndim = 1,
                            .shape = &n,
                            .device = -1};
    if (hvd_submit(&r, 1, &handle) < 0 || hvd_wait(handle) < 0 || hvd_result(handle, &result) < 0)
        return FAIL("%s", hvd_error());
    const int32_t *in = result.data;
    int32_t from[MOST];
    for (int i = 0; i < result.shape[0]; i++) {
        from[i] = in[i] / 100;
        if (in[i] % 100 != hvd_place())
            return FAIL("place %d got what is for place %d", hvd_place(), in[i] % 100);
    }
    bool good = in_order(from, (int)result.shape[0], places, size);
    hvd_release(handle);
    return good ? 0 : FAIL("place %d: rows in another order", hvd_place());
}

static int check_set(int set, const int *places, int size)
{
    int ranks[MOST], kept[MOST];
    int32_t got[MOST];
    int n = hvd_set_ranks(set, ranks, MOST);
    if (n < 1 || ranks[hvd_set_rank(set)] != hvd_rank())
        return FAIL("a set of %d ranks", n);
    for (int i = 0; i < n; i++) {
        kept[i] = ranks[i] < size ? places[ranks[i]] : -1;
        if (kept[i] < 0 || (i > 0 && kept[i] >= kept[i - 1]))
            return FAIL("place %d: the set's rank %d is in place %d", hvd_place(), i, kept[i]);
    }
    int some = gather("set", set, hvd_place(), got);
    if (some < 1 || !in_order(got, some, kept, n))
        return FAIL("place %d: %d of %d ranks of the set: %s", hvd_place(), some, n, hvd_error());
    return 0;
}

static int check_world(struct board *b, int member, int set)
{
    int places[MOST], size = hvd_size(), n = hvd_places(places, MOST);
    int32_t got[MOST];
    if (n != size || places[hvd_rank()] != hvd_place() || hvd_places(NULL, 0) != n)
        return FAIL("member %d: %d places of %d ranks", member, n, size);
    for (int r = 0; r < n; r++)
        if (places[r] < r || (r > 0 && places[r] <= places[r - 1]))
            return FAIL("member %d: rank %d has place %d", member, r, places[r]);
    b->place[member] = hvd_place();
    b->rank[member] = hvd_rank();
    int some = gather("world", 0, hvd_place(), got);
    if (some < 1 || !in_order(got, some, places, size))
        return FAIL("member %d: %d of %d ranks: %s", member, some, size, hvd_error());
    int rc = swap(places, size);
    return rc || set == 0 ? rc : check_set(set, places, size);
}

/* The place comes with the state: the sender's. */
static int share(struct board *b, int member, int64_t *step)
{
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    hvd_world(&w);
    int64_t state[] = {*step, hvd_place()};
    if (hvd_broadcast("state", state, 2, HVD_INT64, w.source) < 0)
        return FAIL("%s", hvd_error());
    *step = state[0];
    if (w.is_new)
        b->source[member] = (int)state[1];
    return 0;
}

/* Places 3, 2 and 0 are in a set, in this order. */
static int train(int member, void *arg)
{
    static const int crew[] = {3, 2, 0};
    struct board *b = arg;
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    int64_t step = 0;
    int set = 0, rc = hvd_init() < 0 ? FAIL("%s", hvd_error()) : 0, unused;
    hvd_world(&w);
    if (rc == 0 && w.waiting && hvd_places(&unused, 1) != -EAGAIN)
        return FAIL("a joiner knows places");
    if (rc == 0 && !w.is_new && hvd_set_add(crew, 3, &set) < 0)
        return FAIL("%s", hvd_error());
    if (rc == 0 && w.is_new) {
        rc = hvd_enter() < 0 ? FAIL("%s", hvd_error()) : share(b, member, &step);
        set = 1; /* the one that the others have made, if its place is in it */
    }
    set = set && hvd_set_rank(set) >= 0 ? set : 0;
    while (rc == 0) {
        float stop = (float)atomic_load(&b->stop);
        rc = check_world(b, member, set);
        atomic_store(&b->at[member], (int)step++);
        if (rc == 0 && hvd_allreduce("stop", &stop, &stop, 1, HVD_FLOAT32, HVD_MAX) < 0)
            rc = FAIL("%s", hvd_error());
        int changed = rc == 0 ? hvd_commit() : 0;
        if (changed == -ESHUTDOWN)
            return 0;
        if (changed < 0)
            rc = FAIL("member %d: hvd_commit: %s", member, hvd_error());
        hvd_world(&w);
        if (rc == 0 && changed == 1 && w.joined > 0)
            rc = share(b, member, &step);
        if (rc == 0 && stop > 0)
            return hvd_shutdown() < 0 ? FAIL("%s", hvd_error()) : 0;
        nap_ms(1);
    }
    return rc;
}

/* ---- the test ------------------------------------------------------------------------------- */

/* Works until all members of the newest epoch have run some steps in it. */
static void settle(struct elastic *job, struct board *b)
{
    for (int m = 0; m < job->n; m++)
        if (job->members[m].active && !job->members[m].over && !job->members[m].leaving)
            assert_true(elastic_run_to(job, &b->at[m], b->at[m] + 3, LIMIT));
}

/* What the members see: rank and place of each, "member:rank/place". */
static void seen(const struct elastic *job, const struct board *b, const char *want)
{
    char text[128] = "";
    for (int m = 0; m < job->n; m++) {
        if (!job->members[m].active || job->members[m].over)
            continue;
        size_t n = strlen(text);
        snprintf(text + n, sizeof(text) - n, "%s%d:%d/%d", n ? " " : "", m, b->rank[m],
                 b->place[m]);
    }
    assert_string_equal(text, want);
}

static bool published(struct elastic *job, void *arg)
{
    return job->publishes > *(const int *)arg;
}

static void lose(struct elastic *job, struct board *b, int member)
{
    int before = job->publishes;
    kill(job->members[member].pid, SIGKILL);
    assert_true(elastic_run(job, published, &before, LIMIT));
    settle(job, b);
}

/* n joiners are admitted, and members that are marked leave. */
static void change(struct elastic *job, struct board *b, int n)
{
    int before = job->publishes, first = job->n;
    for (int i = 0; i < n; i++)
        elastic_add(job, train, b, NULL);
    assert_true(elastic_run(job, elastic_joiners_wait, &first, LIMIT));
    elastic_announce(job);
    assert_true(elastic_run(job, published, &before, LIMIT));
    settle(job, b);
}

static void live(const char *const hosts[MEMBERS])
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    elastic_init(&job);
    job.keep_places = true;
    for (int m = 0; m < MEMBERS; m++) {
        const char *const env[] = {hosts[m], NULL};
        elastic_add(&job, train, b, env);
    }
    assert_true(elastic_run_to(&job, &b->at[0], 3, LIMIT));
    settle(&job, b);
    seen(&job, b, "0:0/0 1:1/1 2:2/2 3:3/3");
    lose(&job, b, 1);
    seen(&job, b, "0:0/0 2:1/2 3:2/3");
    change(&job, b, 1);
    seen(&job, b, "0:0/0 2:2/2 3:3/3 4:1/1");
    assert_int_equal(b->source[4], 0);
    /* The next joiner is rank 0, and gets the state from rank 1. */
    lose(&job, b, 0);
    seen(&job, b, "2:1/2 3:2/3 4:0/1");
    change(&job, b, 1);
    seen(&job, b, "2:2/2 3:3/3 4:1/1 5:0/0");
    assert_int_equal(b->source[5], 1);
    /* 4 to 6 ranks. Then one of them is drained, and two join: one in its place. */
    change(&job, b, 2);
    seen(&job, b, "2:2/2 3:3/3 4:1/1 5:0/0 6:4/4 7:5/5");
    job.members[4].leaving = true;
    change(&job, b, 2);
    seen(&job, b, "2:2/2 3:3/3 5:0/0 6:4/4 7:5/5 8:1/1 9:6/6");
    /* Down to 4 ranks: the highest places leave. */
    job.members[6].leaving = job.members[7].leaving = job.members[9].leaving = true;
    change(&job, b, 0);
    seen(&job, b, "2:2/2 3:3/3 5:0/0 8:1/1");
    atomic_store(&b->stop, 1);
    deaths_expect_end(&job, 0x3fc, hosts[0]);
    elastic_fini(&job);
}

static void test_live(void **state)
{
    static const char *const hosts[][MEMBERS] = {
        {"HVD_X=1", "HVD_X=1", "HVD_X=1", "HVD_X=1"},
        {"HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0"},
        {"HVD_LOCALITY=a", "HVD_LOCALITY=b", "HVD_LOCALITY=a", "HVD_LOCALITY=b"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++)
        live(hosts[i]);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_live),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
