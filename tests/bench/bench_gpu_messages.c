/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_gpu_messages: messages between two fake GPUs that take time (tests/fake/README.md), by NCCL
 * and through the host's memory in turn in one run. No GPU is needed. Copies between the GPUs and
 * the host take 25 GB/s, NCCL 45 us and 100 GB/s; what the host itself does takes its real time.
 *
 *     bench_gpu_messages [TURNS]
 *
 * alone: both ranks send and receive one message at a time. beside: each round also has a sum of
 * 4 MiB on the GPUs, submitted before the messages. Microseconds of a round, the median of all
 * rounds of all turns.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/fake/cuda/use.h"
#include "tests/harness/gpu_side.h"
#include "tests/harness/times.h"
#include "tests/harness/world.h"

#define SIZES   4
#define ROUNDS  40
#define WARM_UP 5
#define SUM     (1 << 20) /* elements */
#define ROOM    ((size_t)40 << 20)
#define MOST    50 /* turns */

static const size_t sizes[SIZES] = {64 << 10, 1 << 20, 4 << 20, 32 << 20};

/* [way][beside][size]: the rounds of all turns */
struct board {
    uint64_t times[2][2][SIZES][MOST * ROUNDS];
    int turn, way;
};

static void need(int rc, const char *text)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "bench_gpu_messages: %s\n", text);
    exit(1);
}

static uint64_t one_round(struct gpu_side *g, int rank, size_t bytes, bool beside)
{
    const int64_t n = SUM;
    struct hvd_message m[2] = {{.direction = HVD_SEND, .data = g->in.at},
                               {.direction = HVD_RECV, .data = g->out.at}};
    hvd_handle handles[3];
    uint64_t begin = clock_ns();
    if (beside) {
        struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "sum", HVD_FLOAT32, 1, &n);
        r.input = r.output = (uint8_t *)g->in.at + (ROOM - (size_t)SUM * 4);
        need(hvd_submit(&r, 1, &handles[2]), hvd_error());
    }
    for (int i = 0; i < 2; i++) {
        m[i].peer = 1 - rank;
        m[i].device = g->d->ordinal;
        m[i].stream = g->stream;
        m[i].bytes = (int64_t)bytes;
    }
    need(hvd_exchange(m, 2, handles), hvd_error());
    for (int i = beside ? 2 : 1; i >= 0; i--)
        need(hvd_wait(handles[i]), hvd_error());
    return clock_ns() - begin;
}

static int rank_main(int rank, int size, void *arg)
{
    struct board *b = arg;
    struct gpu_side g;
    const int64_t n = SUM;
    hvd_handle h;
    need(gpu_side_open(&g, rank, ROOM, "count=2"), g.err.msg);
    need(hvd_init(), hvd_error());
    struct hvd_request r = gpu_side_request(&g, HVD_ALLREDUCE, "sum", HVD_FLOAT32, 1, &n);
    need(hvd_submit(&r, 1, &h), hvd_error());
    need(hvd_wait(h), hvd_error());
    for (int k = 0; k < 2 * SIZES; k++)
        for (int i = -WARM_UP; i < ROUNDS; i++) {
            need(hvd_barrier("round"), hvd_error());
            uint64_t ns = one_round(&g, rank, sizes[k / 2], k % 2);
            if (rank == 0 && i >= 0)
                b->times[b->way][k % 2][k / 2][b->turn * ROUNDS + i] = ns;
        }
    need(hvd_shutdown(), hvd_error());
    gpu_side_close(&g);
    return 0;
}

static double median_us(uint64_t *times, size_t n)
{
    times_sort(times, n);
    return (double)times[n / 2] / 1e3;
}

int main(int argc, char **argv)
{
    int turns = argc > 1 ? atoi(argv[1]) : 5;
    char lib[PATH_MAX + 16], path[PATH_MAX];
    const char *const thresholds[] = {"HVD_NCCL_MESSAGE_THRESHOLD=0",
                                      "HVD_NCCL_MESSAGE_THRESHOLD=1"};
    struct board *b = world_shared(sizeof(*b));
    double load[1] = {0};
    if (turns < 1 || turns > MOST || !b)
        return 2;
    fake_nccl_path("2.27", path);
    snprintf(lib, sizeof(lib), "HVD_NCCL_LIB=%s", path);
    setenv("FAKE_CUDA_TIME",
           "h2d=25e9,d2h=25e9,d2d=1400e9,copy=2e-6,kernel=3e-6,call=2e-6,launch=4e-6", 0);
    setenv("FAKE_NCCL_TIME", "bw=100e9,latency=45e-6,call=5.5e-6,async=30e-6", 0);
    for (b->turn = 0; b->turn < turns; b->turn++)
        for (b->way = 0; b->way < 2; b->way++) {
            const char *env[] = {lib, thresholds[b->way], NULL};
            struct world_options o = {.size = 2, .env = env};
            if (world_run_options(&o, rank_main, b) != 0)
                return 1;
        }
    if (getloadavg(load, 1) < 1)
        load[0] = 0;
    printf("us of a round, load %.1f\n%10s %12s %12s %12s %12s\n", load[0], "bytes", "host", "NCCL",
           "host, beside", "NCCL, beside");
    for (int k = 0; k < SIZES; k++) {
        printf("%10zu", sizes[k]);
        for (int i = 0; i < 4; i++)
            printf(" %12.0f", median_us(b->times[i % 2][i / 2][k], (size_t)turns * ROUNDS));
        printf("\n");
    }
    return 0;
}
