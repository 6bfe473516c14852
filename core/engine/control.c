/* SPDX-License-Identifier: Apache-2.0
 *
 * control: see control.h.
 */
#include "core/engine/control.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"

enum { CONTROL_NEGOTIATE = 1, CONTROL_FAREWELL, CONTROL_WHOLE };

/* The tree: rank 0 is the root, its children are the first ranks of the other hosts, and the first
 * rank of each host is the parent of that host's other ranks. */
static bool is_child(const struct mesh *m, int rank)
{
    if (m->local_rank != 0 || rank == m->rank)
        return false;
    if (m->host_of[rank] == m->host)
        return true;
    return m->rank == 0 && m->local_of[rank] == 0;
}

static int parent_of(const struct mesh *m)
{
    if (m->rank == 0)
        return -1;
    return m->local_rank ? mesh_rank_at(m, m->host, 0) : 0;
}

int control_init(struct engine *e, struct err *err)
{
    struct control *c = &e->control;
    size_t size = (size_t)e->size;
    *c = (struct control){.parent = parent_of(e->mesh)};
    c->departed_at = UINT64_MAX;
    c->children = calloc(size, sizeof(*c->children));
    c->links = calloc(size + 1, sizeof(struct link *));
    c->departed = calloc(size, sizeof(*c->departed));
    /* Reserves room for a farewell, whose sender could not report a failed allocation. */
    if (!c->children || !c->links || !c->departed || !buf_reserve(&c->out, 64))
        return err_set(err, ENOMEM, "no memory for control links");
    for (int r = 0; r < e->size; r++) {
        if (is_child(e->mesh, r))
            c->children[c->nchildren++] = r;
    }
    for (int i = 0; i < c->nchildren; i++) {
        c->links[i] = mesh_link(e->mesh, c->children[i], LINK_CONTROL);
        if (!c->links[i])
            return err_set(err, ENOMEM, "no memory for the link to rank %d", c->children[i]);
    }
    if (c->parent >= 0 && !(c->links[c->nchildren] = mesh_link(e->mesh, c->parent, LINK_CONTROL)))
        return err_set(err, ENOMEM, "no memory for the link to rank %d", c->parent);
    return 0;
}

void control_fini(struct control *c)
{
    free(c->children);
    free(c->links);
    free(c->departed);
    buf_fini(&c->in);
    buf_fini(&c->out);
    memset(c, 0, sizeof(*c));
}

static int peer_at(const struct control *c, int i)
{
    return i < c->nchildren ? c->children[i] : c->parent;
}

/* links[i] has lost its connection. Returns true when that is expected: the peer has sent a
 * farewell, or has moved on to the next epoch. */
static bool ended_in_peace(struct engine *e, int i)
{
    struct control *c = &e->control;
    int peer = peer_at(c, i);
    bool moved_on = e->boot.elastic && !c->departed[peer] && mesh_has_left(e->mesh, peer);
    if (!moved_on && !c->departed[peer])
        return false;
    c->moved_on |= moved_on;
    c->links[i] = NULL;
    return true;
}

/* i: index into links. */
static int post(struct engine *e, int i, const struct buf *msg)
{
    struct control *c = &e->control;
    if (!c->links[i])
        return 0;
    int rc = link_post(c->links[i], msg->data, msg->len);
    return rc < 0 && ended_in_peace(e, i) ? 0 : rc;
}

void control_send_whole(struct engine *e, int i, uint64_t count)
{
    struct control *c = &e->control;
    buf_reset(&c->out);
    buf_put_u8(&c->out, CONTROL_WHOLE);
    buf_put_u64(&c->out, count);
    int rc = c->out.failed ? -ENOMEM : post(e, i, &c->out);
    if (rc < 0 && !e->trouble.code)
        err_set(&e->trouble, -rc, "control link to rank %d", peer_at(c, i));
}

int control_send(void *ctx, int to, const struct buf *msg)
{
    struct engine *e = ctx;
    struct control *c = &e->control;
    int i = c->nchildren;
    if (e->trouble.code)
        return e->trouble.code; /* a message was lost, so later ones would be misread */
    if (to != NEGOTIATE_PARENT) {
        for (i = 0; i < c->nchildren && c->children[i] != to; i++)
            ;
        if (i == c->nchildren)
            return -EINVAL;
    }
    buf_reset(&c->out);
    buf_put_u8(&c->out, CONTROL_NEGOTIATE);
    buf_put(&c->out, msg->data, msg->len);
    int rc = msg->failed || c->out.failed ? -ENOMEM : post(e, i, &c->out);
    if (rc < 0)
        err_set(&e->trouble, -rc, "control link to rank %d", peer_at(c, i));
    return rc;
}

/* Records that the rank has left and forwards its farewell: upwards, or from the root downwards.
 * from: index of the link by which it came. */
static void farewell(struct engine *e, int rank, uint64_t frozen, int from)
{
    struct control *c = &e->control;
    bool down = from == c->nchildren || !c->links[c->nchildren];
    if (!c->departed[rank] && (down || rank == e->rank)) {
        c->departed[rank] = true;
        if (c->ndeparted++ == 0) {
            c->first_departed = rank;
            c->departed_ns = clock_ns();
        }
        if (rank != e->rank && frozen < c->departed_at)
            c->departed_at = frozen;
    }
    buf_reset(&c->out);
    buf_put_u8(&c->out, CONTROL_FAREWELL);
    buf_put_u32(&c->out, (uint32_t)rank);
    buf_put_u64(&c->out, frozen);
    if (c->out.failed)
        return;
    if (!down)
        post(e, c->nchildren, &c->out);
    for (int i = 0; down && i < c->nchildren; i++)
        post(e, i, &c->out);
}

void control_farewell(struct engine *e)
{
    farewell(e, e->rank, batches_frozen_done(&e->batches), -1);
}

static int dispatch(struct engine *e, int from, const struct buf *msg, struct err *err)
{
    struct control *c = &e->control;
    struct reader r = reader_over(msg->data, msg->len);
    uint8_t type = reader_u8(&r);
    if (type == CONTROL_NEGOTIATE && (e->failed || e->conflict.code))
        return 0; /* negotiation has ended */
    if (type == CONTROL_NEGOTIATE) {
        int who = from == c->nchildren ? NEGOTIATE_PARENT : c->children[from];
        return negotiate_recv(e->neg, who, r.data + r.pos, r.len - r.pos, clock_ns(), err);
    }
    if (type == CONTROL_WHOLE) {
        uint64_t count = reader_u64(&r);
        int rc = reader_ok(&r) ? whole_take(e, from, count) : -EPROTO;
        return rc < 0 ? err_set(err, EPROTO, "invalid count of operations on GPUs") : 0;
    }
    uint32_t rank = reader_u32(&r);
    uint64_t frozen = reader_u64(&r);
    if (type != CONTROL_FAREWELL || !reader_ok(&r) || rank >= (uint32_t)e->size)
        return err_set(err, EPROTO, "invalid control message");
    /* Ignores this rank's own farewell when the root sends it back to a leaf. */
    if ((int)rank != e->rank || from != c->nchildren || c->nchildren > 0)
        farewell(e, (int)rank, frozen, from);
    return 0;
}

bool control_progress(struct engine *e)
{
    struct control *c = &e->control;
    bool moved = false;
    struct err err = {0};
    for (int i = 0; i <= c->nchildren; i++) {
        int rc = 0;
        while (c->links[i] && !e->broken && (rc = link_take(c->links[i], &c->in)) == 0) {
            moved = true;
            rc = dispatch(e, i, &c->in, &err);
            if (rc < 0) {
                err_prefix(&err, "rank %d", peer_at(c, i));
                engine_lost(e, err.msg, rc);
                return true;
            }
        }
        if (rc < 0 && !e->broken && !ended_in_peace(e, i)) {
            engine_lost(e, "control link", rc);
            return true; /* a repair may have replaced the links */
        }
    }
    return moved;
}

int control_flush(struct engine *e)
{
    struct control *c = &e->control;
    int left = 0;
    for (int i = 0; i <= c->nchildren; i++)
        left |= c->links[i] && link_flush(c->links[i]) == 1;
    return left;
}
