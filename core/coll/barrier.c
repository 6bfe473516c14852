/* SPDX-License-Identifier: Apache-2.0
 *
 * barrier: no rank finishes before all have started. Dissemination barrier over links: in round i
 * each rank sends a message to the rank 2^i above it and receives one from the rank 2^i below;
 * log2(size) rounds. Also used for operations without elements.
 */
#include "core/coll/algorithms.h"

struct barrier {
    int distance;
    struct message out, in;
    bool sent, received;
};

static bool barrier_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return coll_is_empty(mesh, op);
}

static int barrier_start(struct coll *coll, void *state, struct err *err)
{
    *(struct barrier *)state = (struct barrier){.distance = 1};
    return 0;
}

/* Starts the messages of a round; -ENOMEM. */
static int barrier_round(struct coll *coll, struct barrier *b)
{
    const struct mesh *mesh = coll->mesh;
    struct link *up = coll_link(coll, (mesh->rank + b->distance) % mesh->size);
    struct link *down = coll_link(coll, (mesh->rank - b->distance + mesh->size) % mesh->size);
    if (!up || !down)
        return -ENOMEM;
    uint64_t tag = coll_tag(coll, (unsigned)b->distance, 0);
    message_start(&b->out, up, tag, NULL, 0);
    message_start(&b->in, down, tag, NULL, 0);
    return 0;
}

static int barrier_progress(struct coll *coll, void *state)
{
    struct barrier *b = state;
    while (b->distance < coll->mesh->size) {
        int rc;
        if (!b->out.active && !b->in.active && !b->sent && !b->received &&
            (rc = barrier_round(coll, b)) < 0)
            return rc;
        if (!b->sent) {
            if ((rc = message_send(&b->out, 0)) < 0)
                return rc;
            b->sent = rc == 0;
        }
        if (!b->received) {
            if ((rc = message_recv(&b->in)) < 0)
                return rc;
            b->received = rc == 0;
        }
        if (!b->sent || !b->received)
            return 1;
        b->sent = b->received = false;
        b->distance *= 2;
    }
    return 0;
}

static void barrier_cancel(struct coll *coll, void *state)
{
    struct barrier *b = state;
    message_cancel_send(&b->out);
    message_cancel_recv(&b->in);
}

const struct algorithm barrier_algorithm = {
    .name = "barrier",
    .state_size = sizeof(struct barrier),
    .applies = barrier_applies,
    .start = barrier_start,
    .progress = barrier_progress,
    .cancel = barrier_cancel,
};
