/* SPDX-License-Identifier: Apache-2.0
 *
 * channel_recv: see p2p_private.h: what the peer sends.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/p2p/p2p_private.h"

/* ---- the beginning of a frame ---------------------------------------------------------------- */

static void read_into(struct channel *c, enum frame type, uint64_t tag, void *data, size_t len)
{
    c->reading = type;
    c->rx_number = tag & FRAME_NUMBER;
    xfer_start(&c->rx, c->in, tag, data, len);
}

/* Keeps the message, in its place among those of the peer. */
static int keep(struct p2p *p, const struct arrival *message, struct arrival **ret)
{
    struct arrival *a = calloc(1, sizeof(*a));
    if (a)
        *a = *message;
    if (a && !a->id)
        a->data = malloc(a->bytes > 0 ? a->bytes : 1);
    if (!a || (!a->id && !a->data)) {
        free(a);
        return -ENOMEM;
    }
    match_keep(&p->match, a);
    *ret = a;
    return 0;
}

/* Whether the next message is one that this rank has, which the peer sends again. */
static bool is_seen(const struct channel *c)
{
    return c->at_serial < c->seen;
}

/* The receive that takes a new message; NULL: none waits for it. */
static struct p2p_op *receive_for(struct p2p *p, struct channel *c, uint64_t serial, uint32_t tag)
{
    struct p2p_op *op = channel_taken(c, serial);
    return op ? op : p2p_take_posted(p, c, tag);
}

static int begin_eager(struct p2p *p, struct channel *c, uint64_t tag, uint64_t len)
{
    uint32_t number = (uint32_t)tag;
    bool seen = is_seen(c);
    if (len > P2P_EAGER || (tag & FRAME_NUMBER) > UINT32_MAX)
        return -EPROTO;
    c->rx_op = NULL;
    c->rx_new = NULL;
    if (seen) {
        c->rx_waste = malloc(len + 1);
        if (!c->rx_waste)
            return -ENOMEM;
        read_into(c, FRAME_EAGER, tag, c->rx_waste, len);
        return 0;
    }
    if (c->holds + message_cost(len) > P2P_KEPT)
        return -EPROTO;
    struct p2p_op *op = receive_for(p, c, c->seen + 1, number);
    uint8_t *data = op ? op->data : NULL;
    c->rx_op = op;
    if (op)
        op->from = c->peer;
    if (op && (len > op->bytes || op->staged) && !(data = c->rx_waste = malloc(len + 1)))
        return -ENOMEM;
    if (!op) {
        const struct arrival message = {.from = c->peer, .tag = number, .bytes = len, .held = true};
        int rc = keep(p, &message, &c->rx_new);
        if (rc < 0)
            return rc;
        c->holds += message_cost(len);
        data = c->rx_new->data;
    }
    read_into(c, FRAME_EAGER, tag, data, len);
    return 0;
}

static struct p2p_op *find(struct list *list, uint64_t id)
{
    list_for_each(at, next, list)
    {
        struct p2p_op *op = list_entry(at, struct p2p_op, at);
        if (op->id == id)
            return op;
    }
    return NULL;
}

static int begin_data(struct p2p *p, struct channel *c, uint64_t tag, uint64_t len)
{
    struct p2p_op *op = find(&c->receiving, tag & FRAME_NUMBER);
    if (!op || len > op->expected - op->moved || (len == 0 && op->expected > 0) ||
        (op->staged && len > P2P_PART))
        return -EPROTO;
    uint8_t *data = op->staged ? p->stage->room(p->stage->ctx, op) : op->data + op->moved;
    if (!data)
        return 1;
    c->rx_op = op;
    read_into(c, FRAME_DATA, tag, data, len);
    return 0;
}

static uint64_t body_size(enum frame type)
{
    return type == FRAME_REQUEST ? 24 : type == FRAME_PROCESS ? 32 : type == FRAME_CREDIT ? 16 : 8;
}

/* 1: there is no room for it yet. */
static int begin(struct p2p *p, struct channel *c, uint64_t tag, uint64_t len)
{
    enum frame type = (enum frame)(tag >> 56);
    switch (type) {
    case FRAME_EAGER:
        return begin_eager(p, c, tag, len);
    case FRAME_DATA:
        return begin_data(p, c, tag, len);
    case FRAME_REQUEST:
    case FRAME_GRANT:
    case FRAME_CREDIT:
    case FRAME_PROCESS:
    case FRAME_AT:
        if (len != body_size(type))
            return -EPROTO;
        read_into(c, type, tag, c->rx_body, len);
        return 0;
    }
    return -EPROTO;
}

/* ---- its end -------------------------------------------------------------------------------- */

static void end_eager(struct p2p *p, struct channel *c)
{
    struct p2p_op *op = c->rx_op;
    struct arrival *a = c->rx_new;
    size_t len = c->rx.len;
    c->rx_op = NULL;
    c->rx_new = NULL;
    if (is_seen(c)) {
        c->at_serial++;
        free(c->rx_waste);
        c->rx_waste = NULL;
        return;
    }
    c->seen = ++c->at_serial;
    if (op) {
        c->freed += message_cost(len);
        if (len <= op->bytes && !op->staged)
            p2p_received(p, op, c->peer, len);
        else
            p2p_deliver(p, op, c->peer, &c->rx_waste, len);
        free(c->rx_waste);
        c->rx_waste = NULL;
        return;
    }
    a->have = len;
    if (!a->op)
        return;
    /* A receive has taken it in the meantime. */
    c->holds -= message_cost(len);
    c->freed += message_cost(len);
    p2p_deliver(p, a->op, c->peer, &a->data, len);
    arrival_free(a);
}

static int end_request(struct p2p *p, struct channel *c)
{
    struct reader r = reader_over(c->rx_body, 24);
    struct arrival *kept, message = {.from = c->peer, .tag = (uint32_t)c->rx_number};
    message.bytes = reader_u64(&r);
    message.id = reader_u64(&r);
    message.address = reader_u64(&r);
    if (message.id == 0 || message.id > FRAME_NUMBER || c->rx_number > UINT32_MAX ||
        message.bytes > SIZE_MAX / 2)
        return -EPROTO;
    message.serial = ++c->at_serial;
    if (message.serial <= c->seen)
        return channel_renewed(c, message.serial, message.id, message.address);
    c->seen = message.serial;
    struct p2p_op *op = receive_for(p, c, message.serial, message.tag);
    if (op) {
        channel_take_large(c, op, &message);
        return 0;
    }
    if (c->nlarge >= LARGE_MAX)
        return -EPROTO;
    int rc = keep(p, &message, &kept);
    if (rc < 0)
        return rc;
    c->nlarge++;
    list_append(&c->larges, &kept->larges);
    return 0;
}

static int end_at(struct channel *c)
{
    struct reader r = reader_over(c->rx_body, 8);
    uint64_t serial = reader_u64(&r);
    if (serial <= c->at_serial || serial > c->seen + 1)
        return -EPROTO;
    c->at_serial = serial - 1;
    if (serial > c->seen)
        c->resumes = false;
    return 0;
}

static int end_credit(struct channel *c)
{
    struct reader r = reader_over(c->rx_body, 16);
    uint64_t freed = reader_u64(&r), seen = reader_u64(&r);
    if (freed < c->credited || freed > c->charged || seen < c->acked || seen > c->sent)
        return -EPROTO;
    c->credited = freed;
    channel_acked(c, seen);
    return 0;
}

/* Only of a rank of this host: the address means nothing elsewhere. */
static int end_process(struct p2p *p, struct channel *c)
{
    const struct mesh *mesh = p->mesh;
    struct reader r = reader_over(c->rx_body, 32);
    struct direct_process process = {.pid = reader_u64(&r)};
    process.address = reader_u64(&r);
    memcpy(process.mark, c->rx_body + 16, DIRECT_MARK);
    if (!mesh->shm || mesh->host_of[c->peer] != mesh->host)
        return -EPROTO;
    c->process = direct_works(&process) ? process : (struct direct_process){.pid = 0};
    return 0;
}

/* In an elastic job: the receiver has a message that has not ended its flight here. */
static int confirm(struct channel *c, uint64_t id)
{
    struct p2p_op *op = find(&c->flying_out, c->rx_number);
    if (!op || id != 0)
        return -EPROTO;
    op->confirmed = true;
    return 0;
}

static int end_grant(struct p2p *p, struct channel *c)
{
    struct reader r = reader_over(c->rx_body, 8);
    struct p2p_op *op = find(&c->asked, c->rx_number);
    uint64_t id = reader_u64(&r);
    if (!op)
        return confirm(c, id);
    uint64_t before = op->peer_id;
    if (id > FRAME_NUMBER && id != GRANT_FLIES &&
        (id != GRANT_COPIES || before == GRANT_COPIES || op->staged))
        return -EPROTO;
    if (id == GRANT_FLIES && (!op->flies || before != 0))
        return -EPROTO;
    if (id != 0 && op->moved > 0) /* it has been asked for, and sent */
        return -EPROTO;
    op->peer_id = id;
    op->flies = id == GRANT_FLIES;
    c->copied += id == GRANT_COPIES;
    c->copied -= before == GRANT_COPIES;
    if (id == GRANT_COPIES)
        return 0;
    list_remove(&op->at);
    if (id == 0)
        p2p_end(p, op, NULL);
    else
        list_append(id == GRANT_FLIES ? &c->flying_out : &c->granted, &op->at);
    if (id == GRANT_FLIES)
        p->stage->fly(p->stage->ctx, op);
    return 0;
}

/* In an elastic job its sender keeps the message until it hears that it is here. */
static void end_data(struct p2p *p, struct channel *c)
{
    struct p2p_op *op = c->rx_op;
    c->rx_op = NULL;
    if (op->staged)
        p->stage->received(p->stage->ctx, op, c->rx.len);
    op->moved += c->rx.len;
    if (op->moved < op->expected)
        return;
    list_remove(&op->at);
    if (p->elastic)
        list_append(&c->granting, &op->at);
    else
        p2p_received(p, op, c->peer, op->expected);
}

static int end(struct p2p *p, struct channel *c)
{
    enum frame type = c->reading;
    c->reading = 0;
    switch (type) {
    case FRAME_EAGER:
        end_eager(p, c);
        return 0;
    case FRAME_REQUEST:
        return end_request(p, c);
    case FRAME_GRANT:
        return end_grant(p, c);
    case FRAME_DATA:
        end_data(p, c);
        return 0;
    case FRAME_CREDIT:
        return end_credit(c);
    case FRAME_PROCESS:
        return end_process(p, c);
    case FRAME_AT:
        return end_at(c);
    }
    return -EPROTO;
}

int channel_recv(struct p2p *p, struct channel *c, bool *moved)
{
    for (;;) {
        int rc = c->reading || c->peeked ? 0 : link_peek(c->in, &c->peeked_tag, &c->peeked_len);
        if (rc == 0 && !c->reading) {
            rc = begin(p, c, c->peeked_tag, c->peeked_len);
            c->peeked = rc == 1;
        }
        if (rc != 0)
            return rc < 0 ? rc : 0;
        size_t before = c->rx.done;
        rc = xfer_recv(&c->rx);
        *moved = *moved || rc == 0 || c->rx.done > before;
        if (rc != 0)
            return rc < 0 ? rc : 0;
        rc = end(p, c);
        if (rc < 0)
            return rc;
    }
}
