/* SPDX-License-Identifier: Apache-2.0
 *
 * channel_epoch: see p2p_private.h: what a channel keeps when the mesh ends, and how it goes on in
 * the next one. Between the two it has no links.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/p2p/p2p_private.h"

/* ---- what this rank sends -------------------------------------------------------------------- */

/* Puts a large send in its place: the order is that of the serials. */
static void insert(struct list *renewing, struct p2p_op *op)
{
    struct list *after = renewing->prev;
    while (after != renewing && list_entry(after, struct p2p_op, at)->serial > op->serial)
        after = after->prev;
    list_append(after->next, &op->at);
}

/* All large sends of the list will be announced again, and sent from their beginning. */
static void renew(struct p2p *p, struct channel *c, struct list *from)
{
    list_for_each(at, next, from)
    {
        struct p2p_op *op = list_entry(at, struct p2p_op, at);
        list_remove(at);
        if (op->staged)
            p->stage->drop(p->stage->ctx, op);
        op->peer_id = 0;
        op->moved = 0;
        insert(&c->renewing, op);
    }
}

static void suspend_sending(struct p2p *p, struct channel *c)
{
    /* The operation of a frame that was sent in part is still in its list. */
    if (c->sending == FRAME_EAGER && c->tx_op)
        free(c->tx_copy);
    c->sending = 0;
    c->tx_op = NULL;
    c->tx_copy = NULL;
    c->chunk_sent = false;
    c->out = NULL;
    c->copied = 0;
    renew(p, c, &c->asked);
    renew(p, c, &c->granted);
    renew(p, c, &c->flying_out);
    channel_acked(c, c->acked); /* also the copy that was being sent */
}

/* ---- what the peer sends --------------------------------------------------------------------- */

/* The receive waits for the next message of the peer, which comes again: it keeps what it has
 * taken, so that receives get the messages in their order. */
static void await_next(struct channel *c, struct p2p_op *op)
{
    op->from = c->peer;
    op->serial = c->seen + 1;
    op->moved = op->expected = 0;
    list_append(&c->waiting_again, &op->at);
}

/* Forgets an EAGER message of which only a part is here. */
static void forget_part(struct channel *c)
{
    struct arrival *a = c->rx_new;
    if (c->rx_op)
        await_next(c, c->rx_op);
    if (a && a->op)
        await_next(c, a->op);
    if (a) {
        match_remove(a);
        c->holds -= message_cost(a->bytes);
        arrival_free(a);
    }
    free(c->rx_waste);
}

/* The peer has to announce again all large messages that wait for a receive. The order is that of
 * the serials: the peer announces low serials first, so the ones still stale are the highest. */
static void make_stale(struct channel *c)
{
    list_for_each(old_at, old_next, &c->stale)
    {
        list_remove(old_at);
        list_append(&c->larges, old_at);
    }
    list_for_each(at, next, &c->larges)
    {
        list_entry(at, struct arrival, larges)->stale = true;
        list_remove(at);
        list_append(&c->stale, at);
    }
}

/* Receives that have taken a large message wait until the peer announces it again. Those that have
 * its bytes end: channel_renewed() answers then. */
static void await_again(struct p2p *p, struct channel *c, struct list *from)
{
    list_for_each(at, next, from)
    {
        struct p2p_op *op = list_entry(at, struct p2p_op, at);
        list_remove(at);
        if (channel_is_over(op)) {
            channel_end_receive(p, c, op);
            continue;
        }
        if (op->staged)
            p->stage->drop(p->stage->ctx, op);
        list_append(&c->waiting_again, at);
    }
}

static void suspend_receiving(struct p2p *p, struct channel *c)
{
    if (c->reading == FRAME_EAGER)
        forget_part(c);
    c->reading = 0;
    c->peeked = false;
    c->rx_op = NULL;
    c->rx_new = NULL;
    c->rx_waste = NULL;
    c->in = NULL;
    c->nanswers = 0;
    c->process = (struct direct_process){.pid = 0};
    await_again(p, c, &c->granting);
    await_again(p, c, &c->copying);
    await_again(p, c, &c->receiving);
    await_again(p, c, &c->flying_in);
    make_stale(c);
}

void channel_suspend(struct p2p *p, struct channel *c)
{
    suspend_sending(p, c);
    suspend_receiving(p, c);
}

/* ---- the next epoch -------------------------------------------------------------------------- */

void channel_resume(struct channel *c, int peer, bool introduces)
{
    c->peer = peer;
    c->introduces = introduces;
    c->stream = c->at_serial = 0;
    c->told = 0;
    c->next_old = c->retained.next;
    c->renews = c->sent > 0;
    c->resumes = c->seen > 0;
}

struct p2p_op *channel_taken(struct channel *c, uint64_t serial)
{
    list_for_each(at, next, &c->waiting_again)
    {
        struct p2p_op *op = list_entry(at, struct p2p_op, at);
        if (op->serial != serial)
            continue;
        list_remove(at);
        return op;
    }
    return NULL;
}

static int answer(struct channel *c, uint64_t id)
{
    if (c->nanswers == c->answers_cap) {
        size_t cap = c->answers_cap * 2 + 4;
        uint64_t *grown = realloc(c->answers, cap * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        c->answers = grown;
        c->answers_cap = cap;
    }
    c->answers[c->nanswers++] = id;
    return 0;
}

int channel_renewed(struct channel *c, uint64_t serial, uint64_t id, uint64_t address)
{
    struct p2p_op *op = channel_taken(c, serial);
    struct arrival *a =
        list_empty(&c->stale) ? NULL : list_first(&c->stale, struct arrival, larges);
    if (op) {
        op->peer_id = id;
        op->address = address;
        op->moved = 0;
        list_append(&c->granting, &op->at);
        return 0;
    }
    if (!a || a->serial != serial)
        return answer(c, id);
    a->id = id;
    a->address = address;
    a->stale = false;
    list_remove(&a->larges);
    list_append(&c->larges, &a->larges);
    return 0;
}
