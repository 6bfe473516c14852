/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_shm: allreduce in shared memory alone, float32 sum, without engine and launcher. Forks its
 * ranks. Rank 0 prints a line for each size: "bytes place calls p50_ns p90_ns busbw_GB/s", place in
 * or out.
 *
 *     bench_shm [-n RANKS] [-t MILLISECONDS a size] BYTES...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/coll/shm_allreduce.h"
#include "tests/harness/shm_host.h"
#include "tests/harness/times.h"

enum { MAX_SAMPLES = 20000, TRIALS = 5, WARM_UP_NS = 30000000, SAMPLE_NS = 20000 };

struct bench {
    uint64_t budget_ns;
    char **sizes;
    int nsizes;
    struct mesh *mesh;
    struct shm_allreduce *all;
    uint64_t *times; /* [MAX_SAMPLES] */
    float *in, *out; /* of the largest size */
};

static int progress(void *ctx)
{
    return shm_allreduce_progress(ctx);
}

static int call(struct bench *b, const void *in, void *out, size_t count, enum hvd_dtype dtype,
                enum hvd_op kind)
{
    struct coll_tensor tensor = {.in = in, .out = out, .count = count};
    struct coll_op op = {.kind = HVD_ALLREDUCE,
                         .dtype = dtype,
                         .op = kind,
                         .prescale = 1.0,
                         .postscale = 1.0,
                         .contributors = b->mesh->size,
                         .device = -1,
                         .tensors = &tensor,
                         .n = 1};
    shm_allreduce_start(b->all, &op);
    return shm_host_drive(b->mesh, progress, b->all);
}

static int sum(struct bench *b, const float *in, float *out, size_t count)
{
    return call(b, in, out, count, HVD_FLOAT32, HVD_SUM);
}

/* Returns the largest ns of all ranks, or -1. */
static int64_t agree(struct bench *b, int64_t ns)
{
    return call(b, &ns, &ns, 1, HVD_INT64, HVD_MAX) < 0 ? -1 : ns;
}

static int repeat(struct bench *b, float *dst, size_t count, int64_t calls)
{
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < calls; i++)
        rc = sum(b, b->in, dst, count);
    return rc;
}

static int run(struct bench *b, size_t bytes, bool in_place)
{
    size_t count = bytes / sizeof(float);
    float *dst = in_place ? b->in : b->out;
    uint64_t begin = clock_ns();
    int rc = repeat(b, dst, count, TRIALS);
    /* All ranks must make the same number of calls: the slowest rank's. */
    int64_t one = agree(b, (int64_t)((clock_ns() - begin) / TRIALS) + 1);
    rc = rc < 0 || one < 0 ? -EIO : repeat(b, dst, count, WARM_UP_NS / one + 1);
    int64_t group = SAMPLE_NS / one + 1;
    int64_t samples = (int64_t)b->budget_ns / (one * group);
    samples = samples < 5 ? 5 : samples > MAX_SAMPLES ? MAX_SAMPLES : samples;
    for (int64_t i = 0; i < samples; i++) {
        uint64_t start = clock_ns();
        rc = rc < 0 ? rc : repeat(b, dst, count, group);
        b->times[i] = (clock_ns() - start) / (uint64_t)group;
    }
    times_sort(b->times, (size_t)samples);
    if (rc == 0 && b->mesh->rank == 0) {
        uint64_t p50 = b->times[samples / 2];
        double ranks = b->mesh->size;
        printf("%zu %s %lld %llu %llu %.2f\n", bytes, in_place ? "in" : "out",
               (long long)samples * group, (unsigned long long)p50,
               (unsigned long long)b->times[samples * 9 / 10],
               p50 ? (double)bytes / (double)p50 * 2 * (ranks - 1) / ranks : 0.0);
        fflush(stdout);
    }
    return rc;
}

static size_t bytes_of(const struct bench *b, int i)
{
    return strtoull(b->sizes[i], NULL, 10);
}

static int rank_main(struct mesh *mesh, void *ctx)
{
    struct bench *b = ctx;
    struct shm_pieces *pieces = NULL;
    b->mesh = mesh;
    b->times = calloc(MAX_SAMPLES, sizeof(*b->times));
    int rc = b->times ? shm_pieces_create(mesh, &pieces, NULL) : -ENOMEM;
    if (rc == 0)
        rc = shm_allreduce_create(mesh, pieces, &b->all, NULL);
    size_t largest = 0;
    for (int i = 0; i < b->nsizes; i++)
        largest = bytes_of(b, i) > largest ? bytes_of(b, i) : largest;
    b->in = malloc(largest + 64);
    b->out = malloc(largest + 64);
    if (!b->in || !b->out)
        return 1;
    memset(b->in, 0, largest);
    memset(b->out, 0, largest);
    for (int i = 0; rc == 0 && i < 2 * b->nsizes; i++)
        rc = run(b, bytes_of(b, i / 2), i % 2 == 0);
    free(b->in);
    free(b->out);
    shm_allreduce_destroy(b->all);
    shm_pieces_destroy(pieces);
    free(b->times);
    return rc < 0;
}

int main(int argc, char **argv)
{
    struct bench b = {.budget_ns = 300 * CLOCK_MS};
    int ranks = 2;
    for (int opt; (opt = getopt(argc, argv, "n:t:")) != -1;) {
        if (opt == 'n')
            ranks = atoi(optarg);
        else if (opt == 't')
            b.budget_ns = strtoull(optarg, NULL, 10) * CLOCK_MS;
        else
            return 2;
    }
    b.sizes = argv + optind;
    b.nsizes = argc - optind;
    int rc = shm_host_run(ranks, rank_main, &b, 120);
    if (rc)
        fprintf(stderr, "bench_shm: ended with %d\n", rc);
    return rc != 0;
}
