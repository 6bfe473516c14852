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

/* Backward takes BACKWARD_NS on the device, the same time for each of the LAYERS (resnet50.h). The
 * host prepares a layer in HOST_NS. */
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
    uint64_t begin;                    /* CLOCK_MONOTONIC: from here on operations count */
    const struct CUstream_st *compute; /* of backward */
    uint64_t cpu;                      /* the process's processor time since then */
    uint64_t call;                     /* of the host, in the median call that starts one sum */
    uint64_t end;                      /* of the last round, for the host */
};

struct gpu_model_result {
    double batches; /* NCCL's operations per round */
    /* us in which NCCL's stream has nothing to do, between two operations of a loop, or in a step
     * after the device has produced a gradient whose sum has not begun. */
    double dead_p50, dead_p99;
    double call, cpu; /* us: call as above; cpu per batch */
    double round_p50,
        round_p99; /* ms on the device: the loop, or from a step's begin to the next */
    double nccl;   /* ms of NCCL's operations per round */
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

/* ---- the result, from the schedule ---- */

/* The measured operations of two streams: of the layers, and those of NCCL with what is around them
 * on its stream. */
struct gpu_model_log {
    struct fake_cuda_op *all, *layers, *nccl;
    size_t nall, nlayers, nnccl;
    uint64_t *times;
};

static inline bool is_nccl(const struct fake_cuda_op *op)
{
    return strcmp(op->kind, "nccl") == 0;
}

static inline void gpu_model_read(const struct gpu_model *m, const struct gpu_model_times *t,
                                  struct gpu_model_log *ret)
{
    size_t most = m->fake->log(NULL, 0) + 1;
    const struct CUstream_st *nccl = NULL;
    *ret = (struct gpu_model_log){.all = calloc(most, sizeof(struct fake_cuda_op)),
                                  .layers = calloc(most, sizeof(struct fake_cuda_op)),
                                  .nccl = calloc(most, sizeof(struct fake_cuda_op)),
                                  .times = calloc(most, sizeof(uint64_t))};
    if (!ret->all || !ret->layers || !ret->nccl || !ret->times)
        exit(1);
    size_t now = m->fake->log(ret->all, most);
    ret->nall = now < most ? now : most;
    for (size_t i = 0; i < ret->nall; i++)
        nccl = is_nccl(&ret->all[i]) ? ret->all[i].stream : nccl;
    for (size_t i = 0; i < ret->nall; i++) {
        const struct fake_cuda_op *op = &ret->all[i];
        if (op->issued >= t->begin && op->stream == nccl)
            ret->nccl[ret->nnccl++] = *op;
        else if (op->issued >= t->begin && op->stream == t->compute)
            ret->layers[ret->nlayers++] = *op;
    }
}

static inline void gpu_model_free(struct gpu_model_log *l)
{
    free(l->all);
    free(l->layers);
    free(l->nccl);
    free(l->times);
}

static inline void gpu_model_percentiles(struct gpu_model_log *l, size_t n, double scale,
                                         double *ret_p50, double *ret_p99)
{
    times_sort(l->times, n);
    *ret_p50 = n ? (double)l->times[n / 2] / scale : 0;
    *ret_p99 = n ? (double)l->times[(n - 1) * 99 / 100] / scale : 0;
}

static inline void gpu_model_sums(const struct gpu_model_log *l, const struct gpu_model *m,
                                  struct gpu_model_result *ret)
{
    for (size_t i = 0; i < l->nnccl; i++) {
        if (is_nccl(&l->nccl[i])) {
            ret->batches += 1.0 / m->rounds;
            ret->nccl += (double)(l->nccl[i].end - l->nccl[i].start) / 1e6 / m->rounds;
        }
    }
}

static inline void gpu_model_loop(struct gpu_model_log *l, struct gpu_model_result *ret)
{
    uint64_t end = 0;
    size_t n = 0;
    for (size_t i = 0; i < l->nnccl; i++) {
        if (end && is_nccl(&l->nccl[i]))
            l->times[n++] = l->nccl[i].start - end;
        else if (end) /* what lies between two operations of NCCL's is not dead time */
            end += l->nccl[i].end - l->nccl[i].start;
        if (is_nccl(&l->nccl[i]))
            end = l->nccl[i].end;
    }
    gpu_model_percentiles(l, n, 1e3, &ret->dead_p50, &ret->dead_p99);
    if (l->nnccl > 0)
        ret->round_p50 = ret->round_p99 =
            (double)(l->nccl[l->nnccl - 1].end - l->nccl[0].start) / 1e6;
}

/* The layer, in the order of backward, that has the byte of this number. */
static inline size_t gpu_model_layer(size_t byte)
{
    size_t counts[GRADIENTS], layer = 0;
    bool first[GRADIENTS];
    resnet50_backward(counts, first);
    for (int i = 0; i < GRADIENTS; i++) {
        layer += i > 0 && first[i];
        if (byte < counts[i] * 4)
            return layer;
        byte -= counts[i] * 4;
    }
    return layer; /* fused tensors have gaps */
}

/* The dead time of the step whose first layer is l->layers[at]. next: the operation of NCCL's
 * stream with which to continue. */
static inline uint64_t gpu_model_dead(const struct gpu_model_log *l, size_t at, size_t *next)
{
    uint64_t end = at + LAYERS < l->nlayers ? l->layers[at + LAYERS].start : UINT64_MAX;
    uint64_t dead = 0, busy_until = 0;
    size_t summed = 0;
    for (; *next < l->nnccl && l->nccl[*next].start < end; ++*next) {
        const struct fake_cuda_op *op = &l->nccl[*next];
        uint64_t there = l->layers[at + gpu_model_layer(summed)].end;
        uint64_t from = there > busy_until ? there : busy_until;
        dead += op->start > from ? op->start - from : 0;
        busy_until = op->end;
        summed += is_nccl(op) ? op->bytes : 0;
    }
    return dead;
}

static inline void gpu_model_steps(struct gpu_model_log *l, struct gpu_model_result *ret)
{
    size_t n = 0, next = 0;
    for (size_t at = 0; at + LAYERS <= l->nlayers; at += LAYERS)
        l->times[n++] = gpu_model_dead(l, at, &next);
    gpu_model_percentiles(l, n, 1e3, &ret->dead_p50, &ret->dead_p99);
    n = 0;
    for (size_t at = 0; at + LAYERS < l->nlayers; at += LAYERS)
        l->times[n++] = l->layers[at + LAYERS].start - l->layers[at].start;
    gpu_model_percentiles(l, n, 1e6, &ret->round_p50, &ret->round_p99);
}

static inline void gpu_model_write(const struct gpu_model_log *l, const char *path)
{
    FILE *f = path ? fopen(path, "we") : NULL;
    for (size_t i = 0; f && i < l->nall; i++)
        fprintf(f, "%p %s %zu %llu %llu %llu\n", (const void *)l->all[i].stream, l->all[i].kind,
                l->all[i].bytes, (unsigned long long)l->all[i].issued,
                (unsigned long long)l->all[i].start, (unsigned long long)l->all[i].end);
    if (f)
        fclose(f);
}

static inline void gpu_model_show(const struct gpu_model *m, const struct gpu_model_times *t,
                                  uint64_t cpu_of_all)
{
    struct gpu_model_log l;
    struct gpu_model_result r = {.call = (double)t->call / 1e3};
    gpu_model_read(m, t, &l);
    gpu_model_sums(&l, m, &r);
    (m->steps ? gpu_model_steps : gpu_model_loop)(&l, &r);
    r.cpu = r.batches > 0 ? (double)cpu_of_all / 1e3 / m->ranks / m->rounds / r.batches : 0;
    printf("{\"batches\": %.2f, \"dead_p50_us\": %.1f, \"dead_p99_us\": %.1f, \"call_us\": %.1f, "
           "\"cpu_us\": %.0f, \"round_p50_ms\": %.3f, \"round_p99_ms\": %.3f, \"nccl_ms\": %.3f, "
           "\"host_ms\": %.3f}\n",
           r.batches, r.dead_p50, r.dead_p99, r.call, r.cpu, r.round_p50, r.round_p99, r.nccl,
           (double)(t->end - t->begin) / 1e6 / m->rounds);
    gpu_model_write(&l, getenv("GPU_MODEL_LOG"));
    gpu_model_free(&l);
}

#endif
