/* SPDX-License-Identifier: Apache-2.0
 *
 * The ends of messages between GPUs by NCCL: ranks shut down, and sets fail alone, while messages
 * are on their way. Each one arrives whole, or fails with the reason, in bounded time. And messages
 * beside collectives of which one rank submits one before the message, and the other one after it.
 *
 * timeout: 300
 * takes: 40 s, waiting
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/effort.h"
#include "tests/harness/gpu_job.h"
#include "tests/harness/rank.h"

#define LEAST     2000 /* bytes from which on NCCL runs messages */
#define THRESHOLD "HVD_NCCL_MESSAGE_THRESHOLD=2000"

static uint64_t by_nccl(void)
{
    struct hvd_stats s = {.size = sizeof(s)};
    hvd_stats(&s);
    return s.messages_nccl;
}

/* ---- a message, and a sum ---- */

enum { LARGE = 3 << 20 };

static int post(struct gpu_side *g, bool sends, int peer, int set, int64_t bytes, hvd_handle *ret)
{
    const struct hvd_message m = {.direction = sends ? HVD_SEND : HVD_RECV,
                                  .peer = peer,
                                  .tag = 9,
                                  .set = set,
                                  .device = g->d->ordinal,
                                  .stream = g->stream,
                                  .data = sends ? g->in.at : g->out.at,
                                  .bytes = bytes};
    return hvd_exchange(&m, 1, ret) < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* Fills what is sent with sevens, and the memory for what comes with others. */
static int fill_large(struct gpu_side *g)
{
    memset(g->host, 7, LARGE);
    return gpu_side_send(g, 0, LARGE) < 0 || gpu_side_read(g, g->in.at, 1) < 0
               ? FAIL("%s", g->err.msg)
               : 0;
}

static bool has_come(struct gpu_side *g)
{
    if (gpu_side_read(g, g->out.at, LARGE) < 0)
        return false;
    for (int i = 0; i < LARGE; i++)
        if (g->host[i] != 7)
            return false;
    return true;
}

/* A result of 0 stands for the whole message. */
static int wait_whole(struct gpu_side *g, hvd_handle h, int *ret_rc)
{
    *ret_rc = hvd_wait(h);
    if (*ret_rc == 0 && !has_come(g))
        return FAIL("a receive has ended well, and its bytes have not come");
    return 0;
}

static int small_sum(struct gpu_side *g, const char *name, int set, hvd_handle *ret)
{
    const int64_t n = 10;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, name, HVD_FLOAT32, 1, &n);
    r.input = r.output = (uint8_t *)g->in.at + LARGE;
    r.set = set;
    return hvd_submit(&r, 1, ret) < 0 ? FAIL("%s", hvd_error()) : 0;
}

static int sum_in(struct gpu_side *g, int set)
{
    hvd_handle h;
    int rc = small_sum(g, "in set", set, &h);
    return rc == 0 && hvd_wait(h) < 0 ? FAIL("%s", hvd_error()) : rc;
}

/* From here on NCCL runs the messages between ranks 0 and 1 of the set, in which all ranks are. */
static int begin(struct gpu_side *g, int rank, int set)
{
    hvd_handle h;
    int rc = sum_in(g, set);
    for (int i = 0; i < 10 && rc == 0 && rank < 2; i++)
        if ((rc = post(g, rank == 0, 1 - rank, set, LARGE, &h)) == 0 && hvd_wait(h) < 0)
            rc = FAIL("%s", hvd_error());
    return rc == 0 && rank < 2 && by_nccl() == 0 ? FAIL("NCCL runs no message") : rc;
}

/* Rank 1 never receives. Rank 0's send fails when rank 1 has shut down, and what NCCL has run
 * before stays as it is. */
static int departs(struct gpu_side *g, int rank, int set)
{
    hvd_handle h;
    int rc = begin(g, rank, set);
    if (rc != 0 || rank == 1)
        return rc;
    uint64_t before = clock_ns();
    if (post(g, true, 1, set, LARGE, &h) != 0)
        return 1;
    rc = hvd_wait(h);
    if (rc != -ESHUTDOWN)
        return FAIL("%d: %s", rc, hvd_error());
    return clock_ns() - before > 60 * CLOCK_S ? FAIL("it took long") : 0;
}

/* The sender shuts down while NCCL runs its message. */
static int shuts_down(struct gpu_side *g, int rank, int set)
{
    hvd_handle h;
    int rc = begin(g, rank, set);
    if (rc == 0 && rank == 0)
        rc = fill_large(g);
    if (rank == 0)
        g->fake->delay(1000000);
    if (rc != 0 || post(g, rank == 0, 1 - rank, set, LARGE, &h) != 0)
        return 1;
    if (rank == 1)
        return wait_whole(g, h, &rc);
    return hvd_wait_stream(h, g->stream) < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* Rank 0 sends rank 1 a message, which takes its GPU a while. Meanwhile both call *after. *ret_rc:
 * how the message has ended. */
static int send_slowly(struct gpu_side *g, int rank, int set,
                       int (*after)(struct gpu_side *g, int rank, int set), int *ret_rc)
{
    hvd_handle h;
    if (rank == 0 && fill_large(g) != 0)
        return 1;
    g->fake->delay(rank == 0 ? 800000 : 0);
    if (post(g, rank == 0, 1 - rank, set, LARGE, &h) != 0)
        return 1;
    if (rank == 0)
        hvd_wait_stream(h, g->stream);
    if (after(g, rank, set) != 0)
        return 1;
    if (rank == 1)
        return wait_whole(g, h, ret_rc);
    *ret_rc = hvd_wait(h);
    return 0;
}

static int sum_without_two(struct gpu_side *g, int rank, int set)
{
    hvd_handle sum;
    if (rank == 1)
        return 0;
    if (small_sum(g, "lacks", set, &sum) != 0)
        return 1;
    return hvd_wait(sum) < 0 ? 0 : FAIL("a sum without rank 2");
}

/* Rank 2 shuts down. Rank 0 has an operation that lacks it, and is in the middle of a message with
 * rank 1, which has none. Only collectives of the set, or the world, fail: the message and others
 * arrive, and the ranks go on in another set. */
static int third_departs(struct gpu_side *g, int rank, int set)
{
    const int pair[] = {0, 1};
    int other, rc = hvd_set_add(pair, 2, &other) < 0 ? FAIL("%s", hvd_error()) : 0;
    rc = rc == 0 ? begin(g, rank, set) : rc;
    if (rc != 0)
        return rc;
    if (rank == 2) {
        nap_ms(600);
        return 0;
    }
    if (send_slowly(g, rank, set, sum_without_two, &rc) != 0)
        return 1;
    hvd_handle h;
    g->fake->delay(0);
    rc = rc < 0 ? FAIL("rank %d: %s", rank, hvd_error()) : sum_in(g, other);
    for (int i = 0; i < 3 && rc == 0; i++)
        if ((rc = post(g, rank == 0, 1 - rank, set, LARGE, &h)) == 0 && hvd_wait(h) < 0)
            rc = FAIL("%s", hvd_error());
    return rc;
}

/* NCCL has no exclusive or, and this job does not let it go through the host. */
static int exclusive_or(struct gpu_side *g, int rank, int set)
{
    const int64_t n = 10;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "bits", HVD_INT32, 1, &n);
    r.op = HVD_BXOR;
    r.input = r.output = (uint8_t *)g->in.at + LARGE;
    r.set = set;
    hvd_handle h;
    if (hvd_submit(&r, 1, &h) < 0)
        return FAIL("%s", hvd_error());
    int rc = hvd_wait(h);
    return rc == -ENOTSUP ? 0 : FAIL("%d: %s", rc, hvd_error());
}

/* An operation is refused in the middle of a message. */
static int refuses(struct gpu_side *g, int rank, int set)
{
    int rc = begin(g, rank, set);
    if (rc != 0 || send_slowly(g, rank, set, exclusive_or, &rc) != 0)
        return 1;
    g->fake->delay(0);
    return rc < 0 ? FAIL("%s", hvd_error()) : sum_in(g, set);
}

/* A receive waits for work of the program that takes longer than the sender stays. */
static int busy(struct gpu_side *g, int rank, int set)
{
    hvd_handle h;
    int rc = begin(g, rank, set);
    if (rc == 0 && rank == 0)
        rc = fill_large(g);
    if (rank == 1) {
        g->fake->delay(3000000);
        gpu_side_send(g, 0, 1);
        g->fake->delay(0);
    }
    if (rc != 0 || post(g, rank == 0, 1 - rank, set, LARGE, &h) != 0)
        return 1;
    if (rank == 0)
        return hvd_wait(h) < 0 ? FAIL("the send: %s", hvd_error()) : 0;
    if (wait_whole(g, h, &rc) != 0)
        return 1;
    return rc < 0 ? FAIL("the receive: %s", hvd_error()) : 0;
}

/* Rank 1 shuts down with a send whose memory its program still fills: it is not announced, so
 * nobody has launched it. Only its receive fails: ranks 0 and 2 go on in their set. */
static int early(struct gpu_side *g, int rank, int set)
{
    const int others[] = {0, 2};
    int other, rc = hvd_set_add(others, 2, &other) < 0 ? FAIL("%s", hvd_error()) : 0;
    hvd_handle h;
    rc = rc == 0 ? begin(g, rank, set) : rc;
    if (rc != 0)
        return rc;
    if (rank == 1) {
        g->fake->delay(3000000);
        gpu_side_send(g, 0, 1);
        nap_ms(100); /* the work has begun */
        g->fake->delay(0);
    }
    if (rank < 2 && post(g, rank == 1, 1 - rank, set, LARGE, &h) != 0)
        return 1;
    nap_ms(rank == 1 ? 300 : 0);
    if (rank == 1)
        return 0;
    rc = rank == 0 ? hvd_wait(h) : -ESHUTDOWN;
    if (rc != -ESHUTDOWN)
        return FAIL("%d (%s)", rc, hvd_error());
    return sum_in(g, other);
}

/* Rank 2 sends, and shuts down when the message has left. Rank 1 has it in its order of launches,
 * and cannot launch it before NCCL has begun an operation of another set. */
static int late(struct gpu_side *g, int rank, int set)
{
    const int pair[] = {0, 1};
    int other, rc = hvd_set_add(pair, 2, &other) < 0 ? FAIL("%s", hvd_error()) : 0;
    hvd_handle h, sum;
    rc = rc == 0 && rank < 2 ? sum_in(g, other) : rc;
    rc = rc == 0 ? sum_in(g, set) : rc;
    for (int i = 0; i < 10 && rc == 0 && rank > 0; i++)
        if ((rc = post(g, rank == 2, 3 - rank, set, LEAST, &h)) == 0 && hvd_wait(h) < 0)
            rc = FAIL("%s", hvd_error());
    if (rc != 0 || (rank > 0 && by_nccl() == 0))
        return FAIL("NCCL runs no message");
    if (rank < 2) {
        if (rank == 1)
            setenv("FAKE_NCCL_LAUNCH_MS", "2500", 1);
        if (small_sum(g, "slow", other, &sum) != 0)
            return 1;
        nap_ms(400);
        setenv("FAKE_NCCL_LAUNCH_MS", "0", 1);
    } else {
        nap_ms(600);
        rc = fill_large(g);
    }
    if (rc == 0 && rank > 0)
        rc = post(g, rank == 2, 3 - rank, set, LEAST, &h);
    if (rc == 0 && rank > 0 && hvd_wait(h) < 0)
        rc = FAIL("the message: %s", hvd_error());
    return rc == 0 && rank < 2 && hvd_wait(sum) < 0 ? FAIL("%s", hvd_error()) : rc;
}

/* Ranks 1 and 2 exchange a message when rank 0, which writes the order, has shut down. */
static int without_root(struct gpu_side *g, int rank, int set)
{
    hvd_handle h;
    int rc = sum_in(g, set);
    if (rc != 0 || rank == 0)
        return rc;
    nap_ms(1500);
    if (rank == 1 && fill_large(g) != 0)
        return 1;
    if (post(g, rank == 1, 3 - rank, set, LARGE, &h) != 0)
        return 1;
    uint64_t before = clock_ns();
    if (rank == 1)
        rc = hvd_wait(h);
    else if (wait_whole(g, h, &rc) != 0)
        return 1;
    if (clock_ns() - before > 60 * CLOCK_S)
        return FAIL("it took long");
    return rc < 0 ? FAIL("%s", hvd_error()) : 0;
}

struct ending {
    int size;
    bool in_set; /* a set of all ranks; else the world */
    int (*body)(struct gpu_side *g, int rank, int set);
};

static const struct ending *running;

static int in_world_or_set(struct gpu_side *g, int rank, int size)
{
    const int all[] = {0, 1, 2};
    int set = 0;
    if (running->in_set && hvd_set_add(all, size, &set) < 0)
        return FAIL("%s", hvd_error());
    return running->body(g, rank, set);
}

static void run(const struct ending *e)
{
    /* the engine's back ends are those of the world */
    const struct gpu_job job = {
        .way = e->in_set ? NULL : "nccl", .gpu = -1, .body = in_world_or_set};
    running = e;
    gpu_job_run(e->size, gpu_job_nccl("2.27", THRESHOLD), job);
}

static void test_ends(void **state)
{
    static const struct ending ends[] = {
        {3, false, early}, {2, false, departs},       {3, true, third_departs},
        {3, false, late},  {2, true, shuts_down},     {2, true, refuses},
        {2, false, busy},  {3, false, third_departs}, {3, false, without_root},
    };
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i += effort_rows())
        run(&ends[i]);
}

/* ---- beside operations that need no negotiation any more ---- */

/* Rank 0 submits a sum before it sends, rank 1 receives before it submits that. The first message
 * goes through the host, later ones may fly. */
static int frozen(struct gpu_side *g, int rank, int set)
{
    hvd_handle h, sum;
    int rc = fill_large(g), ended;
    for (int k = 0; k < 6 && rc == 0; k++) {
        for (int i = 0; i < (k < 3 ? 200 : 1) && rc == 0; i++)
            if ((rc = small_sum(g, "w", set, &sum)) == 0 && hvd_wait(sum) < 0)
                rc = FAIL("%s", hvd_error());
        if (rc == 0 && rank == 0)
            rc = small_sum(g, "w", set, &sum);
        if (rc == 0)
            rc = post(g, rank == 0, 1 - rank, set, LARGE, &h);
        ended = 0;
        if (rc == 0 && rank == 0)
            ended = hvd_wait(h);
        else if (rc == 0)
            rc = wait_whole(g, h, &ended);
        if (rc == 0 && ended < 0)
            rc = FAIL("%s", hvd_error());
        if (rc == 0 && rank == 1)
            rc = small_sum(g, "w", set, &sum);
        if (rc == 0 && hvd_wait(sum) < 0)
            rc = FAIL("%s", hvd_error());
    }
    return rc;
}

static void test_frozen(void **state)
{
    static const struct ending world = {2, false, frozen}, set = {2, true, frozen};
    run(&world);
    if (EFFORT_WHOLE)
        run(&set);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_frozen),
    };
    return cmocka_run_group_tests_name("multi/gpu_messages_ends", tests, NULL, NULL);
}
