/* SPDX-License-Identifier: Apache-2.0
 *
 * Failures of a communicator on the libnccl.so.2 of tests/fake. Every NCCL call fails on one rank,
 * at once or later, or does not return; a rank is killed. The failing rank names the call, no rank
 * waits longer than the limits, and the remaining ranks continue with a new communicator or a
 * smaller one. Nothing is left behind in NCCL except calls that cannot be ended.
 *
 * timeout: 600
 * takes: 80 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/harness/nccl_rank.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
/* Limit where a call hangs; other tests have more time. What follows on a hang must end within it
 * too, on a busy machine. */
#define LATE_MS  4000
#define ABORT_MS 3000
#define BOUND_MS 15000 /* for what must end, on a busy machine too */

enum stage {
    AT_START, /* the first start fails */
    AT_RUN,   /* an operation fails */
    AT_END,   /* only the abort fails */
    NOWHERE,  /* no rank notices */
};

struct fault {
    const char *version, *fail, *hang; /* FAKE_NCCL_FAIL and FAKE_NCCL_HANG of rank `who` */
    int who;
    enum stage stage;
    enum hvd_kind kind; /* of the operation */
    bool uneven;
    double prescale;
    const char *words; /* in the error of the rank that has the fault */
    int left;          /* calls that stay in NCCL on that rank */
    int left_others;   /* calls that stay in NCCL on the other ranks */
};

/* clang-format off */
static const struct fault faults[] = {
    /* failures at once */
    {"2.27", "ncclGetUniqueId", 0, 0, AT_START, 0, 0, 1, "ncclGetUniqueId: unhandled system error", 0, 0},
    {"2.27", "ncclCommInitRankConfig", 0, 1, AT_START, 0, 0, 1, "ncclCommInitRankConfig: unhandled system", 0, 0},
    {"2.14", "ncclCommInitRankConfig", 0, 1, AT_START, 0, 0, 1, "NCCL 2.14.3", 0, 0},
    {"2.27", "ncclCommGetAsyncError", 0, 1, AT_START, 0, 0, 1, "ncclCommGetAsyncError", 0, 0},
    {"2.27", "ncclGroupStart", 0, 1, AT_RUN, HVD_ALLTOALL, 0, 1, "ncclGroupStart", 0, 0},
    {"2.27", "ncclGroupEnd", 0, 1, AT_RUN, HVD_ALLTOALL, 0, 1, "ncclGroupEnd", 0, 0},
    {"2.27", "ncclAllReduce", 0, 1, AT_RUN, HVD_ALLREDUCE, 0, 1, "ncclAllReduce: unhandled system error: said by", 0, 0},
    {"2.14", "ncclAllReduce", 0, 1, AT_RUN, HVD_ALLREDUCE, 0, 1, "ncclAllReduce", 0, 0},
    {"2.18", "ncclAllReduce:1:sync:1", 0, 1, AT_RUN, HVD_ALLREDUCE, 0, 1, "ncclAllReduce: unhandled cuda error", 0, 0},
    {"2.27", "ncclReduce", 0, 1, AT_RUN, HVD_REDUCESCATTER, 1, 1, "ncclReduce:", 0, 0},
    {"2.27", "ncclReduceScatter", 0, 1, AT_RUN, HVD_REDUCESCATTER, 0, 1, "ncclReduceScatter", 0, 0},
    {"2.27", "ncclAllGather", 0, 1, AT_RUN, HVD_ALLGATHER, 0, 1, "ncclAllGather", 0, 0},
    {"2.27", "ncclBroadcast", 0, 1, AT_RUN, HVD_BROADCAST, 0, 1, "ncclBroadcast", 0, 0},
    {"2.27", "ncclBroadcast", 0, 1, AT_RUN, HVD_ALLGATHER, 1, 1, "ncclBroadcast", 0, 0},
    {"2.27", "ncclSend", 0, 1, AT_RUN, HVD_ALLTOALL, 0, 1, "ncclSend", 0, 0},
    {"2.27", "ncclRecv", 0, 1, AT_RUN, HVD_ALLTOALL, 0, 1, "ncclRecv", 0, 0},
    {"2.27", "ncclRedOpCreatePreMulSum", 0, 1, AT_RUN, HVD_ALLREDUCE, 0, 2, "ncclRedOpCreatePreMulSum", 0, 0},
    {"2.27", "ncclRedOpDestroy", 0, 1, NOWHERE, HVD_ALLREDUCE, 0, 2, "", 0, 0},
    {"2.27", "ncclCommAbort", 0, 1, AT_END, HVD_ALLREDUCE, 0, 1, "", 0, 0},
    /* failures later */
    {"2.27", "ncclCommInitRankConfig:1:async:2", 0, 1, AT_START, 0, 0, 1, "ncclCommInitRankConfig: unhandled system", 0, 0},
    {"2.14", "ncclCommInitRankConfig:1:async:3", 0, 1, AT_START, 0, 0, 1, "internal error", 0, 0},
    {"2.27", "ncclCommGetAsyncError:1:async:6", 0, 1, AT_START, 0, 0, 1, "ncclCommInitRankConfig: remote process", 0, 0},
    {"2.27", "ncclAllReduce:1:async:6", 0, 1, AT_RUN, HVD_ALLREDUCE, 0, 1, "remote process exited", 0, 0},
    {"2.14", "ncclAllReduce:1:async:2", 0, 1, AT_RUN, HVD_ALLREDUCE, 0, 1, "unhandled system", 0, 0},
    {"2.27", "ncclGroupEnd:1:async:1", 0, 1, AT_RUN, HVD_ALLTOALL, 0, 1, "unhandled cuda error", 0, 0},
    /* calls that do not return */
    {"2.27", 0, "ncclGetUniqueId", 0, AT_START, 0, 0, 1, "ncclGetUniqueId did not end in time", 1, 0},
    {"2.27", 0, "ncclCommInitRankConfig", 1, AT_START, 0, 0, 1, "ncclCommInitRankConfig did not end", 1, 0},
    {"2.27", 0, "ncclCommInitRankConfig:1:async", 1, AT_START, 0, 0, 1, "ncclCommInitRankConfig did not", 0, 0},
    {"2.14", 0, "ncclCommInitRankConfig:1:async", 1, AT_START, 0, 0, 1, "ncclCommInitRankConfig did not", 0, 0},
    {"2.18", 0, "ncclAllReduce", 1, AT_RUN, HVD_ALLREDUCE, 0, 1, "a launch did not end in time", 0, 0},
    {"2.14", 0, "ncclCommInitRankConfig", 1, AT_START, 0, 0, 1, "ncclCommInitRankConfig did not end", 1, 0},
    {"2.14", 0, "ncclGroupEnd", 1, AT_RUN, HVD_ALLTOALL, 0, 1, "a launch did not end in time", 0, 0},
    {"2.14", 0, "ncclAllReduce", 1, AT_RUN, HVD_ALLREDUCE, 0, 1, "a launch did not end in time", 0, 0},
    {"2.27", 0, "ncclAllReduce:1:async", 1, AT_RUN, HVD_ALLREDUCE, 0, 1, "", 0, 0},
    {"2.27", 0, "ncclSend:1:async", 1, AT_RUN, HVD_ALLTOALL, 0, 1, "", 0, 0},
    {"2.27", 0, "ncclCommAbort", 1, AT_END, HVD_ALLREDUCE, 0, 1, "", 1, 0},
    {"2.14", 0, "ncclCommAbort", 1, AT_END, HVD_ALLREDUCE, 0, 1, "", 1, 0},
};
/* clang-format on */

/* Any operation: its result is not read. */
static int run_kind(struct nccl_rank *r, const struct fault *f)
{
    static float in[4096], out[4096];
    const struct coll_tensor t = {in, out, 40};
    const size_t counts[] = {10, f->uneven ? 20 : 10, 10, 10};
    const struct coll_op op = {.kind = f->kind,
                               .dtype = HVD_FLOAT32,
                               .op = HVD_SUM,
                               .prescale = f->prescale,
                               .postscale = 1,
                               .contributors = r->size,
                               .tensors = &t,
                               .n = 1,
                               .send_counts = counts,
                               .recv_counts = counts};
    return nccl_rank_run(r, &op);
}

struct trial {
    const struct fault *fault;
    struct nccl_meeting *meeting;
};

/* All ranks meet, then create a new communicator, which must work. */
static int go_on(struct nccl_rank *r, const struct trial *t, int rank, int size)
{
    if (!nccl_rank_meet(r, 0, size, 10000))
        return FAIL("the others did not come");
    r->stop = NULL;
    uint64_t begun = clock_ns();
    nccl_comm_abort(r->comm);
    int rc = nccl_rank_drive(r, BOUND_MS);
    if (rc != -ENOTCONN)
        return FAIL("the abort ends with %d %s", rc, r->err.msg);
    if (clock_ns() - begun > BOUND_MS * CLOCK_MS)
        return FAIL("the abort took too long");
    unsetenv("FAKE_NCCL_FAIL");
    unsetenv("FAKE_NCCL_HANG");
    if (!nccl_rank_meet(r, 1, size, 10000))
        return FAIL("the others did not abort");
    r->patience_ms = 0;
    rc = nccl_rank_start(r, 1, rank, size);
    if (rc == 0)
        rc = nccl_rank_check(r);
    return rc == 0 ? 0 : FAIL("a new one: %d %s", rc, r->err.msg);
}

static int with_fault(int rank, int size, void *arg)
{
    const struct trial *t = arg;
    const struct fault *f = t->fault;
    uint32_t limit = f->hang ? LATE_MS : 10000;
    bool mine = rank == f->who;
    bool stuck = f->left || f->left_others; /* the abort of a call that hangs does not end */
    struct nccl_rank r = {
        .limits = {.init_ms = limit, .launch_ms = limit, .abort_ms = stuck ? ABORT_MS : 10000},
        .patience_ms = (int)limit * 2,
        .stop = mine ? NULL : &t->meeting->arrived[0]};
    if (mine && f->fail)
        setenv("FAKE_NCCL_FAIL", f->fail, 1);
    if (mine && f->hang)
        setenv("FAKE_NCCL_HANG", f->hang, 1);
    if (nccl_rank_open(&r, f->version, rank, size, t->meeting) < 0)
        return FAIL("%s", r.err.msg);
    uint64_t begun = clock_ns();
    int rc = nccl_rank_start(&r, 0, rank, size);
    if (mine && (rc == 0) != (f->stage != AT_START))
        return FAIL("start: %d %s", rc, r.err.msg);
    if (rc == 0)
        rc = run_kind(&r, f);
    if (mine && (rc == 0) != (f->stage == AT_END || f->stage == NOWHERE))
        return FAIL("run: %d %s", rc, r.err.msg);
    if (mine && !strstr(r.err.msg, f->words))
        return FAIL("\"%s\" is not in \"%s\"", f->words, r.err.msg);
    if (clock_ns() - begun > BOUND_MS * CLOCK_MS)
        return FAIL("it took too long to fail");
    if ((rc = go_on(&r, t, rank, size)) != 0)
        return rc;
    int left = nccl_comm_abandoned(r.comm), want = mine ? f->left : f->left_others;
    bool clean = nccl_rank_close(&r);
    if (left != want || clean != (want == 0 && r.live() == 0))
        return FAIL("%d calls are left behind, not %d; %d communicators live", left, want,
                    r.live());
    return 0;
}

static void test_faults(void **state)
{
    for (size_t i = 0; i < COUNT(faults); i++) {
        struct trial t = {&faults[i], world_shared(sizeof(struct nccl_meeting))};
        if (world_run(2, with_fault, &t) != 0)
            fail_msg("NCCL %s, %s%s", faults[i].version, faults[i].fail ? faults[i].fail : "hang ",
                     faults[i].hang ? faults[i].hang : "");
    }
}

/* ---- losing ranks ---- */

struct loss {
    struct nccl_meeting *meeting;
    const char *version;
    int dead;   /* this rank is killed */
    bool told;  /* NCCL reports the loss (sockets), otherwise it waits (memory, NVLink) */
    bool again; /* the survivors hear of a second loss while they create the new communicator */
};

static int end(struct nccl_rank *r)
{
    nccl_comm_abort(r->comm);
    int rc = nccl_rank_drive(r, 10000);
    return rc == -ENOTCONN ? 0 : FAIL("abort: %d %s", rc, r->err.msg);
}

static int survive(struct nccl_rank *r, const struct loss *l, int rank, int size)
{
    int rc = end(r), now = rank - (rank > l->dead), n = size - 1;
    if (rc == 0 && l->again) {
        rc = nccl_rank_begin(r, 1, now, n);
        if (rc == 0 && now == 0) /* the others have not begun to create it */
            rc = nccl_comm_progress(r->comm, &r->err);
        if (rc < 0)
            return FAIL("anew: %d %s", rc, r->err.msg);
        rc = end(r);
    }
    if (rc != 0)
        return rc;
    rc = nccl_rank_start(r, 2, now, n);
    return rc == 0 ? 0 : FAIL("anew: %d %s", rc, r->err.msg);
}

static int lose(int rank, int size, void *arg)
{
    const struct loss *l = arg;
    struct nccl_rank r = {.limits = {.init_ms = 15000, .launch_ms = 15000, .abort_ms = 5000}};
    int rc;
    setenv("FAKE_NCCL_REMOTE", l->told ? "1" : "0", 1);
    if (nccl_rank_open(&r, l->version, rank, size, l->meeting) < 0)
        return FAIL("%s", r.err.msg);
    if ((rc = nccl_rank_start(&r, 0, rank, size)) != 0 || (rc = nccl_rank_check(&r)) != 0)
        return FAIL("%d %s", rc, r.err.msg);
    if (!nccl_rank_meet(&r, 0, size, 10000))
        return FAIL("the others did not come");
    if (rank == l->dead)
        kill(getpid(), SIGKILL);
    r.patience_ms = l->told ? 20000 : 500;
    rc = nccl_rank_check(&r);
    if (rc != (l->told ? -ECONNRESET : -ETIME))
        return FAIL("with a dead rank: %d %s", rc, r.err.msg);
    r.patience_ms = 0;
    if ((rc = survive(&r, l, rank, size)) != 0)
        return rc;
    if ((rc = nccl_rank_check(&r)) != 0)
        return FAIL("without the dead one: %d %s", rc, r.err.msg);
    return nccl_rank_close(&r) ? 0 : FAIL("%d left behind", nccl_comm_abandoned(r.comm));
}

static void test_losses(void **state)
{
    static const struct loss losses[] = {
        {NULL, "2.27", 2, false, false}, {NULL, "2.27", 0, false, false},
        {NULL, "2.27", 1, true, false},  {NULL, "2.18", 0, true, false},
        {NULL, "2.14", 1, false, false}, {NULL, "2.14", 1, true, false},
        {NULL, "2.27", 1, false, true},  {NULL, "2.18", 1, false, true},
    };
    for (size_t i = 0; i < COUNT(losses); i++) {
        struct loss l = losses[i];
        l.meeting = world_shared(sizeof(struct nccl_meeting));
        if (world_run(3, lose, &l) != 1) /* the killed rank */
            fail_msg("NCCL %s, rank %d dies, loss %zu", l.version, l.dead, i);
    }
}

/* Ranks that ask for different collectives wait for ever in NCCL: here until the operation is
 * aborted. */
static int differ(int rank, int size, void *arg)
{
    const struct fault mine = {.kind = rank == 0 ? HVD_ALLREDUCE : HVD_ALLGATHER, .prescale = 1};
    const struct trial t = {NULL, arg};
    struct nccl_rank r = {.patience_ms = 300};
    if (nccl_rank_open(&r, "2.27", rank, size, arg) < 0 || nccl_rank_start(&r, 0, rank, size) != 0)
        return FAIL("%s", r.err.msg);
    int rc = run_kind(&r, &mine);
    if (rc != -ETIME)
        return FAIL("%d %s", rc, r.err.msg);
    if ((rc = go_on(&r, &t, rank, size)) != 0)
        return rc;
    return nccl_rank_close(&r) ? 0 : FAIL("left behind");
}

static void test_differ(void **state)
{
    assert_int_equal(world_run(2, differ, world_shared(sizeof(struct nccl_meeting))), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_differ),
    };
    return cmocka_run_group_tests_name("multi/nccl_faults", tests, NULL, NULL);
}
