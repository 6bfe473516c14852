/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_elastic: the ranks of the benchmark of elastic jobs (elastic.py starts and ends them, and
 * reads their records).
 *
 *     bench_elastic run FOLDER MIB BYTES    touches MIB of memory; then allreduces of BYTES, out of
 *                                           place, and hvd_commit() in turn until FOLDER/stop is
 *                                           there; each is noted in FOLDER/PID.ring, memory mapped
 *     bench_elastic cost ROUNDS BYTES...    fixed and elastic worlds in turn in the same processes;
 *                                           rank 0 prints lines "elastic place bytes p50_ns"
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <hvd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "tests/harness/times.h"

enum { RING = 1 << 16, CALLS = 15 };

/* elastic.py reads this layout. */
struct entry {
    uint64_t end_ns; /* CLOCK_MONOTONIC */
    uint32_t contributors;
    uint32_t epoch; /* of the view */
};

struct ring {
    uint64_t start_ns; /* main() */
    uint64_t ready_ns; /* memory is touched, hvd_init() is next */
    uint64_t joined_ns;
    _Atomic uint64_t n; /* entries written; entry i is at i % RING */
    int32_t rank, size;
    uint64_t repair_ns; /* from hvd_world() */
    struct entry entries[RING];
};

static int fail(const char *what)
{
    fprintf(stderr, "bench_elastic: rank %d: %s: %s\n", hvd_rank(), what, hvd_error());
    return 3;
}

/* ---- run ---- */

static struct ring *open_ring(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%d.ring", folder, (int)getpid());
    auto_close int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, sizeof(struct ring)) < 0)
        return NULL;
    struct ring *r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return r == MAP_FAILED ? NULL : r;
}

static void note(struct ring *r, float contributors, uint32_t epoch)
{
    uint64_t n = atomic_load_explicit(&r->n, memory_order_relaxed);
    r->entries[n % RING] = (struct entry){clock_ns(), (uint32_t)contributors, epoch};
    atomic_store_explicit(&r->n, n + 1, memory_order_release);
}

static int look(struct ring *r, struct hvd_world *w)
{
    w->size_of_struct = sizeof(*w);
    if (hvd_world(w) < 0)
        return fail("hvd_world");
    r->rank = w->rank;
    r->size = w->size;
    r->repair_ns = w->repair_ns;
    return 0;
}

/* The first element counts contributors, the second counts ranks that have seen the file. */
static int steps(struct ring *r, const char *stop, float *in, float *out, int64_t count)
{
    struct hvd_world world;
    int rc = look(r, &world);
    while (rc == 0) {
        in[0] = 1;
        in[1] = access(stop, F_OK) == 0;
        if (hvd_allreduce("gradient", in, out, count, HVD_FLOAT32, HVD_SUM) < 0)
            return fail("hvd_allreduce");
        note(r, out[0], world.epoch);
        bool over = out[1] > 0;
        rc = hvd_commit();
        if (rc == -ESHUTDOWN || over)
            return 0;
        if (rc < 0)
            return fail("hvd_commit");
        rc = rc == 1 ? look(r, &world) : 0;
    }
    return rc;
}

static int run(const char *folder, size_t mib, size_t bytes)
{
    struct ring *r = open_ring(folder);
    if (!r)
        return 2;
    r->start_ns = clock_ns();
    char stop[4096];
    snprintf(stop, sizeof(stop), "%s/stop", folder);
    auto_free char *resident = malloc(mib << 20 | 1);
    auto_free float *in = malloc(bytes), *out = malloc(bytes);
    if (!resident || !in || !out)
        return 2;
    memset(resident, 1, mib << 20);
    memset(in, 0, bytes);
    memset(out, 0, bytes);
    r->ready_ns = clock_ns();
    if (hvd_init() < 0)
        return fail("hvd_init");
    if (hvd_enter() < 0)
        return fail("hvd_enter");
    r->joined_ns = clock_ns();
    int rc = steps(r, stop, in, out, (int64_t)(bytes / sizeof(float)));
    /* Read here, so that the compiler keeps the memory until now. */
    if (resident[mib << 19] != 1 && mib)
        return 2;
    if (rc != 0)
        return rc;
    return hvd_shutdown() < 0 ? fail("hvd_shutdown") : 0;
}

/* ---- cost ---- */

static int one_size(bool elastic, bool in_place, size_t bytes, float *in, float *out)
{
    uint64_t times[CALLS];
    int64_t count = (int64_t)(bytes / sizeof(float));
    for (int i = -3; i < CALLS; i++) {
        if (hvd_barrier("begin") < 0)
            return fail("hvd_barrier");
        uint64_t begin = clock_ns();
        if (hvd_allreduce(in_place ? "in" : "out", in, in_place ? in : out, count, HVD_FLOAT32,
                          HVD_AVERAGE) < 0)
            return fail("hvd_allreduce");
        if (i >= 0)
            times[i] = clock_ns() - begin;
    }
    times_sort(times, CALLS);
    if (hvd_rank() == 0)
        printf("%d %s %zu %" PRIu64 "\n", elastic, in_place ? "in" : "out", bytes,
               times[CALLS / 2]);
    fflush(stdout);
    return 0;
}

static int one_world(bool elastic, char **sizes, int nsizes, float *in, float *out)
{
    if (elastic)
        setenv("HVD_ELASTIC", "1", 1);
    else
        unsetenv("HVD_ELASTIC");
    if (hvd_init() < 0)
        return fail("hvd_init");
    if (hvd_enter() < 0)
        return fail("hvd_enter");
    for (int i = 0; i < nsizes; i++) {
        size_t bytes = strtoull(sizes[i], NULL, 10);
        for (int place = 0; place < 2; place++) {
            int rc = one_size(elastic, place == 0, bytes, in, out);
            if (rc != 0)
                return rc;
        }
    }
    return hvd_shutdown() < 0 ? fail("hvd_shutdown") : 0;
}

static int cost(int rounds, char **sizes, int nsizes)
{
    size_t most = 0;
    for (int i = 0; i < nsizes; i++) {
        size_t bytes = strtoull(sizes[i], NULL, 10);
        most = bytes > most ? bytes : most;
    }
    auto_free float *in = malloc(most), *out = malloc(most);
    if (!in || !out)
        return 2;
    memset(in, 0, most);
    memset(out, 0, most);
    for (int round = 0; round < 2 * rounds; round++) {
        int rc = one_world(round % 2 == 1, sizes, nsizes, in, out);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "run") == 0)
        return run(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
    if (argc > 3 && strcmp(argv[1], "cost") == 0)
        return cost(atoi(argv[2]), argv + 3, argc - 3);
    fprintf(stderr, "usage: bench_elastic run FOLDER MIB BYTES | cost ROUNDS BYTES...\n");
    return 2;
}
