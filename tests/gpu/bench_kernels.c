/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_kernels: packing and unpacking the 161 gradients of ResNet-50, one launch each, compared
 * with a copy of as many bytes on the same device, in alternating rounds. GB/s count bytes read and
 * bytes written. Figures of the fake driver (no GPU here) mean nothing, and are not printed.
 */
#include "tests/gpu/gpu.h"
#include "tests/gpu/resnet50.h"

#define ROUNDS 50

enum { COPY, PACK, UNPACK, WAYS };
static const char *const ways[WAYS] = {"copy", "pack", "unpack"};

static size_t counts[GRADIENTS];

struct bench {
    struct gpu gpu;
    struct cuda_memory memory;      /* gradients, then the buffer they are packed into */
    struct CUevent_st *begin, *end; /* with timing */
    struct gpu_piece pack[GRADIENTS], unpack[GRADIENTS];
    size_t bytes;
    float ms[WAYS][ROUNDS];
};

static void place(struct bench *b)
{
    size_t at[GRADIENTS];
    struct err err = {0};
    b->bytes = 0;
    for (int i = 0; i < GRADIENTS; i++) {
        at[i] = b->bytes;
        b->bytes += gpu_aligned(counts[i] * 4);
    }
    gpu_need(cuda_memory_reserve(b->gpu.device, &b->memory, 2 * b->bytes, &err), &err);
    char *gradients = b->memory.at, *buffer = gradients + b->bytes;
    for (int i = 0; i < GRADIENTS; i++) {
        b->pack[i] = (struct gpu_piece){gradients + at[i], buffer + at[i], counts[i]};
        b->unpack[i] = (struct gpu_piece){buffer + at[i], gradients + at[i], counts[i]};
    }
}

static int enqueue(struct bench *b, int way, struct err *err)
{
    const struct gpu_change plain = {HVD_FLOAT32, HVD_FLOAT32, 1.0, 1, 1.0};
    const struct gpu_change average = {HVD_FLOAT32, HVD_FLOAT32, 1.0, 8, 1.0};
    struct gpu *g = &b->gpu;
    char *at = b->memory.at;
    if (way == COPY)
        return cuda_copy(g->device, CUDA_COPY_INSIDE, at + b->bytes, at, b->bytes, g->stream, err);
    return way == PACK ? cuda_move(g->device, &plain, b->pack, GRADIENTS, g->stream, err)
                       : cuda_move(g->device, &average, b->unpack, GRADIENTS, g->stream, err);
}

static float measure(struct bench *b, int way)
{
    struct gpu *g = &b->gpu;
    struct err err = {0};
    float ms = 0;
    /* A copy keeps the device busy until the host has made the launch, so that launching is not
     * measured. */
    gpu_need(enqueue(b, COPY, &err), &err);
    gpu_need(cuda_event_record(g->device, b->begin, g->stream, &err), &err);
    gpu_need(enqueue(b, way, &err), &err);
    gpu_need(cuda_event_record(g->device, b->end, g->stream, &err), &err);
    gpu_finish(g);
    gpu_need(cuda_check(g->device, g->device->api->event_elapsed(&ms, b->begin, b->end),
                        "cuEventElapsedTime", &err),
             &err);
    return ms;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static void report(struct bench *b, int rounds)
{
    double copy = 0;
    for (int w = 0; w < WAYS; w++) {
        qsort(b->ms[w], (size_t)rounds, sizeof(float), by_size);
        double median = b->ms[w][rounds / 2], least = b->ms[w][0];
        copy = w == COPY ? median : copy;
        if (!b->gpu.fake)
            printf("%-7s %8.1f us median, %8.1f least, %7.1f GB/s, %5.1f %% of the copy's\n",
                   ways[w], 1e3 * median, 1e3 * least, 2e-6 * (double)b->bytes / median,
                   100 * copy / median);
    }
}

int main(void)
{
    static struct bench b;
    struct err err = {0};
    resnet50(counts);
    gpu_open(&b.gpu, "gpu/bench_kernels");
    const struct cuda_api *api = b.gpu.device->api;
    int rounds = b.gpu.fake ? 1 : ROUNDS, gpus = 0;
    gpu_need(cuda_check(b.gpu.device, api->device_count(&gpus), "cuDeviceGetCount", &err), &err);
    printf("GPUs: %d\n", gpus);
    for (int i = 0; i < GRADIENTS && b.gpu.fake; i++)
        counts[i] = counts[i] / 16 + 1;
    place(&b);
    gpu_need(cuda_check(b.gpu.device, api->event_create(&b.begin, 0), "cuEventCreate", &err), &err);
    gpu_need(cuda_check(b.gpu.device, api->event_create(&b.end, 0), "cuEventCreate", &err), &err);
    for (int r = -2; r < rounds; r++)
        for (int w = 0; w < WAYS; w++) {
            float ms = measure(&b, w);
            if (r >= 0)
                b.ms[w][r] = ms;
        }
    printf("%zu bytes in %d pieces, %d rounds\n", b.bytes, GRADIENTS, rounds);
    report(&b, rounds);
    api->event_destroy(b.begin);
    api->event_destroy(b.end);
    cuda_memory_free(b.gpu.device, &b.memory);
    gpu_close(&b.gpu);
    return 0;
}
