/* SPDX-License-Identifier: Apache-2.0
 *
 * channel: see p2p_private.h: the life of a channel, and what this rank sends.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/p2p/p2p_private.h"

#define CREDIT_BYTES (P2P_KEPT / 4) /* the peer is told of so many freed bytes at a time */

/* ---- life ----------------------------------------------------------------------------------- */

struct channel *channel_create(int peer, bool introduces)
{
    struct channel *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->peer = peer;
    c->introduces = introduces;
    list_init(&c->at);
    list_init(&c->waiting);
    list_init(&c->asked);
    list_init(&c->granted);
    list_init(&c->granting);
    list_init(&c->copying);
    list_init(&c->receiving);
    return c;
}

void channel_destroy(struct channel *c)
{
    if (!c)
        return;
    if (c->rx_new && c->rx_new->op) /* else match has it */
        arrival_free(c->rx_new);
    free(c->rx_waste);
    free(c);
}

bool channel_sends_for_ops(const struct channel *c)
{
    return !list_empty(&c->waiting) || !list_empty(&c->granted) || !list_empty(&c->granting);
}

bool channel_has_output(const struct channel *c)
{
    return c->sending || channel_sends_for_ops(c) || c->freed >= CREDIT_BYTES;
}

/* The peer's credit is of use when half of it is gone. */
bool channel_needs_input(const struct channel *c)
{
    return c->nposted > 0 || c->reading || !list_empty(&c->asked) || !list_empty(&c->receiving) ||
           c->kept > P2P_KEPT / 2;
}

bool channel_moves(const struct channel *c)
{
    return c->sending || c->reading || !list_empty(&c->granted) || !list_empty(&c->receiving) ||
           !list_empty(&c->copying) || c->copied > 0;
}

void channel_take_large(struct channel *c, struct p2p_op *op, const struct arrival *large)
{
    op->from = c->peer;
    op->peer_id = large->id;
    op->id = ++c->ids;
    op->expected = large->bytes;
    op->address = large->address;
    list_append(&c->granting, &op->at);
}

void channel_copy(struct channel *c)
{
    struct p2p_op *op = list_first(&c->copying, struct p2p_op, at);
    size_t left = op->expected - op->moved, n = left < FRAME_CHUNK ? left : FRAME_CHUNK;
    uint64_t pid = c->process.pid;
    bool failed = direct_read(pid, op->data + op->moved, op->address + op->moved, n) < 0;
    op->moved += n;
    if (!failed && op->moved < op->expected)
        return;
    /* Without the mark, the sender's operation may have ended meanwhile, and its memory changed. */
    if (failed || !direct_works(&c->process)) {
        op->moved = 0;
        c->process.pid = 0; /* if the process has ended, the mesh finds out */
    }
    list_remove(&op->at);
    list_append(&c->granting, &op->at);
}

/* ---- frames --------------------------------------------------------------------------------- */

static void begin(struct channel *c, enum frame type, uint64_t number, void *data, size_t len)
{
    c->sending = type;
    xfer_start(&c->tx, c->out, frame_tag(type, number), data, len);
}

static void put_u64(uint8_t *dst, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        dst[i] = (uint8_t)(v >> (8 * i));
}

static void begin_process(struct p2p *p, struct channel *c)
{
    put_u64(c->tx_body, p->own.pid);
    put_u64(c->tx_body + 8, p->own.address);
    memcpy(c->tx_body + 16, p->own.mark, DIRECT_MARK);
    c->introduces = false;
    begin(c, FRAME_PROCESS, 0, c->tx_body, 32);
}

/* Whether no bytes of the large message are to be sent: it does not fit, was copied, or is empty
 * (and sent as a large one because the peer keeps too many). */
static bool is_over(const struct p2p_op *op)
{
    return op->expected > op->bytes || op->moved == op->expected;
}

static void begin_grant(struct channel *c)
{
    struct p2p_op *op = list_first(&c->granting, struct p2p_op, at);
    c->tx_op = op;
    op->copies = c->process.pid > 0;
    put_u64(c->tx_body, is_over(op) ? 0 : op->copies ? GRANT_COPIES : op->id);
    begin(c, FRAME_GRANT, op->peer_id, c->tx_body, 8);
}

static void begin_credit(struct channel *c)
{
    put_u64(c->tx_body, c->freed);
    c->freed = 0;
    begin(c, FRAME_CREDIT, 0, c->tx_body, 8);
}

static void begin_data(struct channel *c)
{
    struct p2p_op *op = list_first(&c->granted, struct p2p_op, at);
    size_t left = op->bytes - op->moved;
    c->tx_op = op;
    begin(c, FRAME_DATA, op->peer_id, op->data + op->moved,
          left < FRAME_CHUNK ? left : FRAME_CHUNK);
}

static void begin_message(struct channel *c)
{
    struct p2p_op *op = list_first(&c->waiting, struct p2p_op, at);
    c->tx_op = op;
    if (op->bytes <= P2P_EAGER && c->kept + message_cost(op->bytes) <= P2P_KEPT) {
        begin(c, FRAME_EAGER, op->tag, op->data, op->bytes);
        return;
    }
    op->id = ++c->ids;
    op->peer_id = 0;
    put_u64(c->tx_body, op->bytes);
    put_u64(c->tx_body + 8, op->id);
    put_u64(c->tx_body + 16, (uintptr_t)op->data);
    begin(c, FRAME_REQUEST, op->tag, c->tx_body, 24);
}

/* Begins the next frame. false: there is none. */
static bool begin_next(struct p2p *p, struct channel *c)
{
    bool messages = !list_empty(&c->waiting), data = !list_empty(&c->granted);
    c->tx_op = NULL;
    if (c->introduces)
        begin_process(p, c);
    else if (!list_empty(&c->granting))
        begin_grant(c);
    else if (c->freed >= CREDIT_BYTES)
        begin_credit(c);
    else if (data && !(messages && c->chunk_sent))
        begin_data(c);
    else if (messages)
        begin_message(c);
    else
        return false;
    c->chunk_sent = c->sending == FRAME_DATA;
    return true;
}

/* The link has the whole frame. */
static void sent(struct p2p *p, struct channel *c)
{
    struct p2p_op *op = c->tx_op;
    enum frame type = c->sending;
    c->sending = 0;
    if (!op) /* CREDIT, PROCESS */
        return;
    list_remove(&op->at);
    if (type == FRAME_GRANT && !is_over(op)) {
        list_append(op->copies ? &c->copying : &c->receiving, &op->at);
    } else if (type == FRAME_GRANT && op->expected > op->bytes) {
        p2p_too_small(p, op, c->peer, op->expected);
    } else if (type == FRAME_GRANT) {
        p2p_received(p, op, c->peer, op->expected);
    } else if (type == FRAME_REQUEST) {
        list_append(&c->asked, &op->at);
    } else if (type == FRAME_EAGER) {
        c->kept += message_cost(op->bytes);
        p2p_end(p, op, NULL);
    } else if (type == FRAME_DATA) {
        op->moved += c->tx.len;
        if (op->moved < op->bytes)
            list_append(&c->granted, &op->at);
        else
            p2p_end(p, op, NULL);
    }
}

int channel_send(struct p2p *p, struct channel *c, bool *moved)
{
    while (c->sending || begin_next(p, c)) {
        size_t before = c->tx.done + c->tx.header_done;
        int rc = xfer_send(&c->tx, c->tx.len);
        *moved = *moved || c->tx.done + c->tx.header_done > before;
        if (rc != 0)
            return rc < 0 ? rc : 0;
        sent(p, c);
    }
    return 0;
}
