/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_allreduce: hvd on GPUs compared with bare ncclAllReduce of the same bytes, in alternating
 * rounds: one tensor, and the 161 gradients of ResNet-50 compared with one call of their size. For
 * one rank, and under hvdrun for as many as there are GPUs (hvdrun -np N
 * build/tests/gpu/bench_allreduce). With one rank NCCL moves nothing, so the figure is the
 * microseconds that hvd adds to a call. Figures of the fake driver (no GPU here) mean nothing, and
 * are not printed. Without NCCL the program only says so.
 */
#include <hvd.h>

#include "core/backend/nccl_api.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/resnet50.h"

#define ROUNDS 30

struct bench {
    struct gpu gpu;
    const struct nccl_api *nccl;
    struct ncclComm *comm;
    struct cuda_memory memory;
    size_t counts[GRADIENTS], n; /* elements of each tensor; tensors */
    size_t count;
    double us[2][ROUNDS];
};

enum { BARE, HVD };

static void need(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "%s\n", hvd_error());
        exit(1);
    }
}

static void need_nccl(const struct bench *b, int result, const char *call)
{
    if (result == NCCL_ABI_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", call, b->nccl->ncclGetErrorString(result));
    exit(1);
}

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
    struct nccl_abi_config config = {.size = sizeof(config),
                                     .magic = NCCL_ABI_MAGIC,
                                     .version = NCCL_ABI_CONFIG_VERSION,
                                     .blocking = 1};
    if (hvd_rank() == 0)
        need_nccl(b, b->nccl->ncclGetUniqueId(&id), "ncclGetUniqueId");
    need(hvd_broadcast("id", &id, sizeof(id), HVD_UINT8, 0));
    need_nccl(b, b->nccl->ncclCommInitRankConfig(&b->comm, hvd_size(), id, hvd_rank(), &config),
              "ncclCommInitRankConfig");
}

static void bare(struct bench *b)
{
    struct gpu *g = &b->gpu;
    struct err err = {0};
    need_nccl(b,
              b->nccl->ncclAllReduce(b->memory.at, b->memory.at, b->count, NCCL_ABI_FLOAT32,
                                     NCCL_ABI_SUM, b->comm, g->stream),
              "ncclAllReduce");
    gpu_need(cuda_event_record(g->device, g->event, g->stream, &err), &err);
    int rc;
    while ((rc = cuda_event_done(g->device, g->event, &err)) == 1)
        ;
    gpu_need(rc, &err);
}

static void by_hvd(struct bench *b)
{
    static char names[GRADIENTS][48];
    struct hvd_request requests[GRADIENTS];
    int64_t shapes[GRADIENTS];
    hvd_handle handles[GRADIENTS];
    float *at = b->memory.at;
    for (size_t i = 0; i < b->n; at += b->counts[i++]) {
        snprintf(names[i], sizeof(names[i]), "%zu.%zu", b->n, i);
        shapes[i] = (int64_t)b->counts[i];
        requests[i] = (struct hvd_request){.kind = HVD_ALLREDUCE,
                                           .name = names[i],
                                           .input = at,
                                           .output = at,
                                           .dtype = HVD_FLOAT32,
                                           .ndim = 1,
                                           .shape = &shapes[i],
                                           .op = HVD_SUM,
                                           .device = b->gpu.device->ordinal,
                                           .stream = b->gpu.stream};
    }
    need(hvd_submit(requests, b->n, handles));
    for (size_t i = 0; i < b->n; i++)
        need(hvd_wait(handles[i]));
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void measure(struct bench *b, const char *what)
{
    int rounds = b->gpu.fake ? 1 : ROUNDS;
    b->count = 0;
    for (size_t i = 0; i < b->n; i++)
        b->count += b->counts[i];
    for (int r = -5; r < rounds; r++)
        for (int way = BARE; way <= HVD; way++) {
            need(hvd_barrier("together"));
            uint64_t begin = clock_ns();
            (way == BARE ? bare : by_hvd)(b);
            if (r >= 0)
                b->us[way][r] = (double)(clock_ns() - begin) / 1e3;
        }
    for (int way = BARE; way <= HVD; way++)
        qsort(b->us[way], (size_t)rounds, sizeof(double), by_size);
    double nccl = b->us[BARE][rounds / 2], hvd = b->us[HVD][rounds / 2];
    if (hvd_rank() == 0 && !b->gpu.fake)
        printf("%-22s %10zu bytes  NCCL %9.1f us  hvd %9.1f us  +%.1f us  x%.3f\n", what,
               b->count * 4, nccl, hvd, hvd - nccl, hvd / nccl);
}

int main(void)
{
    static const char id[] = "gpu/bench_allreduce";
    static struct bench b;
    struct err err = {0};
    char text[PATH_MAX + 64];
    if (!getenv("HVD_RANK"))
        setenv("HVD_SIZE", "1", 0), setenv("HVD_RANK", "0", 0);
    gpu_open_number(&b.gpu, id, getenv("HVD_LOCAL_RANK") ? atoi(getenv("HVD_LOCAL_RANK")) : 0);
    if (b.gpu.fake) {
        build_path("tests/fake/nccl-2.27/libnccl.so.2", text);
        setenv("HVD_NCCL_LIB", text, 0);
    }
    load_nccl(&b, id);
    need(hvd_init());
    join_nccl(&b);
    size_t room = b.gpu.fake ? (size_t)64 << 20 : (size_t)256 << 20;
    gpu_need(cuda_memory_reserve(b.gpu.device, &b.memory, room, &err), &err);
    if (hvd_rank() == 0)
        printf("%s, driver for CUDA %d.%d, %s, %d rank%s\n", b.gpu.device->name,
               b.gpu.device->api->version / 1000, b.gpu.device->api->version / 10 % 100,
               nccl_api_name(b.nccl, text, sizeof(text)), hvd_size(), hvd_size() > 1 ? "s" : "");
    for (size_t mib = 1; mib << 20 <= room; mib *= 4) {
        b.n = 1;
        b.counts[0] = (mib << 20) / 4;
        measure(&b, "one tensor");
    }
    resnet50(b.counts);
    for (size_t i = 0; i < GRADIENTS && b.gpu.fake; i++)
        b.counts[i] = b.counts[i] / 16 + 1;
    b.n = GRADIENTS;
    measure(&b, "ResNet-50's gradients");
    need(hvd_shutdown());
    b.nccl->ncclCommAbort(b.comm);
    cuda_memory_free(b.gpu.device, &b.memory);
    gpu_close(&b.gpu);
    return 0;
}
