/* SPDX-License-Identifier: Apache-2.0
 *
 * thaw: begins, follows and leaves the frozen schedule.
 *
 * The root proposes a plan when the log has repeated itself. From its position in the log on, every
 * rank repeats the plan without messages. A rank that cannot follow it asks for a thaw: all ranks
 * stop handing out batches and report how many they have handed out; the smallest number holds. For
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

enum {
    /* Bytes up to which batches that were split only by the timer are merged. For larger ones the
       cost of a launch is negligible, and a merged batch would start later. */
    MERGE_BYTES = 8 << 20,
    BACKOFF_MAX = 6,
};

/* ---- the root proposes --------------------------------------------------------------------- */

/* The number of tensors of the batch at `place` in the log. */
static uint32_t batch_length(const struct rounds *r, uint64_t place)
{
    uint32_t n = 1;
    while (!rounds_at(r, place + n - 1)->last)
        n++;
    return n;
}

static uint64_t batch_bytes(const struct negotiate *n, uint64_t place, uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += signature_bytes(
            &tensors_by_id(&n->table, rounds_at(&n->rounds, place + i)->id)->cached);
    return bytes;
}

/* Whether the tensor at `place` in the log, which is cached, is in a bound batch. */
static bool binds_at(const struct negotiate *n, uint64_t place)
{
    return decide_binds(n, &tensors_by_id(&n->table, rounds_at(&n->rounds, place)->id)->cached);
}

/* Returns whether the batch at `next`, of `count` tensors, may be merged into the batch at `first`:
 * only if the root's rank submitted all of them before `first` was done there. Another rank may
 * have waited in between, which leads to a thaw. So bound batches are not merged. */
static bool may_join(const struct negotiate *n, uint64_t first, uint64_t next, uint32_t count)
{
    const struct rounds *r = &n->rounds;
    const struct tensor *a = tensors_by_id(&n->table, rounds_at(r, first)->id);
    const struct tensor *b = tensors_by_id(&n->table, rounds_at(r, next)->id);
    if (!n->merge || !rounds_at(r, next - 1)->timer || binds_at(n, first) ||
        !signature_fusable(&a->cached, &b->cached))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (rounds_at(r, next + i)->after > rounds_at(r, first)->number)
            return false;
    return true;
}

static void put_u32_at(struct buf *b, size_t pos, uint32_t v)
{
    for (int i = 0; i < 4 && !b->failed; i++)
        b->data[pos + (size_t)i] = (uint8_t)(v >> 8 * i);
}

/* The plan for DOWN_PLAN, see plan_read(). */
static void write_plan(struct negotiate *n, uint64_t start, uint32_t count)
{
    struct buf *b = &n->down;
    const struct rounds *r = &n->rounds;
    uint64_t limit = n->config.fusion_bytes < MERGE_BYTES ? n->config.fusion_bytes : MERGE_BYTES;
    uint32_t nbatches = 0;
    size_t nbatches_at = b->len;
    buf_put_u32(b, 0);
    buf_put_u32(b, count);
    for (uint64_t place = start; place < start + count; nbatches++) {
        uint32_t len = batch_length(r, place);
        uint64_t bytes = batch_bytes(n, place, len);
        while (place + len < start + count) {
            uint32_t more = batch_length(r, place + len);
            uint64_t more_bytes = batch_bytes(n, place + len, more);
            if (bytes + more_bytes > limit || !may_join(n, place, place + len, more))
                break;
            len += more;
            bytes += more_bytes;
        }
        buf_put_u8(b, binds_at(n, place));
        buf_put_u32(b, len);
        for (uint32_t i = 0; i < len; i++)
            buf_put_u64(b, rounds_at(r, place + i)->id);
        place += len;
    }
    put_u32_at(b, nbatches_at, nbatches);
}

/* Whether the plan may have the tensor e, which is at `place`. A rank that follows the plan begins
 * a bound batch with the tables of the last time, which are wrong if another rank has changed its
 * part. So the plan has no bound batch with tables. alone: neither the batch nor the group has the
 * tensor before it, too. Otherwise both are bound or none is: a thaw would drop only one of them.
 */
static bool may_plan(const struct negotiate *n, const struct tensor *e, uint64_t place, bool alone)
{
    bool bound = decide_binds(n, &e->cached);
    return !(bound && signature_has_dim0(&e->cached)) && (alone || bound == binds_at(n, place - 1));
}

/* Whether every tensor of this part of the log is still cached, and nothing else is in flight. */
static bool can_freeze(struct negotiate *n, uint64_t start, uint32_t count)
{
    n->proposal++;
    bool alone = true;
    struct plan_group group = {0};
    for (uint64_t i = start; i < start + count; i++) {
        struct tensor *e = tensors_by_id(&n->table, rounds_at(&n->rounds, i)->id);
        if (!e || !may_plan(n, e, i, alone) || !plan_group_step(&group, &e->cached))
            return false;
        e->proposal = n->proposal;
        alone = rounds_at(&n->rounds, i)->last && !group.left;
    }
    if (group.left)
        return false;
    list_for_each(at, next, &n->partial)
    {
        const struct tensor *e = list_entry(at, struct tensor, partial);
        if (e->proposal != n->proposal || e->claims || (e->state == TENSOR_SUBMITTED && !e->by_id))
            return false;
    }
    return rounds_at(&n->rounds, start + count - 1)->last &&
           (start == 0 || rounds_at(&n->rounds, start - 1)->last);
}

void thaw_propose(struct negotiate *n)
{
    if (n->config.freeze_after == 0 || n->frozen || n->failed || !fusion_empty(&n->fusion) ||
        !list_empty(&n->out) || n->rounds.nlog == n->looked_at || n->owed.open)
        return;
    if (n->config.thaws_max && n->stats.thaws >= n->config.thaws_max)
        return; /* the limit of thaws is reached: a frozen schedule could not end */
    n->looked_at = n->rounds.nlog;
    uint32_t count = rounds_period(&n->rounds, n->config.freeze_after << n->thaw_backoff);
    uint64_t start = n->rounds.nlog - count;
    if (count == 0 || !can_freeze(n, start, count))
        return;
    negotiate_begin(n, &n->down, DOWN_PLAN);
    write_plan(n, start, count);
    if (!n->down.failed) {
        negotiate_send_down(n, &n->down);
        struct reader r = reader_over(n->down.data, n->down.len);
        reader_u8(&r);
        reader_u64(&r);
        int rc = thaw_follow_plan(n, &r, n->now);
        n->failed = rc < 0 ? rc : n->failed;
    }
    buf_reset(&n->down);
}

/* ---- following the plan ------------------------------------------------------------------------
 */

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
    if (n->frozen || n->owed.open)
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
    if (!n->thawing || !n->thaw_answered || !reader_ok(r) || keep > n->plan.walked)
        return -EPROTO;
    if (keep < n->plan.done_to)
        return -EPROTO; /* impossible: a finished batch has been started on every rank */
    drop_batches(n, keep);
    n->frozen = n->thawing = n->thaw_asked = false;
    n->generation++;
    n->stats.thaws++;
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
