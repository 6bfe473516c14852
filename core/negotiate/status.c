/* SPDX-License-Identifier: Apache-2.0
 *
 * status: a node's part in the root's inquiry (stall.c): which of the tensors it has, what its
 * callers wait in, and the answers of the ranks below it.
 *
 * Part of negotiate, see negotiate_impl.h. UP_STATUS: u32 number of the inquiry, u8 tensors, for
 * each a rankset that has it, u32 ranks, for each u32 rank, u64 ns since its last call, str what it
 * waits in.
 */
#include <string.h>

#include "core/negotiate/negotiate_impl.h"

void status_own(struct negotiate *n)
{
    struct stall *s = &n->stall;
    char text[STALL_TEXT] = "";
    n->ops.waiting_in(n->ctx, text, sizeof(text));
    text[sizeof(text) - 1] = '\0';
    buf_reset(&s->ranks);
    buf_put_u32(&s->ranks, (uint32_t)n->config.rank);
    buf_put_u64(&s->ranks, n->now - s->last_call);
    buf_put_str(&s->ranks, text);
    rankset_clear(&s->answered);
    rankset_add(&s->answered, n->config.rank);
    for (int i = 0; i < s->nitems; i++) {
        const struct tensor *e = tensors_find(&n->table, s->items[i].name);
        rankset_clear(&s->items[i].have);
        bool runs = e && e->state == TENSOR_RUNNING;
        bool lacks = runs ? n->ops.late && n->ops.late(n->ctx, e->ticket) : e && e->owed;
        if (s->items[i].running ? !lacks : e && e->state != TENSOR_IDLE)
            rankset_add(&s->items[i].have, n->config.rank);
        else if (!s->items[i].running && n->ops.lacks)
            n->ops.lacks(n->ctx, s->items[i].name);
    }
}

int status_follow(struct negotiate *n, struct reader *r)
{
    struct stall *s = &n->stall;
    uint32_t number = reader_u32(r);
    uint8_t count = reader_u8(r);
    if (r->failed || count > STALL_ITEMS)
        return -EPROTO;
    for (int i = 0; i < count; i++) {
        s->items[i].running = reader_u8(r);
        reader_str(r, s->items[i].name, sizeof(s->items[i].name));
    }
    s->nitems = count;
    s->open = false;
    if (!reader_ok(r))
        return -EPROTO;
    s->number = number;
    s->open = true;
    s->opened = n->now;
    s->nanswers = 0;
    for (int i = 0; i < n->nchildren; i++)
        n->children[i].status_told = false;
    status_own(n);
    return 0;
}

/* Copies the answers of ranks below a child. */
static int recv_ranks(struct negotiate *n, int child, struct reader *r)
{
    struct stall *s = &n->stall;
    uint32_t count = reader_u32(r);
    for (uint32_t i = 0; i < count && !r->failed; i++) {
        char text[STALL_TEXT];
        uint32_t rank = reader_u32(r);
        uint64_t quiet = reader_u64(r);
        reader_str(r, text, sizeof(text));
        if (r->failed || rank >= (uint32_t)n->config.size ||
            !rankset_has(&n->children[child].below, (int)rank) ||
            rankset_has(&s->answered, (int)rank))
            return -EPROTO;
        rankset_add(&s->answered, (int)rank);
        buf_put_u32(&s->ranks, rank);
        buf_put_u64(&s->ranks, quiet);
        buf_put_str(&s->ranks, text);
    }
    return 0;
}

int status_recv(struct negotiate *n, int child, struct reader *r)
{
    struct stall *s = &n->stall;
    uint32_t number = reader_u32(r);
    uint8_t count = reader_u8(r);
    if (r->failed || !n->children[child].hello)
        return -EPROTO;
    if (!s->open || number != s->number)
        return 0; /* the inquiry is over */
    if (count != s->nitems || n->children[child].status_told)
        return -EPROTO;
    for (int i = 0; i < count; i++) {
        rankset_read(&s->scratch, r);
        if (!rankset_within(&s->scratch, &n->children[child].below))
            return -EPROTO;
        rankset_union(&s->items[i].have, &s->scratch);
    }
    int rc = recv_ranks(n, child, r);
    if (rc < 0 || !reader_ok(r))
        return -EPROTO;
    n->children[child].status_told = true;
    s->nanswers++;
    return 0;
}

void status_answer(struct negotiate *n)
{
    struct stall *s = &n->stall;
    negotiate_begin(n, &n->up, UP_STATUS);
    buf_put_u32(&n->up, s->number);
    buf_put_u8(&n->up, (uint8_t)s->nitems);
    for (int i = 0; i < s->nitems; i++)
        rankset_write(&s->items[i].have, &n->up);
    buf_put_u32(&n->up, (uint32_t)rankset_count(&s->answered));
    buf_put(&n->up, s->ranks.data, s->ranks.len);
    if (!n->up.failed && !s->ranks.failed)
        n->ops.send(n->ctx, NEGOTIATE_PARENT, &n->up);
}
