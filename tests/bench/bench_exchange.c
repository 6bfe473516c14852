/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_exchange: all-to-all and reduce-scatter on one host, without the engine, compared with a
 * memcpy of as many bytes by rank 0 while the others sleep. Rank 0 prints a line for each: "what
 * bytes calls p50_ns memcpy_p50_ns percent min_ns memcpy_min_ns". percent: the median of the
 * memcpy's time in percent of the call's.
 *
 *     bench_exchange RANKS CALLS BYTES...
 *
 * what: all   each rank has BYTES, an equal part for every rank
 *       pair  rank 0 has BYTES, all for the last rank; the others send and get nothing
 *       sum   reduce-scatter of BYTES, float32
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "tests/harness/coll_rank.h"
#include "tests/harness/world.h"
#include "tests/harness/times.h"

enum { MAX_RANKS = 64, MAX_CALLS = 1000, YIELDS = 8 };

struct bench {
    int calls, nsizes;
    char **sizes;
    struct coll_rank rank;
    uint8_t *in, *out;
    uint64_t times[MAX_CALLS], copies[MAX_CALLS];
};

static uint64_t median(uint64_t *times, int n)
{
    times_sort(times, (size_t)n);
    return times[n / 2];
}

/* Like a waiting caller of the engine: yields first, then sleeps. */
static int run(struct coll_rank *r, const struct coll_op *op)
{
    uint64_t deadline = deadline_in_ms(60000);
    int rc = coll_start(r->coll, op, NULL), yields = 0;
    while (rc == 0 && (rc = coll_progress(r->coll)) == 1) {
        rc = 0;
        if (yields++ < YIELDS) {
            sched_yield();
            continue;
        }
        yields = 0;
        rc = coll_rank_wait(r, deadline);
        if (rc <= 0)
            return rc;
        rc = deadline_passed(deadline) ? -ETIMEDOUT : 0;
    }
    return rc;
}

static int barrier(struct bench *b)
{
    struct coll_op op = coll_rank_op(&b->rank, HVD_BARRIER, HVD_UINT8, HVD_SUM, NULL, 0);
    return run(&b->rank, &op);
}

static void fill_counts(struct bench *b, const char *what, size_t bytes, size_t *to, size_t *from)
{
    int rank = b->rank.mesh->rank, size = b->rank.mesh->size;
    bool pair = strcmp(what, "pair") == 0;
    for (int i = 0; i < size; i++) {
        to[i] = pair ? 0 : bytes / (size_t)size;
        from[i] = to[i];
    }
    if (pair && rank == 0)
        to[size - 1] = bytes;
    if (pair && rank == size - 1)
        from[0] = bytes;
}

/* Each call is compared with the copy just before it, so that other load weighs on both. */
static void report(struct bench *b, const char *what, size_t bytes)
{
    static uint64_t percent[MAX_CALLS];
    if (b->rank.mesh->rank != 0)
        return;
    for (int i = 0; i < b->calls; i++)
        percent[i] = b->times[i] ? 100 * b->copies[i] / b->times[i] : 0;
    uint64_t took = median(b->times, b->calls), copied = median(b->copies, b->calls);
    printf("%s %zu %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", what, bytes,
           b->calls, took, copied, median(percent, b->calls), b->times[0], b->copies[0]);
    fflush(stdout);
}

static int measure(struct bench *b, const char *what, size_t bytes)
{
    size_t to[MAX_RANKS], from[MAX_RANKS], elem = 1, count = 0;
    bool sum = strcmp(what, "sum") == 0;
    if (sum)
        elem = sizeof(float);
    fill_counts(b, what, bytes / elem, to, from);
    for (int i = 0; i < b->rank.mesh->size; i++)
        count += to[i];
    struct coll_tensor t = {b->in, b->out, count};
    struct coll_op op = coll_rank_op(&b->rank, sum ? HVD_REDUCESCATTER : HVD_ALLTOALL,
                                     sum ? HVD_FLOAT32 : HVD_UINT8, HVD_SUM, &t, 1);
    op.send_counts = to;
    op.recv_counts = from;
    for (int i = -3; i < b->calls; i++) {
        int rc = barrier(b);
        uint64_t begin = clock_ns();
        if (b->rank.mesh->rank == 0)
            memcpy(b->out, b->in, bytes);
        uint64_t copied = clock_ns();
        rc = rc < 0 ? rc : barrier(b);
        uint64_t started = clock_ns();
        rc = rc < 0 ? rc : run(&b->rank, &op);
        if (rc < 0)
            return rc;
        if (i >= 0) {
            b->times[i] = clock_ns() - started;
            b->copies[i] = copied - begin;
        }
    }
    report(b, what, bytes);
    return 0;
}

static int rank_main(int rank, int size, void *arg)
{
    static const char *const whats[] = {"all", "pair", "sum"};
    struct bench *b = arg;
    size_t most = 0;
    for (int i = 0; i < b->nsizes; i++)
        most = strtoull(b->sizes[i], NULL, 10) > most ? strtoull(b->sizes[i], NULL, 10) : most;
    b->in = malloc(most + 1);
    b->out = malloc(most + 1);
    if (!b->in || !b->out || coll_rank_open(&b->rank, rank, NULL) < 0)
        return 1;
    memset(b->in, 0, most);
    memset(b->out, 0, most);
    int rc = 0;
    for (int i = 0; rc == 0 && i < 3 * b->nsizes; i++)
        rc = measure(b, whats[i % 3], strtoull(b->sizes[i / 3], NULL, 10));
    coll_rank_close(&b->rank);
    free(b->in);
    free(b->out);
    return rc < 0;
}

int main(int argc, char **argv)
{
    static struct bench b;
    int ranks = argc > 3 ? atoi(argv[1]) : 0;
    b.calls = argc > 3 ? atoi(argv[2]) : 0;
    b.sizes = argv + 3;
    b.nsizes = argc - 3;
    if (ranks < 2 || ranks > MAX_RANKS || b.calls < 1 || b.calls > MAX_CALLS) {
        fprintf(stderr, "usage: bench_exchange RANKS CALLS BYTES...\n");
        return 2;
    }
    return world_run(ranks, rank_main, &b) != 0;
}
