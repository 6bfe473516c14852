/* SPDX-License-Identifier: Apache-2.0
 *
 * propose: the root proposes a plan when the log has repeated itself: what the plan may have, what
 * is merged, and in which order.
 *
 * Part of negotiate, see negotiate_impl.h.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/negotiate/negotiate_impl.h"
#include "core/negotiate/signature.h"

enum {
    /* Bytes up to which batches that were split only by the timer are merged. For larger ones the
       cost of a launch is negligible, and a merged batch would start later. */
    MERGE_BYTES = 8 << 20,
};

/* A batch of the log, or several in a row that a group fills. */
struct unit {
    uint64_t place; /* of its first tensor */
    uint32_t len;   /* tensors */
    bool bound;
    uint32_t serial; /* ticket of the tensor that the root's rank submitted last */
};

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

/* Reads the units of a part of the log that can_freeze() allows. Returns how many. */
static uint32_t read_units(const struct negotiate *n, uint64_t start, uint32_t count,
                           struct unit *units)
{
    struct plan_group group = {0};
    uint32_t nunits = 0;
    struct unit u = {.place = start, .bound = binds_at(n, start)};
    for (uint64_t place = start; place < start + count; place++) {
        const struct log_entry *entry = rounds_at(&n->rounds, place);
        bool later = u.len == 0 || (int32_t)(entry->serial - u.serial) > 0;
        plan_group_step(&group, &tensors_by_id(&n->table, entry->id)->cached);
        u.serial = later ? entry->serial : u.serial;
        u.len++;
        if (!entry->last || group.left)
            continue;
        units[nunits++] = u;
        if (place + 1 < start + count)
            u = (struct unit){.place = place + 1, .bound = binds_at(n, place + 1)};
    }
    return nunits;
}

/* Bound batches are planned in the order in which the root's rank submits their tensors. The log
 * may have another order: of two dtypes the later one was ready first. A rank that begins bound
 * batches in its program's order has none begun that comes after what another rank waits for. */
static void sort_bound(struct unit *units, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        struct unit u = units[i];
        uint32_t to = i;
        for (uint32_t k = i; u.bound && k-- > 0;) {
            if (!units[k].bound)
                continue;
            if ((int32_t)(units[k].serial - u.serial) <= 0)
                break;
            to = k;
        }
        memmove(&units[to + 1], &units[to], (i - to) * sizeof(u));
        units[to] = u;
    }
}

static void put_u32_at(struct buf *b, size_t pos, uint32_t v)
{
    for (int i = 0; i < 4 && !b->failed; i++)
        b->data[pos + (size_t)i] = (uint8_t)(v >> 8 * i);
}

static void write_batch(struct negotiate *n, uint64_t place, uint32_t len)
{
    buf_put_u8(&n->down, binds_at(n, place));
    buf_put_u32(&n->down, len);
    for (uint32_t i = 0; i < len; i++)
        buf_put_u64(&n->down, rounds_at(&n->rounds, place + i)->id);
}

/* How many units from `u` on are merged into one batch; ret_len: of so many tensors. */
static uint32_t merged(const struct negotiate *n, const struct unit *u, const struct unit *end,
                       uint32_t *ret_len)
{
    uint64_t limit = n->config.fusion_bytes < MERGE_BYTES ? n->config.fusion_bytes : MERGE_BYTES;
    uint64_t bytes = batch_bytes(n, u->place, u->len);
    const struct unit *next = u + 1;
    *ret_len = u->len;
    for (; next < end && next->place == u->place + *ret_len; next++) {
        bytes += batch_bytes(n, next->place, next->len);
        if (batch_length(&n->rounds, next->place) != next->len || bytes > limit ||
            !may_join(n, u->place, next->place, next->len))
            break;
        *ret_len += next->len;
    }
    return (uint32_t)(next - u);
}

/* The plan for DOWN_PLAN, see plan_read(). */
static void write_plan(struct negotiate *n, const struct unit *units, uint32_t nunits,
                       uint32_t count)
{
    const struct unit *u = units, *end = units + nunits;
    uint32_t nbatches = 0, len;
    size_t nbatches_at = n->down.len;
    buf_put_u32(&n->down, 0);
    buf_put_u32(&n->down, count);
    while (u < end) {
        if (batch_length(&n->rounds, u->place) == u->len) {
            uint64_t place = u->place;
            u += merged(n, u, end, &len);
            write_batch(n, place, len);
            nbatches++;
            continue;
        }
        for (uint64_t place = u->place; place < u->place + u->len; place += len, nbatches++)
            write_batch(n, place, len = batch_length(&n->rounds, place));
        u++;
    }
    put_u32_at(&n->down, nbatches_at, nbatches);
}

/* Whether NCCL ends the operation on no rank before every rank has begun it. The root of a
 * broadcast may be ahead, and so may a rank that has nothing to receive. */
static bool all_wait(const struct negotiate *n, const struct signature *sig)
{
    bool reduces = sig->kind == HVD_ALLREDUCE || sig->kind == HVD_REDUCESCATTER;
    bool scatters = sig->kind == HVD_REDUCESCATTER;
    return reduces && signature_bytes(sig) > 0 && (!scatters || sig->shape[0] >= n->config.size);
}

/* Whether the plan may have the tensor e, which is at `place`. After a thaw a rank owes each bound
 * batch of the plan at most once (owed.h), which needs all_wait(). And it begins a bound batch
 * without asking how many rows the other ranks have: this excludes allgathers and all-to-alls.
 * alone: neither the batch nor the group has the
 * tensor before it, too. Otherwise both are bound or none is: a thaw would drop only one of them.
 */
static bool may_plan(const struct negotiate *n, const struct tensor *e, uint64_t place, bool alone)
{
    bool bound = decide_binds(n, &e->cached);
    return (!bound || all_wait(n, &e->cached)) && (alone || bound == binds_at(n, place - 1));
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

void propose_plan(struct negotiate *n)
{
    if (n->config.freeze_after == 0 || n->frozen || n->failed || !fusion_empty(&n->fusion) ||
        !list_empty(&n->out) || n->rounds.nlog == n->looked_at || n->owed.open || join_some(n))
        return;
    if (n->config.thaws_max && n->stats.thaws >= n->config.thaws_max)
        return; /* the limit of thaws is reached: a frozen schedule could not end */
    n->looked_at = n->rounds.nlog;
    uint32_t count = rounds_period(&n->rounds, n->config.freeze_after << n->thaw_backoff);
    uint64_t start = n->rounds.nlog - count;
    if (count == 0 || !can_freeze(n, start, count))
        return;
    auto_free struct unit *units = calloc(count, sizeof(*units));
    if (!units)
        return; /* negotiation continues without a plan */
    uint32_t nunits = read_units(n, start, count, units);
    sort_bound(units, nunits);
    negotiate_begin(n, &n->down, DOWN_PLAN);
    write_plan(n, units, nunits, count);
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
