/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank is killed in the middle of collectives: every other rank gets an error within 10 s,
 * whatever it waits for and however many links away the lost rank is.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "tests/harness/coll_rank.h"
#include "tests/harness/world.h"

#define MAX_RANKS 8

enum { NOTICED = 3 };

struct job {
    const char *hosts;
    enum hvd_kind kind;
    size_t count;
    struct shared {
        _Atomic int rounds;
        _Atomic uint64_t noticed[MAX_RANKS]; /* clock_ns() */
    } * shared;
};

/* Repeats the same operation until it fails. */
static int rank_main(int rank, int size, void *arg)
{
    const struct job *job = arg;
    size_t parts[MAX_RANKS];
    struct coll_rank r;
    if (coll_rank_open(&r, rank, job->hosts) < 0)
        return 10;
    r.quiet = true;
    auto_free float *in = calloc(job->count * (size_t)size, sizeof(*in));
    auto_free float *out = calloc(job->count * (size_t)size, sizeof(*out));
    bool each = job->kind == HVD_ALLTOALL || job->kind == HVD_REDUCESCATTER;
    struct coll_tensor t = {in, out, each ? job->count * (size_t)size : job->count};
    struct coll_op op = coll_rank_op(&r, job->kind, HVD_FLOAT32, HVD_SUM, &t, 1);
    for (int i = 0; i < size; i++)
        parts[i] = job->count;
    op.send_counts = op.recv_counts = parts;
    int rc = in && out ? 0 : -ENOMEM;
    for (uint64_t end = deadline_in_ms(20000); rc == 0 && !deadline_passed(end);) {
        rc = coll_rank_run(&r, &op);
        atomic_fetch_add(&job->shared->rounds, 1);
    }
    atomic_store(&job->shared->noticed[rank], clock_ns());
    coll_destroy(r.coll);
    mesh_destroy(r.mesh);
    boot_fini(&r.boot);
    return rc == -ECONNRESET ? NOTICED : 1;
}

static void kill_one(const char *hosts, enum hvd_kind kind, size_t count, int victim)
{
    struct job job = {hosts, kind, count, world_shared(sizeof(struct shared))};
    struct world_options o = {.size = (int)strlen(hosts), .timeout_s = 40};
    int status[MAX_RANKS];
    struct world *w = NULL;
    assert_non_null(job.shared);
    assert_int_equal(world_start(&o, rank_main, &job, &w), 0);
    uint64_t patience = deadline_in_ms(20000);
    while (atomic_load(&job.shared->rounds) < 3 * o.size && !deadline_passed(patience))
        usleep(1000);
    uint64_t killed = clock_ns();
    world_kill(w, victim, SIGKILL);
    world_wait(w, status);
    for (int i = 0; i < o.size; i++) {
        if (i == victim)
            continue;
        assert_true(WIFEXITED(status[i]));
        assert_int_equal(WEXITSTATUS(status[i]), NOTICED);
        assert_true(atomic_load(&job.shared->noticed[i]) < killed + 10 * CLOCK_S);
    }
}

static void test_allreduce(void **state)
{
    kill_one("aa", HVD_ALLREDUCE, 1, 1);
    kill_one("aaa", HVD_ALLREDUCE, 1000000, 0);
    kill_one("ab", HVD_ALLREDUCE, 1, 0);
    kill_one("abc", HVD_ALLREDUCE, 1000000, 1);
    kill_one("aab", HVD_ALLREDUCE, 1000000, 1);
    kill_one("aabb", HVD_ALLREDUCE, 10, 3);
    kill_one("aabb", HVD_ALLREDUCE, 1000000, 2);
}

static void test_other_kinds(void **state)
{
    const enum hvd_kind kinds[] = {HVD_ALLGATHER, HVD_BROADCAST, HVD_ALLTOALL, HVD_REDUCESCATTER,
                                   HVD_BARRIER};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        kill_one("aabb", kinds[i], 100000, (int)i % 4);
        kill_one("abc", kinds[i], 100, (int)i % 3);
        kill_one("aaa", kinds[i], 100000, (int)i % 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allreduce),
        cmocka_unit_test(test_other_kinds),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("multi/coll_death", tests, NULL, NULL);
}
