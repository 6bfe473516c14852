/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_sums: hvd on GPUs beside bare NCCL, in alternating rounds of one run. For one rank, and
 * under hvdrun for as many as there are GPUs. With one rank NCCL moves nothing, so what is left of
 * the difference is the time that hvd adds.
 *
 * loop: sums of one size, back to back. Microseconds of one, and the bus bandwidth as nccl-tests
 * defines it: 2 (n - 1) / n times the bytes, divided by the time.
 *
 * - bare: the method of nccl-tests' all_reduce_perf, in place: CALLS calls on one stream, for which
 *   the host waits once.
 * - nonblocking: the same by a communicator whose calls do not block, as hvd's. NCCL starts
 *   a thread for each call, for which we wait before the next call.
 * - hvd: as many operations, each a batch of its own; IN_FLIGHT at a time, because a name can be
 *   submitted again only after hvd_wait().
 *
 * step: backward of BACKWARD_US on a compute stream, whose 161 gradients of ResNet-50 are summed on
 * the way. The next step's backward begins after the sums; the host is one step ahead. Backward is
 * copies on the device, with which hvd's packing shares the memory.
 *
 * - bare: buckets of 1 and then 25 MiB, like those of PyTorch's DistributedDataParallel, without
 *   its copies into them.
 * - hvd: one request for each gradient; it packs them.
 *
 * Before each measurement hvd is started anew, and then runs by its frozen schedule. Between the
 * rounds the ranks meet by a sum of bare NCCL's, because another operation of hvd's would end that.
 *
 * With NCCL_MULTI_RANK_GPU_ENABLE=1 (NCCL 2.30 or newer) all ranks use the first GPU. Their kernels
 * run side by side only under the driver's MPS (nvidia-cuda-mps-control -d).
 *
 * Figures of the fake driver (no GPU here) mean nothing, and are not printed. Without NCCL the
 * program only says so.
 */
#include <hvd.h>

#include "core/backend/nccl_api.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/resnet50.h"
#include "tests/harness/times.h"

#define MIB          ((size_t)1 << 20)
#define ROUNDS       5
#define CALLS        20
#define IN_FLIGHT    4
#define STEPS        20
#define WARM_UP      40 /* calls or steps of hvd's, until its schedule is frozen */
#define BACKWARD_US  30000.0
#define FIRST_BUCKET MIB
#define BUCKET       (25 * MIB)
#define WORK         (64 * MIB) /* bytes of a copy of backward */

struct bench {
    int rank, size;
    struct gpu gpu; /* its stream is the program's own: backward's */
    const struct nccl_api *nccl;
    struct ncclComm *comm, *nonblocking;
    struct CUstream_st *stream; /* of bare NCCL */
    struct CUevent_st *summed;  /* step: after the last bucket of bare NCCL */
    struct cuda_memory memory;  /* tensors; of loop one for each operation in flight */
    struct cuda_memory work;    /* what backward copies */
    size_t bytes, largest;      /* loop: of one tensor, and of the last ones */
    double copies;              /* step: of one layer; may be less than 1 */
    double owed;                /* copies that are due, less than 1 */
    hvd_handle handles[GRADIENTS];
};

/* The loop has the ways up to HVD, the step those from BARE on. ALONE: a step without sums */
enum way { NONBLOCKING, BARE, HVD, ALONE, WAYS };

static void need(int rc)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "bench_sums: %s\n", hvd_error());
    exit(1);
}

static void need_nccl(const struct bench *b, int result, const char *call)
{
    if (result == NCCL_ABI_SUCCESS)
        return;
    fprintf(stderr, "bench_sums: %s: %s\n", call, b->nccl->ncclGetErrorString(result));
    exit(1);
}

/* ---- both ways ---- */

static void sum_bare(struct bench *b, size_t at, size_t bytes)
{
    uint8_t *tensor = (uint8_t *)b->memory.at + at;
    need_nccl(b,
              b->nccl->ncclAllReduce(tensor, tensor, bytes / 4, NCCL_ABI_FLOAT32, NCCL_ABI_SUM,
                                     b->comm, b->stream),
              "ncclAllReduce");
}

/* Returns when NCCL has done its part of the last call. */
static void settle(const struct bench *b)
{
    int state;
    do
        need_nccl(b, b->nccl->ncclCommGetAsyncError(b->nonblocking, &state),
                  "ncclCommGetAsyncError");
    while (state == NCCL_ABI_IN_PROGRESS);
    need_nccl(b, state, "a communicator that does not block");
}

static void sum_nonblocking(struct bench *b, size_t at, size_t bytes)
{
    uint8_t *tensor = (uint8_t *)b->memory.at + at;
    int rc = b->nccl->ncclAllReduce(tensor, tensor, bytes / 4, NCCL_ABI_FLOAT32, NCCL_ABI_SUM,
                                    b->nonblocking, b->stream);
    need_nccl(b, rc == NCCL_ABI_IN_PROGRESS ? NCCL_ABI_SUCCESS : rc, "ncclAllReduce");
    settle(b);
}

/* The name is in use until the operation before of the same number has ended. */
static void sum_by_hvd(struct bench *b, int number, size_t at, size_t bytes)
{
    char name[16];
    const int64_t shape = (int64_t)(bytes / 4);
    uint8_t *tensor = (uint8_t *)b->memory.at + at;
    snprintf(name, sizeof(name), "g%d", number);
    const struct hvd_request r = {.kind = HVD_ALLREDUCE,
                                  .name = name,
                                  .input = tensor,
                                  .output = tensor,
                                  .dtype = HVD_FLOAT32,
                                  .ndim = 1,
                                  .shape = &shape,
                                  .op = HVD_SUM,
                                  .device = b->gpu.device->ordinal,
                                  .stream = b->gpu.stream};
    need(b->handles[number] ? hvd_wait(b->handles[number]) : 0);
    need(hvd_submit(&r, 1, &b->handles[number]));
}

static void wait_for_all(struct bench *b)
{
    for (int i = 0; i < GRADIENTS; i++) {
        need(b->handles[i] ? hvd_wait(b->handles[i]) : 0);
        b->handles[i] = 0;
    }
}

/* Later work on `waits` begins after what is on `first` now. */
static void follow(struct bench *b, struct CUstream_st *first, struct CUstream_st *waits)
{
    struct cuda_device *d = b->gpu.device;
    struct err err = {0};
    gpu_need(cuda_event_record(d, b->gpu.event, first, &err), &err);
    gpu_need(cuda_stream_wait(d, waits, b->gpu.event, &err), &err);
}

/* Waits for the end of everything that was started. */
static void finish(struct bench *b)
{
    wait_for_all(b);
    follow(b, b->stream, b->gpu.stream);
    gpu_finish(&b->gpu);
}

/* ---- loop ---- */

static void call_loop(struct bench *b, enum way way, int n)
{
    for (int i = 0; i < n; i++) {
        int number = i % IN_FLIGHT;
        size_t at = (size_t)number * b->bytes;
        if (way == BARE)
            sum_bare(b, at, b->bytes);
        else if (way == NONBLOCKING)
            sum_nonblocking(b, at, b->bytes);
        else
            sum_by_hvd(b, number, at, b->bytes);
    }
    finish(b);
}

/* ---- step ---- */

static void wait_for_buckets(struct bench *b)
{
    struct err err = {0};
    int rc;
    while ((rc = cuda_event_done(b->gpu.device, b->summed, &err)) == 1)
        ;
    gpu_need(rc, &err);
}

static void backward_of_layer(struct bench *b)
{
    struct err err = {0};
    uint8_t *from = b->work.at;
    for (b->owed += b->copies; b->owed >= 1; b->owed--)
        gpu_need(cuda_copy(b->gpu.device, CUDA_COPY_INSIDE, from + WORK, from, WORK, b->gpu.stream,
                           &err),
                 &err);
}

static void step(struct bench *b, enum way way)
{
    size_t counts[GRADIENTS], begin = 0, end = 0, most = FIRST_BUCKET;
    bool first[GRADIENTS];
    struct err err = {0};
    resnet50_backward(counts, first);
    for (int i = 0; i < GRADIENTS; i++) {
        size_t at = end, bytes = counts[i] / (b->gpu.fake ? 16 : 1) * 4;
        end += bytes;
        if (first[i])
            backward_of_layer(b);
        if (way == HVD)
            sum_by_hvd(b, i, at, bytes);
        if (way != BARE || (end - begin < most && i + 1 < GRADIENTS))
            continue;
        if (begin == 0)
            wait_for_buckets(b); /* of the step before */
        follow(b, b->gpu.stream, b->stream);
        sum_bare(b, begin, end - begin);
        begin = end;
        most = BUCKET;
    }
    for (int i = 0; way == HVD && i < GRADIENTS; i++)
        need(hvd_wait_stream(b->handles[i], b->gpu.stream));
    if (way == BARE) {
        gpu_need(cuda_event_record(b->gpu.device, b->summed, b->stream, &err), &err);
        gpu_need(cuda_stream_wait(b->gpu.device, b->gpu.stream, b->summed, &err), &err);
    }
}

static void step_loop(struct bench *b, enum way way, int n)
{
    for (int i = 0; i < n; i++)
        step(b, way);
    finish(b);
}

/* How many copies take as long as a layer: from the fastest of a few tries. */
static void measure_copies(struct bench *b)
{
    enum { TRIES = 5, COPIES = 50 };
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        uint64_t begin = clock_ns();
        b->copies = COPIES;
        backward_of_layer(b);
        gpu_finish(&b->gpu);
        uint64_t ns = clock_ns() - begin;
        least = ns < least ? ns : least;
    }
    b->copies = BACKWARD_US / LAYERS / ((double)least / 1e3 / COPIES);
    b->owed = 0;
}

/* ---- rounds ---- */

typedef void loop_f(struct bench *b, enum way way, int n);

/* All ranks meet, without an operation of hvd's. */
static void meet(struct bench *b)
{
    sum_bare(b, 0, 4);
    finish(b);
}

static bool shows(const struct bench *b)
{
    return b->rank == 0 && !b->gpu.fake;
}

/* fusion: bytes of hvd's largest batch, 0: its default. */
static void start_hvd(size_t fusion)
{
    char bytes[24];
    snprintf(bytes, sizeof(bytes), "%zu", fusion);
    if (fusion)
        setenv("HVD_FUSION_THRESHOLD", bytes, 1);
    else
        unsetenv("HVD_FUSION_THRESHOLD");
    need(hvd_init());
}

/* Nanoseconds of n calls or steps: the median of the rounds, in which the ways alternate. */
static void measure(struct bench *b, loop_f *loop, int first, int last, int n, double ret[WAYS])
{
    uint64_t ns[WAYS][ROUNDS];
    struct hvd_stats before = {.size = sizeof(before)}, after = before;
    int rounds = b->gpu.fake ? 1 : ROUNDS;
    loop(b, HVD, b->gpu.fake ? IN_FLIGHT : WARM_UP);
    hvd_stats(&before);
    for (int r = 0; r < rounds; r++)
        for (int way = first; way <= last; way++) {
            loop(b, way, IN_FLIGHT);
            meet(b);
            uint64_t begin = clock_ns();
            loop(b, way, n);
            ns[way][r] = clock_ns() - begin;
        }
    hvd_stats(&after);
    for (int way = first; way <= last; way++) {
        times_sort(ns[way], (size_t)rounds);
        ret[way] = (double)ns[way][rounds / 2] / n;
    }
    uint64_t batches = after.batches - before.batches, frozen = after.frozen - before.frozen;
    if (shows(b) && b->size > 1 && frozen < batches)
        printf("next: only %llu of %llu batches by the frozen schedule\n",
               (unsigned long long)frozen, (unsigned long long)batches);
}

static void measure_loop(struct bench *b, size_t bytes)
{
    double ns[WAYS], n = b->size;
    b->bytes = bytes;
    start_hvd(bytes);
    measure(b, call_loop, NONBLOCKING, HVD, b->gpu.fake ? IN_FLIGHT : CALLS, ns);
    need(hvd_shutdown());
    double bus = 2 * (n - 1) / n * (double)bytes;
    if (shows(b))
        printf("loop %10zu bytes   bare %9.1f us %7.1f GB/s   nonblocking %9.1f us   "
               "hvd %9.1f us %7.1f GB/s   x%.3f\n",
               bytes, ns[BARE] / 1e3, bus / ns[BARE], ns[NONBLOCKING] / 1e3, ns[HVD] / 1e3,
               bus / ns[HVD], ns[HVD] / ns[BARE]);
}

static void measure_step(struct bench *b)
{
    double ns[WAYS];
    measure_copies(b);
    start_hvd(0);
    measure(b, step_loop, BARE, ALONE, b->gpu.fake ? 2 : STEPS, ns);
    need(hvd_shutdown());
    if (shows(b))
        printf("step 161 gradients      bare %9.3f ms   hvd %9.3f ms   backward alone %9.3f ms   "
               "x%.3f\n",
               ns[BARE] / 1e6, ns[HVD] / 1e6, ns[ALONE] / 1e6, ns[HVD] / ns[BARE]);
}

/* ---- life ---- */

/* Called before hvd_init(), so that no rank waits for another one that lacks NCCL. */
static void load_nccl(struct bench *b, const char *id)
{
    struct err err = {0};
    int rc = nccl_api_load(&b->nccl, &err);
    if (rc == -ENOENT || rc == -ENOTSUP) {
        printf("SKIP: %s: libnccl.so.2: %s\n", id, err.msg);
        exit(0);
    }
    gpu_need(rc, &err);
}

static void join_nccl(struct bench *b)
{
    struct nccl_abi_id id = {0};
    struct nccl_abi_config config = {
        .size = sizeof(config), .magic = NCCL_ABI_MAGIC, .version = NCCL_ABI_CONFIG_VERSION};
    for (config.blocking = 0; config.blocking <= 1; config.blocking++) {
        struct ncclComm **comm = config.blocking ? &b->comm : &b->nonblocking;
        if (b->rank == 0)
            need_nccl(b, b->nccl->ncclGetUniqueId(&id), "ncclGetUniqueId");
        need(hvd_broadcast("id", &id, sizeof(id), HVD_UINT8, 0));
        int rc = b->nccl->ncclCommInitRankConfig(comm, b->size, id, b->rank, &config);
        need_nccl(b, rc == NCCL_ABI_IN_PROGRESS ? NCCL_ABI_SUCCESS : rc, "ncclCommInitRankConfig");
        if (!config.blocking)
            settle(b);
    }
}

/* Without a given number of ranks there is one. */
static void open_all(struct bench *b)
{
    static const char id[] = "gpu/bench_sums";
    const char *local = getenv("HVD_LOCAL_RANK");
    struct err err = {0};
    char path[PATH_MAX];
    if (!getenv("HVD_RANK"))
        setenv("HVD_SIZE", "1", 0), setenv("HVD_RANK", "0", 0);
    const char *sharing = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    bool shares = sharing && atoi(sharing) != 0;
    gpu_open_number(&b->gpu, id, local && !shares ? atoi(local) : 0);
    if (b->gpu.fake) {
        build_path("tests/fake/nccl-2.27/libnccl.so.2", path);
        setenv("HVD_NCCL_LIB", path, 1);
    }
    load_nccl(b, id);
    need(hvd_init());
    b->rank = hvd_rank();
    b->size = hvd_size();
    join_nccl(b);
    need(hvd_shutdown());
    gpu_need(cuda_stream_create(b->gpu.device, &b->stream, &err), &err);
    b->largest = b->gpu.fake ? MIB / 16 : 256 * MIB;
    gpu_need(cuda_event_get(b->gpu.device, &b->summed, &err), &err);
    gpu_need(cuda_event_record(b->gpu.device, b->summed, b->stream, &err), &err);
    size_t room = b->gpu.fake ? 32 * MIB : IN_FLIGHT * b->largest;
    gpu_need(cuda_memory_reserve(b->gpu.device, &b->memory, room, &err), &err);
    gpu_need(cuda_memory_reserve(b->gpu.device, &b->work, 2 * WORK, &err), &err);
}

static void close_all(struct bench *b)
{
    b->nccl->ncclCommAbort(b->comm);
    b->nccl->ncclCommAbort(b->nonblocking);
    cuda_memory_free(b->gpu.device, &b->memory);
    cuda_memory_free(b->gpu.device, &b->work);
    cuda_event_put(b->gpu.device, b->summed);
    cuda_stream_destroy(b->gpu.device, b->stream);
    gpu_close(&b->gpu);
}

int main(void)
{
    static struct bench b;
    char name[PATH_MAX + 64];
    open_all(&b);
    if (b.rank == 0)
        printf("NCCL %s, %d rank%s\n", nccl_api_name(b.nccl, name, sizeof(name)), b.size,
               b.size > 1 ? "s" : "");
    for (size_t bytes = 1024; bytes <= b.largest; bytes *= 8)
        measure_loop(&b, bytes);
    measure_step(&b);
    close_all(&b);
    return 0;
}
