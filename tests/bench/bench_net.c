/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_net: the speed of a network for one plain TCP stream, and for an allreduce of core/coll
 * without the engine. Each rank is started with HVD_RANK, HVD_SIZE, HVD_RENDEZVOUS and
 * HVD_KEY_FILE, usually by network.py, in a network namespace of its own. Rank 0 prints a line for
 * each size, like bench_hvd: "bytes place calls p50_ns p90_ns"; place is raw, or out.
 *
 *     bench_net [-t MILLISECONDS a size] raw|coll BYTES...
 *
 * raw: rank 1 sends to rank 0, on the port above the rendezvous; the clock of rank 0 runs from the
 * first request to the last byte. The other ranks do nothing.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "tests/harness/coll_rank.h"
#include "tests/harness/times.h"

enum { MAX_CALLS = 20000, WARM_UP = 3 };

struct bench {
    uint64_t budget_ns;
    int rank, size;
    uint64_t times[MAX_CALLS];
};

static void print_line(struct bench *b, size_t bytes, const char *place, size_t calls)
{
    times_sort(b->times, calls);
    printf("%zu %s %zu %llu %llu\n", bytes, place, calls, (unsigned long long)b->times[calls / 2],
           (unsigned long long)b->times[calls * 9 / 10]);
    fflush(stdout);
}

/* ---- one stream ----------------------------------------------------------------------------- */

/* Rank 0 listens, rank 1 connects. Returns the connection's descriptor, or -1. */
static int open_stream(int rank)
{
    const char *where = getenv("HVD_RENDEZVOUS");
    const char *colon = where ? strrchr(where, ':') : NULL;
    char host[64] = "";
    if (!colon || (size_t)(colon - where) >= sizeof(host))
        return -1;
    memcpy(host, where, (size_t)(colon - where));
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)(strtol(colon + 1, NULL, 10) + 1))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0 || inet_pton(AF_INET, host, &a.sin_addr) != 1)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (rank == 0) {
        auto_close int listener = fd;
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (bind(listener, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(listener, 1) < 0)
            return -1;
        return accept(listener, NULL, NULL);
    }
    for (int i = 0; i < 500; i++, usleep(10000))
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
            return fd;
    close(fd);
    return -1;
}

/* Rank 0 sends one byte: 1 for another round, 0 for the end. Rank 1 answers with the bytes. */
static int raw_size(struct bench *b, int fd, uint8_t *data, size_t bytes)
{
    uint64_t deadline = deadline_in_ms(60000), end = 0;
    for (size_t i = 0;; i++) {
        uint8_t more = i < WARM_UP || (clock_ns() < end && i - WARM_UP < MAX_CALLS);
        uint64_t begin = clock_ns();
        int rc = b->rank == 0 ? fd_write_full(fd, &more, 1, deadline)
                              : fd_read_full(fd, &more, 1, deadline);
        if (rc < 0)
            return rc;
        if (!more && b->rank == 0)
            print_line(b, bytes, "raw", i - WARM_UP);
        if (!more)
            return 0;
        rc = b->rank == 0 ? fd_read_full(fd, data, bytes, deadline)
                          : fd_write_full(fd, data, bytes, deadline);
        if (rc < 0)
            return rc;
        if (i == WARM_UP - 1)
            end = clock_ns() + b->budget_ns + 1;
        if (i >= WARM_UP)
            b->times[i - WARM_UP] = clock_ns() - begin;
    }
}

static int raw(struct bench *b, char *const *sizes)
{
    if (b->rank > 1)
        return 0;
    auto_close int fd = open_stream(b->rank);
    if (fd < 0)
        return -ENOTCONN;
    int rc = 0;
    for (; *sizes && rc == 0; sizes++) {
        size_t bytes = strtoull(*sizes, NULL, 10);
        auto_free uint8_t *data = malloc(bytes + 1);
        if (!data)
            return -ENOMEM;
        memset(data, 1, bytes);
        rc = raw_size(b, fd, data, bytes);
    }
    return rc;
}

/* ---- collectives ---------------------------------------------------------------------------- */

/* Rank 0 tells all whether there is another round. */
static int another(struct coll_rank *r, uint8_t *more)
{
    struct coll_tensor t = {more, more, 1};
    struct coll_op op = coll_rank_op(r, HVD_BROADCAST, HVD_UINT8, HVD_SUM, &t, 1);
    return coll_rank_run(r, &op);
}

static int coll_size(struct bench *b, struct coll_rank *r, size_t bytes)
{
    auto_free float *in = malloc(bytes + 4), *out = malloc(bytes + 4);
    if (!in || !out)
        return -ENOMEM;
    for (size_t i = 0; i < bytes / 4; i++)
        in[i] = (float)i;
    memset(out, 0, bytes);
    struct coll_tensor t = {in, out, bytes / 4};
    struct coll_op op = coll_rank_op(r, HVD_ALLREDUCE, HVD_FLOAT32, HVD_SUM, &t, 1);
    uint64_t end = 0;
    for (size_t i = 0;; i++) {
        uint8_t more = i < WARM_UP || (clock_ns() < end && i - WARM_UP < MAX_CALLS);
        int rc = another(r, &more);
        if (rc < 0)
            return rc;
        if (!more && b->rank == 0)
            print_line(b, bytes, "out", i - WARM_UP);
        if (!more)
            return 0;
        uint64_t begin = clock_ns();
        if ((rc = coll_rank_run(r, &op)) < 0)
            return rc;
        if (i == WARM_UP - 1)
            end = clock_ns() + b->budget_ns + 1;
        if (i >= WARM_UP)
            b->times[i - WARM_UP] = clock_ns() - begin;
    }
}

static int collectives(struct bench *b, char *const *sizes)
{
    struct coll_rank r;
    int rc = coll_rank_open(&r, b->rank, NULL);
    if (rc < 0)
        return rc;
    for (; *sizes && rc == 0; sizes++)
        rc = coll_size(b, &r, strtoull(*sizes, NULL, 10));
    coll_rank_close(&r);
    return rc;
}

static int number(const char *name)
{
    const char *text = getenv(name);
    return text ? (int)strtol(text, NULL, 10) : -1;
}

int main(int argc, char **argv)
{
    static struct bench b;
    b = (struct bench){
        .budget_ns = 500 * CLOCK_MS, .rank = number("HVD_RANK"), .size = number("HVD_SIZE")};
    int opt;
    while ((opt = getopt(argc, argv, "t:")) == 't')
        b.budget_ns = strtoull(optarg, NULL, 10) * CLOCK_MS;
    bool is_raw = optind < argc && strcmp(argv[optind], "raw") == 0;
    bool is_coll = optind < argc && strcmp(argv[optind], "coll") == 0;
    if (opt != -1 || (!is_raw && !is_coll) || b.rank < 0 || b.size < 2) {
        fprintf(stderr, "bench_net [-t ms] raw|coll BYTES..., with HVD_RANK and HVD_SIZE set\n");
        return 2;
    }
    int rc = is_raw ? raw(&b, argv + optind + 1) : collectives(&b, argv + optind + 1);
    if (rc < 0)
        fprintf(stderr, "bench_net: rank %d: %s\n", b.rank, strerror(-rc));
    return rc < 0;
}
