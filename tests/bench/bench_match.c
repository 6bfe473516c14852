/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_match [MIB]: speed of the log matcher on a log without failures: training steps, progress
 * bars, NCCL's and TensorFlow's information, all with the compiled-in patterns. Prints the rate and
 * how long the matcher takes to start.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "diagnostics/match.h"
#include "diagnostics/match_scan.h"

#define BLOCK (256 * 1024)

static const char *const forms[] = {
    "2024-05-01 10:%02u:%02u,123 INFO epoch %u step %u loss 2.3%03u lr 0.0003 mem 31 GiB\n",
    "[3]<stdout>:Epoch %u: %3u%%|######    | %u/5000 [01:%02u<03:12, 25.9it/s, loss=0.6%02u]\n",
    "node%u:471%u:482%u [0] NCCL INFO Channel 0%u/08 : 0[0] -> 1[1] via P2P/CUMEM/read %u\n",
    "I tensorflow/core/gpu/gpu_device.cc:16%u] Created device GPU:%u with %u MB, id %u, pci %u\n",
    "[rank%u]: step %u: forward %u ms, backward %u ms, allreduce %u ms\n",
    "[2024-05-01 10:%02u:%02u] validation: top1 76.%u top5 93.%u over %u samples\n",
};

static size_t fill(char *dst, size_t size)
{
    size_t n = 0;
    for (unsigned i = 0; n + 400 < size; i++) {
        const char *form = forms[i % (sizeof(forms) / sizeof(forms[0]))];
        n += (size_t)snprintf(dst + n, size - n, form, i % 60, i % 59, i % 97, i % 61, i % 89);
    }
    return n;
}

int main(int argc, char **argv)
{
    size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 1024;
    struct err err = {0};
    struct match *m = NULL;
    struct match_result *r = NULL;
    char *block = malloc(BLOCK);
    if (!block)
        return 2;
    size_t n = fill(block, BLOCK);
    uint64_t start = clock_ns();
    struct patterns *patterns = NULL;
    if (patterns_create(&patterns, &err) < 0 ||
        match_create(&(struct match_opts){.patterns = patterns}, &m, &err) < 0) {
        fprintf(stderr, "%s\n", err_text(&err));
        return 2;
    }
    uint64_t ready = clock_ns();
    clock_t busy = clock();
    struct match_source *s = match_open_source(m, "log", -1);
    for (size_t done = 0; s && done < mib << 20; done += n)
        match_feed(s, block, n);
    busy = clock() - busy;
    uint64_t end = clock_ns();
    if (!s || match_finish(m, &r, &err) < 0)
        return 2;
    double seconds = (double)(end - ready) / 1e9;
    printf("%.0f MB/s, %.0f MB a second of processor time, over %.0f MB in %llu lines; ready after "
           "%.2f ms, %zu KiB for the automaton; verdict %d (0: nothing)\n",
           (double)r->bytes / 1e6 / seconds,
           (double)r->bytes / 1e6 / ((double)busy / CLOCKS_PER_SEC), (double)r->bytes / 1e6,
           (unsigned long long)r->lines, (double)(ready - start) / 1e6,
           scan_bytes(patterns->scan) / 1024, (int)r->verdict);
    int rc = r->verdict == MATCH_NOTHING ? 0 : 1;
    match_result_destroy(r);
    match_destroy(m);
    patterns_destroy(patterns);
    free(block);
    return rc;
}
