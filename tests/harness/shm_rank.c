/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_rank: see shm_rank.h.
 */
#include "tests/harness/shm_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/pattern.h"
#include "tests/harness/shm_host.h"

int shm_rank_init(struct shm_rank *r, struct mesh *mesh, size_t room)
{
    *r = (struct shm_rank){.mesh = mesh, .room = room, .random = 1};
    r->in = malloc(room + SHM_RANK_SLACK);
    r->out = malloc(room + SHM_RANK_SLACK);
    if (!r->in || !r->out || shm_pieces_create(mesh, &r->pieces, NULL) < 0)
        return -1;
    return shm_allreduce_create(mesh, r->pieces, &r->all, NULL);
}

int shm_rank_fini(struct shm_rank *r, int rc)
{
    shm_allreduce_destroy(r->all);
    shm_pieces_destroy(r->pieces);
    free(r->in);
    free(r->out);
    return rc;
}

unsigned shm_rank_random(struct shm_rank *r)
{
    r->random = r->random * 1664525 + 1013904223;
    return r->random >> 8;
}

static size_t random_count(struct shm_rank *r, size_t left)
{
    size_t n;
    switch (shm_rank_random(r) % 20) {
    case 0:
        n = 60000 + shm_rank_random(r) % 300000;
        break;
    case 1:
    case 2:
        n = shm_rank_random(r) % 5000;
        break;
    case 3:
    case 4:
    case 5:
        n = shm_rank_random(r) % 4;
        break;
    default:
        n = shm_rank_random(r) % 300;
    }
    return n < left ? n : left;
}

void shm_rank_counts(struct shm_rank *r, size_t elem, size_t *ret_counts, size_t n)
{
    size_t left = r->room / elem;
    for (size_t k = 0; k < n; k++) {
        ret_counts[k] = random_count(r, left);
        left -= ret_counts[k];
    }
}

static int all_progress(void *ctx)
{
    return shm_allreduce_progress(ctx);
}

static int pieces_progress(void *ctx)
{
    return shm_pieces_progress(ctx);
}

int shm_rank_drive(struct shm_rank *r)
{
    return shm_host_drive(r->mesh, all_progress, r->all);
}

int shm_rank_drive_pieces(struct shm_rank *r)
{
    return shm_host_drive(r->mesh, pieces_progress, r->pieces);
}

void shm_fused_init(struct shm_fused *f, struct shm_rank *r, enum hvd_dtype dtype, enum hvd_op op,
                    const size_t *counts, size_t n, bool in_place)
{
    size_t at = r->salt % 67, size = hvd_dtype_size(dtype);
    *f = (struct shm_fused){0};
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
                             .device = -1,
                             .tensors = f->tensors,
                             .n = n};
}

int shm_fused_check(const struct shm_fused *f, const struct shm_rank *r)
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

void shm_fused_spoil(const struct shm_fused *f)
{
    for (size_t i = 0; i < f->op.n; i++) {
        size_t bytes = f->tensors[i].count * hvd_dtype_size(f->op.dtype);
        if (bytes > 0) {
            memset((void *)f->tensors[i].in, 0xa5, bytes);
            memset(f->tensors[i].out, 0xa5, bytes);
        }
    }
}
