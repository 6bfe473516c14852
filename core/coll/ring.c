/* SPDX-License-Identifier: Apache-2.0
 *
 * ring: see ring.h.
 *
 * Step t sends segment place - t and receives segment place - t - 1. A step sends what the step
 * before it has received. Steps before members - 1 carry partial sums. Receiving may be ahead of
 * sending as far as the peers allow: every segment has its own place in work, and bytes of a final
 * result arrive only after the partial sum in their place has been sent.
 */
#include "core/coll/ring.h"

#define BLOCK_MIN ((size_t)16 << 10)
#define BLOCK_MAX ((size_t)256 << 10)

size_t ring_block(size_t segment)
{
    size_t block = segment / 4 / 64 * 64;
    return block < BLOCK_MIN ? BLOCK_MIN : block > BLOCK_MAX ? BLOCK_MAX : block;
}

static int steps(const struct ring *ring)
{
    return 2 * (ring->members - 1);
}

static int seg_at(const struct ring *ring, int step)
{
    int seg = (ring->place - step) % ring->members;
    return seg < 0 ? seg + ring->members : seg;
}

static size_t seg_bytes(const struct ring *ring, int seg)
{
    return ring->offsets[seg + 1] - ring->offsets[seg];
}

/* Bytes of the block at a place whose segment is seg. */
static size_t block_len(const struct ring *ring, const struct ring_place *p, int seg)
{
    size_t left = seg_bytes(ring, seg) - p->off;
    return left < ring->block ? left : ring->block;
}

/* Moves to the next block that has bytes; shift: 0 for the sender, 1 for the receiver. */
static void skip(const struct ring *ring, struct ring_place *p, int shift)
{
    while (p->step < steps(ring) && p->off >= seg_bytes(ring, seg_at(ring, p->step + shift))) {
        p->step++;
        p->off = 0;
    }
}

void ring_start(struct ring *ring)
{
    ring->out = ring->in = (struct ring_place){.step = 0};
    ring->arrived = ring->merged = false;
    skip(ring, &ring->out, 0);
    skip(ring, &ring->in, 1);
}

int ring_open(struct ring *ring, struct coll *coll, const struct layout *layout, int lane,
              size_t *offsets, bool scratch, struct err *err)
{
    const struct mesh *mesh = coll->mesh;
    int p = mesh->hosts, me = mesh->host;
    size_t longest = 0;
    offsets[0] = 0;
    for (int k = 0; k < p; k++) {
        size_t bytes = layout_piece_bytes(layout, (size_t)lane * (size_t)p + (size_t)k);
        offsets[k + 1] = offsets[k] + bytes;
        longest = bytes > longest ? bytes : longest;
    }
    size_t block = ring_block(longest), packed = (offsets[p] + 63) / 64 * 64;
    uint8_t *work = coll_work(coll, packed + (scratch ? block : 0));
    struct link *next = coll_link(coll, mesh_rank_at(mesh, (me + 1) % p, lane));
    struct link *prev = coll_link(coll, mesh_rank_at(mesh, (me + p - 1) % p, lane));
    if (!work || !next || !prev)
        return err_set(err, ENOMEM, "no memory for an allreduce of %zu bytes", offsets[p]);
    ring->members = p;
    ring->place = me;
    ring->next = next;
    ring->prev = prev;
    ring->tag = coll_tag(coll, 0, 0);
    ring->offsets = offsets;
    ring->work = work;
    ring->scratch = scratch ? work + packed : NULL;
    ring->block = block;
    ring_start(ring);
    return 0;
}

static uint64_t tag_of(const struct ring *ring, const struct ring_place *p)
{
    return ring->tag + ((uint64_t)p->step << 24) + p->off / ring->block;
}

/* The next block to send; NULL: it is not ready yet. */
static const void *to_send(struct ring *ring, int seg, size_t len)
{
    const struct ring_place *out = &ring->out, *in = &ring->in;
    uint8_t *at = ring->work + ring->offsets[seg] + out->off;
    if (out->step == 0)
        return ring->ops->first(ring->ctx, seg, out->off, len, at);
    if (in->step > out->step - 1)
        return at;
    if (in->step == out->step - 1 && (in->off > out->off || (in->off == out->off && ring->merged)))
        return at;
    return NULL;
}

/* 0: sent a block, 1: would have to wait, 2: all are sent. */
static int send_block(struct ring *ring)
{
    struct ring_place *out = &ring->out;
    if (out->step == steps(ring))
        return 2;
    int seg = seg_at(ring, out->step);
    size_t len = block_len(ring, out, seg);
    if (!out->msg.active) {
        const void *at = to_send(ring, seg, len);
        if (!at)
            return 1;
        message_start(&out->msg, ring->next, tag_of(ring, out), (void *)at, len);
    }
    int rc = message_send(&out->msg, len);
    if (rc == 0) {
        out->off += len;
        skip(ring, out, 0);
    }
    return rc;
}

/* 0: received a block, 1: would have to wait, 2: all are received. */
static int recv_block(struct ring *ring)
{
    struct ring_place *in = &ring->in;
    if (in->step == steps(ring))
        return 2;
    int seg = seg_at(ring, in->step + 1), rc;
    size_t len = block_len(ring, in, seg);
    uint8_t *at = ring->work + ring->offsets[seg] + in->off;
    bool sums = in->step <= ring->members - 2;
    uint8_t *to = sums && ring->scratch ? ring->scratch : at;
    if (!ring->arrived) {
        if (!in->msg.active)
            message_start(&in->msg, ring->prev, tag_of(ring, in), to, len);
        if ((rc = message_recv(&in->msg)) != 0)
            return rc;
        ring->arrived = true;
    }
    bool last = in->step == ring->members - 2;
    if (sums && !ring->merged &&
        (rc = ring->ops->merge(ring->ctx, seg, in->off, len, at, to, last)) != 0)
        return rc;
    ring->merged = true;
    if (in->step >= ring->members - 2 &&
        (rc = ring->ops->deliver(ring->ctx, seg, in->off, len, at)) != 0)
        return rc;
    ring->arrived = ring->merged = false;
    in->off += len;
    skip(ring, in, 1);
    return 0;
}

int ring_progress(struct ring *ring)
{
    for (;;) {
        int sent = send_block(ring);
        if (sent < 0)
            return sent;
        int received = recv_block(ring);
        if (received < 0)
            return received;
        if (sent == 2 && received == 2)
            return 0;
        if (sent != 0 && received != 0)
            return 1;
    }
}

void ring_cancel(struct ring *ring)
{
    message_cancel_send(&ring->out.msg);
    message_cancel_recv(&ring->in.msg);
}
