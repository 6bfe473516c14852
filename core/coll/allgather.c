/* SPDX-License-Identifier: Apache-2.0
 *
 * allgather: every rank gets the parts of all ranks, which may differ in length, in the order of
 * ranks. A ring over all ranks (members.h): each part goes once round the ring, and is forwarded
 * from the output while it is still arriving. Empty parts are sent as empty messages, so that a
 * rank that has finished knows that all have started. No work buffer is needed: parts are forwarded
 * from the output, and the transport has copied them when the operation finishes.
 */
#include <stdlib.h>
#include <string.h>

#include "core/coll/algorithms.h"
#include "core/coll/members.h"

struct allgather {
    struct members members;
    size_t *offsets; /* [size + 1] bytes in the output, by rank */
    struct link *next, *prev;
    int sent, received; /* parts done */
    struct message out, in;
};

static int allgather_init(struct coll *coll, void *state, struct err *err)
{
    struct allgather *a = state;
    int rc = members_init(&a->members, coll->mesh);
    if (rc < 0)
        return err_set(err, -rc, "no memory for collectives");
    a->offsets = calloc((size_t)coll->mesh->size + 1, sizeof(*a->offsets));
    if (!a->offsets) {
        members_fini(&a->members);
        return err_set(err, ENOMEM, "no memory for collectives");
    }
    return 0;
}

static void allgather_fini(void *state)
{
    struct allgather *a = state;
    members_fini(&a->members);
    free(a->offsets);
}

static bool allgather_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return op->kind == HVD_ALLGATHER;
}

/* The rank whose part is sent in step i; the part received in step i is that of
 * owner(a, i + 1). */
static int owner(const struct allgather *a, int i)
{
    int p = a->members.n;
    return a->members.ranks[(a->members.place + p - i) % p];
}

static size_t part_bytes(const struct allgather *a, int rank)
{
    return a->offsets[rank + 1] - a->offsets[rank];
}

static int allgather_start(struct coll *coll, void *state, struct err *err)
{
    struct allgather *a = state;
    const struct coll_op *op = coll->op;
    const struct mesh *mesh = coll->mesh;
    size_t elem = hvd_dtype_size(op->dtype);
    for (int r = 0; r < mesh->size; r++)
        a->offsets[r + 1] = a->offsets[r] + op->recv_counts[r] * elem;
    int p = a->members.n, me = a->members.place;
    a->next = coll_link(coll, a->members.ranks[(me + 1) % p]);
    a->prev = coll_link(coll, a->members.ranks[(me + p - 1) % p]);
    if (!a->next || !a->prev)
        return err_set(err, ENOMEM, "no memory for an allgather");
    a->sent = a->received = 0;
    uint8_t *own = (uint8_t *)op->tensors[0].out + a->offsets[mesh->rank];
    if (part_bytes(a, mesh->rank) > 0 && own != op->tensors[0].in)
        memmove(own, op->tensors[0].in, part_bytes(a, mesh->rank));
    return 0;
}

/* Sends the next part. 0: it has been sent, 1: would have to wait, 2: all have been sent. */
static int send_part(struct coll *coll, struct allgather *a)
{
    if (a->sent == a->members.n - 1)
        return 2;
    int rank = owner(a, a->sent);
    size_t ready = part_bytes(a, rank);
    if (a->sent > 0 && a->sent > a->received) {
        if (a->sent > a->received + 1 || !a->in.active)
            return 1;
        ready = a->in.x.done;
    }
    if (!a->out.active)
        message_start(&a->out, a->next, coll_tag(coll, (unsigned)a->sent, 0),
                      (uint8_t *)coll->op->tensors[0].out + a->offsets[rank], part_bytes(a, rank));
    int rc = message_send(&a->out, ready);
    a->sent += rc == 0;
    return rc;
}

static int recv_part(struct coll *coll, struct allgather *a)
{
    if (a->received == a->members.n - 1)
        return 2;
    int rank = owner(a, a->received + 1);
    if (!a->in.active)
        message_start(&a->in, a->prev, coll_tag(coll, (unsigned)a->received, 0),
                      (uint8_t *)coll->op->tensors[0].out + a->offsets[rank], part_bytes(a, rank));
    int rc = message_recv(&a->in);
    a->received += rc == 0;
    return rc;
}

static int allgather_progress(struct coll *coll, void *state)
{
    struct allgather *a = state;
    for (;;) {
        size_t before = a->in.x.done;
        int received = recv_part(coll, a);
        if (received < 0)
            return received;
        int sent = send_part(coll, a);
        if (sent < 0)
            return sent;
        if (sent == 2 && received == 2)
            return 0;
        if (sent != 0 && received != 0 && a->in.x.done == before)
            return 1;
    }
}

static void allgather_cancel(struct coll *coll, void *state)
{
    struct allgather *a = state;
    message_cancel_send(&a->out);
    message_cancel_recv(&a->in);
}

const struct algorithm allgather_algorithm = {
    .name = "allgather_ring",
    .state_size = sizeof(struct allgather),
    .applies = allgather_applies,
    .init = allgather_init,
    .fini = allgather_fini,
    .start = allgather_start,
    .progress = allgather_progress,
    .cancel = allgather_cancel,
};
