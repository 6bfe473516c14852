/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_model: what bench_gpu_bare and bench_gpu share: the two measurements on the fake GPU's
 * timeline, and their result, which rank 0 prints as one line of JSON.
 *
 *     bench_gpu_bare loop RANKS CALLS BYTES           bench_gpu_bare step RANKS STEPS BUCKET_BYTES
 *
 * loop: sums of one size, as many at a time as the way allows. step: backward produces ResNet-50's
 * gradients on a compute stream while the sums of those that exist run; the next step begins when
 * all sums have ended.
 */
#ifndef HVD_TESTS_BENCH_GPU_MODEL_H
#define HVD_TESTS_BENCH_GPU_MODEL_H

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/fake/cuda/use.h"
#include "tests/gpu/resnet50.h"
#include "tests/harness/times.h"

#define GPU_MODEL_RANKS 16
#define WARM_UP         5 /* calls and steps that are not measured; hvd's schedule freezes in them */

/* Backward takes BACKWARD_NS on the device, the same time for each of the LAYERS layers that have a
 * weight of their own, the last layer first. The host prepares a layer in HOST_NS. */
#define LAYERS      54
#define BACKWARD_NS 30000000ULL
#define HOST_NS     200000ULL

struct gpu_model {
    bool steps;
    int ranks, rounds;
    size_t bytes; /* of a call of loop, or of a bucket of step */
    const struct fake_cuda_control *fake;
};

/* What a rank has measured, in nanoseconds. */
struct gpu_model_times {
    uint64_t begin; /* CLOCK_MONOTONIC: from here on operations count */
    uint64_t cpu;   /* the process's processor time since then */
    uint64_t call;  /* of the host, in the median call that starts one sum */
    uint64_t end;   /* of the last round, for the host */
};

struct gpu_model_result {
    double batches;              /* NCCL's operations per round */
    double dead_p50, dead_p99;   /* us on NCCL's stream between two, in which it does nothing */
    double call, cpu;            /* us: call as above; cpu per batch */
    double round_p50, round_p99; /* ms on the device, from one round's begin to the next one's */
    double nccl;                 /* ms of NCCL's operations per round */
};

static inline struct gpu_model gpu_model_parse(int argc, char **argv)
{
    struct gpu_model m = {.steps = argc > 1 && strcmp(argv[1], "step") == 0};
    if (argc < 5 || (!m.steps && strcmp(argv[1], "loop") != 0) || !getenv("FAKE_CUDA_TIME") ||
        !getenv("FAKE_NCCL_TIME")) {
        fprintf(stderr,
                "usage: FAKE_CUDA_TIME=... FAKE_NCCL_TIME=... %s loop|step RANKS ROUNDS "
                "BYTES\n",
                argv[0]);
        exit(2);
    }
    m.ranks = atoi(argv[2]);
    m.rounds = atoi(argv[3]);
    m.bytes = strtoull(argv[4], NULL, 10);
    if (m.ranks < 1 || m.ranks > GPU_MODEL_RANKS || m.rounds < 2 || m.bytes < 4)
        exit(2);
    return m;
}

/* Ranks that have no processor of their own stay on one, so that hvd does not spin, as the fakes'
 * threads need the processors, too. */
static inline void gpu_model_pin(const struct gpu_model *m, int rank)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof(all), &all) < 0 || m->ranks <= CPU_COUNT(&all))
        return;
    int n = rank % CPU_COUNT(&all), cpu = -1;
    do
        n -= CPU_ISSET(++cpu, &all) != 0;
    while (n >= 0);
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof(one), &one);
}

static inline uint64_t gpu_model_cpu(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * CLOCK_S + (uint64_t)ts.tv_nsec;
}

static inline void gpu_model_nap(uint64_t ns)
{
    const struct timespec nap = {.tv_nsec = (long)ns};
    nanosleep(&nap, NULL);
}

/* The gradients in the order of backward, and whether each is the first of its layer. A layer is a
 * convolution with its batch norm, or the last two gradients. */
static inline void gpu_model_gradients(size_t counts[GRADIENTS], bool first[GRADIENTS])
{
    size_t forward[GRADIENTS];
    resnet50(forward);
    for (int i = 0; i < GRADIENTS; i++) {
        counts[i] = forward[GRADIENTS - 1 - i];
        first[i] = i == 0 || (i >= 2 && (i - 2) % 3 == 0);
    }
}

/* ---- the result, from the schedule ---- */

struct gpu_model_log {
    struct fake_cuda_op *ops;
    size_t n;
    uint64_t *times;
};

static inline bool is_nccl(const struct fake_cuda_op *op)
{
    return strcmp(op->kind, "nccl") == 0;
}

static inline void gpu_model_percentiles(struct gpu_model_log *l, size_t n, double scale,
                                         double *ret_p50, double *ret_p99)
{
    times_sort(l->times, n);
    *ret_p50 = n ? (double)l->times[n / 2] / scale : 0;
    *ret_p99 = n ? (double)l->times[(n - 1) * 99 / 100] / scale : 0;
}

/* Time between NCCL's operations in which the stream does nothing. Returns NCCL's stream. */
static inline const struct CUstream_st *gpu_model_gaps(struct gpu_model_log *l,
                                                       const struct gpu_model *m, uint64_t begin,
                                                       struct gpu_model_result *ret)
{
    const struct fake_cuda_op *last = NULL;
    uint64_t busy = 0, nccl = 0;
    size_t gaps = 0, batches = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct fake_cuda_op *op = &l->ops[i];
        if (op->issued < begin || (last && op->stream != last->stream) || (!last && !is_nccl(op)))
            continue;
        if (!is_nccl(op)) {
            busy += op->end - op->start;
            continue;
        }
        if (last)
            l->times[gaps++] = op->start - last->end - busy;
        last = op;
        busy = 0;
        batches++;
        nccl += op->end - op->start;
    }
    gpu_model_percentiles(l, gaps, 1e3, &ret->dead_p50, &ret->dead_p99);
    ret->batches = (double)batches / m->rounds;
    ret->nccl = (double)nccl / 1e6 / m->rounds;
    return last ? last->stream : NULL;
}

/* From one begin of backward to the next one's; a loop is one round. */
static inline void gpu_model_rounds(struct gpu_model_log *l, const struct gpu_model *m,
                                    uint64_t begin, const struct CUstream_st *nccl,
                                    struct gpu_model_result *ret)
{
    size_t kernels = 0, n = 0;
    uint64_t first = 0, last = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct fake_cuda_op *op = &l->ops[i];
        if (op->issued < begin || (op->stream == nccl) == m->steps)
            continue;
        if (m->steps && kernels++ % LAYERS == 0) {
            if (first)
                l->times[n++] = op->start - first;
            first = op->start;
        } else if (!m->steps) {
            first = first ? first : op->start;
            last = op->end;
        }
    }
    if (!m->steps)
        l->times[n++] = last - first;
    gpu_model_percentiles(l, n, 1e6, &ret->round_p50, &ret->round_p99);
}

static inline void gpu_model_show(const struct gpu_model *m, const struct gpu_model_times *t,
                                  uint64_t cpu_of_all)
{
    struct gpu_model_log l = {.n = m->fake->log(NULL, 0)};
    struct gpu_model_result r = {.call = (double)t->call / 1e3};
    l.ops = calloc(l.n + 1, sizeof(*l.ops));
    l.times = calloc(l.n + 1, sizeof(*l.times));
    if (!l.ops || !l.times)
        exit(1);
    size_t now = m->fake->log(l.ops, l.n);
    l.n = now < l.n ? now : l.n;
    gpu_model_rounds(&l, m, t->begin, gpu_model_gaps(&l, m, t->begin, &r), &r);
    r.cpu = r.batches > 0 ? (double)cpu_of_all / 1e3 / m->ranks / m->rounds / r.batches : 0;
    printf("{\"batches\": %.2f, \"dead_p50_us\": %.1f, \"dead_p99_us\": %.1f, \"call_us\": %.1f, "
           "\"cpu_us\": %.0f, \"round_p50_ms\": %.3f, \"round_p99_ms\": %.3f, \"nccl_ms\": %.3f, "
           "\"host_ms\": %.3f}\n",
           r.batches, r.dead_p50, r.dead_p99, r.call, r.cpu, r.round_p50, r.round_p99, r.nccl,
           (double)(t->end - t->begin) / 1e6 / m->rounds);
    const char *path = getenv("GPU_MODEL_LOG");
    FILE *f = path ? fopen(path, "we") : NULL;
    for (size_t i = 0; f && i < l.n; i++)
        fprintf(f, "%p %s %zu %llu %llu %llu\n", (const void *)l.ops[i].stream, l.ops[i].kind,
                l.ops[i].bytes, (unsigned long long)l.ops[i].issued,
                (unsigned long long)l.ops[i].start, (unsigned long long)l.ops[i].end);
    if (f)
        fclose(f);
    free(l.ops);
    free(l.times);
}

#endif
