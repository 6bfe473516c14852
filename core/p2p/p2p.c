/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p: see p2p.h and p2p_private.h: operations from submission to end.
 */
#include "core/p2p/p2p.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/p2p/p2p_private.h"

/* ---- life ----------------------------------------------------------------------------------- */

int p2p_create(struct mesh *mesh, bool elastic, const struct p2p_stage *stage, p2p_done_f *done,
               void *ctx, struct p2p **ret, struct err *err)
{
    struct p2p *p = calloc(1, sizeof(*p));
    struct channel **of = calloc((size_t)mesh->size, sizeof(*of));
    if (!p || !of) {
        free(p);
        free(of);
        return err_set(err, ENOMEM, "no memory for messages");
    }
    p->mesh = mesh;
    p->rank = mesh->rank;
    p->size = mesh->size;
    p->elastic = elastic;
    p->stage = stage;
    p->done = done;
    p->ctx = ctx;
    p->of = of;
    if (!direct_own(p->mark, &p->own))
        p->own.pid = 0;
    match_init(&p->match);
    list_init(&p->channels);
    list_init(&p->ops);
    *ret = p;
    return 0;
}

void p2p_destroy(struct p2p *p)
{
    if (!p)
        return;
    list_for_each(at, next, &p->channels)
    {
        channel_destroy(list_entry(at, struct channel, at));
    }
    match_fini(&p->match);
    free(p->of);
    free(p);
}

/* Whether a rank of this host has to learn where this process's memory is. */
static bool introduces(const struct p2p *p, int peer)
{
    const struct mesh *mesh = p->mesh;
    return mesh && mesh->shm && mesh->host_of[peer] == mesh->host && p->own.pid > 0;
}

struct channel *p2p_channel(struct p2p *p, int peer)
{
    if (p->of[peer])
        return p->of[peer];
    struct channel *c = channel_create(peer, introduces(p, peer));
    if (c)
        list_append(&p->channels, &c->at);
    p->of[peer] = c;
    return c;
}

/* ---- ends ----------------------------------------------------------------------------------- */

void p2p_end(struct p2p *p, struct p2p_op *op, const struct err *err)
{
    list_remove(&op->all);
    p->done(p->ctx, op, err);
}

void p2p_received(struct p2p *p, struct p2p_op *op, int from, size_t bytes)
{
    op->from = from;
    op->got = bytes;
    p2p_end(p, op, NULL);
}

void p2p_too_small(struct p2p *p, struct p2p_op *op, int from, size_t bytes)
{
    struct err err = {.code = 0};
    err_set(&err, EMSGSIZE, "a message of %zu bytes with tag %u: there is room for %zu", bytes,
            op->tag, op->bytes);
    op->from = from;
    p2p_end(p, op, &err);
}

void p2p_deliver(struct p2p *p, struct p2p_op *op, int from, uint8_t **data, size_t bytes)
{
    if (bytes > op->bytes) {
        p2p_too_small(p, op, from, bytes);
        return;
    }
    if (op->staged) {
        op->kept = *data;
        *data = NULL;
    } else if (bytes > 0) {
        memcpy(op->data, *data, bytes);
    }
    p2p_received(p, op, from, bytes);
}

/* A message of this rank to itself has met its receive. */
static void deliver_own(struct p2p *p, struct p2p_op *op, struct p2p_op *send)
{
    if (send->bytes <= op->bytes && (op->staged || send->staged)) {
        list_remove(&send->all);
        op->source = send;
        p2p_received(p, op, send->peer, send->bytes);
        return;
    }
    p2p_deliver(p, op, send->peer, &send->data, send->bytes);
    p2p_end(p, send, NULL);
}

struct p2p_op *p2p_take_posted(struct p2p *p, struct channel *c, uint32_t tag)
{
    struct p2p_op *op = match_arrive(&p->match, c->peer, tag);
    if (op && op->peer != P2P_ANY)
        c->nposted--;
    return op;
}

/* ---- submission ----------------------------------------------------------------------------- */

static int send_to_self(struct p2p *p, struct p2p_op *op)
{
    struct p2p_op *to = match_arrive(&p->match, op->peer, op->tag);
    if (to) {
        deliver_own(p, to, op);
        return 0;
    }
    struct arrival *a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    *a = (struct arrival){.from = op->peer, .tag = op->tag, .bytes = op->bytes, .self = op};
    match_keep(&p->match, a);
    return 0;
}

/* The receive takes a message that has come before it. */
static void take_arrival(struct p2p *p, struct p2p_op *op, struct arrival *a)
{
    struct channel *c = p->of[a->from]; /* NULL: of this rank, or the peer is gone */
    if (a->data && a->have < a->bytes) {
        op->from = a->from;
        a->op = op; /* the channel goes on receiving it, and frees it */
        return;
    }
    if (a->self) {
        deliver_own(p, op, a->self);
    } else if (a->data) {
        if (c && a->held) {
            c->holds -= message_cost(a->bytes);
            c->freed += message_cost(a->bytes);
        }
        p2p_deliver(p, op, a->from, &a->data, a->bytes);
    } else {
        c->nlarge--;
        channel_take_large(c, op, a);
    }
    arrival_free(a);
}

static int post(struct p2p *p, struct p2p_op *op)
{
    struct channel *c = NULL;
    bool distant = op->peer != P2P_ANY && op->peer != p->rank;
    if (distant && !(c = p2p_channel(p, op->peer)))
        return -ENOMEM;
    struct arrival *a = match_post(&p->match, op);
    if (a)
        take_arrival(p, op, a);
    else if (c)
        c->nposted++;
    return 0;
}

static int send(struct p2p *p, struct p2p_op *op)
{
    if (op->peer == p->rank)
        return send_to_self(p, op);
    struct channel *c = p2p_channel(p, op->peer);
    if (!c)
        return -ENOMEM;
    list_append(&c->waiting, &op->at);
    return 0;
}

int p2p_submit(struct p2p *p, struct p2p_op *op, struct err *err)
{
    op->number = ++p->numbers;
    op->posted = false;
    op->moved = op->expected = op->got = 0;
    op->from = P2P_ANY;
    op->kept = NULL;
    op->source = NULL;
    op->flies = op->confirmed = false;
    list_init(&op->at);
    list_append(&p->ops, &op->all);
    int rc = op->sends ? send(p, op) : post(p, op);
    if (rc == 0)
        return 0;
    list_remove(&op->all);
    return err_set(err, ENOMEM, "no memory for a message");
}

/* ---- progress ------------------------------------------------------------------------------- */

static int read_from(struct p2p *p, struct channel *c, bool *moved)
{
    c->in = c->in ? c->in : mesh_link(p->mesh, c->peer, LINK_RECV);
    bool came = false;
    int rc = c->in ? channel_recv(p, c, &came) : -ENOMEM;
    c->news = c->news || came;
    *moved = *moved || came;
    return rc;
}

/* A peer that has shut down needs no credit. If its connection is closed already, what it has sent
 * can still be in the other one. */
static int write_to(struct p2p *p, struct channel *c, bool *moved)
{
    c->out = c->out ? c->out : mesh_link(p->mesh, c->peer, LINK_SEND);
    int rc = c->out ? channel_send(p, c, moved) : -ENOMEM;
    if (rc == -ECONNRESET && mesh_has_left(p->mesh, c->peer) && !channel_sends_for_ops(c)) {
        channel_stop_sending(c);
        rc = 0;
    }
    return rc;
}

static int move(struct p2p *p, struct channel *c, bool *moved)
{
    int rc = channel_has_output(c) ? write_to(p, c, moved) : 0;
    if (rc == 0 && channel_needs_input(c))
        rc = read_from(p, c, moved);
    if (rc == 0 && !list_empty(&c->copying)) {
        channel_copy(c);
        *moved = true;
    }
    /* What was received may have to be answered. */
    if (rc == 0 && channel_has_output(c) && c->out)
        rc = write_to(p, c, moved);
    return rc;
}

/* A receive takes a message of anybody: also peers that this rank has not met. */
static int move_any(struct p2p *p, bool *moved, int *ret_peer)
{
    for (int r = 0; p->match.nany > 0 && r < p->mesh->size; r++) {
        struct link *in = r == p->mesh->rank ? NULL : mesh_incoming(p->mesh, r);
        struct channel *c = in ? p2p_channel(p, r) : NULL;
        int rc = in ? c ? read_from(p, c, moved) : -ENOMEM : 0;
        if (rc < 0) {
            *ret_peer = r;
            return rc;
        }
    }
    return 0;
}

bool p2p_progress(struct p2p *p, int *ret_peer, int *ret_rc)
{
    bool moved = false;
    int rc = 0;
    if (!p->mesh)
        return false;
    list_for_each(at, next, &p->channels)
    {
        struct channel *c = list_entry(at, struct channel, at);
        rc = move(p, c, &moved);
        if (rc < 0) {
            *ret_peer = c->peer;
            *ret_rc = rc;
            return true;
        }
    }
    rc = move_any(p, &moved, ret_peer);
    if (rc < 0)
        *ret_rc = rc;
    return moved || rc < 0;
}

bool p2p_has_news(struct p2p *p, int peer)
{
    struct channel *c = p->of[peer];
    bool news = c && c->news;
    if (c)
        c->news = false;
    return news;
}

bool p2p_is_busy(const struct p2p *p)
{
    bool busy = !list_empty(&p->ops);
    list_for_each(at, next, &p->channels)
    {
        const struct channel *c = list_entry(at, struct channel, at);
        busy = busy || channel_has_output(c) || c->resumes;
    }
    return busy;
}

bool p2p_moves(const struct p2p *p)
{
    bool moves = false;
    list_for_each(at, next, &p->channels)
    {
        moves = moves || channel_moves(list_entry(at, struct channel, at));
    }
    return moves;
}

void p2p_each(struct p2p *p, void (*f)(void *ctx, struct p2p_op *op), void *ctx)
{
    list_for_each(at, next, &p->ops)
    {
        f(ctx, list_entry(at, struct p2p_op, all));
    }
}

const struct p2p_op *p2p_oldest(struct p2p *p)
{
    return list_empty(&p->ops) ? NULL : list_first(&p->ops, struct p2p_op, all);
}

void p2p_flown(struct p2p *p, struct p2p_op *op)
{
    struct channel *c = p->of[op->sends ? op->peer : op->from];
    list_remove(&op->at);
    op->moved = op->sends ? op->bytes : op->expected;
    if (op->sends && p->elastic && !op->confirmed)
        list_append(&c->asked, &op->at);
    else if (op->sends)
        p2p_end(p, op, NULL);
    else if (p->elastic)
        list_append(&c->granting, &op->at);
    else
        p2p_received(p, op, c->peer, op->expected);
}

/* ---- failure -------------------------------------------------------------------------------- */

/* Forgets what is in flight with the peer: the memory of operations is not touched any more. */
static void cut(struct p2p *p, struct channel *c)
{
    p->of[c->peer] = NULL;
    list_remove(&c->at);
    channel_destroy(c);
}

void p2p_fail(struct p2p *p, int peer, const struct err *err)
{
    if (peer < 0) /* before the caller can change what peers may be copying */
        direct_end(p->mark);
    list_for_each(op_at, op_next, &p->ops)
    {
        struct p2p_op *op = list_entry(op_at, struct p2p_op, all);
        if (peer >= 0 && op->peer != peer && (op->sends || op->from != peer))
            continue;
        if (op->posted)
            match_cancel(&p->match, op);
        else
            list_remove(&op->at);
        p2p_end(p, op, err);
    }
    list_for_each(at, next, &p->channels)
    {
        struct channel *c = list_entry(at, struct channel, at);
        if (peer < 0 || c->peer == peer)
            cut(p, c);
    }
    match_forget(&p->match, peer);
}

void p2p_fail_any(struct p2p *p, const struct err *err)
{
    list_for_each(at, next, &p->ops)
    {
        struct p2p_op *op = list_entry(at, struct p2p_op, all);
        if (op->sends || op->peer != P2P_ANY || !op->posted)
            continue;
        match_cancel(&p->match, op);
        p2p_end(p, op, err);
    }
}

/* ---- epochs --------------------------------------------------------------------------------- */

void p2p_suspend(struct p2p *p)
{
    if (!p->mesh)
        return;
    list_for_each(at, next, &p->channels)
    {
        channel_suspend(p, list_entry(at, struct channel, at));
    }
    p->mesh = NULL;
}

static void renumber_ops(struct p2p *p, const int *now)
{
    list_for_each(at, next, &p->ops)
    {
        struct p2p_op *op = list_entry(at, struct p2p_op, all);
        if (op->peer != P2P_ANY && !op->posted) /* match has done the others */
            op->peer = now[op->peer];
        if (op->from != P2P_ANY)
            op->from = now[op->from];
    }
}

int p2p_resume(struct p2p *p, struct mesh *mesh, const int *now, struct err *err)
{
    struct channel **of = calloc((size_t)mesh->size, sizeof(*of));
    if (!of)
        return err_set(err, ENOMEM, "no memory for messages");
    match_renumber(&p->match, now);
    renumber_ops(p, now);
    p->mesh = mesh;
    p->rank = mesh->rank;
    p->size = mesh->size;
    free(p->of);
    p->of = of;
    list_for_each(at, next, &p->channels)
    {
        struct channel *c = list_entry(at, struct channel, at);
        int peer = now[c->peer];
        if (peer < 0) {
            list_remove(&c->at);
            channel_destroy(c);
            continue;
        }
        of[peer] = c;
        channel_resume(c, peer, introduces(p, peer));
    }
    return 0;
}
