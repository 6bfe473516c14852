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

static int begin_eager(struct p2p *p, struct channel *c, uint64_t tag, uint64_t len)
{
    uint32_t number = (uint32_t)tag;
    if (len > P2P_EAGER || c->holds + message_cost(len) > P2P_KEPT ||
        (tag & FRAME_NUMBER) > UINT32_MAX)
        return -EPROTO;
    struct p2p_op *op = p2p_take_posted(p, c, number);
    uint8_t *data = op ? op->data : NULL;
    c->rx_op = op;
    c->rx_new = NULL;
    if (op)
        op->from = c->peer;
    if (op && len > op->bytes && !(data = c->rx_waste = malloc(len)))
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

static int begin_data(struct channel *c, uint64_t tag, uint64_t len)
{
    struct p2p_op *op = find(&c->receiving, tag & FRAME_NUMBER);
    if (!op || len > op->expected - op->moved || (len == 0 && op->expected > 0))
        return -EPROTO;
    c->rx_op = op;
    read_into(c, FRAME_DATA, tag, op->data + op->moved, len);
    return 0;
}

static int begin(struct p2p *p, struct channel *c, uint64_t tag, uint64_t len)
{
    enum frame type = (enum frame)(tag >> 56);
    switch (type) {
    case FRAME_EAGER:
        return begin_eager(p, c, tag, len);
    case FRAME_DATA:
        return begin_data(c, tag, len);
    case FRAME_REQUEST:
    case FRAME_GRANT:
    case FRAME_CREDIT:
    case FRAME_PROCESS:
        if (len != (type == FRAME_REQUEST ? 24 : type == FRAME_PROCESS ? 32 : 8))
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
    if (op) {
        c->freed += message_cost(len);
        if (len > op->bytes)
            p2p_too_small(p, op, c->peer, len);
        else
            p2p_received(p, op, c->peer, len);
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
    p2p_deliver(p, a->op, c->peer, a->data, len);
    arrival_free(a);
}

static int end_request(struct p2p *p, struct channel *c)
{
    struct reader r = reader_over(c->rx_body, 24);
    struct arrival *unused, message = {.from = c->peer, .tag = (uint32_t)c->rx_number};
    message.bytes = reader_u64(&r);
    message.id = reader_u64(&r);
    message.address = reader_u64(&r);
    if (message.id == 0 || message.id > FRAME_NUMBER || c->rx_number > UINT32_MAX ||
        message.bytes > SIZE_MAX / 2)
        return -EPROTO;
    struct p2p_op *op = p2p_take_posted(p, c, message.tag);
    if (!op && c->nlarge >= LARGE_MAX)
        return -EPROTO;
    if (!op) {
        c->nlarge++;
        return keep(p, &message, &unused);
    }
    channel_take_large(c, op, &message);
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

static int end_grant(struct p2p *p, struct channel *c)
{
    struct reader r = reader_over(c->rx_body, 8);
    struct p2p_op *op = find(&c->asked, c->rx_number);
    if (!op)
        return -EPROTO;
    uint64_t before = op->peer_id, id = reader_u64(&r);
    if (id > FRAME_NUMBER && (id != GRANT_COPIES || before == GRANT_COPIES))
        return -EPROTO;
    op->peer_id = id;
    c->copied += id == GRANT_COPIES;
    c->copied -= before == GRANT_COPIES;
    if (id == GRANT_COPIES)
        return 0;
    list_remove(&op->at);
    if (id == 0)
        p2p_end(p, op, NULL);
    else
        list_append(&c->granted, &op->at);
    return 0;
}

static void end_data(struct p2p *p, struct channel *c)
{
    struct p2p_op *op = c->rx_op;
    c->rx_op = NULL;
    op->moved += c->rx.len;
    if (op->moved < op->expected)
        return;
    list_remove(&op->at);
    p2p_received(p, op, c->peer, op->expected);
}

static int end(struct p2p *p, struct channel *c)
{
    struct reader r = reader_over(c->rx_body, 8);
    enum frame type = c->reading;
    uint64_t bytes;
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
        bytes = reader_u64(&r);
        if (bytes > c->kept)
            return -EPROTO;
        c->kept -= bytes;
        return 0;
    case FRAME_PROCESS:
        return end_process(p, c);
    }
    return -EPROTO;
}

int channel_recv(struct p2p *p, struct channel *c, bool *moved)
{
    for (;;) {
        uint64_t tag, len;
        int rc = c->reading ? 0 : link_peek(c->in, &tag, &len);
        if (rc == 0 && !c->reading)
            rc = begin(p, c, tag, len);
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
