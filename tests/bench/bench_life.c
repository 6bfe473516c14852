/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_life: the cost of an idle rank: time of hvd_init() and hvd_shutdown(), processor time while
 * idle, memory after a large batch. Forks its ranks on this host.
 *
 *     bench_life [RANKS [BYTES of the largest bucket]]
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <hvd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "tests/harness/world.h"
#include "tests/harness/times.h"

enum { ROUNDS = 15, MAX_RANKS = 64, IDLE_S = 3 };

struct sheet {
    _Atomic int arrived;
    size_t bytes;
    uint64_t life_ns[ROUNDS][MAX_RANKS]; /* init call to return plus shutdown call to return */
    double idle_percent[MAX_RANKS];
    uint64_t pss_kib[MAX_RANKS]; /* more than before hvd_init() */
};

/* All ranks pass together. They sleep while they wait, so that they do not disturb other ranks'
 * starts. */
static void meet(struct sheet *sheet, int size, int number)
{
    atomic_fetch_add(&sheet->arrived, 1);
    while (atomic_load(&sheet->arrived) < size * number)
        usleep(200);
}

static uint64_t pss_kib(void)
{
    auto_free char *text = NULL;
    if (fd_read_file("/proc/self/smaps_rollup", 1 << 16, &text, NULL) < 0)
        return 0;
    const char *line = strstr(text, "\nPss:");
    return line ? strtoull(line + 5, NULL, 10) : 0;
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int live_once(struct sheet *sheet, int rank, int round)
{
    uint64_t start = clock_ns();
    if (hvd_init() < 0)
        return -1;
    uint64_t inside = clock_ns();
    if (hvd_barrier("meet") < 0)
        return -1;
    uint64_t leave = clock_ns();
    if (hvd_shutdown() < 0)
        return -1;
    sheet->life_ns[round][rank] = (inside - start) + (clock_ns() - leave);
    return 0;
}

static int measure_use(struct sheet *sheet, int rank)
{
    auto_free float *x = malloc(sheet->bytes);
    if (!x)
        return -1;
    /* Not 0, because the compiler would turn it into calloc(), whose pages come later. */
    memset(x, 1, sheet->bytes);
    uint64_t before = pss_kib();
    if (hvd_init() < 0)
        return -1;
    int64_t count = (int64_t)(sheet->bytes / sizeof(float));
    for (int i = 0; i < 8; i++)
        if (hvd_allreduce("x", x, x, count, HVD_FLOAT32, HVD_SUM) < 0)
            return -1;
    uint64_t after = pss_kib();
    sheet->pss_kib[rank] = after > before ? after - before : 0;
    double cpu = cpu_seconds();
    usleep(IDLE_S * 1000000);
    sheet->idle_percent[rank] = (cpu_seconds() - cpu) * 100 / IDLE_S;
    return hvd_shutdown();
}

static int rank_main(int rank, int size, void *arg)
{
    struct sheet *sheet = arg;
    int met = 0;
    for (int round = 0; round < ROUNDS; round++) {
        meet(sheet, size, ++met);
        if (live_once(sheet, rank, round) < 0)
            break;
    }
    meet(sheet, size, ++met);
    if (measure_use(sheet, rank) == 0)
        return 0;
    fprintf(stderr, "bench_life: rank %d: %s\n", rank, hvd_error());
    return 1;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 4;
    struct sheet *sheet = world_shared(sizeof(*sheet));
    if (ranks < 1 || ranks > MAX_RANKS || !sheet)
        return 2;
    sheet->bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 32u << 20;
    if (world_run(ranks, rank_main, sheet) != 0)
        return 1;
    uint64_t slowest[ROUNDS] = {0}, pss = 0;
    double idle = 0;
    for (int rank = 0; rank < ranks; rank++) {
        for (int r = 0; r < ROUNDS; r++)
            if (sheet->life_ns[r][rank] > slowest[r])
                slowest[r] = sheet->life_ns[r][rank];
        idle = sheet->idle_percent[rank] > idle ? sheet->idle_percent[rank] : idle;
        pss = sheet->pss_kib[rank] > pss ? sheet->pss_kib[rank] : pss;
    }
    times_sort(slowest, ROUNDS);
    printf("ranks %d: init + shutdown of the slowest rank: p50 %.2f ms, max %.2f ms\n", ranks,
           (double)slowest[ROUNDS / 2] / 1e6, (double)slowest[ROUNDS - 1] / 1e6);
    printf("idle: %.3f %% of a processor; memory after %zu MiB buckets: %" PRIu64 " KiB Pss\n",
           idle, sheet->bytes >> 20, pss);
    return 0;
}
