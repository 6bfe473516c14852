/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shm_allreduce: forked ranks of one host against the oracle of tests/harness/pattern: every
 * dtype and operation around every boundary, fused lists, cancelled and aborted operations. Every
 * rank overwrites inputs and outputs the moment an operation is done.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/coll/shm_allreduce.h"
#include "tests/harness/pattern.h"
#include "tests/harness/shm_host.h"

enum { SECONDS = 60, MOST_TENSORS = 40, SLACK = 256 };

/* One rank's side of a test. */
struct rank {
    struct mesh *mesh;
    struct shm_pieces *pieces;
    struct shm_allreduce *all;
    uint8_t *in, *out; /* [room + SLACK] */
    size_t room;
    unsigned salt; /* number of the operation, the same on all */
    unsigned random;
};

static int rank_init(struct rank *r, struct mesh *mesh, size_t room)
{
    *r = (struct rank){.mesh = mesh, .room = room, .random = 1};
    r->in = malloc(room + SLACK);
    r->out = malloc(room + SLACK);
    if (!r->in || !r->out || shm_pieces_create(mesh, &r->pieces, NULL) < 0)
        return -1;
    return shm_allreduce_create(mesh, r->pieces, &r->all, NULL);
}

static int rank_fini(struct rank *r, int rc)
{
    shm_allreduce_destroy(r->all);
    shm_pieces_destroy(r->pieces);
    free(r->in);
    free(r->out);
    return rc;
}

/* The same numbers on all ranks. */
static unsigned next_random(struct rank *r)
{
    r->random = r->random * 1664525 + 1013904223;
    return r->random >> 8;
}

static int all_progress(void *ctx)
{
    return shm_allreduce_progress(ctx);
}

static int pieces_progress(void *ctx)
{
    return shm_pieces_progress(ctx);
}

/* An operation on tensors that lie one after the other in r->in and r->out. */
struct fused {
    struct coll_op op;
    struct coll_tensor tensors[MOST_TENSORS];
    size_t bytes;
};

static void fused_init(struct fused *f, struct rank *r, enum hvd_dtype dtype, enum hvd_op op,
                       const size_t *counts, size_t n, bool in_place)
{
    size_t at = r->salt % 67, size = hvd_dtype_size(dtype);
    *f = (struct fused){0};
    r->salt++;
    for (size_t i = 0; i < n; i++) {
        uint8_t *in = r->in + at, *out = in_place ? in : r->out + r->salt * 13 % 64 + at;
        f->tensors[i] = (struct coll_tensor){.in = in, .out = out, .count = counts[i]};
        pattern_fill(dtype, op, r->mesh->rank, r->mesh->size, i, counts[i], r->salt, in);
        at += counts[i] * size;
    }
    f->op = (struct coll_op){.kind = HVD_ALLREDUCE,
                             .dtype = dtype,
                             .op = op,
                             .prescale = 1.0,
                             .postscale = 1.0,
                             .contributors = r->mesh->size,
                             .tensors = f->tensors,
                             .n = n};
}

static int fused_check(const struct fused *f, const struct rank *r)
{
    for (size_t i = 0; i < f->op.n; i++) {
        const struct coll_tensor *t = &f->tensors[i];
        size_t bad =
            pattern_check(f->op.dtype, f->op.op, r->mesh->size, i, t->count, r->salt, t->out);
        if (bad < t->count) {
            fprintf(stderr, "rank %d of %d: %s %s %s: tensor %zu of %zu, element %zu of %zu\n",
                    r->mesh->rank, r->mesh->size, shm_allreduce_name(r->all),
                    hvd_dtype_name(f->op.dtype), hvd_op_name(f->op.op), i, f->op.n, bad, t->count);
            return 1;
        }
    }
    return 0;
}

/* As a caller that uses its tensors again at once. */
static void fused_spoil(const struct fused *f)
{
    for (size_t i = 0; i < f->op.n; i++) {
        size_t bytes = f->tensors[i].count * hvd_dtype_size(f->op.dtype);
        if (bytes > 0) {
            memset((void *)f->tensors[i].in, 0xa5, bytes);
            memset(f->tensors[i].out, 0xa5, bytes);
        }
    }
}

static int run_fused(struct rank *r, enum hvd_dtype dtype, enum hvd_op op, const size_t *counts,
                     size_t n, bool in_place)
{
    struct fused f;
    fused_init(&f, r, dtype, op, counts, n, in_place);
    shm_allreduce_start(r->all, &f.op);
    if (shm_host_drive(r->mesh, all_progress, r->all) != 0)
        return 2;
    int rc = fused_check(&f, r);
    fused_spoil(&f);
    return rc;
}

static bool allowed(enum hvd_dtype dtype, enum hvd_op op)
{
    return op != HVD_ADASUM && !(op == HVD_AVERAGE && dtype == HVD_BOOL);
}

/* ---- every dtype and operation -------------------------------------------------------------- */

static int matrix(struct mesh *mesh, void *ctx)
{
    struct rank r;
    (void)ctx;
    int rc = rank_init(&r, mesh, 3 << 20);
    for (int d = 0; rc == 0 && d < HVD_DTYPES; d++) {
        size_t size = hvd_dtype_size((enum hvd_dtype)d);
        size_t inline_most = SHM_INLINE_MAX / size;
        size_t symmetric_most = (1u << 20) / size / (unsigned)(mesh->size - 1);
        size_t counts[] = {0,
                           1,
                           3,
                           inline_most - 1,
                           inline_most,
                           inline_most + 1,
                           1000,
                           symmetric_most,
                           symmetric_most + 1};
        for (int op = 0; rc == 0 && op < HVD_OPS; op++)
            for (size_t c = 0; rc == 0 && c < sizeof(counts) / sizeof(counts[0]); c++) {
                bool large = c >= 7 && (op != HVD_SUM || (d != HVD_FLOAT16 && d != HVD_FLOAT64));
                if (!allowed((enum hvd_dtype)d, (enum hvd_op)op) || large)
                    continue;
                rc = run_fused(&r, (enum hvd_dtype)d, (enum hvd_op)op, &counts[c], 1, false);
                if (rc == 0)
                    rc = run_fused(&r, (enum hvd_dtype)d, (enum hvd_op)op, &counts[c], 1, true);
            }
    }
    return rank_fini(&r, rc);
}

static void test_matrix(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 8; ranks += ranks < 5 ? 1 : 3)
        assert_int_equal(shm_host_run(ranks, matrix, NULL, SECONDS), 0);
}

/* ---- operations one after the other, without a pause or with one ----------------------------- */

static size_t random_count(struct rank *r, size_t left)
{
    size_t n;
    switch (next_random(r) % 20) {
    case 0:
        n = 60000 + next_random(r) % 300000;
        break;
    case 1:
    case 2:
        n = next_random(r) % 5000;
        break;
    case 3:
    case 4:
    case 5:
        n = next_random(r) % 4;
        break;
    default:
        n = next_random(r) % 300;
    }
    return n < left ? n : left;
}

static int stress(struct mesh *mesh, void *ctx)
{
    struct rank r;
    (void)ctx;
    int rc = rank_init(&r, mesh, 3 << 19);
    unsigned own = (unsigned)mesh->rank * 77 + 1;
    for (int i = 0; rc == 0 && i < 80; i++) {
        size_t counts[MOST_TENSORS], n = 1 + next_random(&r) % (i % 2 ? MOST_TENSORS : 2);
        enum hvd_dtype dtype = (enum hvd_dtype)(next_random(&r) % HVD_DTYPES);
        size_t left = r.room / hvd_dtype_size(dtype);
        for (size_t k = 0; k < n; k++) {
            counts[k] = random_count(&r, left);
            left -= counts[k];
        }
        rc = run_fused(&r, dtype, HVD_SUM, counts, n, next_random(&r) % 2);
        own = own * 1664525 + 1013904223;
        if (own >> 28 == 0)
            usleep(own >> 8 & 1023);
        if (next_random(&r) % 50 == 0)
            mesh->generation++;
    }
    return rank_fini(&r, rc);
}

static void test_stress(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 7; ranks += ranks < 4 ? 1 : 3)
        assert_int_equal(shm_host_run(ranks, stress, NULL, SECONDS), 0);
}

/* Sizes of slices, cells and lines, and one beside them. */
static int boundaries(struct mesh *mesh, void *ctx)
{
    static const size_t bytes[] = {4096,    65536,          131072,    262144,
                                   1 << 20, 3 * 131072 * 2, 3 * 699008};
    struct rank r;
    (void)ctx;
    int rc = rank_init(&r, mesh, 4 << 20);
    for (size_t i = 0; rc == 0 && i < sizeof(bytes) / sizeof(bytes[0]); i++)
        for (int d = -1; rc == 0 && d <= 1; d++) {
            size_t count = bytes[i] / 4 + (size_t)d;
            rc = run_fused(&r, HVD_FLOAT32, HVD_AVERAGE, &count, 1, i % 2);
        }
    return rank_fini(&r, rc);
}

static void test_boundaries(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        assert_int_equal(shm_host_run(ranks, boundaries, NULL, SECONDS), 0);
}

/* ---- barriers, cancel, abort ---------------------------------------------------------------- */

static int barrier(struct mesh *mesh, void *ctx)
{
    struct rank r;
    (void)ctx;
    int rc = rank_init(&r, mesh, 4096);
    struct coll_op op = {.kind = HVD_BARRIER};
    for (uint64_t i = 1; rc == 0 && i <= 50; i++) {
        /* Beside what a barrier uses: a word of our own in the staging. */
        *(volatile uint64_t *)shm_staging_of(mesh->shm, mesh->rank) = i;
        shm_allreduce_start(r.all, &op);
        rc = shm_host_drive(mesh, all_progress, r.all);
        for (int k = 0; rc == 0 && k < mesh->size; k++)
            rc = *(volatile uint64_t *)shm_staging_of(mesh->shm, k) < i;
    }
    return rank_fini(&r, rc);
}

static void test_barrier(void **state)
{
    (void)state;
    assert_int_equal(shm_host_run(2, barrier, NULL, SECONDS), 0);
    assert_int_equal(shm_host_run(6, barrier, NULL, SECONDS), 0);
}

/* All but the last rank start; nothing may be written. Then a new generation. */
static int cancelled(struct rank *r, size_t count)
{
    struct fused f;
    bool starts = r->mesh->rank != r->mesh->size - 1;
    int rc = 0;
    fused_init(&f, r, HVD_FLOAT32, HVD_SUM, &count, 1, false);
    memset(f.tensors[0].out, 0x33, count * 4);
    if (starts)
        shm_allreduce_start(r->all, &f.op);
    for (int i = 0; starts && i < 100; i++) {
        if (shm_allreduce_progress(r->all) != 1)
            return 3;
        usleep(50);
    }
    for (size_t i = 0; i < count * 4; i++)
        if (((uint8_t *)f.tensors[0].out)[i] != 0x33)
            rc = 4;
    if (starts)
        shm_allreduce_cancel(r->all);
    r->mesh->generation++;
    return rc;
}

static int cancel(struct mesh *mesh, void *ctx)
{
    static const size_t counts[] = {1, 64, 65, 100000, 1000000};
    struct rank r;
    (void)ctx;
    int rc = rank_init(&r, mesh, 4 << 20);
    for (size_t i = 0; rc == 0 && i < 15; i++) {
        size_t count = counts[i % 5], other = counts[(i + 1 + i / 5) % 5];
        rc = cancelled(&r, count);
        if (rc == 0)
            rc = run_fused(&r, HVD_FLOAT32, HVD_SUM, &other, 1, i % 2);
    }
    return rank_fini(&r, rc);
}

static void test_cancel(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++)
        assert_int_equal(shm_host_run(ranks, cancel, NULL, SECONDS), 0);
}

static int abort_one(struct mesh *mesh, void *ctx)
{
    const size_t *count = ctx;
    struct rank r;
    struct fused f;
    int rc = rank_init(&r, mesh, 4 << 20);
    fused_init(&f, &r, HVD_FLOAT32, HVD_SUM, count, 1, true);
    if (rc == 0 && mesh->rank == 1) {
        usleep(20000);
        shm_abort(mesh->shm, 1);
    } else if (rc == 0) {
        shm_allreduce_start(r.all, &f.op);
        rc = shm_host_drive(mesh, all_progress, r.all) == -ECONNRESET ? 0 : 5;
    }
    return rank_fini(&r, rc);
}

static void test_abort(void **state)
{
    (void)state;
    static size_t counts[] = {1, 1000, 1000000};
    for (int i = 0; i < 3; i++)
        assert_int_equal(shm_host_run(3, abort_one, &counts[i], SECONDS), 0);
}

/* ---- scale ---------------------------------------------------------------------------------- */

static int scaled(struct mesh *mesh, void *ctx)
{
    static const size_t counts[] = {5, 5000, 700001};
    struct rank r;
    (void)ctx;
    int rc = rank_init(&r, mesh, 4 << 20);
    for (size_t c = 0; rc == 0 && c < 3; c++) {
        struct fused f;
        fused_init(&f, &r, HVD_FLOAT32, HVD_AVERAGE, &counts[c], 1, c % 2);
        f.op.prescale = 4.0;
        f.op.postscale = 0.25;
        shm_allreduce_start(r.all, &f.op);
        rc = shm_host_drive(mesh, all_progress, r.all);
        if (rc == 0)
            rc = fused_check(&f, &r);
    }
    return rank_fini(&r, rc);
}

static void test_scale(void **state)
{
    (void)state;
    assert_int_equal(shm_host_run(3, scaled, NULL, SECONDS), 0);
}

/* ---- pieces of several hosts ---------------------------------------------------------------- */

struct hosts {
    int lanes, hosts;
};

static int drive_pieces(struct rank *r)
{
    return shm_host_drive(r->mesh, pieces_progress, r->pieces);
}

/* The work becomes valid little by little, as a ring would have it. */
static int drive_gather(struct rank *r, size_t bytes)
{
    for (size_t ready = 0; ready < bytes; ready += 100000) {
        shm_pieces_set_ready(r->pieces, ready);
        int rc = shm_pieces_progress(r->pieces);
        if (rc != 1)
            return rc;
    }
    shm_pieces_set_ready(r->pieces, bytes);
    return drive_pieces(r);
}

static int through_work(struct rank *r, const struct hosts *h, enum hvd_dtype dtype,
                        const size_t *counts, size_t n)
{
    struct fused f;
    fused_init(&f, r, dtype, HVD_SUM, counts, n, r->salt % 2);
    struct layout layout = {.tensors = f.tensors,
                            .n = n,
                            .elem = hvd_dtype_size(dtype),
                            .pieces = (size_t)(h->lanes * h->hosts)};
    struct reduce_plan plan = {
        .dtype = dtype, .op = HVD_SUM, .prescale = 1.0, .divisor = 1, .postscale = 1.0};
    bool owner = r->mesh->rank < h->lanes;
    uint8_t *work = malloc(r->room + SLACK), *at = work;
    int rc = work ? 0 : -1;
    for (int seg = 0; rc == 0 && seg < 2 * h->hosts; seg++) {
        size_t first = (size_t)(seg % h->hosts);
        struct shm_share share = {&layout, first, (size_t)h->hosts, h->lanes};
        size_t bytes =
            owner ? layout_piece_bytes(&layout, first + (size_t)(r->mesh->rank * h->hosts)) : 0;
        if (seg == h->hosts)
            at = work;
        if (seg < h->hosts) {
            shm_pieces_reduce_scatter(r->pieces, &share, &plan, true, owner ? at : NULL);
            rc = drive_pieces(r);
            rc = rc == 0 && owner && shm_pieces_ready(r->pieces) != bytes ? 6 : rc;
        } else {
            shm_pieces_allgather(r->pieces, &share, at);
            rc = drive_gather(r, bytes);
        }
        at += bytes;
    }
    if (rc == 0)
        rc = fused_check(&f, r);
    fused_spoil(&f);
    free(work);
    return rc;
}

static int pieces(struct mesh *mesh, void *ctx)
{
    struct rank r;
    int rc = rank_init(&r, mesh, 4 << 20);
    for (int i = 0; rc == 0 && i < 15; i++) {
        size_t counts[MOST_TENSORS], n = 1 + next_random(&r) % (i % 2 ? MOST_TENSORS : 2);
        enum hvd_dtype dtype = (enum hvd_dtype)(next_random(&r) % HVD_DTYPES);
        size_t left = r.room / hvd_dtype_size(dtype);
        for (size_t k = 0; k < n; k++) {
            counts[k] = random_count(&r, left);
            left -= counts[k];
        }
        rc = through_work(&r, ctx, dtype, counts, n);
    }
    return rank_fini(&r, rc);
}

static void test_pieces(void **state)
{
    (void)state;
    static struct hosts shapes[] = {{1, 2}, {2, 3}, {3, 1}, {2, 1}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int ranks = shapes[i].lanes < 2 ? 2 : shapes[i].lanes; ranks <= 4; ranks += 2)
            assert_int_equal(shm_host_run(ranks, pieces, &shapes[i], SECONDS), 0);
}

static int gather_once(struct rank *r, const size_t *bytes)
{
    uint8_t *out[SHM_MAX_SEATS], *at = r->out;
    int rc = 0;
    for (int i = 0; i < r->mesh->size; i++) {
        out[i] = at;
        at += bytes[i];
    }
    r->salt++;
    pattern_fill(HVD_UINT8, HVD_SUM, r->mesh->rank, 1, 0, bytes[r->mesh->rank], r->salt, r->in);
    shm_pieces_gather(r->pieces, r->in, out, bytes);
    rc = drive_pieces(r);
    for (int i = 0; rc == 0 && i < r->mesh->size; i++)
        for (size_t k = 0; rc == 0 && k < bytes[i]; k++)
            rc = out[i][k] == (uint8_t)pattern_value(HVD_UINT8, HVD_SUM, i, 1, k, r->salt) ? 0 : 7;
    memset(r->in, 0xa5, r->room);
    return rc;
}

static int gather(struct mesh *mesh, void *ctx)
{
    struct rank r;
    (void)ctx;
    int rc = rank_init(&r, mesh, 4 << 20);
    for (unsigned i = 0; rc == 0 && i < 12; i++) {
        size_t bytes[SHM_MAX_SEATS] = {0};
        for (int k = 0; k < mesh->size; k++)
            bytes[k] = next_random(&r) % (i % 2 ? 200000 : 1000);
        rc = gather_once(&r, bytes);
        size_t one[SHM_MAX_SEATS] = {0};
        one[i % (unsigned)mesh->size] = next_random(&r) % 900000;
        if (rc == 0)
            rc = gather_once(&r, one);
    }
    return rank_fini(&r, rc);
}

static void test_gather(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 5; ranks++)
        assert_int_equal(shm_host_run(ranks, gather, NULL, SECONDS), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrix),     cmocka_unit_test(test_stress),
        cmocka_unit_test(test_boundaries), cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_cancel),     cmocka_unit_test(test_abort),
        cmocka_unit_test(test_scale),      cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_gather),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
