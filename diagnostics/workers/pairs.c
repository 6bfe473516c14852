/* SPDX-License-Identifier: Apache-2.0
 *
 * pairs: in each round every worker exchanges data with one other: round trips, clock difference,
 * small and large payloads. This finds paths that pass only small packets. See workers.h.
 *
 * The clock difference comes from the exchange with the shortest round trip (Cristian, 1989): the
 * peer's time minus the middle of ours.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/include/hvd.h"
#include "diagnostics/answer.h"
#include "diagnostics/workers/workers.h"

#define ROUNDS_MAX 8
#define PINGS      16
#define SMALL      8192
#define LARGE      (1u << 20)
#define SMALL_MS   150
#define LARGE_MS   300
#define DIAL_MS    2000

int workers_opponent(int rank, int round, int n)
{
    int m = n - 1;
    if (rank == m)
        return round * (n / 2) % m;
    /* i meets j when i + j = round modulo m; a worker that would meet itself meets the last one */
    int other = ((round - rank) % m + m) % m;
    return other == rank ? m : other;
}

static int64_t wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * (int64_t)CLOCK_S + now.tv_nsec;
}

struct path {
    double rtt_us, skew_ms, small_mbs, large_mbs;
    const char *part; /* the part of the exchange that failed */
    int rc;
};

static int ping(int fd, struct path *p)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < PINGS; i++) {
        int64_t theirs, before = wall_ns();
        int rc = workers_exchange(fd, NULL, 0, &theirs);
        int64_t after = wall_ns();
        if (rc < 0)
            return rc;
        if (after - before >= best)
            continue;
        best = after - before;
        p->skew_ms = ((double)(theirs - before) - (double)best / 2) / CLOCK_MS;
        p->rtt_us = (double)best / 1000;
    }
    return 0;
}

static int rate(int fd, const uint8_t *bytes, uint32_t len, int ms, double *ret_mbs)
{
    uint64_t start = clock_ns(), deadline = deadline_in_ms((uint64_t)ms), sent = 0;
    do {
        int rc = workers_exchange(fd, bytes, len, NULL);
        if (rc < 0)
            return rc;
        sent += len;
    } while (!deadline_passed(deadline));
    *ret_mbs = (double)sent / 1e6 / ((double)(clock_ns() - start) / CLOCK_S);
    return 0;
}

static void measure(int fd, const uint8_t *bytes, struct path *p)
{
    p->part = "a round trip";
    p->rc = ping(fd, p);
    if (p->rc == 0) {
        p->part = "payloads of 8 KiB";
        p->rc = rate(fd, bytes, SMALL, SMALL_MS, &p->small_mbs);
    }
    if (p->rc == 0) {
        p->part = "payloads of 1 MiB";
        p->rc = rate(fd, bytes, LARGE, LARGE_MS, &p->large_mbs);
    }
}

static void put_path(struct buf *out, const char *list, int k, int to, const char *ip,
                     const struct path *p)
{
    answer_put_at(out, list, k, "to", "%d", to);
    answer_put_at(out, list, k, "ip", "%s", ip);
    if (p->rc < 0) {
        answer_put_at(out, list, k, "part", "%s", p->part);
        answer_put_at(out, list, k, "error", "%s", strerror(-p->rc));
    }
    if (p->rtt_us > 0) {
        answer_put_at(out, list, k, "rtt_us", "%.1f", p->rtt_us);
        answer_put_at(out, list, k, "skew_ms", "%.3f", p->skew_ms);
    }
    if (p->small_mbs > 0)
        answer_put_at(out, list, k, "small_mbs", "%.1f", p->small_mbs);
    if (p->large_mbs > 0)
        answer_put_at(out, list, k, "large_mbs", "%.1f", p->large_mbs);
}

int workers_pairs(const struct workers_peer *peers, int rank, int size,
                  const uint8_t token[WORKERS_TOKEN], struct buf *out, struct err *err)
{
    char list[32];
    int n = size + size % 2, k = 0;
    auto_free uint8_t *bytes = calloc(1, LARGE);
    if (!bytes)
        return err_set(err, ENOMEM, "no memory for a payload");
    snprintf(list, sizeof(list), "pair_%d", rank);
    for (int round = 0; round < n - 1 && round < ROUNDS_MAX; round++) {
        int to = workers_opponent(rank, round, n);
        for (int i = 0; to < size && rank < to && i < peers[to].nips; i++) {
            struct path p = {0};
            int fd = workers_dial(peers[to].ips[i], peers[to].port, token, DIAL_MS);
            if (fd < 0)
                continue; /* connect.c reports a pair that cannot connect */
            measure(fd, bytes, &p);
            close(fd);
            put_path(out, list, k++, to, peers[to].ips[i], &p);
        }
        int rc = hvd_barrier("doctor.round");
        if (rc < 0)
            return err_set(err, -rc, "%s", hvd_error());
    }
    return 0;
}
