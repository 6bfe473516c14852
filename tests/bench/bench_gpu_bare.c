/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_gpu_bare: bare NCCL on the fake GPU's timeline (gpu_model.h): what nccl-tests and PyTorch's
 * DistributedDataParallel do, without hvd's engine. loop puts all sums on a stream one after the
 * other, as all_reduce_perf does. step sums buckets: the first has 1 MB or more, the others BYTES,
 * as DDP's; the compute stream waits for the sums, not the host.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "core/backend/cuda_api.h"
#include "core/backend/nccl_api.h"
#include "tests/bench/gpu_model.h"

#define FIRST_BUCKET ((size_t)1 << 20)
#define NAP_NS       200000

struct board { /* shared by the ranks */
    _Atomic int ready, done;
    struct nccl_abi_id id;
    _Atomic uint64_t cpu;
};

struct bench {
    struct gpu_model model;
    int rank;
    struct board *board;
    const struct cuda_api *cuda;
    const struct nccl_api *nccl;
    struct ncclComm *comm;
    struct CUstream_st *compute, *stream;
    struct CUevent_st *produced, *summed;
    cuda_address memory;
    struct gpu_model_times times;
    uint64_t *calls;
};

static void need(unsigned code, const char *what)
{
    if (code == CUDA_OK)
        return;
    fprintf(stderr, "bench_gpu_bare: %s: %u\n", what, code);
    exit(1);
}

#define CU(b, field, ...) need((b)->cuda->field(__VA_ARGS__), #field)
#define NC(b, name, ...)  need((unsigned)(b)->nccl->name(__VA_ARGS__), #name)

static void open_gpu(struct bench *b)
{
    struct CUctx_st *context;
    struct err err = {0};
    setenv("FAKE_CUDA", "count=16", 1);
    b->model.fake = fake_cuda_use("cuda");
    if (cuda_api_start(&b->cuda, &err) < 0 || nccl_api_load(&b->nccl, &err) < 0) {
        fprintf(stderr, "bench_gpu_bare: %s\n", err.msg);
        exit(1);
    }
    CU(b, context_retain, &context, b->rank);
    CU(b, context_set, context);
    CU(b, stream_create, &b->compute, CUDA_FLAG_STREAM_NON_BLOCKING, 0);
    CU(b, stream_create, &b->stream, CUDA_FLAG_STREAM_NON_BLOCKING, -5);
    CU(b, event_create, &b->produced, CUDA_FLAG_EVENT_DISABLE_TIMING);
    CU(b, event_create, &b->summed, CUDA_FLAG_EVENT_DISABLE_TIMING);
    CU(b, mem_alloc, &b->memory, (size_t)256 << 20);
}

static void join(struct bench *b)
{
    if (b->rank == 0) {
        NC(b, ncclGetUniqueId, &b->board->id);
        atomic_store(&b->board->ready, 1);
    }
    while (!atomic_load(&b->board->ready))
        gpu_model_nap(NAP_NS);
    struct nccl_abi_config config = {.size = sizeof(config),
                                     .magic = NCCL_ABI_MAGIC,
                                     .version = NCCL_ABI_CONFIG_VERSION,
                                     .blocking = 1};
    NC(b, ncclCommInitRankConfig, &b->comm, b->model.ranks, b->board->id, b->rank, &config);
}

static void sum(struct bench *b, size_t count)
{
    void *at = (void *)(uintptr_t)b->memory; /* NOLINT(performance-no-int-to-ptr) */
    NC(b, ncclAllReduce, at, at, count, NCCL_ABI_FLOAT32, NCCL_ABI_SUM, b->comm, b->stream);
}

/* Waits as cuStreamSynchronize() does. */
static void finish(struct bench *b, struct CUstream_st *stream)
{
    unsigned code;
    while ((code = b->cuda->stream_query(stream)) == CUDA_NOT_READY)
        gpu_model_nap(NAP_NS);
    need(code, "stream_query");
}

/* ---- loop ---- */

static void one_call(struct bench *b, int i)
{
    uint64_t begin = clock_ns();
    sum(b, b->model.bytes / 4);
    CU(b, event_record, b->summed, b->stream);
    if (i >= 0)
        b->calls[i] = clock_ns() - begin;
}

/* ---- step ---- */

static void one_bucket(struct bench *b, size_t count, int round)
{
    CU(b, event_record, b->produced, b->compute);
    CU(b, stream_wait, b->stream, b->produced, 0);
    uint64_t begin = clock_ns();
    sum(b, count);
    if (round >= 0)
        b->calls[round] = clock_ns() - begin;
}

static void one_step(struct bench *b, int round)
{
    size_t counts[GRADIENTS], count = 0, most = FIRST_BUCKET;
    bool first[GRADIENTS];
    resnet50_backward(counts, first);
    for (int i = 0; i < GRADIENTS; i++) {
        if (first[i]) {
            gpu_model_nap(HOST_NS);
            need(b->model.fake->work(b->compute, BACKWARD_NS / LAYERS), "work");
        }
        count += counts[i];
        if (count * 4 < most && i + 1 < GRADIENTS)
            continue;
        one_bucket(b, count, round);
        count = 0;
        most = b->model.bytes;
    }
    CU(b, event_record, b->summed, b->stream);
    CU(b, stream_wait, b->compute, b->summed, 0);
}

/* ---- a rank ---- */

static void measure(struct bench *b)
{
    const struct gpu_model *m = &b->model;
    uint64_t cpu = 0;
    for (int i = -WARM_UP; i < m->rounds; i++) {
        if (i == 0) {
            finish(b, b->stream);
            finish(b, b->compute);
            cpu = gpu_model_cpu();
            b->times.begin = clock_ns();
            b->times.compute = b->compute;
        }
        (m->steps ? one_step : one_call)(b, i);
    }
    finish(b, b->stream);
    finish(b, b->compute);
    b->times.end = clock_ns();
    atomic_fetch_add(&b->board->cpu, gpu_model_cpu() - cpu);
    times_sort(b->calls, (size_t)m->rounds);
    b->times.call = b->calls[m->rounds / 2];
}

static int rank_main(struct bench *b)
{
    gpu_model_pin(&b->model, b->rank);
    b->calls = calloc((size_t)b->model.rounds, sizeof(*b->calls));
    if (!b->calls)
        return 1;
    open_gpu(b);
    join(b);
    measure(b);
    atomic_fetch_add(&b->board->done, 1);
    while (b->rank == 0 && atomic_load(&b->board->done) < b->model.ranks)
        gpu_model_nap(NAP_NS);
    if (b->rank == 0)
        gpu_model_show(&b->model, &b->times, atomic_load(&b->board->cpu));
    NC(b, ncclCommAbort, b->comm);
    free(b->calls);
    return 0;
}

int main(int argc, char **argv)
{
    struct bench b = {.model = gpu_model_parse(argc, argv)};
    int bad = 0, status;
    char path[PATH_MAX];
    fake_nccl_path("2.27", path);
    setenv("HVD_NCCL_LIB", path, 0);
    b.board =
        mmap(NULL, sizeof(*b.board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b.board == MAP_FAILED)
        return 1;
    for (b.rank = 0; b.rank < b.model.ranks; b.rank++) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            exit(rank_main(&b));
        }
        bad |= pid < 0;
    }
    while (wait(&status) > 0)
        bad |= status != 0;
    return bad;
}
