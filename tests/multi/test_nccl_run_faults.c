/* SPDX-License-Identifier: Apache-2.0
 *
 * Failures of operations on a GPU by NCCL (core/backend/nccl_run; test_nccl_run has the successes):
 * NCCL calls that fail at once or later, or never return; ranks that die before or after a launch;
 * joiners; GPUs that break; ranks whose NCCL, GPU or kernels do not fit. The failing rank gives the
 * reason, all ranks return, and in the next epoch, on another mesh, the remaining ranks continue
 * with a new communicator.
 *
 * timeout: 600
 * takes: 90 s, waiting
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "tests/harness/effort.h"
#include "tests/harness/gpu_rank.h"
#include "tests/harness/port.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define EPOCHS   4
#define PATIENCE 6000 /* ms: limit for an operation that does not end */

static int ports[EPOCHS];

static void choose_ports(void)
{
    for (int i = 0; i < EPOCHS; i++)
        assert_true((ports[i] = port_free()) > 0);
}

/* Aborts a launch that will not end. */
static int end_it(struct gpu_rank *me)
{
    nccl_run_abort(me->run);
    int rc = gpu_rank_drain(me);
    return rc == 0 ? 0 : FAIL("not drained: %d %s", rc, me->err.msg);
}

static int next_epoch(struct gpu_rank *me, int epoch, int rank, int size)
{
    unsetenv("FAKE_NCCL_FAIL");
    unsetenv("FAKE_NCCL_HANG");
    if (gpu_rank_epoch(me, ports, epoch, rank, size) < 0)
        return FAIL("no epoch %d", epoch);
    int rc = gpu_rank_check(me);
    if (rc == 0)
        rc = gpu_rank_check(me);
    return rc < 0 ? FAIL("in epoch %d: %d %s", epoch, rc, me->err.msg) : rc;
}

/* ---- calls that fail ---- */

struct fault {
    const char *nccl, *fail, *hang; /* FAKE_NCCL_FAIL and FAKE_NCCL_HANG of rank `who` */
    int who;
    int rc;
    const char *words; /* of the error of rank `who` */
    bool left;         /* a thread of rank `who` stays in NCCL */
    bool forming;      /* there is no communicator yet */
    const char *others;
};

/* clang-format off */
static const struct fault faults[] = {
    {"2.27", "ncclAllReduce:2", 0, 1, -EIO, "ncclAllReduce: unhandled system error", false, false, ""},
    {"2.14", "ncclAllReduce:2", 0, 0, -EIO, "ncclAllReduce: unhandled system error", false, false, ""},
    {"2.27", "ncclAllReduce:2:async:6", 0, 1, -ECONNRESET, "remote process exited", false, false, ""},
    {"2.14", "ncclAllReduce:2:async:2", 0, 0, -EIO, "unhandled system error", false, false, ""},
    {"2.18", "ncclAllReduce:2:async:2", 0, 1, -EIO, "unhandled system error", false, false, ""},
    {"2.27", 0, "ncclAllReduce:2:async", 1, -ETIME, "", false, false, ""},
    {"2.14", 0, "ncclAllReduce:2:async", 0, -ETIME, "", false, false, ""},
    {"2.14", 0, "ncclAllReduce:2", 1, -ETIMEDOUT, "a launch did not end in time", false, false, ""},
    /* failures while the communicator is created */
    {"2.27", "ncclGetUniqueId", 0, 0, -ENOTSUP, "rank 0 on ", false, true, "ncclGetUniqueId: unhandled system"},
    {"2.27", "ncclCommInitRankConfig", 0, 1, -EIO, "ncclCommInitRankConfig: unhandled", false, true, "did not end in time"},
    {"2.27", "ncclCommInitRankConfig:1:async:2", 0, 0, -EIO, "ncclCommInitRankConfig: unhandled", false, true, "did not end in time"},
    {"2.27", 0, "ncclCommInitRankConfig:1:async", 1, -ETIMEDOUT, "ncclCommInitRankConfig did not end", false, true, "did not end in time"},
    {"2.27", 0, "ncclGetUniqueId", 0, -ENOTSUP, "ncclGetUniqueId did not end in time", true, true, "ncclGetUniqueId did not end in time"},
};
/* clang-format on */

struct trial {
    const struct fault *f;
};

static int first_op(struct gpu_rank *me, const struct fault *f, bool mine)
{
    static const size_t many[] = {500, 1000};
    const struct gpu_rank_sum one = {HVD_FLOAT32, HVD_SUM, many, 1, true, false, PATIENCE};
    const struct gpu_rank_sum sum = {
        HVD_FLOAT16, HVD_AVERAGE, many, 2, true, false, f->forming ? 4 * PATIENCE : PATIENCE};
    int rc = f->forming ? 0 : gpu_rank_allreduce(me, &one);
    if (rc != 0)
        return FAIL("the first one: %d", rc);
    uint64_t begun = clock_ns();
    rc = gpu_rank_allreduce(me, &sum);
    if (mine ? rc != f->rc : rc >= 0)
        return FAIL("%d %s", rc, me->err.msg);
    if (!strstr(me->err.msg, mine ? f->words : f->others))
        return FAIL("\"%s\" is not in \"%s\"", mine ? f->words : f->others, me->err.msg);
    return clock_ns() - begun < 30 * CLOCK_S ? 0 : FAIL("it took too long");
}

static int with_fault(int rank, int size, void *arg)
{
    const struct fault *f = arg;
    bool mine = rank == f->who, brief = f->forming || (f->hang && !strstr(f->hang, "async"));
    static struct gpu_rank me; /* static, because the GPU stays open if a thread is left in NCCL */
    struct gpu_rank_options o = {.hosts = "aa", .nccl = f->nccl, .ordinal = -1, .quiet = true};
    log_set_level(LOG_ERROR);
    if (brief)
        o.limits = (struct nccl_limits){
            .init_ms = 3000, .launch_ms = 3000, .abort_ms = 2000, .program_ms = 20000};
    if (mine && f->fail)
        setenv("FAKE_NCCL_FAIL", f->fail, 1);
    if (mine && f->hang)
        setenv("FAKE_NCCL_HANG", f->hang, 1);
    setenv("FAKE_NCCL_RUNS_ON", "0", 1); /* nothing here tells a rank that the other has aborted */
    if (gpu_rank_open(&me, rank, &o) < 0)
        return 10;
    int rc = first_op(&me, f, mine);
    if (rc == 0 && f->forming && me.run->ready)
        rc = FAIL("there is a communicator");
    /* For rows of faults[] with an odd index the test aborts the operation here. For an even index
     * it leaves that to the next epoch. */
    if (rc == 0 && (f - faults) % 2)
        rc = end_it(&me);
    if (rc == 0)
        rc = next_epoch(&me, 0, rank, size);
    if (rc == 0)
        rc = next_epoch(&me, 1, rank, size);
    if (rc != 0 || !mine || !f->left) {
        int bad = gpu_rank_close(&me);
        return rc ? rc : bad;
    }
    coll_rank_close(&me.r);
    return nccl_run_destroy(me.run) ? FAIL("no thread stays in NCCL") : 0;
}

static void test_faults(void **state)
{
    for (size_t i = 0; i < COUNT(faults); i += effort_rows()) {
        choose_ports();
        if (world_run(2, with_fault, (void *)&faults[i]) != 0)
            fail_msg("%zu: NCCL %s, %s%s", i, faults[i].nccl,
                     faults[i].fail ? faults[i].fail : "hang ",
                     faults[i].hang ? faults[i].hang : "");
    }
}

/* Neither the operation nor its abort ends: an error in time. */
static int stuck(int rank, int size, void *arg)
{
    static const size_t one = 100;
    const struct gpu_rank_sum sum = {HVD_FLOAT32, HVD_SUM, &one, 1, false, false, 1500};
    static struct gpu_rank me;
    struct gpu_rank_options o = {
        .hosts = "aa",
        .nccl = "2.27",
        .ordinal = -1,
        .quiet = true,
        .limits = {.init_ms = 5000, .launch_ms = 5000, .abort_ms = 700, .program_ms = 20000}};
    log_set_level(LOG_ERROR);
    setenv("FAKE_NCCL_HANG", "ncclAllReduce:1:async,ncclCommAbort", 1);
    if (gpu_rank_open(&me, rank, &o) < 0)
        return 10;
    int rc = gpu_rank_allreduce(&me, &sum);
    if (rc != -ETIME)
        return FAIL("%d %s", rc, me.err.msg);
    uint64_t begun = clock_ns();
    nccl_run_abort(me.run);
    rc = gpu_rank_drain(&me);
    if (rc != -ETIMEDOUT || !strstr(me.err.msg, "does not end"))
        return FAIL("%d %s", rc, me.err.msg);
    if (clock_ns() - begun > 10 * CLOCK_S)
        return FAIL("it took too long");
    coll_rank_close(&me.r);
    return nccl_run_destroy(me.run) ? FAIL("no thread stays in NCCL") : 0;
}

static void test_stuck(void **state)
{
    assert_int_equal(world_run(2, stuck, NULL), 0);
}

/* ---- lost ranks and joiners ---- */

struct loss {
    const char *nccl;
    int dead;
    bool launched; /* `dead` dies when all are about to launch, otherwise before */
    bool told;     /* NCCL reports the loss too (sockets) */
    bool ends;     /* survivors abort the launch, otherwise the next epoch does */
    bool fails;    /* a survivor cannot create the next communicator */
};

/* A rank whose barrier has ended knows that no rank is in the operation before it any more. The
 * others may not have ended the barrier when it dies. */
static void die_after_all_are_here(struct coll_rank *r, bool dies)
{
    struct coll_op barrier = coll_rank_op(r, HVD_BARRIER, HVD_UINT8, HVD_SUM, NULL, 0);
    r->quiet = true;
    coll_rank_run(r, &barrier);
    if (dies)
        kill(getpid(), SIGKILL);
}

static int lose(int rank, int size, void *arg)
{
    const struct loss *l = arg;
    struct gpu_rank me = {0};
    struct gpu_rank_options o = {
        .hosts = "aab",
        .nccl = l->nccl,
        .ordinal = -1,
        .quiet = true,
        .limits = {.init_ms = 15000, .launch_ms = 15000, .abort_ms = 5000, .program_ms = 20000}};
    int now = rank - (rank > l->dead), epoch = 0;
    log_set_level(LOG_ERROR);
    setenv("FAKE_NCCL_REMOTE", l->told ? "1" : "0", 1);
    if (now == 1 && l->fails)
        setenv("FAKE_NCCL_FAIL", "ncclCommInitRankConfig:2", 1);
    if (gpu_rank_open(&me, rank, &o) < 0)
        return 10;
    int rc = gpu_rank_check(&me);
    if (rc != 0)
        return rc < 0 ? FAIL("%d %s", rc, me.err.msg) : rc;
    me.dies = rank == l->dead && l->launched;
    if (!l->launched)
        die_after_all_are_here(&me.r, rank == l->dead);
    rc = gpu_rank_check(&me);
    if (rc >= 0)
        return FAIL("with a dead rank: %d", rc);
    rc = l->ends ? end_it(&me) : 0;
    if (rc != 0)
        return rc;
    if (l->fails) {
        if (gpu_rank_epoch(&me, ports, epoch++, now, size - 1) < 0)
            return FAIL("no mesh of those that are left");
        rc = gpu_rank_check(&me);
        if (rc >= 0 || (now == 1 && !strstr(me.err.msg, "ncclCommInitRankConfig: unhandled")))
            return FAIL("the next communicator: %d %s", rc, me.err.msg);
    }
    rc = next_epoch(&me, epoch++, now, size - 1);
    if (rc == 0)
        rc = next_epoch(&me, epoch++, now, size - 1);
    int bad = gpu_rank_close(&me);
    return rc < 0 ? FAIL("%d %s", rc, me.err.msg) : rc ? rc : bad;
}

static void test_losses(void **state)
{
    static const struct loss losses[] = {
        {"2.27", 2, false, false, false, false}, {"2.27", 0, false, false, false, false},
        {"2.27", 1, true, false, false, false},  {"2.27", 0, true, false, false, false},
        {"2.27", 1, true, false, true, false},   {"2.27", 1, false, false, false, true},
        {"2.27", 0, true, false, false, true},   {"2.18", 0, true, false, false, false},
        {"2.18", 1, true, false, true, false},   {"2.14", 2, false, false, false, false},
        {"2.14", 1, true, false, false, false},  {"2.14", 0, false, false, true, false},
    };
    for (size_t i = 0; i < COUNT(losses); i += effort_rows()) {
        struct loss l = losses[i];
        choose_ports();
        if (world_run(3, lose, &l) != 1) /* the killed rank */
            fail_msg("%zu: NCCL %s, rank %d dies", i, l.nccl, l.dead);
    }
}

/* NCCL may see the loss before the mesh does. Either way the survivors continue. */
static int told(int rank, int size, void *arg)
{
    struct gpu_rank me = {0};
    struct gpu_rank_options o = {.hosts = "aab", .nccl = "2.27", .ordinal = -1, .quiet = true};
    log_set_level(LOG_ERROR);
    setenv("FAKE_NCCL_REMOTE", "1", 1);
    if (gpu_rank_open(&me, rank, &o) < 0 || gpu_rank_check(&me) != 0)
        return FAIL("%s", me.err.msg);
    me.dies = rank == 1;
    int rc = gpu_rank_check(&me);
    if (rc >= 0)
        return FAIL("with a dead rank: %d", rc);
    rc = gpu_rank_epoch(&me, ports, 0, rank / 2, 2);
    if (rc == 0)
        rc = gpu_rank_check(&me);
    int bad = gpu_rank_close(&me);
    return rc ? FAIL("%d %s", rc, me.err.msg) : bad;
}

static void test_told(void **state)
{
    choose_ports();
    assert_int_equal(world_run(3, told, NULL), 1);
}

/* Rank 2 joins in the second epoch. In the third epoch the ranks have another order. */
static int come(int rank, int size, void *arg)
{
    struct gpu_rank me = {0};
    struct gpu_rank_options o = {.hosts = "aab", .nccl = arg, .ordinal = -1};
    char text[64];
    int rc = 0;
    snprintf(text, sizeof(text), "127.0.0.1:%d", ports[0]);
    if (rank == 2)
        setenv("HVD_RENDEZVOUS", text, 1);
    else
        setenv("HVD_SIZE", "2", 1);
    if (gpu_rank_open(&me, rank, &o) < 0)
        return 10;
    if (rank < 2)
        rc = gpu_rank_check(&me);
    if (rc == 0 && rank < 2 && gpu_rank_epoch(&me, ports, 0, rank, 3) < 0)
        return FAIL("no mesh of all");
    me.salt = 500;
    if (rc == 0)
        rc = gpu_rank_check(&me);
    if (rc == 0)
        rc = next_epoch(&me, 1, (rank + 1) % 3, 3);
    if (rc == 0)
        rc = next_epoch(&me, 2, (rank + 1) % 3, 3);
    int bad = gpu_rank_close(&me);
    return rc ? rc : bad;
}

static void test_comes(void **state)
{
    static const char *const versions[] = {"2.27", "2.14"};
    for (size_t i = 0; i < COUNT(versions); i++) {
        choose_ports();
        assert_int_equal(world_run(3, come, (void *)versions[i]), 0);
    }
}

/* ---- ranks that do not fit ---- */

struct misfit {
    struct gpu_rank_options o[2];
    enum nccl_verdict verdict;
    const char *words;
};

static int misfit(int rank, int size, void *arg)
{
    const struct misfit *m = arg;
    static const size_t one = 100;
    struct gpu_rank_sum sum = {HVD_FLOAT32, HVD_SUM, &one, 1, false, false, 0};
    struct gpu_rank_options o = m->o[rank];
    struct gpu_rank me = {0};
    char words[1024];
    o.hosts = "aa";
    o.quiet = true;
    log_set_level(LOG_ERROR);
    if (gpu_rank_open(&me, rank, &o) < 0)
        return 10;
    int rc = gpu_rank_allreduce(&me, &sum);
    snprintf(words, sizeof(words), "%s", me.err.msg);
    if (me.verdict != m->verdict || (rc != 0) != (m->verdict == NCCL_BAD))
        rc = FAIL("verdict %d, %d %s", me.verdict, rc, words);
    else if (m->verdict == NCCL_BAD)
        rc = strstr(words, m->words) ? 0 : FAIL("%s", words);
    if (rc == 0 && m->verdict == NCCL_BAD) {
        struct coll_op op = {.device = 0};
        if (nccl_run_add(me.run, &op, false, &me.flight, &me.err) != -ENOTCONN)
            rc = FAIL("there is a communicator");
    }
    int bad = gpu_rank_close(&me);
    return rc ? rc : bad;
}

static void test_misfits(void **state)
{
    static const struct misfit misfits[] = {
        {{{.nccl = "2.27", .ordinal = -1}, {.ordinal = -1}}, NCCL_BAD, "cannot use NCCL"},
        {{{.nccl = "2.27", .ordinal = -1}, {.nccl = "2.18", .ordinal = -1}},
         NCCL_BAD,
         "one image for all"},
        {{{.nccl = "2.27"}, {.nccl = "2.27"}}, NCCL_BAD, "use the same GPU"},
        {{{.nccl = "2.27", .ordinal = -1},
          {.nccl = "2.27", .ordinal = -1, .script = "version=12080"}},
         NCCL_BAD,
         "the driver there is for 12.8"},
        {{{.nccl = "2.27", .ordinal = -1},
          {.nccl = "2.27", .ordinal = -1, .script = "version=13010"}},
         NCCL_WARN,
         ""},
    };
    for (size_t i = 0; i < COUNT(misfits); i++)
        if (world_run(2, misfit, (void *)&misfits[i]) != 0)
            fail_msg("%zu: %s", i, misfits[i].words);
}

/* Rank 1 alone lacks kernels: no rank uses them. */
static int half(int rank, int size, void *arg)
{
    static const size_t many[] = {1, 1000, 0, 77};
    const struct gpu_rank_sum sums[] = {
        {HVD_FLOAT32, HVD_SUM, many, 4, false, false, 0},
        {HVD_FLOAT32, HVD_AVERAGE, many, 4, true, false, 0},
        {HVD_INT64, HVD_MAX, many, 4, true, false, 0},
    };
    struct gpu_rank me = {0};
    struct gpu_rank_options o = {.hosts = "ab",
                                 .nccl = "2.27",
                                 .ordinal = -1,
                                 .script = rank == 1 ? "cuModuleLoadData=209" : NULL};
    if (gpu_rank_open(&me, rank, &o) < 0)
        return 10;
    int rc = 0;
    for (size_t i = 0; i < COUNT(sums) && rc == 0; i++)
        rc = gpu_rank_allreduce(&me, &sums[i]);
    struct coll_tensor t = {me.in, me.out, 10};
    struct coll_op op = coll_rank_op(&me.r, HVD_ALLREDUCE, HVD_INT16, HVD_SUM, &t, 1);
    if (rc == 0 && nccl_run_possible(me.run, &op, &me.err) != -ENOTSUP)
        rc = FAIL("int16 without kernels");
    if (rc == 0 && !strstr(me.err.msg, rank == 1 ? "gpu-arch-support" : "another rank lacks them"))
        rc = FAIL("%s", me.err.msg);
    int bad = gpu_rank_close(&me);
    return rc ? rc : bad;
}

static void test_half(void **state)
{
    assert_int_equal(world_run(2, half, NULL), 0);
}

/* The GPU of rank 1 fails for good: rank 1 returns that error from then on, and ends. Rank 0 aborts
 * what it has launched. */
static int broken(int rank, int size, void *arg)
{
    static const size_t many[] = {1000, 2000};
    const struct gpu_rank_sum sum = {HVD_FLOAT32, HVD_SUM, many, 2, true, false, PATIENCE};
    struct gpu_rank me = {0};
    struct gpu_rank_options o = {.hosts = "aa", .nccl = arg, .ordinal = -1, .quiet = true};
    log_set_level(LOG_ERROR);
    if (gpu_rank_open(&me, rank, &o) < 0 || gpu_rank_check(&me) != 0)
        return FAIL("%s", me.err.msg);
    me.breaks = rank == 1;
    int rc = gpu_rank_allreduce(&me, &sum);
    if (rank == 1 ? rc != -EFAULT : rc >= 0)
        return FAIL("%d %s", rc, me.err.msg);
    nccl_run_abort(me.run);
    rc = gpu_rank_drain(&me);
    if (rc != (rank == 1 ? -EFAULT : 0))
        return FAIL("drained: %d %s", rc, me.err.msg);
    return gpu_rank_close(&me);
}

static void test_broken(void **state)
{
    assert_int_equal(world_run(2, broken, (void *)"2.27"), 0);
    assert_int_equal(world_run(2, broken, (void *)"2.14"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults), cmocka_unit_test(test_stuck),
        cmocka_unit_test(test_losses), cmocka_unit_test(test_told),
        cmocka_unit_test(test_comes),  cmocka_unit_test(test_misfits),
        cmocka_unit_test(test_half),   cmocka_unit_test(test_broken),
    };
    return cmocka_run_group_tests_name("multi/nccl_run_faults", tests, NULL, NULL);
}
