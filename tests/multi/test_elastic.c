/* SPDX-License-Identifier: Apache-2.0
 *
 * An elastic world: ranks are killed at any moment, join and leave at boundaries. The survivors
 * lose no step, have the same bits, and know which ranks contributed.
 *
 * timeout: 600
 * takes: 50 s
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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/effort.h"
#include "tests/harness/elastic.h"
#include "tests/harness/world.h"

#define OPS 6

#define STEPS  160
#define NOBODY 0x1p22F /* no member's part */
#define SEEN   256     /* bytes between two elements that TSan sees in fill() */

/* What the members record: the hash of each result, and the ranks that contributed to it. */
struct board {
    int steps;
    bool in_place;
    _Atomic int at[ELASTIC_MAX]; /* the step in which each member is */
    uint64_t hash[ELASTIC_MAX][STEPS][OPS];
    uint32_t masks[ELASTIC_MAX][STEPS][OPS][2]; /* contributors of elements: at most two sets */
    uint32_t worlds[ELASTIC_MAX][STEPS];        /* size of the world in that step */
    int joined_at[ELASTIC_MAX];                 /* the first step of a joiner */
    _Atomic int hold; /* no member begins this step while it is set; 0: none */
};

#if EFFORT_WHOLE
static const int64_t counts[OPS] = {1, 40, 3000, 20000, 400000, 7};
#else
static const int64_t counts[OPS] = {1, 40, 3000, 30000, 60000, 7}; /* enough for slice owners */
#endif

/* Length of the run of equal elements that data begins with. Compares blocks without a branch,
 * which the compiler turns into vector instructions. */
__attribute__((no_sanitize("thread"))) static int64_t run_length(const float *data, int64_t n)
{
    enum { BLOCK = 64 };
    int64_t i = 0;
    uint32_t first, other;
    memcpy(&first, data, sizeof(first));
    for (bool same = true; same && i + BLOCK <= n; i += same ? BLOCK : 0) {
        uint32_t difference = 0;
        for (int k = 0; k < BLOCK; k++) {
            memcpy(&other, &data[i + k], sizeof(other));
            difference |= other ^ first;
        }
        same = difference == 0;
    }
    for (; i < n; i++) {
        memcpy(&other, &data[i], sizeof(other));
        if (other != first)
            break;
    }
    return i;
}

/* Elements are sums of 1 << member, so each names its contributors. A result has at most two
 * different values. */
static int note_mask(struct board *b, int member, int step, int op, uint32_t mask)
{
    uint32_t *masks = b->masks[member][step][op];
    if (masks[0] == 0)
        masks[0] = mask;
    if (mask == masks[0] || mask == masks[1])
        return 0;
    if (masks[1] != 0)
        return 41;
    masks[1] = mask;
    return 0;
}

/* Notes a result's hash, which is that of its runs of equal elements, and its contributors. */
static int note_result(struct board *b, int member, int step, int op, const float *data)
{
    uint64_t hash = 1469598103934665603ULL;
    int rc = 0;
    for (int64_t i = 0, run; i < counts[op] && rc == 0; i += run) {
        uint32_t bits;
        memcpy(&bits, &data[i], sizeof(bits));
        run = run_length(&data[i], counts[op] - i);
        hash = (hash ^ bits) * 1099511628211ULL;
        hash = (hash ^ (uint64_t)run) * 1099511628211ULL;
        rc = note_mask(b, member, step, op, (uint32_t)data[i]);
    }
    b->hash[member][step][op] = hash;
    return rc;
}

static void nap_us(unsigned us)
{
    struct timespec t = {.tv_nsec = (long)us * 1000};
    nanosleep(&t, NULL);
}

/* Writes a value to all elements. The thread sanitizer does not know wmemset, and would take most
 * of the test's time for a whole buffer: it sees each element whose address is a multiple of SEEN,
 * as in core/coll/reduce.c. */
static void fill(float *data, float value, int64_t n)
{
    _Static_assert(sizeof(wchar_t) == sizeof(float), "wmemset writes words of a float's size");
    wchar_t word;
    memcpy(&word, &value, sizeof(word));
    wmemset((wchar_t *)data, word, (size_t)n);
    for (int64_t i = (int64_t)(-(uintptr_t)data % SEEN / sizeof(float)); i < n;
         i += (int64_t)(SEEN / sizeof(float)))
        data[i] = value;
}

static int step_ops(struct board *b, int member, int step, float **in, float **out)
{
    hvd_handle handles[OPS];
    char name[32];
    for (int op = 0; op < OPS; op++) {
        fill(in[op], (float)(1u << member), counts[op]);
        snprintf(name, sizeof(name), "t%d", op);
        struct hvd_request r = {.kind = HVD_ALLREDUCE,
                                .name = name,
                                .input = in[op],
                                .output = b->in_place ? in[op] : out[op],
                                .dtype = HVD_FLOAT32,
                                .ndim = 1,
                                .shape = &counts[op],
                                .op = HVD_SUM,
                                .device = -1};
        int rc = hvd_submit(&r, 1, &handles[op]);
        if (rc < 0)
            return printf("member %d: submit: %s\n", member, hvd_error()), 31;
    }
    for (int op = 0; op < OPS; op++) {
        int rc = hvd_wait(handles[op]);
        float *result = b->in_place ? in[op] : out[op];
        if (rc < 0)
            return printf("member %d: step %d: %s\n", member, step, hvd_error()), 32;
        rc = note_result(b, member, step, op, result);
        if (rc)
            return rc;
        /* The user may overwrite inputs and outputs now. */
        fill(in[op], NOBODY, counts[op]);
        fill(out[op], NOBODY, counts[op]);
    }
    return 0;
}

static int train(int member, void *arg)
{
    struct board *b = arg;
    float *in[OPS], *out[OPS];
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    int64_t step = 0;
    for (int op = 0; op < OPS; op++) {
        in[op] = malloc((size_t)counts[op] * sizeof(float));
        out[op] = malloc((size_t)counts[op] * sizeof(float));
    }
    if (hvd_init() < 0)
        return printf("member %d: init: %s\n", member, hvd_error()), 21;
    hvd_world(&w);
    if (w.is_new && hvd_broadcast("step", &step, 1, HVD_INT64, w.source) < 0)
        return printf("member %d: state: %s\n", member, hvd_error()), 22;
    b->joined_at[member] = (int)step;
    for (; step < b->steps; step++) {
        atomic_store(&b->at[member], (int)step);
        while (step == atomic_load(&b->hold))
            nap_us(500);
        b->worlds[member][step] = (uint32_t)hvd_size();
        int rc = step_ops(b, member, (int)step, in, out);
        if (rc)
            return rc;
        rc = hvd_commit();
        if (rc == -ESHUTDOWN)
            return 0;
        if (rc < 0)
            return printf("member %d: commit: %s\n", member, hvd_error()), 33;
        hvd_world(&w);
        int64_t next = step + 1;
        if (rc == 1 && w.joined > 0 && hvd_broadcast("step", &next, 1, HVD_INT64, w.source) < 0)
            return printf("member %d: give state: %s\n", member, hvd_error()), 34;
    }
    atomic_store(&b->at[member], b->steps);
    return hvd_shutdown() < 0 ? 35 : 0;
}

/* ---- checks ---- */

/* All members that have a result have the same one, and it contains the part of every survivor. */
static void check_results(const struct board *b, const struct elastic *job)
{
    for (int step = 0; step < b->steps; step++) {
        for (int op = 0; op < OPS; op++) {
            uint64_t hash = 0;
            for (int m = 0; m < job->n; m++) {
                if (b->hash[m][step][op] == 0)
                    continue;
                if (hash == 0)
                    hash = b->hash[m][step][op];
                if (hash != b->hash[m][step][op])
                    fail_msg("step %d, operation %d: member %d has another result", step, op, m);
                for (int k = 0; k < 2; k++) {
                    uint32_t mask = b->masks[m][step][op][k];
                    if (mask && !(mask & 1u << m))
                        fail_msg("step %d, operation %d: not with member %d's part", step, op, m);
                }
            }
            assert_true(hash != 0);
        }
    }
}

/* `hold` stops the members before the last third of the steps until let_go(), so that events come
 * in time even if the test gets no processor for a while. */
static struct board *fresh_board(int steps, bool in_place)
{
    struct board *board = world_board(sizeof(*board));
    board->steps = steps;
    board->in_place = in_place;
    board->hold = steps * 2 / 3;
    return board;
}

static void let_go(struct board *b)
{
    atomic_store(&b->hold, 0);
}

static bool reached(struct elastic *job, struct board *b, int member, int step)
{
    return elastic_run_to(job, &b->at[member], step, 60000);
}

/* ---- tests ---- */

static void kill_one(bool in_place)
{
    struct board *b = fresh_board(60, in_place);
    struct elastic job;
    elastic_init(&job);
    for (int i = 0; i < 4; i++)
        elastic_add(&job, train, b, NULL);
    assert_true(reached(&job, b, 0, 20));
    kill(job.members[2].pid, SIGKILL);
    let_go(b);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
    assert_int_equal(elastic_survivors(&job), 0xb);
    check_results(b, &job);
    assert_int_equal(b->worlds[0][10], 4);
    assert_int_equal(b->worlds[0][59], 3);
    assert_true(job.repairs >= 3);
    elastic_fini(&job);
}

static void test_kill(void **state)
{
    kill_one(false);
}

static void test_kill_in_place(void **state)
{
    kill_one(true);
}

/* Kills ranks until one remains, rank 0 first. */
static void test_kill_all_but_one(void **state)
{
    struct board *b = fresh_board(100, true);
    struct elastic job;
    elastic_init(&job);
    for (int i = 0; i < 4; i++)
        elastic_add(&job, train, b, NULL);
    for (int i = 0; i < 3; i++) {
        assert_true(reached(&job, b, 3, 20 * (i + 1)));
        kill(job.members[i].pid, SIGKILL);
    }
    let_go(b);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
    assert_int_equal(elastic_survivors(&job), 8);
    check_results(b, &job);
    assert_int_equal(b->worlds[3][99], 1);
    elastic_fini(&job);
}

static void test_kill_two_at_once(void **state)
{
    struct board *b = fresh_board(60, true);
    struct elastic job;
    elastic_init(&job);
    for (int i = 0; i < 4; i++)
        elastic_add(&job, train, b, NULL);
    assert_true(reached(&job, b, 1, 20));
    kill(job.members[0].pid, SIGKILL);
    kill(job.members[3].pid, SIGKILL);
    let_go(b);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
    assert_int_equal(elastic_survivors(&job), 6);
    check_results(b, &job);
    elastic_fini(&job);
}

/* A second rank dies in each phase of the repair. */
static void test_kill_in_repair(void **state)
{
    static const char *const places[] = {"revoke", "report", "install", "connect",
                                         "settle", "rest",   "barrier", "resubmit"};
    const size_t n = 2 * sizeof(places) / sizeof(places[0]);
    for (size_t i = 0; i < n; i += effort_share() == 1 ? 1 : 3) {
        struct board *b = fresh_board(60, true);
        struct elastic job;
        char variable[64];
        const char *place = places[i / 2];
        const char *const env[] = {variable, NULL};
        snprintf(variable, sizeof(variable), "HVD_TEST_FAIL=%s", place);
        elastic_init(&job);
        job.late_deaths = i % 2;
        for (int m = 0; m < 4; m++)
            elastic_add(&job, train, b, m == 1 ? env : NULL);
        assert_true(reached(&job, b, 0, 20));
        kill(job.members[2].pid, SIGKILL);
        let_go(b);
        if (!elastic_run(&job, elastic_all_over, NULL, 60000))
            fail_msg("killed at %s: the job has not ended within a minute", place);
        uint32_t left = elastic_survivors(&job);
        /* A repair does not pass every place, so the second rank may live. */
        if (left != 9 && left != 0xb)
            fail_msg("killed at %s: members %x survived", place, left);
        check_results(b, &job);
        elastic_fini(&job);
    }
}

/* The members' hosts: one host, a host each, two hosts of two. */
static const char *const places_of[][4] = {
    {"HVD_X=1", "HVD_X=1", "HVD_X=1", "HVD_X=1"},
    {"HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0"},
    {"HVD_LOCALITY=a", "HVD_LOCALITY=a", "HVD_LOCALITY=b", "HVD_LOCALITY=b"},
};

/* Kills one rank at a random moment, many times. */
static void test_kill_at_random(void **state)
{
    for (unsigned seed = 1; seed <= (unsigned)effort(36); seed++) {
        struct board *b = fresh_board(80, seed % 2);
        struct elastic job;
        unsigned random = seed * 2654435761u;
        elastic_init(&job);
        for (int m = 0; m < 4; m++) {
            const char *const env[] = {places_of[seed % 3][m], NULL};
            elastic_add(&job, train, b, env);
        }
        assert_true(reached(&job, b, 3, 10 + (int)(random >> 8) % 20));
        nap_us(random % 3000);
        kill(job.members[seed % 3].pid, SIGKILL);
        let_go(b);
        if (!elastic_run(&job, elastic_all_over, NULL, 60000))
            fail_msg("seed %u: the job has not ended within a minute", seed);
        if (elastic_survivors(&job) != (0xf & ~(1u << seed % 3))) {
            for (int m = 0; m < 4; m++)
                printf("member %d: status %x, at step %d\n", m, job.members[m].status, b->at[m]);
            fail_msg("seed %u: members %x survived", seed, elastic_survivors(&job));
        }
        check_results(b, &job);
        elastic_fini(&job);
    }
}

static void test_grow_and_shrink(void **state)
{
    struct board *b = fresh_board(STEPS, false);
    struct elastic job;
    b->hold = 40;
    elastic_init(&job);
    for (int m = 0; m < 2; m++)
        elastic_add(&job, train, b, NULL);
    assert_true(reached(&job, b, 0, 20));
    for (int m = 0; m < 2; m++)
        elastic_add(&job, train, b, NULL);
    assert_true(elastic_run(&job, elastic_joiners_wait, &(int){2}, 60000));
    elastic_announce(&job);
    atomic_store(&b->hold, STEPS - 20);
    assert_true(reached(&job, b, 3, 1) && reached(&job, b, 2, 1));
    int since = b->joined_at[3];
    assert_int_equal(b->joined_at[2], since);
    assert_true(reached(&job, b, 3, since + 20));
    job.members[1].leaving = true;
    elastic_announce(&job);
    let_go(b);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
    assert_int_equal(elastic_survivors(&job), 0xf);
    check_results(b, &job);
    assert_int_equal(b->worlds[0][since], 4);
    assert_int_equal(b->worlds[0][STEPS - 1], 3);
    elastic_fini(&job);
}

/* A rank dies while the ranks of a planned change meet: all survivors and joiners enter the same
 * worlds. */
static void test_kill_in_change(void **state)
{
    static const char *const places[] = {"report", "install", "connect", "settle", "resubmit"};
    for (int i = 0; i < 10; i++) {
        if (effort_share() != 1 && (i + i / 2) % 2)
            continue; /* one way to die for each place */
        struct board *b = fresh_board(60, false);
        struct elastic job;
        char variable[64];
        const char *const env[] = {variable, NULL};
        snprintf(variable, sizeof(variable), "HVD_TEST_FAIL=%s", places[i / 2]);
        elastic_init(&job);
        job.late_deaths = i % 2;
        for (int m = 0; m < 3; m++)
            elastic_add(&job, train, b, m == 1 ? env : NULL);
        assert_true(reached(&job, b, 0, 10));
        for (int m = 3; m < 5; m++)
            elastic_add(&job, train, b, NULL);
        assert_true(elastic_run(&job, elastic_joiners_wait, &(int){3}, 60000));
        elastic_announce(&job);
        let_go(b);
        if (!elastic_run(&job, elastic_all_over, NULL, 60000))
            fail_msg("killed at %s: the job has not ended within a minute", places[i / 2]);
        if ((elastic_survivors(&job) & ~2u) != 0x1d)
            fail_msg("killed at %s: members %x survived", places[i / 2], elastic_survivors(&job));
        check_results(b, &job);
        for (int step = 0; step < 60; step++)
            for (int m = 2; m < 5; m++)
                if (b->worlds[m][step] && b->worlds[m][step] != b->worlds[0][step])
                    fail_msg("killed at %s: step %d has %u ranks for member %d, %u for member 0",
                             places[i / 2], step, b->worlds[m][step], m, b->worlds[0][step]);
        elastic_fini(&job);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_kill_in_place),
        cmocka_unit_test(test_kill_all_but_one),
        cmocka_unit_test(test_kill_two_at_once),
        cmocka_unit_test(test_kill_in_repair),
        cmocka_unit_test(test_kill_at_random),
        cmocka_unit_test(test_grow_and_shrink),
        cmocka_unit_test(test_kill_in_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
