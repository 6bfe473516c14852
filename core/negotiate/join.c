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
 * When all ranks are drained, the root ends the join (DOWN_JOINED). Then no rank has anything in
 * flight: each is drained only after its own operations have ended, and submits nothing until the
 * end.
 *
 * Part of negotiate, see negotiate_impl.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/negotiate/negotiate_impl.h"
#include "core/negotiate/signature.h"

/* Flags of UP_JOIN; each one implies those before it: a rank at or below the sender has joined, all
 * have, all are drained. */
enum { SOME = 1, ALL = 2, DONE = 4 };

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
    return n->join.own == NEGOTIATE_DRAINED && all_below(n, DONE);
}

bool join_some(const struct negotiate *n)
{
    return n->join.own || n->join.below > 0;
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
    if (n->join.below > 0)
        ask_below(n, e);
}

/* DOWN_WANTED for a use of a name always comes before the entry of the log for that use. So if the
 * name is in a batch here, that batch is the use before it. */
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

static void tell_parent(struct negotiate *n)
{
    struct join *j = &n->join;
    bool all = j->own && all_below(n, ALL);
    uint8_t flags = (join_some(n) ? SOME : 0) | (all ? ALL : 0) | (all_done(n) ? DONE : 0);
    if (!flags)
        rankset_clear(&j->who);
    int count = rankset_count(&j->who);
    if (flags == j->told && count == j->told_count)
        return;
    negotiate_begin(n, &j->message, UP_JOIN);
    buf_put_u8(&j->message, flags);
    buf_put_u32(&j->message, j->last);
    rankset_write(&j->who, &j->message);
    if (j->message.failed) {
        n->failed = -ENOMEM;
        return;
    }
    j->told = flags;
    j->told_count = count;
    n->ops.send(n->ctx, NEGOTIATE_PARENT, &j->message);
}

void negotiate_join(struct negotiate *n, enum negotiate_join state)
{
    struct join *j = &n->join;
    bool new = state && !j->own;
    j->own = state;
    if (new) {
        j->last = (uint32_t)n->config.rank;
        rankset_add(&j->who, n->config.rank);
    }
    if (!state) {
        forget_asked(n);
        if (!n->root && n->hello_sent)
            tell_parent(n); /* at once: if it joins again soon, the parent has to hear of both */
    }
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
    rankset_read(&n->scratch, r);
    if (!reader_ok(r) || !rankset_within(&n->scratch, &c->below) || (flags & (flags + 1)) ||
        flags > (SOME | ALL | DONE) || last >= (uint32_t)n->config.size)
        return -EPROTO;
    bool new = flags && !c->join;
    n->join.below += new - (!flags && c->join);
    if (flags & ALL & ~c->join)
        n->join.last = last;
    c->join = flags;
    rankset_union(&n->join.who, &n->scratch);
    if (!new)
        return 0;
    list_for_each(at, next, &n->partial)
    {
        ask_below(n, list_entry(at, struct tensor, partial));
    }
    return n->failed;
}

/* Ends the join on this rank, as on all others. */
static void end(struct negotiate *n, uint32_t last)
{
    n->join.own = NEGOTIATE_ACTIVE;
    n->join.told = 0;
    n->join.told_count = n->join.below = 0;
    rankset_clear(&n->join.who);
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

static void end_all(struct negotiate *n)
{
    struct buf *b = &n->join.message;
    negotiate_begin(n, b, DOWN_JOINED);
    buf_put_u32(b, n->join.last);
    if (b->failed) {
        n->failed = -ENOMEM;
        return;
    }
    negotiate_send_down(n, b);
    end(n, n->join.last);
}

/* Some ranks have joined, and the others do nothing. */
static void report(struct negotiate *n, uint64_t seconds)
{
    char joined[200], others[200], text[600];
    const char *s = rankset_count(&n->join.who) == 1 ? "" : "s";
    struct rankset *rest = &n->scratch;
    rankset_clear(rest);
    rankset_union(rest, &n->below);
    rankset_subtract(rest, &n->join.who);
    rankset_text(&n->join.who, n->config.names, joined, sizeof(joined));
    rankset_text(rest, n->config.names, others, sizeof(others));
    snprintf(
        text, sizeof(text),
        "hvd_join() on rank%s %s: for %llu s there was no operation of all ranks; not called by "
        "rank%s %s",
        s, joined, (unsigned long long)seconds, rankset_count(rest) == 1 ? "" : "s", others);
    stall_say(n, text);
}

/* Called on the root while ranks have joined. Tensors that wait are the stall inspector's. */
static uint64_t look_for_quiet(struct negotiate *n, uint64_t now)
{
    struct join *j = &n->join;
    bool busy = !list_empty(&n->partial) || n->rounds.nlog != j->quiet_at || !j->quiet_since;
    if (busy) {
        j->quiet_at = n->rounds.nlog;
        j->quiet_since = j->reported = now;
    }
    uint64_t due = j->reported + n->config.stall_ns;
    if (now < due)
        return due;
    j->reported = now;
    report(n, (now - j->quiet_since) / CLOCK_S);
    return now + n->config.stall_ns;
}

static void forget_who(struct negotiate *n)
{
    n->join.quiet_since = 0;
    rankset_clear(&n->join.who);
}

uint64_t join_tick(struct negotiate *n, uint64_t now)
{
    if (!n->root) {
        if (n->hello_sent)
            tell_parent(n);
        return UINT64_MAX;
    }
    if (all_done(n))
        end_all(n);
    else if (!join_some(n))
        forget_who(n);
    else if (n->config.stall_ns && !n->config.names) /* the report about the world is enough */
        return look_for_quiet(n, now);
    return UINT64_MAX;
}
