/* SPDX-License-Identifier: Apache-2.0
 *
 * join: ranks that have run out of work (negotiate_join()), and take part in what the others
 * submit.
 *
 * A node tells its parent whether a rank at or below it has joined (UP_JOIN). While that is so, a
 * node that hears of a tensor tells the ranks below it its signature (DOWN_WANTED). A rank that has
 * joined and has not submitted the tensor asks its engine for it (ops.wanted), which submits the
 * neutral element like any other tensor. So the log, its batches and owed batches know nothing of
 * joining. Plans need ranks that submit by themselves: a rank that joins leaves the plan, and the
 * root proposes none while a rank has joined.
 *
 * When all ranks are done, the root ends it (DOWN_JOINED). Then no rank has anything in flight:
 * each is done only after its own operations have ended, and submits nothing until the end.
 *
 * Part of negotiate, see negotiate_impl.h.
 */
#include <stdlib.h>

#include "core/negotiate/negotiate_impl.h"
#include "core/negotiate/signature.h"

/* Flags of UP_JOIN, each with those before it: a rank at or below the sender has joined, all have,
 * all are done. */
enum { SOME = 1, ALL = 2, DONE = 4 };

static bool some_below(const struct negotiate *n)
{
    bool some = false;
    for (int i = 0; i < n->nchildren; i++)
        some = some || n->children[i].join;
    return some;
}

/* Whether all children have told this. */
static bool all_below(const struct negotiate *n, uint8_t flag)
{
    bool all = true;
    for (int i = 0; i < n->nchildren; i++)
        all = all && (n->children[i].join & flag);
    return all;
}

static bool all_done(const struct negotiate *n)
{
    return n->join.own == NEGOTIATE_DONE && all_below(n, DONE);
}

bool join_some(const struct negotiate *n)
{
    return n->join.own || some_below(n);
}

/* ---- what the others submit ------------------------------------------------------------------ */

static struct signature signature_of(const struct tensor *e)
{
    const struct signature *sig = e->state == TENSOR_SUBMITTED ? &e->want
                                  : e->claims                  ? &e->claims->common
                                                               : &e->cached;
    return signature_common(sig);
}

void join_ask(struct negotiate *n, struct tensor *e, const struct signature *sig)
{
    if (!n->join.own || e->asked || e->state == TENSOR_SUBMITTED || e->state == TENSOR_OWED)
        return;
    e->asked = malloc(sizeof(*e->asked));
    if (!e->asked) {
        n->failed = -ENOMEM;
        return;
    }
    *e->asked = *sig;
    if (e->state == TENSOR_IDLE)
        n->ops.wanted(n->ctx, e->name, e->asked);
}

void join_idle(struct negotiate *n, const struct tensor *e)
{
    if (e->asked)
        n->ops.wanted(n->ctx, e->name, e->asked);
}

static void ask_below(struct negotiate *n, const struct tensor *e)
{
    struct buf *b = &n->join.message;
    struct signature sig = signature_of(e);
    negotiate_begin(n, b, DOWN_WANTED);
    buf_put_str(b, e->name);
    signature_write(&sig, b);
    if (b->failed)
        n->failed = -ENOMEM;
    else
        negotiate_send_down(n, b);
}

void join_heard(struct negotiate *n, struct tensor *e)
{
    struct signature sig = signature_of(e);
    join_ask(n, e, &sig);
    if (some_below(n))
        ask_below(n, e);
}

/* Of the next use of a name this rank hears before the log has that use. So if the name is in a
 * batch here, that is the use before it. */
int join_follow_wanted(struct negotiate *n, struct reader *r)
{
    char name[HVD_MAX_NAME + 1];
    struct signature sig;
    reader_str(r, name, sizeof(name));
    signature_read(&sig, r);
    if (!reader_ok(r) || !name[0] || n->table.count >= TENSORS_MAX)
        return -EPROTO;
    if (!n->join.own)
        return 0;
    struct tensor *e = tensors_get(&n->table, name);
    if (!e)
        return -ENOMEM;
    join_ask(n, e, &sig);
    tensors_release(&n->table, e);
    return n->failed;
}

/* ---- who has joined -------------------------------------------------------------------------- */

/* This rank is not asked any more. */
static void forget_asked(struct negotiate *n)
{
    for (uint32_t i = 0; i < n->table.npool; i++) {
        struct tensor *e = n->table.pool[i];
        if (!e || !e->asked)
            continue;
        free(e->asked);
        e->asked = NULL;
        tensors_release(&n->table, e);
    }
}

void negotiate_join(struct negotiate *n, enum negotiate_join state)
{
    struct join *j = &n->join;
    bool new = !j->own &&state;
    j->own = state;
    if (new)
        j->last = (uint32_t)n->config.rank;
    if (!state)
        forget_asked(n);
    if (!new)
        return;
    if (n->frozen)
        n->thaw_asked = n->left = true;
    list_for_each(at, next, &n->partial)
    {
        struct tensor *e = list_entry(at, struct tensor, partial);
        struct signature sig = signature_of(e);
        join_ask(n, e, &sig);
    }
    owed_ask(n);
}

bool negotiate_wants(const struct negotiate *n, const char *name)
{
    const struct tensor *e = tensors_find(&n->table, name);
    return e && e->asked && e->state == TENSOR_IDLE;
}

int join_recv(struct negotiate *n, int child, struct reader *r)
{
    struct child *c = &n->children[child];
    uint8_t flags = reader_u8(r);
    uint32_t last = reader_u32(r);
    if (!reader_ok(r) || (flags & (flags + 1)) || flags > (SOME | ALL | DONE) ||
        last >= (uint32_t)n->config.size)
        return -EPROTO;
    bool new = flags && !c->join;
    if (flags & ALL & ~c->join)
        n->join.last = last;
    c->join = flags;
    if (!new)
        return 0;
    list_for_each(at, next, &n->partial)
    {
        ask_below(n, list_entry(at, struct tensor, partial));
    }
    return n->failed;
}

/* The end, on every rank. */
static void end(struct negotiate *n, uint32_t last)
{
    n->join.own = NEGOTIATE_PLAYS;
    n->join.told = 0;
    forget_asked(n);
    for (int i = 0; i < n->nchildren; i++)
        n->children[i].join = 0;
    n->ops.joined(n->ctx, (int)last);
}

int join_follow_joined(struct negotiate *n, struct reader *r)
{
    uint32_t last = reader_u32(r);
    if (!reader_ok(r) || last >= (uint32_t)n->config.size || !all_done(n))
        return -EPROTO;
    end(n, last);
    return 0;
}

static void tell_parent(struct negotiate *n)
{
    struct buf *b = &n->join.message;
    bool all = n->join.own && all_below(n, ALL);
    uint8_t flags = (join_some(n) ? SOME : 0) | (all ? ALL : 0) | (all_done(n) ? DONE : 0);
    if (flags == n->join.told)
        return;
    negotiate_begin(n, b, UP_JOIN);
    buf_put_u8(b, flags);
    buf_put_u32(b, n->join.last);
    if (b->failed) {
        n->failed = -ENOMEM;
        return;
    }
    n->join.told = flags;
    n->ops.send(n->ctx, NEGOTIATE_PARENT, b);
}

void join_tick(struct negotiate *n)
{
    struct buf *b = &n->join.message;
    if (!n->root) {
        tell_parent(n);
        return;
    }
    if (!all_done(n))
        return;
    negotiate_begin(n, b, DOWN_JOINED);
    buf_put_u32(b, n->join.last);
    if (b->failed) {
        n->failed = -ENOMEM;
        return;
    }
    negotiate_send_down(n, b);
    end(n, n->join.last);
}
