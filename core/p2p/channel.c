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
    list_init(&c->retained);
    list_init(&c->renewing);
    list_init(&c->larges);
    list_init(&c->stale);
    list_init(&c->waiting_again);
    list_init(&c->waiting);
    list_init(&c->asked);
    list_init(&c->granted);
    list_init(&c->granting);
    list_init(&c->copying);
    list_init(&c->receiving);
    list_init(&c->flying_out);
    list_init(&c->flying_in);
    return c;
}

/* The messages are match's. */
static void leave_larges(struct list *list)
{
    list_for_each(at, next, list)
    {
        list_remove(at);
    }
}

void channel_destroy(struct channel *c)
{
    if (!c)
        return;
    leave_larges(&c->larges);
    leave_larges(&c->stale);
    if (c->rx_new && c->rx_new->op) /* else match has it */
        arrival_free(c->rx_new);
    list_for_each(at, next, &c->retained)
    {
        free(list_entry(at, struct retained, at));
    }
    if (c->sending == FRAME_EAGER && c->tx_op) /* else it is in retained */
        free(c->tx_copy);
    free(c->rx_waste);
    free(c->answers);
    free(c);
}

bool channel_sends_for_ops(const struct channel *c)
{
    return !list_empty(&c->waiting) || !list_empty(&c->granted) || !list_empty(&c->granting);
}

bool channel_has_output(const struct channel *c)
{
    return c->sending || channel_sends_for_ops(c) || c->renews || c->nanswers > 0 ||
           c->freed - c->told >= CREDIT_BYTES;
}

/* The peer's credit is of use when half of it is gone. */
bool channel_needs_input(const struct channel *c)
{
    return c->nposted > 0 || c->reading || c->resumes || !list_empty(&c->asked) ||
           !list_empty(&c->receiving) || !list_empty(&c->waiting_again) ||
           channel_kept(c) > P2P_KEPT / 2;
}

/* Whether bytes of a message in the list are on their way. The first ones of a GPU's memory may
 * have to wait for its program's work. */
static bool any_moves(const struct list *list)
{
    list_for_each(at, next, list)
    {
        const struct p2p_op *op = list_entry(at, struct p2p_op, at);
        bool waits = op->sends ? op->staged : !is_address(op->address);
        if (op->moved > 0 || !waits)
            return true;
    }
    return false;
}

bool channel_moves(const struct channel *c)
{
    return c->sending || c->reading || any_moves(&c->granted) || any_moves(&c->receiving) ||
           !list_empty(&c->copying) || c->copied > 0;
}

void channel_take_large(struct channel *c, struct p2p_op *op, const struct arrival *large)
{
    op->from = c->peer;
    op->peer_id = large->id;
    op->id = ++c->ids;
    op->expected = large->bytes;
    op->serial = large->serial;
    op->address = large->address;
    list_append(large->stale ? &c->waiting_again : &c->granting, &op->at);
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

/* No bytes of the large message are to be sent: it does not fit, has come, or is empty (and sent as
 * a large one because the peer keeps too many). */
bool channel_is_over(const struct p2p_op *op)
{
    return op->expected > op->bytes || op->moved == op->expected;
}

void channel_end_receive(struct p2p *p, struct channel *c, struct p2p_op *op)
{
    if (op->expected > op->bytes)
        p2p_too_small(p, op, c->peer, op->expected);
    else
        p2p_received(p, op, c->peer, op->expected);
}

static bool can_fly(const struct p2p *p, const struct p2p_op *op, size_t bytes)
{
    return op->staged && p->stage->can_fly && p->stage->can_fly(p->stage->ctx, op, bytes);
}

/* The first receive to be answered. One whose memory may not be written yet has to wait: its bytes
 * would stop the link. NULL: all have to. */
static struct p2p_op *next_grant(const struct p2p *p, struct channel *c)
{
    list_for_each(at, next, &c->granting)
    {
        struct p2p_op *op = list_entry(at, struct p2p_op, at);
        if (!op->staged || channel_is_over(op) || p->stage->opens(p->stage->ctx, op))
            return op;
    }
    return NULL;
}

static void begin_grant(const struct p2p *p, struct channel *c, struct p2p_op *op)
{
    c->tx_op = op;
    bool over = channel_is_over(op);
    op->copies = c->process.pid > 0 && is_address(op->address) && !op->staged;
    op->flies = op->address == REQUEST_FLIES && !over && can_fly(p, op, op->expected);
    put_u64(c->tx_body, over ? 0 : op->copies ? GRANT_COPIES : op->flies ? GRANT_FLIES : op->id);
    begin(c, FRAME_GRANT, op->peer_id, c->tx_body, 8);
}

/* This rank has the message, and no operation for it any more. */
static void begin_answer(struct channel *c)
{
    put_u64(c->tx_body, 0);
    begin(c, FRAME_GRANT, c->answers[--c->nanswers], c->tx_body, 8);
}

static void begin_credit(struct channel *c)
{
    put_u64(c->tx_body, c->freed);
    put_u64(c->tx_body + 8, c->seen);
    c->told = c->freed;
    begin(c, FRAME_CREDIT, 0, c->tx_body, 16);
}

/* The first send whose next bytes are in host memory; they are at *ret_data. NULL: there is none.
 */
static struct p2p_op *next_data(const struct p2p *p, struct channel *c, const uint8_t **ret_data)
{
    list_for_each(at, next, &c->granted)
    {
        struct p2p_op *op = list_entry(at, struct p2p_op, at);
        const uint8_t *data =
            op->staged ? p->stage->fetch(p->stage->ctx, op) : op->data + op->moved;
        *ret_data = data;
        if (data)
            return op;
    }
    return NULL;
}

static void begin_data(struct channel *c, struct p2p_op *op, const uint8_t *data)
{
    size_t left = op->bytes - op->moved;
    c->tx_op = op;
    begin(c, FRAME_DATA, op->peer_id, (void *)(uintptr_t)data,
          left < FRAME_CHUNK ? left : FRAME_CHUNK);
}

static void begin_request(const struct p2p *p, struct channel *c, struct p2p_op *op)
{
    op->flies = can_fly(p, op, op->bytes);
    op->confirmed = false;
    put_u64(c->tx_body, op->bytes);
    put_u64(c->tx_body + 8, op->id);
    put_u64(c->tx_body + 16, op->flies ? REQUEST_FLIES : op->staged ? 0 : (uintptr_t)op->data);
    c->tx_op = op;
    begin(c, FRAME_REQUEST, op->tag, c->tx_body, 24);
}

static struct retained *copy_of(const struct p2p_op *op, uint64_t serial)
{
    struct retained *r = malloc(sizeof(*r) + op->bytes);
    if (!r)
        return NULL;
    *r = (struct retained){.serial = serial, .tag = op->tag, .bytes = op->bytes};
    if (op->bytes > 0)
        memcpy(r->data, op->data, op->bytes);
    return r;
}

/* Whether the message goes with its tag. Without memory for a copy it is a large one. */
static bool is_eager(struct p2p *p, struct channel *c, const struct p2p_op *op)
{
    if (op->staged || op->bytes > P2P_EAGER || channel_kept(c) + message_cost(op->bytes) > P2P_KEPT)
        return false;
    c->tx_copy = p->elastic ? copy_of(op, c->sent + 1) : NULL;
    return !p->elastic || c->tx_copy;
}

static void begin_message(struct p2p *p, struct channel *c)
{
    struct p2p_op *op = list_first(&c->waiting, struct p2p_op, at);
    if (is_eager(p, c, op)) {
        c->tx_op = op;
        begin(c, FRAME_EAGER, op->tag, op->data, op->bytes);
        return;
    }
    op->serial = c->sent + 1;
    op->id = ++c->ids;
    op->peer_id = 0;
    begin_request(p, c, op);
}

/* Sends again, in the order of the serials, what the peer may not have; at last AT says that this
 * is all. */
static void begin_old(const struct p2p *p, struct channel *c)
{
    struct retained *small =
        c->next_old == &c->retained ? NULL : list_entry(c->next_old, struct retained, at);
    struct p2p_op *large =
        list_empty(&c->renewing) ? NULL : list_first(&c->renewing, struct p2p_op, at);
    if (small && large && large->serial < small->serial)
        small = NULL;
    else if (small)
        large = NULL;
    bool over = !small && !large;
    uint64_t serial = small ? small->serial : large ? large->serial : c->sent + 1;
    if (over || serial != c->stream + 1) {
        put_u64(c->tx_body, serial);
        c->stream = serial - 1;
        c->renews = !over;
        begin(c, FRAME_AT, 0, c->tx_body, 8);
    } else if (large) {
        begin_request(p, c, large);
    } else if (small) {
        c->tx_copy = small;
        begin(c, FRAME_EAGER, small->tag, small->data, small->bytes);
    }
}

/* Begins the next frame. false: there is none. */
static bool begin_next(struct p2p *p, struct channel *c)
{
    bool messages = !list_empty(&c->waiting);
    struct p2p_op *op;
    const uint8_t *data;
    c->tx_op = NULL;
    if (c->introduces)
        begin_process(p, c);
    else if ((op = next_grant(p, c)) != NULL)
        begin_grant(p, c, op);
    else if (c->nanswers > 0)
        begin_answer(c);
    else if (c->freed - c->told >= CREDIT_BYTES)
        begin_credit(c);
    else if (c->renews)
        begin_old(p, c);
    else if (!(messages && c->chunk_sent) && (op = next_data(p, c, &data)) != NULL)
        begin_data(c, op, data);
    else if (messages)
        begin_message(p, c);
    else
        return false;
    c->chunk_sent = c->sending == FRAME_DATA;
    return true;
}

void channel_stop_sending(struct channel *c)
{
    c->sending = 0;
    c->tx_copy = NULL; /* it is in `retained` */
    c->renews = false;
    c->nanswers = 0;
    c->told = c->freed;
}

void channel_acked(struct channel *c, uint64_t serial)
{
    c->acked = serial;
    list_for_each(at, next, &c->retained)
    {
        struct retained *r = list_entry(at, struct retained, at);
        if (r->serial > serial || (c->sending == FRAME_EAGER && c->tx_copy == r))
            return;
        if (c->next_old == at)
            c->next_old = next;
        list_remove(at);
        free(r);
    }
}

/* The link has the whole of a message. Counts the message, unless it was counted in an earlier
 * epoch and is sent again. */
static void count_message(struct channel *c, enum frame type, const struct p2p_op *op)
{
    struct retained *copy = c->tx_copy;
    c->tx_copy = NULL;
    c->stream++;
    if (type == FRAME_EAGER && !op) {
        c->next_old = copy->at.next;
        channel_acked(c, c->acked);
        return;
    }
    if (c->stream <= c->sent)
        return;
    c->sent = c->stream;
    if (type == FRAME_EAGER)
        c->charged += message_cost(op->bytes);
    if (copy)
        list_append(&c->retained, &copy->at);
}

/* The link has the whole frame. */
static void sent(struct p2p *p, struct channel *c)
{
    struct p2p_op *op = c->tx_op;
    enum frame type = c->sending;
    c->sending = 0;
    if (type == FRAME_EAGER || type == FRAME_REQUEST)
        count_message(c, type, op);
    if (!op)
        return;
    list_remove(&op->at);
    if (type == FRAME_GRANT && !channel_is_over(op)) {
        list_append(op->copies ? &c->copying : op->flies ? &c->flying_in : &c->receiving, &op->at);
        if (op->flies)
            p->stage->fly(p->stage->ctx, op);
    } else if (type == FRAME_GRANT) {
        channel_end_receive(p, c, op);
    } else if (type == FRAME_REQUEST) {
        list_append(&c->asked, &op->at);
    } else if (type == FRAME_EAGER) {
        p2p_end(p, op, NULL);
    } else if (type == FRAME_DATA) {
        if (op->staged)
            p->stage->sent(p->stage->ctx, op);
        op->moved += c->tx.len;
        if (op->moved < op->bytes)
            list_append(&c->granted, &op->at);
        else if (p->elastic)
            list_append(&c->asked, &op->at);
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
