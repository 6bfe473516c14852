/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shm_pieces: one host's part in a job of several hosts: forked ranks reduce a segment into
 * its owners' work buffers, and distribute the results there as they become valid; blocks are
 * gathered.
 *
 * takes: 4 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/coll/reduce.h"
#include "tests/harness/pattern.h"
#include "tests/harness/shm_host.h"
#include "tests/harness/shm_rank.h"

enum { SECONDS = 200 };

struct hosts {
    int lanes, hosts;
};

/* The work buffer becomes valid little by little, as in a ring. */
static int drive_gather(struct shm_rank *r, size_t bytes)
{
    for (size_t ready = 0; ready < bytes; ready += 100000) {
        shm_pieces_set_ready(r->pieces, ready);
        int rc = shm_pieces_progress(r->pieces);
        if (rc != 1)
            return rc;
    }
    shm_pieces_set_ready(r->pieces, bytes);
    return shm_rank_drive_pieces(r);
}

static int through_work(struct shm_rank *r, const struct hosts *h, enum hvd_dtype dtype,
                        const size_t *counts, size_t n)
{
    struct shm_fused f;
    shm_fused_init(&f, r, dtype, HVD_SUM, counts, n, r->salt % 2);
    struct layout layout = {.tensors = f.tensors,
                            .n = n,
                            .elem = hvd_dtype_size(dtype),
                            .pieces = (size_t)(h->lanes * h->hosts)};
    struct reduce_plan plan = {
        .dtype = dtype, .op = HVD_SUM, .prescale = 1.0, .divisor = 1, .postscale = 1.0};
    bool owner = r->mesh->rank < h->lanes;
    uint8_t *work = malloc(r->room + SHM_RANK_SLACK), *at = work;
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
            rc = shm_rank_drive_pieces(r);
            rc = rc == 0 && owner && shm_pieces_ready(r->pieces) != bytes ? 6 : rc;
        } else {
            shm_pieces_allgather(r->pieces, &share, at);
            rc = drive_gather(r, bytes);
        }
        at += bytes;
    }
    if (rc == 0)
        rc = shm_fused_check(&f, r);
    shm_fused_spoil(&f);
    free(work);
    return rc;
}

static int pieces(struct mesh *mesh, void *ctx)
{
    struct shm_rank r;
    int rc = shm_rank_init(&r, mesh, 4 << 20);
    for (int i = 0; rc == 0 && i < 15; i++) {
        size_t counts[SHM_FUSED_MOST], n = 1 + shm_rank_random(&r) % (i % 2 ? SHM_FUSED_MOST : 2);
        enum hvd_dtype dtype = (enum hvd_dtype)(shm_rank_random(&r) % REDUCE_DTYPES);
        shm_rank_counts(&r, hvd_dtype_size(dtype), counts, n);
        rc = through_work(&r, ctx, dtype, counts, n);
    }
    return shm_rank_fini(&r, rc);
}

static void test_pieces(void **state)
{
    (void)state;
    static struct hosts shapes[] = {{1, 2}, {2, 3}, {3, 1}, {2, 1}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int ranks = shapes[i].lanes < 2 ? 2 : shapes[i].lanes; ranks <= 4; ranks += 2)
            assert_int_equal(shm_host_run(ranks, pieces, &shapes[i], SECONDS), 0);
}

static int gather_once(struct shm_rank *r, const size_t *bytes)
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
    rc = shm_rank_drive_pieces(r);
    for (int i = 0; rc == 0 && i < r->mesh->size; i++)
        for (size_t k = 0; rc == 0 && k < bytes[i]; k++)
            rc = out[i][k] == (uint8_t)pattern_value(HVD_UINT8, HVD_SUM, i, 1, k, r->salt) ? 0 : 7;
    memset(r->in, 0xa5, r->room);
    return rc;
}

static int gather(struct mesh *mesh, void *ctx)
{
    struct shm_rank r;
    (void)ctx;
    int rc = shm_rank_init(&r, mesh, 4 << 20);
    for (unsigned i = 0; rc == 0 && i < 12; i++) {
        size_t bytes[SHM_MAX_SEATS] = {0};
        for (int k = 0; k < mesh->size; k++)
            bytes[k] = shm_rank_random(&r) % (i % 2 ? 200000 : 1000);
        rc = gather_once(&r, bytes);
        size_t one[SHM_MAX_SEATS] = {0};
        one[i % (unsigned)mesh->size] = shm_rank_random(&r) % 900000;
        if (rc == 0)
            rc = gather_once(&r, one);
    }
    return shm_rank_fini(&r, rc);
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
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_gather),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
