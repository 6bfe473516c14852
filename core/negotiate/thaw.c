/* SPDX-License-Identifier: Apache-2.0
 *
 * thaw: begins, follows and leaves the frozen schedule.
 *
 * From the position in the log at which the root has proposed a plan (propose.c), every rank
 * repeats the plan without messages. A rank that cannot follow it asks for a thaw: all ranks stop
 * handing out batches and report how many they have handed out; the smallest number holds. For
 * bound batches the largest number holds instead: a rank that has handed out fewer owes them, see
 * owed.c.
 *
 * Batches that are not bound run one after the other, and none ends before every rank has started
 * it. So a rank has started at most one of them beyond the smallest number, and that batch has
 * written no output: the engine cancels it. The tensors of all of them beyond the number return to
 * the state submitted.
 *
 * Part of negotiate, see negotiate_impl.h.
 */
#include <string.h>

#include "core/negotiate/negotiate_impl.h"
#include "core/negotiate/signature.h"

/* A plan that is left soon doubles freeze_after, at most this often. */
enum { BACKOFF_MAX = 6 };

/* ---- following the plan --------------------------------------------------------------------- */

static bool any_prioritized(const struct negotiate *n)
{
    list_for_each(at, next, &n->submitted)
    {
        if (list_entry(at, struct tensor, mine)->prioritized)
            return true;
    }
    return false;
}

static uint64_t not_zero(uint64_t t)
{
    return t ? t : 1;
}

void thaw_walk(struct negotiate *n)
{
    while (n->frozen && !n->thawing && n->plan.missing == 0) {
        uint32_t count;
        struct running_batch how = {.frozen = true, .index = n->plan.walked};
        struct tensor **tensors = plan_batch(&n->plan, &count, &how.bound);
        if (how.bound && n->left)
            return; /* other ranks may need this rank for what it submitted before */
        if (follow_hand_out(n, tensors, count, how) < 0) {
            n->failed = -ENOMEM;
            return;
        }
        n->stats.frozen++;
        plan_advance(&n->plan);
        if (n->prioritized_since)
            n->prioritized_since = any_prioritized(n) ? not_zero(n->now) : 0;
    }
}

void thaw_submitted(struct negotiate *n, struct tensor *e)
{
    if (n->thawing)
        return; /* the tensor is announced when the thaw is over */
    if (e->plan != n->generation || !e->by_id)
        n->thaw_asked = n->left = true;
    else if (plan_submitted(&n->plan, e))
        thaw_walk(n);
}

void thaw_prioritize(struct negotiate *n, struct tensor *e)
{
    e->prioritized = true;
    if (!n->prioritized_since)
        n->prioritized_since = not_zero(n->now);
}

int thaw_follow_plan(struct negotiate *n, struct reader *r, uint64_t now)
{
    if (n->frozen || n->owed.open || n->end.reached)
        return -EPROTO;
    int rc = plan_read(&n->plan, &n->table, n->generation + 1, r);
    if (rc < 0)
        return rc;
    n->generation++;
    n->frozen = true;
    n->thawing = n->thaw_asked = n->thaw_ask_sent = n->thaw_answered = n->left = false;
    n->watch_since = now;
    announce_anew(n, true);
    n->prioritized_since = any_prioritized(n) ? not_zero(now) : 0;
    list_for_each(at, next, &n->submitted)
    {
        const struct tensor *e = list_entry(at, struct tensor, mine);
        if (e->plan != n->generation || !e->by_id)
            n->thaw_asked = n->left = true;
    }
    if (n->join.own) /* the root did not know it yet */
        n->thaw_asked = n->left = true;
    thaw_walk(n);
    return n->failed;
}

/* ---- leaving the plan
 * ----------------------------------------------------------------------------- */

int thaw_recv_ask(struct negotiate *n, const struct reader *r)
{
    if (!n->frozen || !reader_ok(r))
        return -EPROTO;
    n->thaw_asked = true;
    return 0;
}

int thaw_recv_at(struct negotiate *n, int child, struct reader *r)
{
    uint64_t keep = reader_u64(r), bind = reader_u64(r);
    if (!n->thawing || n->children[child].thaw_told || !reader_ok(r))
        return -EPROTO;
    n->children[child].thaw_told = true;
    n->nthaw++;
    n->thaw_keep = keep < n->thaw_keep ? keep : n->thaw_keep;
    n->thaw_bind = bind > n->thaw_bind ? bind : n->thaw_bind;
    return 0;
}

int thaw_follow_ask(struct negotiate *n, const struct reader *r)
{
    if (!n->frozen || n->thawing || !reader_ok(r))
        return -EPROTO;
    n->thawing = true;
    n->nthaw = 0;
    n->thaw_keep = n->plan.walked;
    n->thaw_bind = n->plan.bound_to;
    for (int i = 0; i < n->nchildren; i++)
        n->children[i].thaw_told = false;
    return 0;
}

/* Drops a batch: returns its tensors to the state submitted, before all others. */
static void take_back(struct negotiate *n, uint64_t number)
{
    const struct running_batch *b = running_get(&n->running, number);
    for (uint32_t i = b->n; i-- > 0;) {
        struct tensor *e = running_tensor(&n->running, b, i);
        e->state = TENSOR_SUBMITTED;
        e->prioritized = true; /* a caller may still wait for the tensor */
        list_remove(&e->mine);
        list_append(n->submitted.next, &e->mine);
        n->nsubmitted++;
    }
    running_remove(&n->running, number);
    n->ops.dropped(n->ctx, number);
}

/* Drops the plan's batches from `keep` on, except bound ones, newest first. The plan's batches that
 * stay count as batches of the log from here on. */
static void drop_batches(struct negotiate *n, uint64_t keep)
{
    for (uint64_t number = n->running.next; number-- > n->running.first;) {
        struct running_batch *b = running_get(&n->running, number);
        if (b && b->frozen && !b->bound && b->index >= keep)
            take_back(n, number);
        else if (b)
            b->frozen = false;
    }
}

/* After a plan that was left soon, the log must repeat itself longer before the next one. */
static void back_off(struct negotiate *n, uint64_t keep)
{
    uint64_t need = (uint64_t)n->config.freeze_after << n->thaw_backoff;
    if (keep / n->plan.nbatches >= 8 * need) {
        n->thaw_backoff = 0;
    } else {
        n->thaw_backoff += n->thaw_backoff < BACKOFF_MAX;
        n->merge = false; /* merging batches may be the reason that the plan was left */
    }
    rounds_reset(&n->rounds);
}

int thaw_follow_thawed(struct negotiate *n, struct reader *r, uint64_t now)
{
    uint64_t keep = reader_u64(r), bind = reader_u64(r);
    uint8_t ends = reader_u8(r);
    if (!n->thawing || !n->thaw_answered || !reader_ok(r) || ends > 1 || keep > n->plan.walked)
        return -EPROTO;
    if (keep < n->plan.done_to)
        return -EPROTO; /* impossible: a finished batch has been started on every rank */
    drop_batches(n, keep);
    n->frozen = n->thawing = n->thaw_asked = false;
    n->generation++;
    n->end.reached = ends;
    n->stats.thaws += !ends;
    if (n->root)
        back_off(n, keep);
    int rc = owed_begin(n, keep, bind);
    if (rc < 0)
        return rc;
    n->ops.thawed(n->ctx);
    announce_anew(n, false);
    return 0;
}

/* Sends a message of the thaw to the parent; the root handles it itself and sends the result to
 * all. */
static void say(struct negotiate *n, enum message type)
{
    struct buf *b = n->root ? &n->down : &n->up;
    negotiate_begin(n, b, type);
    if (type == UP_THAW_AT || type == DOWN_THAWED) {
        buf_put_u64(b, n->thaw_keep);
        buf_put_u64(b, n->thaw_bind);
    }
    if (type == DOWN_THAWED)
        buf_put_u8(b, n->end.asked);
    if (b->failed) {
        n->failed = -ENOMEM;
        return;
    }
    if (!n->root) {
        n->ops.send(n->ctx, NEGOTIATE_PARENT, b);
        return;
    }
    negotiate_send_down(n, b);
    struct reader r = reader_over(b->data, b->len);
    reader_u8(&r);
    reader_u64(&r);
    int rc = type == DOWN_THAWED ? thaw_follow_thawed(n, &r, n->now) : thaw_follow_ask(n, &r);
    buf_reset(b);
    n->failed = rc < 0 ? rc : n->failed;
}

/* Whether an operation is in flight and the oldest batch has not finished for half the stall time.
 */
static bool stands_still(struct negotiate *n, uint64_t now, uint64_t *ret_due)
{
    uint64_t mark = n->running.first;
    bool busy = n->running.n || n->nsubmitted;
    if (!busy || mark != n->watch_mark || !n->watch_busy)
        n->watch_since = now;
    n->watch_mark = mark;
    n->watch_busy = busy;
    uint64_t due = n->watch_since + n->config.stall_ns / 2;
    if (!busy || n->config.stall_ns == 0)
        return false;
    if (now >= due)
        return true;
    *ret_due = due < *ret_due ? due : *ret_due;
    return false;
}

uint64_t thaw_tick(struct negotiate *n, uint64_t now)
{
    uint64_t due = UINT64_MAX;
    if (!n->frozen)
        return due;
    thaw_walk(n);
    if (!n->thawing && n->prioritized_since) {
        if (now - n->prioritized_since >= n->config.cycle_ns)
            n->thaw_asked = true;
        else
            due = n->prioritized_since + n->config.cycle_ns;
    }
    if (!n->thawing && stands_still(n, now, &due))
        n->thaw_asked = true;
    if (n->thaw_asked && !n->thawing && !n->thaw_ask_sent) {
        n->thaw_ask_sent = true;
        say(n, n->root ? DOWN_THAW_ASK : UP_THAW_ASK);
    }
    if (n->thawing && !n->thaw_answered && n->nthaw == n->nchildren) {
        n->thaw_answered = true;
        say(n, n->root ? DOWN_THAWED : UP_THAW_AT);
    }
    return due;
}
