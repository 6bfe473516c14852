/* SPDX-License-Identifier: Apache-2.0
 *
 * alltoall: each rank has a part for every other, of any length. Pairwise: in step i a rank sends
 * to the rank i above it and receives from the rank i below it; sending and receiving do not wait
 * for each other. Empty parts are sent as empty messages, so that a rank that has finished knows
 * that all have started.
 */
#include <stdlib.h>
#include <string.h>

#include "core/coll/algorithms.h"

struct alltoall {
    size_t *send_offsets, *recv_offsets; /* [size + 1] bytes */
    int sent, received;                  /* steps done */
    struct message out, in;
};

static int alltoall_init(struct coll *coll, void *state, struct err *err)
{
    struct alltoall *a = state;
    size_t n = (size_t)coll->mesh->size + 1;
    a->send_offsets = calloc(2 * n, sizeof(*a->send_offsets));
    if (!a->send_offsets)
        return err_set(err, ENOMEM, "no memory for collectives");
    a->recv_offsets = a->send_offsets + n;
    return 0;
}

static void alltoall_fini(void *state)
{
    free(((struct alltoall *)state)->send_offsets);
}

static bool alltoall_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return op->kind == HVD_ALLTOALL;
}

static int alltoall_start(struct coll *coll, void *state, struct err *err)
{
    struct alltoall *a = state;
    const struct coll_op *op = coll->op;
    int me = coll->mesh->rank, size = coll->mesh->size;
    size_t elem = hvd_dtype_size(op->dtype);
    for (int r = 0; r < size; r++) {
        a->send_offsets[r + 1] = a->send_offsets[r] + op->send_counts[r] * elem;
        a->recv_offsets[r + 1] = a->recv_offsets[r] + op->recv_counts[r] * elem;
    }
    const struct coll_tensor *t = &op->tensors[0];
    size_t own = op->send_counts[me] * elem;
    if (own > 0)
        memcpy((uint8_t *)t->out + a->recv_offsets[me],
               (const uint8_t *)t->in + a->send_offsets[me], own);
    a->sent = a->received = 1;
    return 0;
}

/* Sends the next part. 0: it has been sent, 1: would have to wait, 2: all have been sent. */
static int send_part(struct coll *coll, struct alltoall *a)
{
    const struct mesh *mesh = coll->mesh;
    if (a->sent == mesh->size)
        return 2;
    int to = (mesh->rank + a->sent) % mesh->size;
    size_t len = a->send_offsets[to + 1] - a->send_offsets[to];
    if (!a->out.active) {
        struct link *link = coll_link(coll, to);
        if (!link)
            return -ENOMEM;
        message_start(&a->out, link, coll_tag(coll, (unsigned)a->sent, 0),
                      (uint8_t *)coll->op->tensors[0].in + a->send_offsets[to], len);
    }
    int rc = message_send(&a->out, len);
    a->sent += rc == 0;
    return rc;
}

static int recv_part(struct coll *coll, struct alltoall *a)
{
    const struct mesh *mesh = coll->mesh;
    if (a->received == mesh->size)
        return 2;
    int from = (mesh->rank - a->received + mesh->size) % mesh->size;
    if (!a->in.active) {
        struct link *link = coll_link(coll, from);
        if (!link)
            return -ENOMEM;
        message_start(&a->in, link, coll_tag(coll, (unsigned)a->received, 0),
                      (uint8_t *)coll->op->tensors[0].out + a->recv_offsets[from],
                      a->recv_offsets[from + 1] - a->recv_offsets[from]);
    }
    int rc = message_recv(&a->in);
    a->received += rc == 0;
    return rc;
}

static int alltoall_progress(struct coll *coll, void *state)
{
    struct alltoall *a = state;
    for (;;) {
        int sent = send_part(coll, a);
        if (sent < 0)
            return sent;
        int received = recv_part(coll, a);
        if (received < 0)
            return received;
        if (sent == 2 && received == 2)
            return 0;
        if (sent != 0 && received != 0)
            return 1;
    }
}

static void alltoall_cancel(struct coll *coll, void *state)
{
    struct alltoall *a = state;
    message_cancel_send(&a->out);
    message_cancel_recv(&a->in);
}

const struct algorithm alltoall_algorithm = {
    .name = "alltoall_pairwise",
    .state_size = sizeof(struct alltoall),
    .applies = alltoall_applies,
    .init = alltoall_init,
    .fini = alltoall_fini,
    .start = alltoall_start,
    .progress = alltoall_progress,
    .cancel = alltoall_cancel,
};
