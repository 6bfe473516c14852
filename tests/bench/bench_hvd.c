/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_hvd: hvd_allreduce through the public C API, float32 sum. Started like any rank (hvdrun, by
 * hand). Rank 0 prints a line for each size: "bytes place calls p50_ns p90_ns", place in or out.
 *
 *     bench_hvd [-t MILLISECONDS a size] [-a (asynchronous: submit, wait)] BYTES...
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hvd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "tests/harness/times.h"

enum { MAX_CALLS = 200000, WARM_UP = 20 };

struct bench {
    bool async;
    uint64_t budget_ns;
    uint64_t *times; /* [MAX_CALLS] */
};

static int call(const struct bench *b, const char *name, const float *in, float *out, int64_t count)
{
    if (!b->async)
        return hvd_allreduce(name, in, out, count, HVD_FLOAT32, HVD_SUM);
    hvd_handle handle;
    struct hvd_request request = {.kind = HVD_ALLREDUCE,
                                  .name = name,
                                  .input = in,
                                  .output = out,
                                  .dtype = HVD_FLOAT32,
                                  .ndim = 1,
                                  .shape = &count,
                                  .op = HVD_SUM,
                                  .device = -1};
    int rc = hvd_submit(&request, 1, &handle);
    if (rc < 0)
        return rc;
    /* Polling does not drive, so the engine's thread must. */
    while (hvd_poll(handle) == 0)
        usleep(0);
    return hvd_wait(handle);
}

/* All ranks must make the same number of calls: rank 0 computes it from its own clock and
 * broadcasts it. */
static int64_t agree_calls(uint64_t budget_ns, uint64_t one_ns)
{
    int64_t calls = (int64_t)(budget_ns / (one_ns ? one_ns : 1));
    calls = calls < 5 ? 5 : calls > MAX_CALLS ? MAX_CALLS : calls;
    return hvd_broadcast("calls", &calls, 1, HVD_INT64, 0) < 0 ? -1 : calls;
}

static int run(struct bench *b, size_t bytes, bool in_place)
{
    size_t count = bytes / sizeof(float);
    auto_free float *in = malloc(bytes + 64);
    auto_free float *out = in_place ? NULL : malloc(bytes + 64);
    if (!in || (!in_place && !out))
        return -ENOMEM;
    memset(in, 0, bytes);
    if (out)
        memset(out, 0, bytes);
    float *dst = in_place ? in : out;
    char name[64];
    snprintf(name, sizeof(name), "bench.%zu.%d", bytes, in_place);
    uint64_t begin = clock_ns();
    for (int i = 0; i < WARM_UP; i++)
        if (call(b, name, in, dst, (int64_t)count) < 0)
            return -EIO;
    int64_t calls = agree_calls(b->budget_ns, (clock_ns() - begin) / WARM_UP);
    if (calls < 0)
        return -EIO;
    for (int i = 0; i < WARM_UP; i++)
        if (call(b, name, in, dst, (int64_t)count) < 0)
            return -EIO;
    for (int64_t i = 0; i < calls; i++) {
        uint64_t start = clock_ns();
        if (call(b, name, in, dst, (int64_t)count) < 0)
            return -EIO;
        b->times[i] = clock_ns() - start;
    }
    times_sort(b->times, (size_t)calls);
    if (hvd_rank() == 0) {
        printf("%zu %s %lld %llu %llu\n", bytes, in_place ? "in" : "out", (long long)calls,
               (unsigned long long)b->times[calls / 2],
               (unsigned long long)b->times[calls * 9 / 10]);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct bench b = {.budget_ns = 300 * CLOCK_MS};
    for (int opt; (opt = getopt(argc, argv, "at:")) != -1;) {
        if (opt == 'a')
            b.async = true;
        else if (opt == 't')
            b.budget_ns = strtoull(optarg, NULL, 10) * CLOCK_MS;
        else
            return 2;
    }
    b.times = calloc(MAX_CALLS, sizeof(*b.times));
    int rc = b.times ? hvd_init() : -ENOMEM;
    for (int i = optind; rc == 0 && i < argc; i++) {
        size_t bytes = strtoull(argv[i], NULL, 10);
        rc = run(&b, bytes, true);
        if (rc == 0)
            rc = run(&b, bytes, false);
    }
    if (rc < 0)
        fprintf(stderr, "bench_hvd: %s\n", hvd_error());
    hvd_shutdown();
    free(b.times);
    return rc < 0;
}
