/* SPDX-License-Identifier: Apache-2.0
 *
 * collectives [-h HOSTS] [-m] [-x] [-k RANK] [-q] [-r ROUNDS] [-s SECONDS]: every collective with
 * every type and odd sizes, each result checked. For tests of launchers and back ends, which the
 * environment chooses.
 *
 *   -h HOSTS  one character a rank: ranks with the same one may share memory
 *   -m        sums are in place on every other rank
 *   -x        ends without hvd_shutdown()
 *   -k RANK   RANK kills itself in the middle; the others then expect to fail
 *   -q        fewer sizes
 *   -r ROUNDS repeats everything, each time with hvd_init() and hvd_shutdown()
 *   -s SECONDS sleeps after hvd_shutdown()
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hvd.h>

#include "tests/harness/pattern.h"

static int rank, size;
static unsigned salt;
static bool quick, mixed;
static int killed = -1;

static int failed(const char *what, const char *name, size_t at)
{
    fprintf(stderr, "collectives: rank %d: %s of %s: element %zu is wrong\n", rank, what, name, at);
    return -1;
}

static int said(const char *what)
{
    fprintf(stderr, "collectives: rank %d: %s: %s\n", rank, what, hvd_error());
    return -1;
}

static struct hvd_request request(enum hvd_kind kind, const char *name, enum hvd_dtype dtype,
                                  const void *in, void *out, const int64_t *count)
{
    return (struct hvd_request){.kind = kind,
                                .name = name,
                                .input = in,
                                .output = out,
                                .dtype = dtype,
                                .ndim = 1,
                                .shape = count,
                                .op = HVD_SUM,
                                .device = -1};
}

static int run(const struct hvd_request *r)
{
    hvd_handle h;
    if (hvd_submit(r, 1, &h) < 0)
        return said("submit");
    return hvd_wait(h) < 0 ? said(r->name) : 0;
}

static bool defined(enum hvd_dtype dtype, enum hvd_op op)
{
    bool is_float = dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 || dtype == HVD_FLOAT32 ||
                    dtype == HVD_FLOAT64;
    if (dtype == HVD_FLOAT8_E4M3FN || dtype == HVD_FLOAT8_E5M2)
        return false;
    if (op == HVD_BAND || op == HVD_BOR || op == HVD_BXOR)
        return !is_float;
    return op != HVD_ADASUM && !(op == HVD_AVERAGE && dtype == HVD_BOOL);
}

/* ---- sums ----------------------------------------------------------------------------------- */

static int one_sum(enum hvd_dtype dtype, enum hvd_op op, size_t count, bool in_place)
{
    size_t bytes = count * hvd_dtype_size(dtype), off = 1 + salt % 3;
    int64_t n = (int64_t)count;
    uint8_t *in = malloc(bytes + 8), *out = malloc(bytes + 8);
    char name[64];
    if (!in || !out)
        return -1;
    pattern_fill(dtype, op, rank, size, 0, count, ++salt, in + off);
    snprintf(name, sizeof(name), "%s.%s.%zu", hvd_dtype_name(dtype), hvd_op_name(op), count);
    uint8_t *dst = in_place != (mixed && rank % 2) ? in + off : out + off;
    struct hvd_request r = request(HVD_ALLREDUCE, name, dtype, in + off, dst, &n);
    r.op = op;
    int rc = run(&r);
    size_t bad = rc == 0 ? pattern_check(dtype, op, size, 0, count, salt, dst) : count;
    if (bad < count)
        rc = failed("allreduce", name, bad);
    free(in);
    free(out);
    return rc;
}

static int sums(void)
{
    size_t p = (size_t)size;
    const size_t counts[] = {1, p - 1, p, p + 1, 1000, 20001, 70001, 300007 * p};
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]) - quick; c++)
        for (int d = 0; d < HVD_DTYPES; d++)
            for (int o = 0; o < HVD_OPS; o++)
                if (defined(d, o) && one_sum(d, o, counts[c], (c + (size_t)o) % 2) < 0)
                    return -1;
    /* More blocks than any algorithm has in flight at a time. */
    for (int in_place = 0; in_place < 2 && !quick; in_place++)
        if (one_sum(HVD_FLOAT32, HVD_SUM, 2500001 * p, in_place) < 0)
            return -1;
    return 0;
}

enum { FUSED = 7 };

/* Several odd tensors at once, so that they are fused. */
static int fused(enum hvd_dtype dtype, double prescale)
{
    static uint64_t data[FUSED][8000];
    static const int64_t counts[FUSED] = {1, 3000, 7, 0, 6001, 64, 333};
    struct hvd_request r[FUSED];
    hvd_handle h[FUSED];
    char names[FUSED][32];
    unsigned first = salt += FUSED;
    for (int i = 0; i < FUSED; i++) {
        size_t n = (size_t)counts[i];
        snprintf(names[i], sizeof(names[i]), "fused.%d.%s", i, hvd_dtype_name(dtype));
        pattern_fill(dtype, HVD_SUM, rank, size, 0, n, first + (unsigned)i, data[i]);
        r[i] = request(HVD_ALLREDUCE, names[i], dtype, data[i], data[i], &counts[i]);
        r[i].prescale = prescale;
        r[i].postscale = 1 / prescale;
    }
    if (hvd_submit(r, FUSED, h) < 0)
        return said("submit");
    for (int i = 0; i < FUSED; i++) {
        size_t n = (size_t)counts[i];
        if (hvd_wait(h[i]) < 0)
            return said(names[i]);
        size_t bad = pattern_check(dtype, HVD_SUM, size, 0, n, first + (unsigned)i, data[i]);
        if (bad < n)
            return failed("fused allreduce", names[i], bad);
    }
    return 0;
}

static int scatter(enum hvd_dtype dtype, enum hvd_op op, int64_t rows, bool in_place)
{
    size_t elem = hvd_dtype_size(dtype), n = (size_t)rows;
    size_t own = n / (size_t)size + ((size_t)rank < n % (size_t)size), before = 0;
    char name[64];
    for (int r = 0; r < rank; r++)
        before += n / (size_t)size + ((size_t)r < n % (size_t)size);
    uint8_t *in = malloc(n * elem + 1), *out = malloc(own * elem + 1);
    if (!in || !out)
        return -1;
    snprintf(name, sizeof(name), "scatter.%s.%s.%zu", hvd_dtype_name(dtype), hvd_op_name(op), n);
    pattern_fill(dtype, op, rank, size, 0, n, ++salt, in);
    uint8_t *dst = in_place ? in : out;
    struct hvd_request r = request(HVD_REDUCESCATTER, name, dtype, in, dst, &rows);
    r.op = op;
    int rc = run(&r);
    size_t bad = rc == 0 ? pattern_check(dtype, op, size, before, own, salt, dst) : own;
    if (bad < own)
        rc = failed("reducescatter", name, bad);
    free(in);
    free(out);
    return rc;
}

/* ---- moves ---------------------------------------------------------------------------------- */

/* Bytes that name sender and receiver. */
static uint8_t mark(int from, int to, size_t i)
{
    return (uint8_t)((unsigned)from * 37 + (unsigned)to * 11 + i + i / 251);
}

static int broadcast(enum hvd_dtype dtype, int root, int64_t count)
{
    size_t bytes = (size_t)count * hvd_dtype_size(dtype);
    uint8_t *data = malloc(bytes + 1);
    char name[64];
    if (!data)
        return -1;
    for (size_t i = 0; i < bytes; i++)
        data[i] = rank == root ? mark(root, 0, i) : 0;
    snprintf(name, sizeof(name), "broadcast.%s.%d.%lld", hvd_dtype_name(dtype), root,
             (long long)count);
    int rc = hvd_broadcast(name, data, count, dtype, root) < 0 ? said(name) : 0;
    for (size_t i = 0; i < bytes && rc == 0; i++)
        if (data[i] != mark(root, 0, i))
            rc = failed("broadcast", name, i);
    free(data);
    return rc;
}

/* Rows from rank r to rank `to`; in an allgather the same to all. */
static int64_t rows_of(int r, int to, int64_t scale)
{
    return (r * 3 + to) % 5 == 0 ? 0 : (r + 2 * to) * scale + 1;
}

static int check_parts(const struct hvd_result *res, const char *name, size_t elem, bool all,
                       int64_t scale)
{
    const uint8_t *at = res->data;
    for (int r = 0; r < size; r++) {
        size_t n = (size_t)rows_of(r, all ? 0 : rank, scale) * elem;
        for (size_t i = 0; i < n; i++)
            if (at[i] != mark(r, all ? 0 : rank, i))
                return failed(all ? "allgather" : "alltoall", name, i);
        at += n;
    }
    return 0;
}

static int exchange(enum hvd_dtype dtype, bool all, int64_t scale)
{
    size_t elem = hvd_dtype_size(dtype), at = 0;
    int64_t splits[64], total = 0;
    char name[64];
    snprintf(name, sizeof(name), "%s.%s.%lld", all ? "gather" : "alltoall", hvd_dtype_name(dtype),
             (long long)scale);
    for (int r = 0; r < (all ? 1 : size); r++)
        total += splits[r] = rows_of(rank, all ? 0 : r, scale);
    uint8_t *in = malloc((size_t)total * elem + 1);
    if (!in)
        return -1;
    for (int r = 0; r < (all ? 1 : size); r++)
        for (size_t i = 0; i < (size_t)splits[r] * elem; i++)
            in[at++] = mark(rank, all ? 0 : r, i);
    struct hvd_request r =
        request(all ? HVD_ALLGATHER : HVD_ALLTOALL, name, dtype, in, NULL, &total);
    r.splits = all ? NULL : splits;
    struct hvd_result res;
    hvd_handle h;
    int rc =
        hvd_submit(&r, 1, &h) < 0 || hvd_wait(h) < 0 || hvd_result(h, &res) < 0 ? said(name) : 0;
    if (rc == 0)
        rc = check_parts(&res, name, elem, all, scale);
    if (rc == 0)
        hvd_release(h);
    free(in);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static int moves(void)
{
    static const int64_t counts[] = {1, 7, 1001, 200003};
    for (int d = 0; d < HVD_DTYPES; d++) {
        for (size_t c = 0; c < 4u - quick; c++) {
            int64_t n = counts[c];
            if (broadcast(d, (d + (int)c) % size, n) < 0 || exchange(d, true, n / 8) < 0 ||
                exchange(d, false, n / 8) < 0)
                return -1;
            for (int o = 0; o < HVD_OPS; o++)
                if (defined(d, o) && scatter(d, o, n, (o + d) % 2) < 0)
                    return -1;
        }
    }
    return 0;
}

static int everything(void)
{
    /* The same few names repeatedly, so that the schedule freezes, and thaws for other names. */
    for (int i = 0; i < 8; i++)
        if (fused(HVD_FLOAT32, 1) < 0 || fused(HVD_BFLOAT16, 1) < 0)
            return -1;
    if (sums() < 0 || fused(HVD_FLOAT32, 0.5) < 0 || fused(HVD_FLOAT16, 2) < 0)
        return -1;
    if (killed == rank)
        kill(getpid(), SIGKILL);
    if (moves() < 0 || hvd_barrier("end") < 0)
        return -1;
    for (int i = 0; i < 8; i++)
        if (one_sum(HVD_FLOAT32, HVD_SUM, 100000, true) < 0)
            return -1;
    return 0;
}

int main(int argc, char **argv)
{
    const char *me = getenv("OMPI_COMM_WORLD_RANK");
    bool leave = true;
    int rounds = 1, seconds = 0;
    for (int opt; (opt = getopt(argc, argv, "h:mxk:qr:s:")) != -1;) {
        char host[2] = {opt == 'h' && me ? optarg[atoi(me)] : 0, 0};
        if (opt == 'h' && me)
            setenv("HVD_LOCALITY", host, 1);
        else if (opt == 'm')
            mixed = true;
        else if (opt == 'x')
            leave = false;
        else if (opt == 'k')
            killed = atoi(optarg);
        else if (opt == 'q')
            quick = true;
        else if (opt == 'r')
            rounds = atoi(optarg);
        else if (opt == 's')
            seconds = atoi(optarg);
        else
            return 2;
    }
    for (int i = 0; i < rounds; i++) {
        if (hvd_init() < 0)
            return said("init") < 0;
        rank = hvd_rank();
        size = hvd_size();
        if (everything() < 0)
            return killed >= 0 ? 3 : 1;
        if (i + 1 < rounds && hvd_shutdown() < 0)
            return said("shutdown") < 0;
    }
    printf("rank %d of %d on host %d of %d: ok\n", rank, size, hvd_cross_rank(), hvd_cross_size());
    fflush(stdout);
    if (leave && hvd_shutdown() < 0)
        return said("shutdown") < 0;
    sleep((unsigned)seconds);
    return 0;
}
