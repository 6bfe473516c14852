/* SPDX-License-Identifier: Apache-2.0
 *
 * decide: the root writes the log. For a tensor that every rank has announced it compares the
 * requests, assigns a cache id, and puts the tensor into a batch.
 *
 * Part of negotiate, see negotiate_impl.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/negotiate/log_record.h"
#include "core/negotiate/negotiate_impl.h"
#include "core/negotiate/signature.h"

/* Bytes. An alltoall's table has size * size numbers of 8 bytes. Larger tables than this are not
 * cached, so as not to hold them on every rank. */

/* Begins a DOWN_LOG message if none is begun. If there was no memory for a record, the buffer stays
 * failed until decide_flush_log() reports it. */
static void start_log(struct negotiate *n)
{
    if (n->down.len == 0 && !n->down.failed)
        negotiate_begin(n, &n->down, DOWN_LOG);
}

void decide_flush_log(struct negotiate *n)
{
    if (n->down.failed) {
        n->failed = -ENOMEM;
        return;
    }
    if (n->down.len == 0)
        return;
    negotiate_send_down(n, &n->down);
    struct reader r = reader_over(n->down.data, n->down.len);
    reader_u8(&r);
    reader_u64(&r);
    int rc = follow_log(n, &r);
    buf_reset(&n->down);
    n->pending = 0;
    if (rc < 0)
        n->failed = rc;
}

/* ---- cache ids ----------------------------------------------------------------------------- */

static void evict(struct negotiate *n, struct tensor *e)
{
    uint32_t slot = id_slot(e->id);
    start_log(n);
    buf_put_u8(&n->down, LOG_EVICT);
    buf_put_u64(&n->down, e->id);
    /* The log is flushed at once, so that ranks stop announcing by this id. */
    decide_flush_log(n);
    n->free_slots[n->nfree++] = slot;
}

static int grow_slots(struct negotiate *n)
{
    uint32_t cap = n->cap_slots ? 2 * n->cap_slots : 64;
    uint32_t *versions = realloc(n->versions, cap * sizeof(*versions));
    if (!versions)
        return -ENOMEM;
    n->versions = versions;
    uint32_t *free_slots = realloc(n->free_slots, cap * sizeof(*free_slots));
    if (!free_slots)
        return -ENOMEM;
    n->free_slots = free_slots;
    n->cap_slots = cap;
    return 0;
}

/* Finds a slot for one more id; evicts the least recently used tensor if needed. false: there is
 * none. */
static bool take_slot(struct negotiate *n, uint32_t *ret_slot)
{
    if (!n->nfree && n->nversions == n->config.cache_capacity) {
        list_for_each(at, next, &n->lru)
        {
            struct tensor *e = list_entry(at, struct tensor, lru);
            if (e->state != TENSOR_IDLE || e->since)
                continue; /* in flight */
            evict(n, e);
            break;
        }
    }
    if (n->nfree) {
        *ret_slot = n->free_slots[--n->nfree];
        return true;
    }
    if (n->nversions == n->config.cache_capacity)
        return false;
    if (n->nversions == n->cap_slots && grow_slots(n) < 0)
        return false;
    n->versions[n->nversions] = 0;
    *ret_slot = n->nversions++;
    return true;
}

/* Returns the new id under which the log lists e, which some rank has announced in full; 0: e is
 * not cached. */
static uint64_t new_id(struct negotiate *n, const struct tensor *e)
{
    uint32_t slot;
    if (e->id)
        slot = id_slot(e->id);
    else if (!take_slot(n, &slot))
        return 0;
    return (uint64_t)++n->versions[slot] << 32 | slot;
}

/* ---- comparing ----------------------------------------------------------------------------- */

void decide_fail(struct negotiate *n, const char *name, int code, const char *text)
{
    start_log(n);
    buf_put_u8(&n->down, LOG_FAIL);
    buf_put_str(&n->down, name);
    buf_put_u32(&n->down, (uint32_t)code);
    buf_put_str(&n->down, text);
}

void decide_anew(struct negotiate *n)
{
    start_log(n);
    buf_put_u8(&n->down, LOG_ANEW);
    decide_flush_log(n);
}

void decide_end(struct negotiate *n)
{
    start_log(n);
    buf_put_u8(&n->down, LOG_END);
    decide_flush_log(n);
}

static void fail_member(void *ctx, struct tensor *e, int code, const char *text)
{
    decide_fail(ctx, e->name, code, text);
}

/* Of a broadcast whose root has joined: that is the reason why the requests differ. */
static bool root_joined(struct negotiate *n, const struct tensor *e, char *text, size_t size)
{
    for (const struct claim *c = e->claims; c; c = c->next)
        if (c->common.joined) {
            snprintf(text, size,
                     "%s '%s': its root, rank %d, has joined (hvd_join()) and has no data",
                     hvd_kind_name(signature_asked(&c->common)), e->name,
                     rank_name(n->config.names, c->common.root));
            return true;
        }
    return false;
}

static int mismatch(struct negotiate *n, struct tensor *e)
{
    char what[900], text[1000];
    claims_settle(&e->claims);
    int code = claims_of_one_world(e->claims) ? -EINVAL : -ESTALE;
    claims_text(e->claims, n->config.names, e->name, what, sizeof(what));
    snprintf(text, sizeof(text), "%s: %s%s",
             code == -ESTALE ? "ranks submitted this in different worlds" : "ranks do not agree",
             what, code == -ESTALE ? ". No tensor was changed; submit it again" : "");
    if (code == -EINVAL)
        root_joined(n, e, text, sizeof(text));
    bool one_group = true;
    for (const struct claim *c = e->claims; c; c = c->next)
        one_group = one_group && c->common.group_hash == e->claims->common.group_hash &&
                    c->common.group_size == e->claims->common.group_size;
    decide_fail(n, e->name, code, text);
    return one_group ? fusion_failed(&n->fusion, &e->want, code, text) : 0;
}

/* Every rank gets the error. */
static int refuse(struct negotiate *n, struct tensor *e, const struct err *why)
{
    struct err text = *why;
    err_prefix(&text, "%s", e->name);
    decide_fail(n, e->name, text.code, text.msg);
    return fusion_failed(&n->fusion, &e->want, text.code, text.msg);
}

/* Whether e is an operation that ranks which have joined do not take part in. */
static bool joined_lack(const struct negotiate *n, const struct tensor *e, struct err *ret_why)
{
    enum hvd_kind asked = signature_asked(&e->want);
    if (!n->config.join_sums || !join_some(n) || asked == HVD_ALLREDUCE || asked == HVD_BARRIER)
        return false;
    err_set(
        ret_why, EINVAL,
        "%s is not possible while a rank has joined (hvd_join()), as in Horovod; HVD_JOIN_ALL=1 "
        "allows it",
        hvd_kind_name(asked));
    return true;
}

/* Every rank has announced e: compares the requests. */
static int judge(struct negotiate *n, struct tensor *e, uint64_t now)
{
    bool by_id = e->by_id && !e->claims;
    for (int i = 0; i < n->nchildren && by_id; i++)
        by_id = tensor_child_has(e->child_by_id, i);
    if (!by_id && announce_gather(n, e) < 0)
        return -ENOMEM;
    e->told = true;
    list_remove(&e->out);
    if (!by_id && !claims_agree(e->claims))
        return mismatch(n, e);
    struct err why = {0};
    if (joined_lack(n, e, &why) || (n->ops.refuses && n->ops.refuses(n->ctx, &e->want, &why)))
        return refuse(n, e, &why);
    e->next_id = by_id ? e->id : new_id(n, e);
    rounds_arrive(&n->rounds, e->next_id, &e->round);
    return fusion_add(&n->fusion, e, now);
}

/* ---- the log ------------------------------------------------------------------------------- */

/* Writes what each rank announced into one table. For ranks that announced by cache id the
 * cached value remains. */
static void write_table(struct negotiate *n, struct tensor *e)
{
    if (!signature_has_dim0(&e->want))
        return;
    size_t size = (size_t)n->config.size;
    auto_free int64_t *dim0 = calloc(size, sizeof(*dim0));
    if (!dim0) {
        n->down.failed = true;
        return;
    }
    for (size_t i = 0; i < size; i++)
        dim0[i] = e->dim0 ? e->dim0[i] : 0;
    for (const struct claim *c = e->claims; c; c = c->next)
        for (size_t i = 0; i < c->nextras; i++)
            dim0[c->extras[i].rank] = c->extras[i].dim0;
    for (size_t i = 0; i < size; i++)
        buf_put_u64(&n->down, (uint64_t)dim0[i]);
}

bool decide_binds(const struct negotiate *n, const struct signature *sig)
{
    return n->ops.binds && n->ops.binds(n->ctx, sig);
}

static void write_batch(void *ctx, struct list *tensors, size_t count, enum flush_why why)
{
    struct negotiate *n = ctx;
    start_log(n);
    buf_put_u8(&n->down, LOG_BATCH);
    buf_put_u8(&n->down, decide_binds(n, &list_first(tensors, struct tensor, out)->want));
    buf_put_u32(&n->down, (uint32_t)count);
    uint64_t number = n->running.next + n->pending++; /* number of this batch, counted from 0 */
    list_for_each(at, next, tensors)
    {
        struct tensor *e = list_entry(at, struct tensor, out);
        bool new = !e->id || e->next_id != e->id;
        buf_put_u8(&n->down, new);
        if (new)
            buf_put_str(&n->down, e->name);
        buf_put_u64(&n->down, e->next_id);
        if (new)
            write_table(n, e);
        list_remove(at);
        struct log_entry entry = {
            .id = e->next_id,
            .last = list_empty(tensors),
            .timer = why == FLUSH_TIMER,
            .number = number,
            .after = e->submit_batch,
            .serial = (uint32_t)(e->ticket >> 32),
        };
        if (rounds_log(&n->rounds, &entry) < 0)
            n->config.freeze_after = 0; /* out of memory: negotiation continues without plans */
    }
    if (n->down.len > MESSAGE_SOFT_MAX)
        n->flush_soon = true;
}

/* Returns whether a tensor that could join this batch was announced less than a cycle ago. */
static bool more_to_come(const struct negotiate *n, const struct bucket *b, uint64_t now)
{
    for (const struct list *at = n->partial.prev; at != &n->partial; at = at->prev) {
        const struct tensor *e = list_entry(at, struct tensor, partial);
        if (now - e->since >= n->config.cycle_ns)
            return false;
        const struct signature *sig = e->state == TENSOR_SUBMITTED ? &e->want
                                      : e->id                      ? &e->cached
                                      : e->claims                  ? &e->claims->common
                                                                   : NULL;
        if (sig && signature_fusable(sig, &b->key))
            return true;
    }
    return false;
}

static uint64_t flush_buckets(struct negotiate *n, uint64_t now)
{
    uint64_t due = UINT64_MAX;
    bool complete = !n->fusion.groups && rounds_complete(&n->rounds);
    for (int i = n->fusion.nbuckets - 1; i >= 0; i--) {
        struct bucket *b = &n->fusion.buckets[i];
        if (complete)
            fusion_flush(&n->fusion, i, FLUSH_COMPLETE);
        else if (b->prioritized && !more_to_come(n, b, now))
            fusion_flush(&n->fusion, i, FLUSH_PRIORITIZED);
        else if (now - b->since >= n->config.cycle_ns)
            fusion_flush(&n->fusion, i, b->prioritized ? FLUSH_PRIORITIZED : FLUSH_TIMER);
        else if (b->since + n->config.cycle_ns < due)
            due = b->since + n->config.cycle_ns;
    }
    return due;
}

uint64_t decide_tick(struct negotiate *n, uint64_t now)
{
    if (n->end.reached)
        return UINT64_MAX;
    list_for_each(at, next, &n->out)
    {
        int rc = judge(n, list_entry(at, struct tensor, out), now);
        if (rc < 0) {
            n->failed = rc;
            break;
        }
        if (n->flush_soon)
            decide_flush_log(n);
        n->flush_soon = false;
    }
    uint64_t due = flush_buckets(n, now);
    decide_flush_log(n);
    propose_plan(n);
    return due;
}

static const struct fusion_ops fusion_ops = {.batch = write_batch, .fail = fail_member};

int decide_init(struct negotiate *n)
{
    list_init(&n->lru);
    fusion_init(&n->fusion, n->config.fusion_bytes, &fusion_ops, n);
    rounds_init(&n->rounds);
    n->merge = true;
    return 0;
}

void decide_fini(struct negotiate *n)
{
    fusion_reset(&n->fusion);
    rounds_fini(&n->rounds);
    free(n->versions);
    free(n->free_slots);
}
