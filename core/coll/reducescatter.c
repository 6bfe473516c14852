/* SPDX-License-Identifier: Apache-2.0
 *
 * reducescatter: each rank gets its part of the sum, of any length. Every rank sends every other
 * rank its part, in chunks. The receiver sums each chunk of all ranks at once, in the order of
 * ranks, so the bits depend only on the ranks. The result is in the work buffer until everything
 * has been sent; then it is copied to the output, which may overlap the input.
 */
#include <stdlib.h>
#include <string.h>

#include "core/coll/algorithms.h"

#define CHUNK ((size_t)128 << 10) /* bytes from each peer; a multiple of every dtype's size */

/* The exchange with one other rank. */
struct exchange {
    struct message out, in;
    size_t out_off, in_off; /* bytes sent and received */
    bool out_done, in_done;
};

struct reducescatter {
    size_t *offsets;            /* [size + 1] bytes in the input, by rank */
    struct exchange *peers;     /* [size]; the own one is not used */
    const void **sources;       /* [size] */
    uint8_t *result, *incoming; /* result: own part; incoming: [size] chunks */
    size_t reduced;             /* bytes of the own part */
};

static void reducescatter_fini(void *state)
{
    struct reducescatter *s = state;
    free(s->offsets);
    free(s->peers);
    free(s->sources);
}

static int reducescatter_init(struct coll *coll, void *state, struct err *err)
{
    struct reducescatter *s = state;
    size_t n = (size_t)coll->mesh->size;
    s->offsets = calloc(n + 1, sizeof(*s->offsets));
    s->peers = calloc(n, sizeof(*s->peers));
    s->sources = calloc(n, sizeof(*s->sources));
    if (s->offsets && s->peers && s->sources)
        return 0;
    reducescatter_fini(s);
    return err_set(err, ENOMEM, "no memory for collectives");
}

static bool reducescatter_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return op->kind == HVD_REDUCESCATTER;
}

static size_t part_bytes(const struct reducescatter *s, int rank)
{
    return s->offsets[rank + 1] - s->offsets[rank];
}

static int reducescatter_start(struct coll *coll, void *state, struct err *err)
{
    struct reducescatter *s = state;
    const struct coll_op *op = coll->op;
    const struct mesh *mesh = coll->mesh;
    size_t elem = hvd_dtype_size(op->dtype), size = (size_t)mesh->size;
    for (int r = 0; r < mesh->size; r++)
        s->offsets[r + 1] = s->offsets[r] + op->recv_counts[r] * elem;
    size_t own = part_bytes(s, mesh->rank), rounded = (own + 63) / 64 * 64;
    size_t chunk = own < CHUNK ? rounded : CHUNK;
    s->result = coll_work(coll, rounded + size * chunk);
    if (!s->result)
        return err_set(err, ENOMEM, "no memory for a reducescatter of %zu bytes", s->offsets[size]);
    s->incoming = s->result + rounded;
    for (size_t r = 0; r < size; r++)
        s->sources[r] = s->incoming + r * chunk;
    memset(s->peers, 0, size * sizeof(*s->peers));
    s->reduced = 0;
    return 0;
}

static size_t chunk_len(size_t all, size_t off)
{
    return all - off < CHUNK ? all - off : CHUNK;
}

/* Sends rank its part as far as possible without waiting. An empty part is an empty message,
 * which tells that this rank has started. */
static int send_to(struct coll *coll, struct reducescatter *s, int rank)
{
    struct exchange *x = &s->peers[rank];
    size_t all = part_bytes(s, rank);
    while (!x->out_done) {
        size_t len = chunk_len(all, x->out_off);
        if (!x->out.active) {
            struct link *link = coll_link(coll, rank);
            if (!link)
                return -ENOMEM;
            message_start(&x->out, link, coll_tag(coll, 0, x->out_off / CHUNK),
                          (uint8_t *)coll->op->tensors[0].in + s->offsets[rank] + x->out_off, len);
        }
        int rc = message_send(&x->out, len);
        if (rc != 0)
            return rc;
        x->out_off += len;
        x->out_done = x->out_off == all;
    }
    return 0;
}

/* Receives rank's chunk of the current round. */
static int recv_from(struct coll *coll, struct reducescatter *s, int rank)
{
    struct exchange *x = &s->peers[rank];
    size_t all = part_bytes(s, coll->mesh->rank);
    if (x->in_done || x->in_off > s->reduced)
        return 0;
    size_t len = chunk_len(all, x->in_off);
    if (!x->in.active) {
        struct link *link = coll_link(coll, rank);
        if (!link)
            return -ENOMEM;
        message_start(&x->in, link, coll_tag(coll, 0, x->in_off / CHUNK), (void *)s->sources[rank],
                      len);
    }
    int rc = message_recv(&x->in);
    if (rc == 0) {
        x->in_off += len;
        x->in_done = x->in_off == all;
    }
    return rc;
}

static void reduce_chunk(struct coll *coll, struct reducescatter *s)
{
    const struct coll_op *op = coll->op;
    struct reduce_plan plan = coll_reduce_plan(op);
    int me = coll->mesh->rank;
    size_t len = chunk_len(part_bytes(s, me), s->reduced);
    const void *incoming = s->sources[me];
    s->sources[me] = (const uint8_t *)op->tensors[0].in + s->offsets[me] + s->reduced;
    if (len > 0)
        reduce(&plan, s->result + s->reduced, s->sources, coll->mesh->size,
               len / hvd_dtype_size(op->dtype), NULL, true, false);
    s->sources[me] = incoming;
    s->reduced += len;
}

static int reducescatter_progress(struct coll *coll, void *state)
{
    struct reducescatter *s = state;
    int me = coll->mesh->rank, size = coll->mesh->size, rc;
    size_t own = part_bytes(s, me);
    for (;;) {
        int unsent = 0, missing = 0;
        bool last = true;
        for (int i = 1; i < size; i++) {
            int to = (me + i) % size, from = (me - i + size) % size;
            if ((rc = send_to(coll, s, to)) < 0)
                return rc;
            unsent += rc;
            if ((rc = recv_from(coll, s, from)) < 0)
                return rc;
            missing += rc;
            last = last && s->peers[from].in_done;
        }
        if (missing > 0)
            return 1;
        if (s->reduced < own)
            reduce_chunk(coll, s);
        if (!last || s->reduced < own)
            continue;
        if (unsent > 0)
            return 1;
        if (own > 0)
            memcpy(coll->op->tensors[0].out, s->result, own);
        return 0;
    }
}

static void reducescatter_cancel(struct coll *coll, void *state)
{
    struct reducescatter *s = state;
    for (int r = 0; r < coll->mesh->size; r++) {
        message_cancel_send(&s->peers[r].out);
        message_cancel_recv(&s->peers[r].in);
    }
}

const struct algorithm reducescatter_algorithm = {
    .name = "reducescatter_pairwise",
    .state_size = sizeof(struct reducescatter),
    .applies = reducescatter_applies,
    .init = reducescatter_init,
    .fini = reducescatter_fini,
    .start = reducescatter_start,
    .progress = reducescatter_progress,
    .cancel = reducescatter_cancel,
};
