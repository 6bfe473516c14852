/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between GPUs by NCCL, beside collectives of the world and of sets that overlap, in an
 * order of its own on each rank: they arrive once and whole, nothing waits for ever, and those
 * below the threshold, or with an end in the host's memory, go through the host. How they end when
 * ranks shut down: test_gpu_messages_ends.
 *
 * timeout: 300
 * takes: 20 s, waiting
 */
#include <errno.h>
#include <setjmp.h>
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
#include "tests/harness/effort.h"
#include "tests/harness/gpu_job.h"
#include "tests/harness/rank.h"

#define LEAST  2000 /* HVD_NCCL_MESSAGE_THRESHOLD of most jobs here */
#define ROUNDS (EFFORT_LEAST ? 5 : 12)

/* The last one is longer than a part of the way through the host. */
static const size_t sizes[] = {1, LEAST - 1, LEAST, 70001, (1 << 20) + 13};

enum {
    SIZES = sizeof(sizes) / sizeof(sizes[0]),
    PEERS = 2,                /* the next rank of the world, and the other one of the pair */
    LETTERS = PEERS * SIZES,  /* to other ranks, and as many from others */
    SUMS = 2,                 /* of the world, and of the pair */
    ALL = 2 * LETTERS + SUMS, /* of a round */
    SUM = 500,                /* elements */
};

struct job {
    struct gpu_side *g;
    int rank, size, pair; /* pair: the set {0, 1}, {2, 3} ... */
    uint64_t random;
    struct hvd_message messages[2 * LETTERS];
    hvd_handle handles[ALL];
    struct hvd_arrival arrivals[LETTERS];
    uint8_t *in_host; /* for ends in the host's memory */
};

static size_t offset(int k)
{
    size_t at = 0;
    for (int i = 0; i < k; i++)
        at += sizes[i % SIZES];
    return at;
}

static uint8_t byte_of(int from, int k, int round, size_t i)
{
    return (uint8_t)((size_t)(from * 37 + k * 5 + round * 3) + i + (i >> 9));
}

static int other(const struct job *j, int k, bool sends)
{
    bool in_pair = k >= SIZES;
    if (in_pair)
        return 1 - hvd_set_rank(j->pair); /* a rank of the set */
    return (j->rank + (sends ? 1 : j->size - 1)) % j->size;
}

static int world_rank(const struct job *j, int k, bool sends)
{
    return k >= SIZES ? j->rank ^ 1 : other(j, k, sends);
}

/* Of three ends of messages one is in the host's memory. */
static bool is_in_host(int rank, int k, int round)
{
    return (rank + k + round) % 3 == 0;
}

static void address(struct job *j, int round)
{
    for (int i = 0; i < 2 * LETTERS; i++) {
        int k = i % LETTERS;
        bool sends = i < LETTERS, host = is_in_host(j->rank, k + sends, round);
        uint8_t *gpu = (uint8_t *)(sends ? j->g->in.at : j->g->out.at) + offset(k);
        uint8_t *data = host ? j->in_host + (sends ? 0 : offset(LETTERS)) + offset(k) : gpu;
        j->messages[i] = (struct hvd_message){.direction = sends ? HVD_SEND : HVD_RECV,
                                              .peer = other(j, k, sends),
                                              .tag = k % SIZES,
                                              .set = k >= SIZES ? j->pair : 0,
                                              .device = host ? -1 : j->g->d->ordinal,
                                              .stream = j->g->stream,
                                              .data = data,
                                              .bytes = (int64_t)sizes[k % SIZES],
                                              .ret_arrival = sends ? NULL : &j->arrivals[k]};
    }
}

static int fill(struct job *j, int round)
{
    for (int k = 0; k < LETTERS; k++)
        for (size_t i = 0; i < sizes[k % SIZES]; i++)
            j->g->host[offset(k) + i] = byte_of(j->rank, k, round, i);
    memcpy(j->in_host, j->g->host, offset(LETTERS));
    return gpu_side_send(j->g, 0, offset(LETTERS)) < 0 ? FAIL("%s", j->g->err.msg) : 0;
}

static size_t sum_at(int i)
{
    return (offset(LETTERS) + 255) / 256 * 256 + (size_t)i * SUM * 4;
}

static int submit_sum(struct job *j, int i)
{
    const int64_t n = SUM;
    struct hvd_request r =
        gpu_side_request(j->g, HVD_ALLREDUCE, i ? "pair" : "world", HVD_FLOAT32, 1, &n);
    float *host = (float *)(void *)(j->g->host + sum_at(i));
    for (int64_t k = 0; k < n; k++)
        host[k] = (float)(j->rank + 1);
    if (gpu_side_send(j->g, sum_at(i), SUM * 4) < 0)
        return FAIL("%s", j->g->err.msg);
    r.set = i ? j->pair : 0;
    r.input = r.output = (uint8_t *)j->g->in.at + sum_at(i);
    return hvd_submit(&r, 1, &j->handles[2 * LETTERS + i]) < 0 ? FAIL("%s", hvd_error()) : 0;
}

static int submit(struct job *j, int i)
{
    if (i >= 2 * LETTERS)
        return submit_sum(j, i - 2 * LETTERS);
    return hvd_exchange(&j->messages[i], 1, &j->handles[i]) < 0 ? FAIL("%s", hvd_error()) : 0;
}

static int check_letters(struct job *j, int round)
{
    if (gpu_side_read(j->g, j->g->out.at, offset(LETTERS)) < 0)
        return FAIL("%s", j->g->err.msg);
    for (int k = 0; k < LETTERS; k++) {
        const struct hvd_message *m = &j->messages[LETTERS + k];
        const uint8_t *data = m->device < 0 ? m->data : j->g->host + offset(k);
        int from = world_rank(j, k, false);
        if (j->arrivals[k].peer != m->peer || j->arrivals[k].bytes != m->bytes)
            return FAIL("%d bytes of rank %d", (int)j->arrivals[k].bytes, j->arrivals[k].peer);
        for (size_t i = 0; i < sizes[k % SIZES]; i++)
            if (data[i] != byte_of(from, k, round, i))
                return FAIL("round %d, message %d: byte %zu is wrong", round, k, i);
    }
    return 0;
}

static int check_sums(struct job *j)
{
    const float want[SUMS] = {(float)(j->size * (j->size + 1) / 2),
                              (float)(j->rank + 1 + (j->rank ^ 1) + 1)};
    const float *sum = (float *)(void *)j->g->host;
    for (int i = 0; i < SUMS; i++) {
        if (gpu_side_read(j->g, (uint8_t *)j->g->in.at + sum_at(i), SUM * 4) < 0)
            return FAIL("%s", j->g->err.msg);
        if (sum[0] != want[i] || sum[SUM - 1] != want[i])
            return FAIL("sum %d is %g, not %g", i, (double)sum[0], (double)want[i]);
    }
    return 0;
}

static int one_round(struct job *j, int round)
{
    int order[ALL], rc = fill(j, round);
    address(j, round);
    rank_shuffle(order, ALL, &j->random);
    for (int i = 0; i < ALL && rc == 0; i++)
        rc = submit(j, order[i]);
    rank_shuffle(order, ALL, &j->random);
    for (int i = 0; i < ALL && rc == 0; i++) {
        bool on_stream =
            order[i] % 4 == 0 && order[i] < 2 * LETTERS && j->messages[order[i]].device >= 0;
        hvd_handle h = j->handles[order[i]];
        if ((on_stream && hvd_wait_stream(h, j->g->stream) < 0) || hvd_wait(h) < 0)
            rc = FAIL("round %d: %s", round, hvd_error());
    }
    if (rc == 0)
        rc = check_letters(j, round);
    return rc == 0 ? check_sums(j) : rc;
}

static uint64_t by_nccl(void)
{
    struct hvd_stats s = {.size = sizeof(s)};
    hvd_stats(&s);
    return s.messages_nccl;
}

/* How many messages of a round NCCL sends to this rank, and from it. */
static uint64_t expected(const struct job *j, int round)
{
    uint64_t n = 0;
    for (int k = 0; k < LETTERS; k++) {
        int from = world_rank(j, k, false), to = world_rank(j, k, true);
        if (sizes[k % SIZES] < LEAST)
            continue;
        n += !is_in_host(from, k + 1, round) && !is_in_host(j->rank, k, round);
        n += !is_in_host(j->rank, k + 1, round) && !is_in_host(to, k, round);
    }
    return n;
}

static int mixed(struct gpu_side *g, int rank, int size)
{
    struct job *j = calloc(1, sizeof(*j));
    *j = (struct job){.g = g, .rank = rank, .size = size, .random = 5 + 9 * (uint64_t)rank};
    j->in_host = malloc(2 * offset(LETTERS));
    int rc = hvd_set_split("blocks 2", &j->pair) < 0 ? FAIL("%s", hvd_error()) : 0;
    uint64_t want = 0, before = 0;
    for (int k = 0; k < ROUNDS && rc == 0; k++) {
        rc = one_round(j, k);
        if (k == 0) /* the communicators may come before or after the messages */
            before = by_nccl();
        else
            want += expected(j, k);
    }
    if (rc == 0 && (by_nccl() == before || by_nccl() - before > want))
        rc = FAIL("NCCL ran %d messages of %d", (int)(by_nccl() - before), (int)want);
    free(j->in_host);
    free(j);
    return rc;
}

#define THRESHOLD "HVD_NCCL_MESSAGE_THRESHOLD=2000"

static void test_mixed(void **state)
{
    const struct gpu_job job = {.way = "nccl", .gpu = -1, .body = mixed},
                         slow = {.way = "nccl", .gpu = -1, .body = mixed, .delay_us = 30};
    gpu_job_run(4, gpu_job_nccl("2.27", THRESHOLD), job);
    gpu_job_run_on("aabb", gpu_job_nccl("2.27", THRESHOLD), slow);
    gpu_job_run(2, gpu_job_nccl("2.18", THRESHOLD), slow);
}

/* ---- where NCCL is not used ---- */

static int sum_and_send(struct gpu_side *g, int rank)
{
    const int64_t bytes = 3 << 20;
    struct hvd_message m = {.direction = rank ? HVD_RECV : HVD_SEND,
                            .peer = 1 - rank,
                            .device = g->d->ordinal,
                            .stream = g->stream,
                            .data = g->in.at,
                            .bytes = bytes};
    hvd_handle h;
    if (gpu_job_sum(g, rank, 2, HVD_FLOAT32, HVD_SUM, 10, true, 1) != 0)
        return 1;
    return hvd_exchange(&m, 1, &h) < 0 || hvd_wait(h) < 0 ? FAIL("%s", hvd_error()) : 0;
}

static int never(struct gpu_side *g, int rank, int size)
{
    int rc = sum_and_send(g, rank);
    return rc == 0 && by_nccl() != 0 ? FAIL("NCCL ran messages") : rc;
}

/* While the order of launches is a pattern, messages go through the host: the first ones. */
static int always(struct gpu_side *g, int rank, int size)
{
    int rc = 0;
    for (int i = 0; i < 20 && rc == 0; i++)
        rc = sum_and_send(g, rank);
    return rc == 0 && by_nccl() < 10 ? FAIL("NCCL ran %d messages", (int)by_nccl()) : rc;
}

static void test_threshold(void **state)
{
    const struct gpu_job yes = {.way = "nccl", .gpu = -1, .body = always},
                         no = {.way = "nccl", .gpu = -1, .body = never};
    gpu_job_run(2, gpu_job_nccl("2.27", "HVD_NCCL_MESSAGE_THRESHOLD=1M"), yes);
    gpu_job_run(2, gpu_job_nccl("2.27", NULL), no);
    gpu_job_run(2, gpu_job_nccl("2.27", "HVD_NCCL_MESSAGE_THRESHOLD=4M"), no);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_threshold),
    };
    return cmocka_run_group_tests_name("multi/gpu_messages_nccl", tests, NULL, NULL);
}
