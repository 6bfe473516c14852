/* SPDX-License-Identifier: Apache-2.0
 *
 * An elastic world: rare moments of a repair.
 *
 * timeout: 300
 * takes: 7 s, waiting
 */
#include <errno.h>
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
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define WARM 60 /* steps until the schedule is frozen */

struct board {
    _Atomic int at[ELASTIC_MAX];
    _Atomic int go, answered;
    int trace;
};

static bool never(struct elastic *job, void *arg)
{
    return false;
}

struct past {
    struct board *board;
    int members, step;
};

static bool all_at(struct elastic *job, void *arg)
{
    const struct past *p = arg;
    for (int m = 0; m < p->members; m++)
        if (atomic_load(&p->board->at[m]) < p->step)
            return false;
    return true;
}

static struct hvd_request gather_of(const char *name, const float *rows, const int64_t *shape)
{
    return (struct hvd_request){.kind = HVD_ALLGATHER,
                                .name = name,
                                .input = rows,
                                .dtype = HVD_FLOAT32,
                                .ndim = 1,
                                .shape = shape,
                                .device = -1};
}

/* The rows must be as the reported splits say. */
static int check_gathered(hvd_handle h, int64_t rows)
{
    struct hvd_result r;
    int64_t sum = 0;
    if (hvd_result(h, &r) < 0)
        return FAIL("result: %s", hvd_error());
    for (int i = 0; i < hvd_size(); i++)
        sum += r.splits[i];
    if (sum != r.shape[0])
        return FAIL("%d rows, but the ranks' are %d", (int)r.shape[0], (int)sum);
    const float *data = r.data;
    for (int i = 0; i < hvd_size(); i++)
        for (int64_t k = 0; k < r.splits[i]; k++)
            if (r.splits[i] != rows || *data++ != (float)i)
                return FAIL("row %d of rank %d is not its own", (int)k, i);
    hvd_release(h);
    return 0;
}

/* ---- every rank has staged its part, no rank has read it --------------------------------------
 */

static int stage_and_die(int member, void *arg)
{
    struct board *b = arg;
    float rows[100];
    const int64_t shape = 100;
    hvd_handle h;
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    for (int i = 0; i < shape; i++)
        rows[i] = (float)member;
    for (int step = 0; step <= WARM; step++) {
        const struct hvd_request r = gather_of("rows", rows, &shape);
        atomic_store(&b->at[member], step);
        while (member == 2 && step == WARM && !atomic_load(&b->go))
            nap_ms(1);
        if (hvd_submit(&r, 1, &h) < 0 || hvd_wait(h) < 0)
            return FAIL("step %d: %s", step, hvd_error());
        if (member == 2 && step == WARM)
            raise(SIGKILL);
        int rc = check_gathered(h, shape);
        if (rc)
            return rc;
    }
    if (hvd_barrier("on") < 0)
        return FAIL("barrier: %s", hvd_error());
    hvd_shutdown();
    return 0;
}

static void test_all_is_staged(void **state)
{
    static const char *const env[] = {"HVD_FREEZE_AFTER=10", NULL};
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    struct past p = {b, 3, WARM};
    elastic_init(&job);
    for (int m = 0; m < 3; m++)
        elastic_add(&job, stage_and_die, b, env);
    assert_true(elastic_run(&job, all_at, &p, 60000));
    elastic_run(&job, never, NULL, 200);
    kill(job.members[0].pid, SIGSTOP);
    kill(job.members[1].pid, SIGSTOP);
    atomic_store(&b->go, 1);
    elastic_run(&job, never, NULL, 200);
    kill(job.members[0].pid, SIGCONT);
    kill(job.members[1].pid, SIGCONT);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
    assert_int_equal(job.members[0].status, 0);
    assert_int_equal(job.members[1].status, 0);
    elastic_fini(&job);
}

/* ---- a repair that fails -----------------------------------------------------------------------
 */

static int sum_until_told(int member, void *arg)
{
    struct board *b = arg;
    const int64_t count = 20000;
    float *data = calloc((size_t)count, sizeof(*data));
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    setenv("HVD_PEER_TIMEOUT_SECONDS", "never",
           1); /* an invalid value: no mesh can be created from here on */
    for (int step = 0;; step++) {
        const struct hvd_request r = rank_request("sum", data, &count);
        hvd_handle h;
        atomic_store(&b->at[member], step);
        if (hvd_submit(&r, 1, &h) < 0 || hvd_wait(h) < 0)
            break;
    }
    hvd_shutdown();
    free(data);
    return 3;
}

/* The repair fails, whichever part of the engine notices the loss. */
static void test_no_repair(void **state)
{
    for (int i = 0; i < 30; i++) {
        struct board *b = world_board(sizeof(*b));
        struct elastic job;
        struct past p = {b, 4, 20 + i};
        elastic_init(&job);
        for (int m = 0; m < 4; m++)
            elastic_add(&job, sum_until_told, b, NULL);
        assert_true(elastic_run(&job, all_at, &p, 60000));
        kill(job.members[3].pid, SIGKILL);
        assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
        for (int m = 0; m < 3; m++)
            if (!WIFEXITED(job.members[m].status) || WEXITSTATUS(job.members[m].status) != 3)
                fail_msg("%d: member %d: status %x", i, m, job.members[m].status);
        elastic_fini(&job);
    }
}

/* ---- a fork during a repair --------------------------------------------------------------------
 */

static int sockets_open(void)
{
    int n = 0;
    struct stat st;
    for (int fd = 3; fd < 1024; fd++)
        n += fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
    return n;
}

/* Forks, and returns how many sockets the child has. */
static void *fork_when_told(void *arg)
{
    struct board *b = arg;
    int status = 0;
    while (!atomic_load(&b->go))
        nap_ms(1);
    pid_t pid = fork();
    if (pid == 0)
        _exit(sockets_open());
    waitpid(pid, &status, 0);
    return (void *)(intptr_t)status;
}

static int sum_and_fork(int member, void *arg)
{
    struct board *b = arg;
    const int64_t count = 1000;
    float data[1000] = {0};
    void *status = NULL;
    pthread_t thread;
    int before = sockets_open() - 1; /* without the agent's socket */
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    if (member == 0)
        pthread_create(&thread, NULL, fork_when_told, b);
    for (int step = 0; data[0] == 0; step++) {
        atomic_store(&b->at[member], step);
        data[0] = member < 2 && atomic_load(&b->go) ? 1 : 0;
        if (hvd_allreduce("sum", data, data, count, HVD_FLOAT32, HVD_SUM) < 0)
            return FAIL("sum: %s", hvd_error());
    }
    if (member == 0)
        pthread_join(thread, &status);
    hvd_shutdown();
    int after = WEXITSTATUS((int)(intptr_t)status);
    if (member == 0 && after != before)
        return FAIL("a child has %d sockets of the engine", after - before);
    return 0;
}

static bool first_waits(struct elastic *job, void *arg)
{
    return job->members[0].waiting;
}

static void test_fork_in_repair(void **state)
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    struct past p = {b, 3, 20};
    elastic_init(&job);
    for (int m = 0; m < 3; m++)
        elastic_add(&job, sum_and_fork, b, NULL);
    assert_true(elastic_run(&job, all_at, &p, 60000));
    kill(job.members[1].pid, SIGSTOP);
    kill(job.members[2].pid, SIGKILL);
    assert_true(elastic_run(&job, first_waits, NULL, 60000));
    atomic_store(&b->go, 1);
    elastic_run(&job, never, NULL, 200);
    kill(job.members[1].pid, SIGCONT);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
    assert_int_equal(job.members[0].status, 0);
    assert_int_equal(job.members[1].status, 0);
    elastic_fini(&job);
}

/* ---- a boundary that one rank leaves before another one has finished it ------------------------
 */

#define CHANGES 100

static int commit_until_told(int member, void *arg)
{
    struct board *b = arg;
    int changes = 0;
    if (member == 3)
        setenv("HVD_LOCALITY", "elsewhere", 1);
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    for (float over = 0; over == 0;) {
        float mine = atomic_load(&b->go) ? 1 : 0;
        int rc = hvd_allreduce("over", &mine, &over, 1, HVD_FLOAT32, HVD_MAX);
        if (rc == 0)
            rc = hvd_commit();
        if (rc < 0)
            return FAIL("after %d changes: %s", changes, hvd_error());
        atomic_store(&b->at[member], ++changes);
    }
    hvd_shutdown();
    return 0;
}

static bool change_is_in(struct elastic *job, void *arg)
{
    return !job->changing;
}

/* Rank 0 shares a host with two ranks and is stopped and continued again and again, so it often
 * finds that the other host is already in the next epoch. It must tell the ranks of its host. */
static void test_a_peer_has_gone_on(void **state)
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    struct past p = {b, 4, 5};
    elastic_init(&job);
    for (int m = 0; m < 4; m++)
        elastic_add(&job, commit_until_told, b, NULL);
    assert_true(elastic_run(&job, all_at, &p, 60000));
    for (int i = 0; i < CHANGES; i++) {
        elastic_announce(&job);
        for (int k = 0; k < 40 && job.changing; k++) {
            kill(job.members[0].pid, SIGSTOP);
            elastic_run(&job, change_is_in, NULL, 2);
            kill(job.members[0].pid, SIGCONT);
            elastic_run(&job, change_is_in, NULL, 1);
        }
        if (!elastic_run(&job, change_is_in, NULL, 30000))
            fail_msg("change %d: not all ranks reached the boundary", i);
    }
    atomic_store(&b->go, 1);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
    for (int m = 0; m < 4; m++)
        assert_int_equal(job.members[m].status, 0);
    elastic_fini(&job);
}

/* ---- statistics during a repair ----------------------------------------------------------------
 */

/* What another thread reads while the repair waits for a stopped rank. */
static void *ask_when_told(void *arg)
{
    struct board *b = arg;
    struct hvd_stats before = {.size = sizeof(before)}, s = before;
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", b->trace);
    intptr_t bad = hvd_stats(&before) < 0;
    while (!atomic_load(&b->go))
        nap_ms(1);
    bad |= hvd_stats(&s) < 0 || s.ops < before.ops || s.negotiated < before.negotiated ||
           s.frozen < before.frozen || s.allocations < before.allocations;
    bad |= hvd_world(&w) < 0 || w.size != 3 || hvd_size() != 3;
    bad |= hvd_start_timeline(path, true) < 0 || hvd_stop_timeline() < 0;
    atomic_store(&b->answered, 1);
    return (void *)bad;
}

static int sum_and_ask(int member, void *arg)
{
    struct board *b = arg;
    float data[1000] = {0};
    void *bad = NULL;
    pthread_t thread;
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    for (int step = 0; step < 20000 && data[0] == 0; step++) {
        if (step == WARM && member == 0)
            pthread_create(&thread, NULL, ask_when_told, b);
        atomic_store(&b->at[member], step);
        data[0] = member < 2 && atomic_load(&b->answered) ? 1 : 0;
        if (hvd_allreduce("sum", data, data, 1000, HVD_FLOAT32, HVD_SUM) < 0)
            return FAIL("sum: %s", hvd_error());
    }
    if (member == 0)
        pthread_join(thread, &bad);
    hvd_shutdown();
    return bad ? FAIL("an answer is wrong: %s", hvd_error()) : 0;
}

static bool answered(struct elastic *job, void *arg)
{
    const struct board *b = arg;
    return atomic_load(&b->answered);
}

static void test_ask_in_repair(void **state)
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    struct past p = {b, 3, WARM + 10};
    elastic_init(&job);
    b->trace = memfd_create("trace", 0);
    assert_true(b->trace >= 0);
    for (int m = 0; m < 3; m++)
        elastic_add(&job, sum_and_ask, b, NULL);
    assert_true(elastic_run(&job, all_at, &p, 60000));
    kill(job.members[1].pid, SIGSTOP);
    kill(job.members[2].pid, SIGKILL);
    assert_true(elastic_run(&job, first_waits, NULL, 60000));
    atomic_store(&b->go, 1);
    assert_true(elastic_run(&job, answered, b, 60000));
    assert_int_equal(job.publishes, 1);
    kill(job.members[1].pid, SIGCONT);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
    assert_int_equal(job.members[0].status, 0);
    assert_int_equal(job.members[1].status, 0);
    elastic_fini(&job);
    close(b->trace);
}

/* ---- batch counters that monitors compare ------------------------------------------------------
 */

static int sum_slowly(int member, void *arg)
{
    struct board *b = arg;
    float data[1000] = {0};
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    for (int step = 0; data[0] == 0; step++) {
        atomic_store(&b->at[member], step);
        if (atomic_load(&b->go))
            nap_ms(600); /* steps so slow that ranks report nearly every one */
        data[0] = (float)atomic_load(&b->answered);
        if (hvd_allreduce("sum", data, data, 1000, HVD_FLOAT32, HVD_SUM) < 0 || hvd_commit() < 0)
            return FAIL("step %d: %s", step, hvd_error());
    }
    hvd_shutdown();
    return 0;
}

static bool all_told(struct elastic *job, void *arg)
{
    return job->members[0].batches > 0 && job->members[1].batches > 0 &&
           job->members[2].batches > 0;
}

/* A joiner continues the others' batch counter, so that it does not seem to be behind. */
static void test_batches_of_joiner(void **state)
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    struct past p = {b, 2, 500}, first = {b, 3, 1};
    elastic_init(&job);
    for (int m = 0; m < 2; m++)
        elastic_add(&job, sum_slowly, b, NULL);
    assert_true(elastic_run(&job, all_at, &p, 60000));
    elastic_add(&job, sum_slowly, b, NULL);
    assert_true(elastic_run(&job, elastic_joiners_wait, &(int){2}, 60000));
    elastic_announce(&job);
    assert_true(elastic_run(&job, all_at, &first, 60000));
    atomic_store(&b->go, 1);
    elastic_run(&job, never, NULL, 1500);
    for (int m = 0; m < 3; m++)
        job.members[m].batches = 0;
    assert_true(elastic_run(&job, all_told, NULL, 60000));
    uint64_t others = job.members[0].batches, joined = job.members[2].batches;
    atomic_store(&b->answered, 1);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
    /* Ranks report once a second, so their counters differ by a few steps. */
    if (others < 500 || joined + 20 < others || joined > others + 20)
        fail_msg("%llu batches, but %llu of the joiner", (unsigned long long)others,
                 (unsigned long long)joined);
    elastic_fini(&job);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_is_staged),  cmocka_unit_test(test_no_repair),
        cmocka_unit_test(test_fork_in_repair), cmocka_unit_test(test_a_peer_has_gone_on),
        cmocka_unit_test(test_ask_in_repair),  cmocka_unit_test(test_batches_of_joiner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
