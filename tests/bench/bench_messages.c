/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_messages: messages between two ranks through the public C API. Started like any rank.
 *
 *     bench_messages [-t MILLISECONDS a size] [-n] BYTES...
 *
 * Rank 0 prints a line for each size: "bytes calls latency_ns rate": half the median time of a
 * message there and back, in blocking calls; and bytes/s of several messages in flight, of which
 * the last is answered. -n: "bytes in calls ns 0", the time of each message of those.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/times.h"

enum { MAX_CALLS = 100000, WINDOW = 16, LARGE = 4 << 20 };

/* Of large messages few are in flight, and few warm up. */
static int window_of(size_t bytes)
{
    return bytes < LARGE ? WINDOW : 4;
}

static int warm_up_of(size_t bytes)
{
    return bytes < LARGE ? 50 : 3;
}

struct bench {
    int rank;
    uint64_t budget_ns;
    uint64_t *times; /* [MAX_CALLS] */
    char *data;
    bool one_by_one; /* -n */
};

static int ping(const struct bench *b, size_t bytes)
{
    int rc = b->rank == 0 ? hvd_send(b->data, (int64_t)bytes, 1, 1, 0)
                          : hvd_recv(b->data, (int64_t)bytes, 0, 1, 0, NULL);
    if (rc < 0)
        return rc;
    return b->rank == 0 ? hvd_recv(b->data, (int64_t)bytes, 1, 1, 0, NULL)
                        : hvd_send(b->data, (int64_t)bytes, 0, 1, 0);
}

static int stream(const struct bench *b, size_t bytes)
{
    struct hvd_message m[WINDOW];
    hvd_handle handles[WINDOW];
    char done = 0;
    int window = window_of(bytes);
    for (int i = 0; i < window; i++)
        m[i] = (struct hvd_message){.direction = b->rank == 0 ? HVD_SEND : HVD_RECV,
                                    .peer = 1 - b->rank,
                                    .tag = 2,
                                    .device = -1,
                                    .data = b->data + (size_t)i * bytes,
                                    .bytes = (int64_t)bytes};
    int rc = hvd_exchange(m, (size_t)window, handles);
    for (int i = 0; i < window && rc == 0; i++)
        rc = hvd_wait(handles[i]);
    if (rc < 0)
        return rc;
    return b->rank == 0 ? hvd_recv(&done, 1, 1, 3, 0, NULL) : hvd_send(&done, 1, 0, 3, 0);
}

typedef int call_f(const struct bench *b, size_t bytes);

/* The median time in ns; the number of calls in *ret_calls. 0: failed. */
static uint64_t measure(const struct bench *b, call_f *call, size_t bytes, int64_t *ret_calls)
{
    uint64_t begin = clock_ns();
    int rc = 0;
    int warm_up = warm_up_of(bytes);
    for (int i = 0; i < warm_up && rc == 0; i++)
        rc = call(b, bytes);
    int64_t calls = (int64_t)(b->budget_ns / ((clock_ns() - begin) / (uint64_t)warm_up + 1));
    calls = calls < 5 ? 5 : calls > MAX_CALLS ? MAX_CALLS : calls;
    if (rc == 0)
        rc = hvd_allreduce("calls", &calls, &calls, 1, HVD_INT64, HVD_MIN);
    for (int64_t i = 0; i < calls && rc == 0; i++) {
        uint64_t start = clock_ns();
        rc = call(b, bytes);
        b->times[i] = clock_ns() - start;
    }
    if (rc < 0) {
        fprintf(stderr, "bench_messages: %s\n", hvd_error());
        return 0;
    }
    times_sort(b->times, (size_t)calls);
    *ret_calls = calls;
    return b->times[calls / 2];
}

static int run(struct bench *b, char **sizes)
{
    for (; *sizes; sizes++) {
        size_t bytes = strtoull(*sizes, NULL, 10);
        int64_t calls;
        b->data = calloc(bytes * (size_t)window_of(bytes) + 1, 1);
        if (!b->data)
            return 1;
        memset(b->data, 1, bytes * (size_t)window_of(bytes));
        uint64_t there_and_back = measure(b, ping, bytes, &calls), whole = 0;
        if (there_and_back)
            whole = measure(b, stream, bytes, &calls);
        if (!whole)
            return 1;
        if (b->rank == 0 && b->one_by_one)
            printf("%zu in %lld %llu 0\n", bytes, (long long)calls,
                   (unsigned long long)whole / (unsigned)window_of(bytes));
        else if (b->rank == 0)
            printf("%zu %lld %llu %.4g\n", bytes, (long long)calls,
                   (unsigned long long)there_and_back / 2,
                   (double)bytes * window_of(bytes) / (double)whole * 1e9);
        free(b->data);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct bench b = {.budget_ns = 200 * CLOCK_MS};
    int opt;
    while ((opt = getopt(argc, argv, "t:n")) == 't' || opt == 'n')
        if (opt == 't')
            b.budget_ns = strtoull(optarg, NULL, 10) * CLOCK_MS;
        else
            b.one_by_one = true;
    b.times = malloc(MAX_CALLS * sizeof(*b.times));
    if (opt != -1 || !b.times || hvd_init() != 0 || hvd_size() != 2) {
        fprintf(stderr, "usage: bench_messages [-t MS] [-n] BYTES..., with two ranks: %s\n",
                hvd_error());
        return 1;
    }
    b.rank = hvd_rank();
    int rc = run(&b, argv + optind);
    free(b.times);
    return hvd_shutdown() != 0 || rc;
}
