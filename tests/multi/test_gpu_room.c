/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators of NCCL's and the memory of a GPU: a rank tells its agent how many it has, and what
 * they leave of its GPU, as sets come and go. Before a set makes one, a rank with less memory than
 * another one has taken logs a warning; if NCCL then fails, the error has the numbers on all ranks.
 *
 * timeout: 120
 * takes: 5 s, waiting
 */
#include <errno.h>
#include <limits.h>
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
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/fake/cuda/use.h"
#include "tests/harness/elastic.h"
#include "tests/harness/gpu_job.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define MIB   ((size_t)1 << 20)
#define COUNT 1000
#define LIMIT 30000 /* ms */

static const int pair[2] = {0, 1};

/* A sum in a set, checked. 0, or the error of the call, or FAIL(). */
static int sum(struct gpu_side *g, int set, int size)
{
    const int64_t n = COUNT;
    float *host = (float *)(void *)g->host;
    hvd_handle h;
    for (int i = 0; i < COUNT; i++)
        host[i] = 3;
    if (gpu_side_send(g, 0, COUNT * 4) < 0)
        return FAIL("%s", g->err.msg);
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "sum", HVD_FLOAT32, 1, &n);
    r.set = set;
    int rc = rank_wait(&r, &h);
    if (rc < 0)
        return rc;
    if (gpu_side_read(g, g->in.at, COUNT * 4) < 0)
        return FAIL("%s", g->err.msg);
    return host[COUNT - 1] == (float)(3 * size) ? 0 : FAIL("set %d: %g", set, (double)host[0]);
}

static int must_sum(struct gpu_side *g, int set, int size)
{
    int rc = sum(g, set, size);
    return rc < 0 ? FAIL("set %d: %s", set, hvd_error()) : rc;
}

/* ---- what the agent is told ------------------------------------------------------------------ */

#define MEMBERS 2
#define TAKES   (4 * MIB) /* a communicator */

enum step { ADDED = 1, WORLD, FIRST, SECOND, REMOVED, STEPS };

struct board {
    _Atomic int at[MEMBERS], go; /* steps */
};

/* Ends a step: the parent looks at what this rank has told. */
static void end_step(struct board *b, int member, int step)
{
    atomic_store(&b->at[member], step);
    while (atomic_load(&b->go) < step)
        nap_ms(1);
}

static int program(struct gpu_side *g, struct board *b, int member)
{
    int first, second;
    if (hvd_set_add(pair, 2, &first) < 0 || hvd_set_add(pair, 2, &second) < 0)
        return FAIL("%s", hvd_error());
    end_step(b, member, ADDED);
    int rc = must_sum(g, 0, 2);
    end_step(b, member, WORLD);
    rc = rc ? rc : must_sum(g, first, 2);
    end_step(b, member, FIRST);
    rc = rc ? rc : must_sum(g, second, 2);
    end_step(b, member, SECOND);
    if (rc == 0 && hvd_set_remove(second) < 0)
        rc = FAIL("%s", hvd_error());
    rc = rc ? rc : must_sum(g, first, 2); /* the communicator is freed when nothing is in flight */
    end_step(b, member, REMOVED);
    return rc;
}

static int work_with(int member, struct board *b,
                     int (*body)(struct gpu_side *g, struct board *b, int member))
{
    struct gpu_side g;
    if (gpu_side_open(&g, member, MIB, "count=3;memory=67108864") < 0)
        return FAIL("%s", g.err.msg);
    int rc = hvd_init() < 0 ? FAIL("%s", hvd_error()) : body(&g, b, member);
    if (hvd_shutdown() < 0 && rc == 0)
        rc = FAIL("%s", hvd_error());
    if (!gpu_side_close(&g) && rc == 0)
        rc = FAIL("%ld objects on the GPU were not freed", g.fake->live());
    return rc;
}

static int work(int member, void *arg)
{
    return work_with(member, arg, program);
}

struct told {
    uint32_t sets, communicators;
    uint64_t left, total;
};

static struct told told_by(const struct elastic_member *m)
{
    struct reader r = reader_over(m->sets.data, m->sets.len);
    struct told t = {.sets = reader_u32(&r)};
    reader_u32(&r); /* no set is broken */
    t.communicators = reader_u32(&r);
    if (t.communicators > 0) {
        t.left = reader_u64(&r);
        t.total = reader_u64(&r);
    }
    return r.failed || r.pos < r.len ? (struct told){0} : t;
}

struct want {
    const struct board *b;
    int step;
    uint32_t sets, communicators;
};

static bool is_told(struct elastic *job, void *arg)
{
    const struct want *w = arg;
    for (int m = 0; m < MEMBERS; m++) {
        struct told t = told_by(&job->members[m]);
        if (atomic_load(&w->b->at[m]) < w->step || t.sets != w->sets ||
            t.communicators != w->communicators)
            return false;
    }
    return true;
}

static void check_step(struct elastic *job, struct board *b, const struct want *w,
                       uint64_t *ret_left)
{
    if (!elastic_run(job, is_told, (void *)w, LIMIT))
        fail_msg("step %d: member 0 is at %d and has told of %u sets and %u communicators", w->step,
                 (int)b->at[0], told_by(&job->members[0]).sets,
                 told_by(&job->members[0]).communicators);
    struct told t = told_by(&job->members[0]);
    assert_int_equal(t.total, w->communicators ? 64 * MIB : 0);
    *ret_left = t.left;
    atomic_store(&b->go, w->step);
}

static void begin_job(struct elastic *job, int members, elastic_rank_f fn, struct board *b)
{
    char path[PATH_MAX], lib[PATH_MAX + 16];
    const char *const env[] = {lib, "FAKE_NCCL_MEMORY=4194304", NULL};
    fake_nccl_path("2.27", path);
    snprintf(lib, sizeof(lib), "HVD_NCCL_LIB=%s", path);
    elastic_init(job);
    for (int m = 0; m < members; m++)
        elastic_add(job, fn, b, env);
}

static void test_told(void **state)
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    uint64_t left[STEPS];
    (void)state;
    begin_job(&job, MEMBERS, work, b);
    const struct want wants[] = {
        {b, ADDED, 2, 0}, {b, WORLD, 2, 1}, {b, FIRST, 2, 2}, {b, SECOND, 2, 3}, {b, REMOVED, 1, 2},
    };
    for (size_t i = 0; i < sizeof(wants) / sizeof(wants[0]); i++)
        check_step(&job, b, &wants[i], &left[wants[i].step]);
    /* hvd's own buffers change the rest */
    assert_true(left[WORLD] <= 64 * MIB - TAKES && left[WORLD] > 32 * MIB);
    assert_true(left[FIRST] <= left[WORLD] - TAKES && left[SECOND] <= left[FIRST] - TAKES);
    assert_true(left[REMOVED] >= left[SECOND] + TAKES);
    assert_true(elastic_run(&job, elastic_all_over, NULL, LIMIT));
    for (int m = 0; m < MEMBERS; m++)
        assert_int_equal(job.members[m].status, 0);
    elastic_fini(&job);
}

/* ---- too little ------------------------------------------------------------------------------ */

/* Leaves so many bytes of the GPU free. */
static int leave(struct gpu_side *g, size_t bytes, cuda_address *ret)
{
    struct cuda_visit visit = {0};
    size_t left = 0, total;
    int rc = cuda_enter(g->d, &visit, &g->err);
    if (rc == 0)
        rc = cuda_memory_left(g->d, &left, &total, &g->err);
    if (rc == 0 && (left <= bytes || g->d->api->mem_alloc(ret, left - bytes) != CUDA_OK))
        rc = err_set(&g->err, ENOMEM, "%zu bytes are left", left);
    cuda_leave(&visit);
    return rc < 0 ? FAIL("%s", g->err.msg) : 0;
}

static void give_back(struct gpu_side *g, cuda_address at)
{
    struct cuda_visit visit = {0};
    if (at && cuda_enter(g->d, &visit, NULL) == 0)
        g->d->api->mem_free(at);
    cuda_leave(&visit);
}

/* A set whose communicator takes so much. Returns the result of its first operation. */
static int use_set(struct gpu_side *g, const char *takes, int *ret_set)
{
    setenv("FAKE_NCCL_MEMORY", takes, 1);
    if (hvd_set_add(pair, 2, ret_set) < 0)
        return FAIL("%s", hvd_error());
    return sum(g, *ret_set, 2);
}

/* Fails if the log does not have the text `times` times, and empties it. */
static int logged(int log, const char *text, int times)
{
    static char lines[1 << 16];
    ssize_t n = pread(log, lines, sizeof(lines) - 1, 0);
    lines[n > 0 ? n : 0] = 0;
    if (ftruncate(log, 0) < 0 || lseek(log, 0, SEEK_SET) < 0)
        return FAIL("no log");
    for (const char *at = lines; (at = strstr(at, text)); at++)
        times--;
    return times ? FAIL("\"%s\" is missing or too often in:\n%s", text, lines) : 0;
}

/* Rank 1 has too little memory for as large a communicator as the world's. */
static int small_sets(struct gpu_side *g, int rank, int log)
{
    static const char error[] = "GPU 1 has 1.0 MiB of 32.0 MiB of memory left, and this rank has 2 "
                                "communicators there (the largest so far took 4.0 MiB)";
    int few = 0, many = 0;
    int rc = use_set(g, "1048576", &few);
    if (rc == 0)
        rc = must_sum(g, few, 2);
    if (rc < 0)
        rc = FAIL("a communicator that fits: %s", hvd_error());
    if (rc == 0)
        rc =
            logged(log,
                   "set 1 (ranks 0, 1) is about to make a communicator of NCCL's, and only 2.0 MiB "
                   "are left of 32.0 MiB of memory of GPU 1, where this rank has 1 communicator "
                   "(the largest so far took 4.0 MiB)",
                   rank == 1);
    if (rc == 0 && (use_set(g, "4194304", &many) >= 0 || !strstr(hvd_error(), error)))
        rc = FAIL("one that does not fit: %s", hvd_error());
    if (rc == 0)
        rc = logged(log, "only 1.0 MiB are left of 32.0 MiB", rank == 1);
    return rc;
}

static int little(struct gpu_side *g, int rank, int size)
{
    int log = memfd_create("log", 0), console = dup(2);
    cuda_address taken = 0;
    int rc = log < 0 || dup2(log, 2) < 0 ? FAIL("no log") : must_sum(g, 0, size);
    if (rc == 0 && rank == 1)
        rc = leave(g, 2 * MIB, &taken);
    if (rc == 0)
        rc = small_sets(g, rank, log);
    give_back(g, taken);
    char last[4096] = "";
    ssize_t ignored = pread(log, last, sizeof(last) - 1, 0);
    (void)ignored;
    dup2(console, 2);
    fputs(last, stderr);
    close(console);
    close(log);
    return rc;
}

static void test_little(void **state)
{
    (void)state;
    gpu_job_run(2, gpu_job_nccl("2.27", "FAKE_NCCL_MEMORY=4194304"),
                (struct gpu_job){"nccl", "memory=33554432", 0, -1, little});
}

/* ---- one warning for a set ------------------------------------------------------------------- */

enum { WARNED = 1, LOST };

/* Members 0 and 1 are the set. Member 2 is killed, so they make its communicator twice. */
static int program_once(struct gpu_side *g, struct board *b, int member)
{
    int log = memfd_create("log", 0), set = 0;
    cuda_address taken = 0, more = 0;
    int rc = log < 0 ? FAIL("no log") : must_sum(g, 0, 3);
    if (rc == 0 && hvd_set_add(pair, 2, &set) < 0)
        rc = FAIL("%s", hvd_error());
    if (rc || member == 2) {
        while (rc == 0)
            nap_ms(1);
        return rc;
    }
    setenv("FAKE_NCCL_MEMORY", "1048576", 1);
    rc = leave(g, 2 * MIB, &taken);
    int console = dup(2);
    dup2(log, 2);
    rc = rc ? rc : must_sum(g, set, 2);
    end_step(b, member, WARNED);
    rc = rc ? rc : must_sum(g, 0, 2); /* the world's communicator was aborted, and takes less now */
    rc = rc ? rc : leave(g, 2 * MIB, &more);
    rc = rc ? rc : must_sum(g, set, 2);
    end_step(b, member, LOST);
    dup2(console, 2);
    rc = rc ? rc : logged(log, "is about to make a communicator", 1);
    give_back(g, taken);
    give_back(g, more);
    return rc;
}

static int work_once(int member, void *arg)
{
    return work_with(member, arg, program_once);
}

static bool both_at(struct elastic *job, void *arg)
{
    const struct want *w = arg;
    (void)job;
    return atomic_load(&w->b->at[0]) >= w->step && atomic_load(&w->b->at[1]) >= w->step;
}

static bool is_repaired(struct elastic *job, void *arg)
{
    (void)arg;
    return job->repairs >= 2;
}

static void test_once(void **state)
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    (void)state;
    begin_job(&job, 3, work_once, b);
    assert_true(elastic_run(&job, both_at, &(struct want){.b = b, .step = WARNED}, LIMIT));
    kill(job.members[2].pid, SIGKILL);
    assert_true(elastic_run(&job, is_repaired, NULL, LIMIT));
    atomic_store(&b->go, WARNED);
    assert_true(elastic_run(&job, both_at, &(struct want){.b = b, .step = LOST}, LIMIT));
    atomic_store(&b->go, LOST);
    assert_true(elastic_run(&job, elastic_all_over, NULL, LIMIT));
    assert_int_equal(elastic_survivors(&job), 3);
    elastic_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_little),
        cmocka_unit_test(test_once),
    };
    return cmocka_run_group_tests_name("multi/gpu_room", tests, NULL, NULL);
}
