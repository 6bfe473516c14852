/* SPDX-License-Identifier: Apache-2.0
 *
 * control: see control.h.
 */
#include "core/engine/control.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/engine/blocked.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/launch_order.h"
#include "core/negotiate/rendezvous.h"

enum {
    CONTROL_NEGOTIATE = 1,
    CONTROL_FAREWELL,
    CONTROL_WHOLE,
    CONTROL_RENDEZVOUS,
    CONTROL_BLOCKED,
    CONTROL_ASKED,
    CONTROL_ORDER,
};

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

int control_init(struct circle *c, struct err *err)
{
    struct control *t = &c->control;
    size_t size = (size_t)c->size;
    *t = (struct control){.parent = parent_of(c->mesh)};
    t->children = calloc(size, sizeof(*t->children));
    t->links = calloc(size + 1, sizeof(struct link *));
    t->departed = calloc(size, sizeof(*t->departed));
    /* Reserves room for a farewell, whose sender could not report a failed allocation. */
    if (!t->children || !t->links || !t->departed || !buf_reserve(&t->out, 64))
        return err_set(err, ENOMEM, "no memory for control links");
    for (int r = 0; r < c->size; r++) {
        if (is_child(c->mesh, r))
            t->children[t->nchildren++] = r;
    }
    for (int i = 0; i < t->nchildren; i++) {
        t->links[i] = mesh_link(c->mesh, t->children[i], LINK_CONTROL);
        if (!t->links[i])
            return err_set(err, ENOMEM, "no memory for the link to rank %d", t->children[i]);
    }
    if (t->parent >= 0 && !(t->links[t->nchildren] = mesh_link(c->mesh, t->parent, LINK_CONTROL)))
        return err_set(err, ENOMEM, "no memory for the link to rank %d", t->parent);
    return 0;
}

void control_fini(struct control *t)
{
    free(t->children);
    free(t->links);
    free(t->departed);
    buf_fini(&t->in);
    buf_fini(&t->out);
    memset(t, 0, sizeof(*t));
}

static int peer_at(const struct control *t, int i)
{
    return i < t->nchildren ? t->children[i] : t->parent;
}

/* The peer's number in messages: that in the job, also where c is a set's circle. */
static int name_at(const struct circle *c, int i)
{
    return circle_world_rank(c, peer_at(&c->control, i));
}

/* links[i] has failed with rc. Returns true when its connection has ended, and that is expected:
 * the peer has sent a farewell, or has moved on to the next epoch. */
static bool ended_in_peace(struct circle *c, int i, int rc)
{
    struct engine *e = c->engine;
    struct control *t = &c->control;
    int peer = peer_at(t, i);
    if (rc == -ENOMEM && c->state != CIRCLE_FAILED) /* a message is missing, and the peer lives */
        return false;
    bool moved_on = e->boot.elastic && !t->departed[peer] && mesh_has_left(c->mesh, peer);
    if (!moved_on && !t->departed[peer] && circle_works(c))
        return false;
    t->moved_on |= moved_on;
    t->links[i] = NULL;
    return true;
}

/* i: index into links. */
static int post(struct circle *c, int i, const struct buf *msg)
{
    struct control *t = &c->control;
    if (!t->links[i])
        return 0;
    int rc = link_post(t->links[i], msg->data, msg->len);
    return rc < 0 && ended_in_peace(c, i, rc) ? 0 : rc;
}

void control_send_whole(struct circle *c, int i, uint64_t count)
{
    struct engine *e = c->engine;
    struct control *t = &c->control;
    buf_reset(&t->out);
    buf_put_u8(&t->out, CONTROL_WHOLE);
    buf_put_u64(&t->out, count);
    int rc = t->out.failed ? -ENOMEM : post(c, i, &t->out);
    if (rc < 0 && !e->trouble.code)
        err_set(&e->trouble, -rc, "control link to rank %d", name_at(c, i));
}

static int send(struct circle *c, int to, uint8_t type, const struct buf *msg)
{
    struct engine *e = c->engine;
    struct control *t = &c->control;
    int i = t->nchildren;
    if (e->trouble.code)
        return e->trouble.code; /* a message was lost, so later ones would be misread */
    if (to != NEGOTIATE_PARENT) {
        for (i = 0; i < t->nchildren && t->children[i] != to; i++)
            ;
        if (i == t->nchildren)
            return -EINVAL;
    }
    buf_reset(&t->out);
    buf_put_u8(&t->out, type);
    buf_put(&t->out, msg->data, msg->len);
    int rc = msg->failed || t->out.failed ? -ENOMEM : post(c, i, &t->out);
    if (rc < 0)
        err_set(&e->trouble, -rc, "control link to rank %d", name_at(c, i));
    return rc;
}

int control_send(void *ctx, int to, const struct buf *msg)
{
    return send(ctx, to, CONTROL_NEGOTIATE, msg);
}

int control_send_rendezvous(void *ctx, int to, const struct buf *msg)
{
    return send(ctx, to, CONTROL_RENDEZVOUS, msg);
}

int control_send_order(void *ctx, int to, const struct buf *msg)
{
    return send(ctx, to, CONTROL_ORDER, msg);
}

int control_send_blocked(struct circle *c, const struct buf *msg)
{
    return send(c, NEGOTIATE_PARENT, CONTROL_BLOCKED, msg);
}

int control_send_asked(struct circle *c, int to, const struct buf *msg)
{
    return send(c, to, CONTROL_ASKED, msg);
}

/* Records that the rank has left and forwards its farewell: upwards, or from the root downwards.
 * from: index of the link by which it came. */
static void farewell(struct circle *c, int rank, int from)
{
    struct control *t = &c->control;
    bool down = from == t->nchildren || !t->links[t->nchildren];
    if (!t->departed[rank] && (down || rank == c->rank)) {
        t->departed[rank] = clock_ns();
        if (t->ndeparted++ == 0) {
            t->first_departed = rank;
            t->departed_ns = t->departed[rank];
        }
    }
    buf_reset(&t->out);
    buf_put_u8(&t->out, CONTROL_FAREWELL);
    buf_put_u32(&t->out, (uint32_t)rank);
    if (t->out.failed)
        return;
    if (!down)
        post(c, t->nchildren, &t->out);
    for (int i = 0; down && i < t->nchildren; i++)
        post(c, i, &t->out);
    if (down && c->rendezvous && !c->engine->failed)
        rendezvous_departed(c->rendezvous, rank);
}

void control_farewell(struct circle *c)
{
    farewell(c, c->rank, -1);
}

static int dispatch(struct circle *c, int from, const struct buf *msg, struct err *err)
{
    struct engine *e = c->engine;
    struct control *t = &c->control;
    struct reader r = reader_over(msg->data, msg->len);
    uint8_t type = reader_u8(&r);
    int who = from == t->nchildren ? NEGOTIATE_PARENT : t->children[from];
    bool ended = e->failed || e->conflict.code; /* negotiation */
    if (type == CONTROL_RENDEZVOUS && c->rendezvous)
        return ended ? 0
                     : rendezvous_recv(c->rendezvous, who, r.data + r.pos, r.len - r.pos,
                                       clock_ns(), err);
    if (type == CONTROL_ORDER && c->order)
        return ended ? 0 : launch_order_recv(c, who, r.data + r.pos, r.len - r.pos, err);
    if (type == CONTROL_NEGOTIATE && ended)
        return 0;
    if (type == CONTROL_NEGOTIATE) {
        return negotiate_recv(c->neg, who, r.data + r.pos, r.len - r.pos, clock_ns(), err);
    }
    if (type == CONTROL_WHOLE) {
        uint64_t count = reader_u64(&r);
        int rc = reader_ok(&r) ? whole_take(c, from, count) : -EPROTO;
        return rc < 0 ? err_set(err, EPROTO, "invalid count of operations on GPUs") : 0;
    }
    if (type == CONTROL_BLOCKED || type == CONTROL_ASKED) {
        int rc = ended                     ? 0
                 : type == CONTROL_BLOCKED ? blocked_recv(c, from, &r)
                                           : blocked_recv_asked(c, from, &r);
        return rc < 0 ? err_set(err, EPROTO, "invalid report of a blocked rank") : 0;
    }
    uint32_t rank = reader_u32(&r);
    if (type != CONTROL_FAREWELL || !reader_ok(&r) || rank >= (uint32_t)c->size)
        return err_set(err, EPROTO, "invalid control message");
    /* Ignores this rank's own farewell when the root sends it back to a leaf. */
    if ((int)rank != c->rank || from != t->nchildren || t->nchildren > 0)
        farewell(c, (int)rank, from);
    return 0;
}

bool control_progress(struct circle *c)
{
    struct engine *e = c->engine;
    struct control *t = &c->control;
    bool moved = false;
    struct err err = {0};
    for (int i = 0; i <= t->nchildren; i++) {
        int rc = 0;
        while (t->links[i] && !e->broken && (rc = link_take(t->links[i], &t->in)) == 0) {
            moved = true;
            rc = dispatch(c, i, &t->in, &err);
            if (rc < 0) {
                err_prefix(&err, "rank %d", name_at(c, i));
                engine_lost(c, err.msg, rc);
                return true;
            }
        }
        if (rc < 0 && !e->broken && !ended_in_peace(c, i, rc)) {
            engine_lost(c, "control link", rc);
            return true; /* a repair may have replaced the links */
        }
    }
    return moved;
}

int control_flush(struct circle *c)
{
    struct control *t = &c->control;
    int left = 0;
    for (int i = 0; i <= t->nchildren; i++)
        left |= t->links[i] && link_flush(t->links[i]) == 1;
    return left;
}
