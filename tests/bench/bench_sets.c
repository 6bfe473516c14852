/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_sets: operations of sets through the public C API. Started like any rank (hvdrun, by hand).
 *
 *     bench_sets sums MEMBERS | pairs | exchange [-t MILLISECONDS a size] BYTES...
 *     bench_sets make N
 *
 * Rank 0 prints a line for each size: "bytes calls p50_ns".
 *
 * - sums: of the first MEMBERS ranks, submitted and waited for, in a set, or in the world if these
 *   are all ranks. The others sleep in a barrier.
 * - pairs: sums in sets of two ranks, all at the same time. A fourth column has the medians of all
 *   pairs as one rate, in bytes/s.
 * - exchange: all-to-alls of all ranks with BYTES from each, and splits that change in each call.
 * - make: N sets of all ranks, each made, used once and removed. Prints "N us_each".
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hvd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "tests/harness/rank.h"
#include "tests/harness/times.h"

enum { MAX_CALLS = 100000, WARM_UP = 30, ROW = 4, MOST = 64 };

struct bench {
    int set;
    uint64_t budget_ns;
    uint64_t *times; /* [MAX_CALLS] */
    float *in, *out;
};

static int sum(const struct bench *b, const char *name, void *data, int64_t count,
               enum hvd_dtype dtype, enum hvd_op op)
{
    struct hvd_request r = rank_request(name, data, &count);
    hvd_handle h;
    r.dtype = dtype;
    r.op = op;
    r.set = b->set;
    return rank_wait(&r, &h);
}

static int64_t agree_calls(const struct bench *b, uint64_t one_ns)
{
    int64_t calls = (int64_t)(b->budget_ns / (one_ns ? one_ns : 1));
    calls = calls < 5 ? 5 : calls > MAX_CALLS ? MAX_CALLS : calls;
    return sum(b, "calls", &calls, 1, HVD_INT64, HVD_MIN) < 0 ? -1 : calls;
}

/* The call that is measured. step: its number. */
typedef int call_f(struct bench *b, const char *name, size_t bytes, int64_t step);

static int one_sum(struct bench *b, const char *name, size_t bytes, int64_t step)
{
    return sum(b, name, b->in, (int64_t)(bytes / sizeof(float)), HVD_FLOAT32, HVD_SUM);
}

/* Every rank sends one row more than the average to each second rank and one less to the others, in
 * turn. */
static int one_exchange(struct bench *b, const char *name, size_t bytes, int64_t step)
{
    int64_t size = hvd_size(), splits[MOST], shape[2] = {0, ROW};
    int64_t each = (int64_t)bytes / 4 / ROW / size;
    for (int64_t r = 0; r < size; r++)
        shape[0] += splits[r] = each + ((r + step) % 2 ? 1 : each > 0 ? -1 : 0);
    struct hvd_request r = {.kind = HVD_ALLTOALL,
                            .name = name,
                            .input = b->in,
                            .output = b->out,
                            .output_rows = (each + 1) * size,
                            .dtype = HVD_FLOAT32,
                            .ndim = 2,
                            .shape = shape,
                            .splits = splits,
                            .device = -1};
    hvd_handle h;
    int rc = rank_wait(&r, &h);
    if (rc == 0)
        hvd_release(h);
    return rc;
}

/* Returns the number of calls, or -errno. */
static int64_t measure(struct bench *b, size_t bytes, call_f *call)
{
    size_t room = bytes + sizeof(float) * ROW * 2 * (size_t)hvd_size() + 64;
    auto_free float *in = calloc(room, 1);
    auto_free float *out = calloc(room, 1);
    char name[32];
    snprintf(name, sizeof(name), "bench.%zu", bytes);
    b->in = in;
    b->out = out;
    uint64_t begin = clock_ns();
    for (int i = 0; in && out && i < WARM_UP; i++)
        if (call(b, name, bytes, i) < 0)
            return -EIO;
    int64_t calls = in && out ? agree_calls(b, (clock_ns() - begin) / WARM_UP) : -ENOMEM;
    for (int64_t i = -WARM_UP; i < calls; i++) {
        uint64_t start = clock_ns();
        if (call(b, name, bytes, i + WARM_UP) < 0)
            return -EIO;
        if (i >= 0)
            b->times[i] = clock_ns() - start;
    }
    if (calls > 0)
        times_sort(b->times, (size_t)calls);
    return calls;
}

static int add(const int *ranks, int n, int *ret)
{
    int rc = hvd_set_add(ranks, n, ret);
    if (rc < 0)
        fprintf(stderr, "bench_sets: %s\n", hvd_error());
    return rc;
}

static int sums(struct bench *b, int members, char **sizes)
{
    int size = hvd_size(), rc = 0;
    auto_free int *ranks = calloc((size_t)size, sizeof(*ranks));
    if (!ranks || members < 1 || members > size)
        return -EINVAL;
    for (int i = 0; i < members; i++)
        ranks[i] = i;
    if (members < size)
        rc = add(ranks, members, &b->set);
    for (; *sizes && rc == 0 && hvd_rank() < members; sizes++) {
        size_t bytes = strtoull(*sizes, NULL, 10);
        int64_t calls = measure(b, bytes, one_sum);
        rc = calls < 0 ? (int)calls : 0;
        if (rc == 0 && hvd_rank() == 0)
            printf("%zu %lld %llu\n", bytes, (long long)calls,
                   (unsigned long long)b->times[calls / 2]);
    }
    return rc == 0 ? hvd_barrier("end") : rc;
}

static int pairs(struct bench *b, char **sizes)
{
    int rc = 0;
    for (int i = 0; i + 1 < hvd_size() && rc == 0; i += 2) {
        const int ranks[] = {i, i + 1};
        int set;
        rc = add(ranks, 2, &set);
        if (i / 2 == hvd_rank() / 2)
            b->set = set;
    }
    for (; *sizes && rc == 0; sizes++) {
        size_t bytes = strtoull(*sizes, NULL, 10);
        int64_t calls = measure(b, bytes, one_sum);
        if (calls < 0)
            return (int)calls;
        double rate = (double)bytes / (double)b->times[calls / 2] * 1e9 / 2;
        rc = hvd_allreduce("rates", &rate, &rate, 1, HVD_FLOAT64, HVD_SUM);
        if (hvd_rank() == 0)
            printf("%zu %lld %llu %.3g\n", bytes, (long long)calls,
                   (unsigned long long)b->times[calls / 2], rate);
    }
    return rc;
}

static int exchange(struct bench *b, char **sizes)
{
    for (; *sizes && hvd_size() <= MOST; sizes++) {
        size_t bytes = strtoull(*sizes, NULL, 10);
        int64_t calls = measure(b, bytes, one_exchange);
        if (calls < 0)
            return (int)calls;
        if (hvd_rank() == 0)
            printf("%zu %lld %llu\n", bytes, (long long)calls,
                   (unsigned long long)b->times[calls / 2]);
    }
    return 0;
}

static int make(struct bench *b, int n)
{
    int size = hvd_size(), rc = 0;
    auto_free int *ranks = calloc((size_t)size, sizeof(*ranks));
    uint64_t begin = clock_ns();
    for (int i = 0; ranks && i < size; i++)
        ranks[i] = i;
    for (int i = 0; ranks && i < n && rc == 0; i++) {
        float x = 1;
        rc = add(ranks, size, &b->set);
        if (rc == 0)
            rc = sum(b, "once", &x, 1, HVD_FLOAT32, HVD_SUM);
        if (rc == 0)
            rc = hvd_set_remove(b->set);
    }
    if (rc == 0 && hvd_rank() == 0 && n > 0)
        printf("%d %.1f\n", n, (double)(clock_ns() - begin) / 1e3 / n);
    return rc;
}

static int usage(void)
{
    fputs("usage: bench_sets sums MEMBERS | pairs | exchange [-t MS] BYTES..., or bench_sets make "
          "N\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    struct bench b = {.budget_ns = 250 * CLOCK_MS};
    bool is_sums = argc > 2 && strcmp(argv[1], "sums") == 0;
    bool is_pairs = argc > 2 && strcmp(argv[1], "pairs") == 0;
    bool is_exchange = argc > 2 && strcmp(argv[1], "exchange") == 0;
    int at = is_sums ? 3 : 2;
    if (!is_sums && !is_pairs && !is_exchange && (argc != 3 || strcmp(argv[1], "make") != 0))
        return usage();
    if (at + 1 < argc && strcmp(argv[at], "-t") == 0) {
        b.budget_ns = strtoull(argv[at + 1], NULL, 10) * CLOCK_MS;
        at += 2;
    }
    b.times = calloc(MAX_CALLS, sizeof(*b.times));
    int rc = b.times ? hvd_init() : -ENOMEM;
    if (rc == 0)
        rc = is_sums       ? sums(&b, atoi(argv[2]), argv + at)
             : is_pairs    ? pairs(&b, argv + at)
             : is_exchange ? exchange(&b, argv + at)
                           : make(&b, atoi(argv[2]));
    if (rc < 0)
        fprintf(stderr, "bench_sets: %s\n", hvd_error());
    hvd_shutdown();
    free(b.times);
    return rc < 0;
}
