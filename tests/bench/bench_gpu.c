/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_gpu: hvd on the fake GPU's timeline (gpu_model.h), through hvd.h. Beside bench_gpu_bare,
 * which does the same without hvd.
 *
 *     bench_gpu loop|step RANKS ROUNDS BYTES [HOSTS [DELAY_US]]
 *
 * loop: IN_FLIGHT sums are in flight, of BYTES each. step: one sum of each gradient, submitted when
 * the host has put the gradient's kernel on the compute stream; hvd's fusion makes batches of up to
 * BYTES. The ranks are on HOSTS hosts (network namespaces, as root), between which every packet
 * takes DELAY_US.
 */
#include <errno.h>
#include <stdatomic.h>

#include <hvd.h>

#include "core/backend/cuda.h"
#include "tests/bench/gpu_model.h"
#include "tests/harness/gpu_side.h"
#include "tests/harness/world.h"

#define IN_FLIGHT 4
#define ROOM      ((size_t)256 << 20)

struct board { /* shared by the ranks */
    _Atomic int done;
    _Atomic uint64_t cpu;
};

struct bench {
    struct gpu_model model;
    int rank;
    struct board *board;
    struct gpu_side g;
    uint64_t *calls;
    struct gpu_model_times times;
};

static void need(int rc, const char *text)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "bench_gpu: %s\n", text);
    exit(1);
}

static hvd_handle submit(struct bench *b, int number, size_t at, size_t count)
{
    char name[16];
    const int64_t shape = (int64_t)count;
    hvd_handle handle;
    snprintf(name, sizeof(name), "g%d", number);
    struct hvd_request r = gpu_side_request(&b->g, HVD_ALLREDUCE, name, HVD_FLOAT32, 1, &shape);
    r.input = r.output = (uint8_t *)b->g.in.at + at;
    need(hvd_submit(&r, 1, &handle), hvd_error());
    return handle;
}

/* ---- loop ---- */

static void one_call(struct bench *b, int round)
{
    static hvd_handle handles[IN_FLIGHT];
    static int next;
    hvd_handle *h = &handles[next % IN_FLIGHT];
    if (next >= IN_FLIGHT)
        need(hvd_wait(*h), hvd_error());
    uint64_t begin = clock_ns();
    *h = submit(b, next % IN_FLIGHT, (size_t)(next % IN_FLIGHT) * b->model.bytes,
                b->model.bytes / 4);
    if (round >= 0)
        b->calls[round] = clock_ns() - begin;
    next++;
    for (int i = 0; round + 1 == b->model.rounds && i < IN_FLIGHT; i++)
        need(hvd_wait(handles[i]), hvd_error());
}

/* ---- step ---- */

/* What is put on the stream after this starts after the sums. The host does not wait for them. */
static void await_sums(struct CUstream_st *stream, const hvd_handle *handles, int n)
{
    for (int i = 0; i < n; i++)
        need(hvd_wait_stream(handles[i], stream), hvd_error());
}

static void work(struct bench *b)
{
    struct cuda_visit visit;
    need(cuda_enter(b->g.d, &visit, &b->g.err), b->g.err.msg);
    if (b->model.fake->work(b->g.stream, BACKWARD_NS / LAYERS) != CUDA_OK)
        need(-EIO, "work");
    cuda_leave(&visit);
}

static void one_step(struct bench *b, int round)
{
    size_t counts[GRADIENTS], at = 0;
    bool first[GRADIENTS];
    static hvd_handle handles[GRADIENTS]; /* of the last step: their names are in use */
    resnet50_backward(counts, first);
    for (int i = 0; i < GRADIENTS; i++) {
        if (first[i]) {
            gpu_model_nap(HOST_NS);
            work(b);
        }
        if (handles[i])
            need(hvd_wait(handles[i]), hvd_error());
        uint64_t begin = clock_ns();
        handles[i] = submit(b, i, at, counts[i]);
        if (round >= 0 && i == GRADIENTS / 2)
            b->calls[round] = clock_ns() - begin;
        at += counts[i] * 4;
    }
    await_sums(b->g.stream, handles, GRADIENTS);
    for (int i = 0; round + 1 == b->model.rounds && i < GRADIENTS; i++)
        need(hvd_wait(handles[i]), hvd_error());
}

/* ---- a rank ---- */

static void measure(struct bench *b)
{
    const struct gpu_model *m = &b->model;
    uint64_t cpu = 0;
    for (int i = -WARM_UP; i < m->rounds; i++) {
        if (i == 0) {
            cpu = gpu_model_cpu();
            b->times.begin = clock_ns();
            b->times.compute = b->g.stream;
        }
        (m->steps ? one_step : one_call)(b, i);
    }
    b->times.end = clock_ns();
    atomic_fetch_add(&b->board->cpu, gpu_model_cpu() - cpu);
    times_sort(b->calls, (size_t)m->rounds);
    b->times.call = b->calls[m->rounds / 2];
}

static int rank_main(int rank, int size, void *arg)
{
    struct bench *b = arg;
    b->rank = rank;
    gpu_model_pin(&b->model, rank);
    b->calls = calloc((size_t)b->model.rounds, sizeof(*b->calls));
    need(b->calls ? 0 : -ENOMEM, "no memory");
    need(gpu_side_open(&b->g, rank, ROOM, "count=16"), b->g.err.msg);
    b->model.fake = b->g.fake;
    need(hvd_init(), hvd_error());
    measure(b);
    need(hvd_barrier("measured"), hvd_error());
    if (rank == 0)
        gpu_model_show(&b->model, &b->times, atomic_load(&b->board->cpu));
    need(hvd_shutdown(), hvd_error());
    gpu_side_close(&b->g);
    free(b->calls);
    return 0;
}

int main(int argc, char **argv)
{
    struct bench b = {.model = gpu_model_parse(argc, argv)};
    char fusion[64], lib[PATH_MAX + 16], path[PATH_MAX];
    const char *env[] = {lib, fusion, NULL};
    fake_nccl_path("2.27", path);
    snprintf(lib, sizeof(lib), "HVD_NCCL_LIB=%s", path);
    snprintf(fusion, sizeof(fusion), "HVD_FUSION_THRESHOLD=%zu", b.model.bytes);
    struct world_options o = {.size = b.model.ranks, .env = env};
    o.hosts = argc > 5 ? atoi(argv[5]) : 1;
    o.delay_us = argc > 6 ? (unsigned)atoi(argv[6]) : 0;
    b.board = world_shared(sizeof(*b.board));
    return !b.board || world_run_options(&o, rank_main, &b) != 0;
}
