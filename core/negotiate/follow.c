/* SPDX-License-Identifier: Apache-2.0
 *
 * follow: the messages down the tree. Every node, including the root, follows the same log: it
 * hands batches to the engine, reports failures, adds and evicts cache ids.
 *
 * Part of negotiate, see negotiate_impl.h. The root follows the same bytes that it sends.
 */
#include <stdlib.h>
#include <string.h>

#include "core/negotiate/log_record.h"
#include "core/negotiate/negotiate_impl.h"
#include "core/negotiate/signature.h"

void follow_forget(struct negotiate *n, struct tensor *e)
{
    tensor_forget_children(e, n->nchildren);
    e->complete = e->told = e->priority_told = false;
    e->since = 0;
    if (e->state != TENSOR_SUBMITTED)
        e->stall_told = 0;
    list_remove(&e->out);
    list_remove(&e->partial);
    tensors_release(&n->table, e);
}

/* Makes room for a batch of count tensors in n->batch, n->picked and n->running. */
static int make_room(struct negotiate *n, size_t count)
{
    if (count > n->cap_batch) {
        size_t cap = n->cap_batch ? n->cap_batch : 64;
        while (cap < count)
            cap *= 2;
        struct negotiate_tensor *batch = realloc(n->batch, cap * sizeof(*batch));
        if (!batch)
            return -ENOMEM;
        n->batch = batch;
        struct tensor **picked = realloc(n->picked, cap * sizeof(struct tensor *));
        if (!picked)
            return -ENOMEM;
        n->picked = picked;
        n->cap_batch = cap;
    }
    return running_reserve(&n->running, count);
}

int follow_hand_out(struct negotiate *n, struct tensor **tensors, size_t count,
                    struct running_batch how)
{
    if (make_room(n, count) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        struct tensor *e = tensors[i];
        n->nsubmitted -= e->state == TENSOR_SUBMITTED;
        e->state = TENSOR_RUNNING;
        e->prioritized = false;
        e->bound = how.bound;
        list_remove(&e->mine);
        running_add(&n->running, e);
        n->batch[i] = (struct negotiate_tensor){
            .id = e->ticket,
            .dim0 = signature_has_dim0(&e->want) ? e->dim0 : NULL,
        };
    }
    struct negotiate_batch batch = {
        .number = running_close(&n->running, how),
        .tensors = n->batch,
        .n = count,
        .bound = how.bound,
        .frozen = how.frozen,
        .owed = how.owed,
    };
    n->ops.batch(n->ctx, &batch);
    return 0;
}

/* Reads the table of an allgather: every rank's dimension 0. */
static int read_table(struct negotiate *n, struct tensor *e, struct reader *r)
{
    if (!signature_has_dim0(&e->want))
        return 0;
    size_t size = (size_t)n->config.size;
    if ((r->len - r->pos) / 8 < size)
        return -EPROTO;
    if (!e->dim0 && !(e->dim0 = calloc(size, sizeof(int64_t))))
        return -ENOMEM;
    for (size_t i = 0; i < size; i++) {
        e->dim0[i] = (int64_t)reader_u64(r);
        if (e->dim0[i] < 0)
            return -EPROTO;
    }
    return e->dim0[n->config.rank] == e->want.shape[0] ? 0 : -EPROTO;
}

/* Reads a tensor of a batch; this node must have announced it. */
static int read_item(struct negotiate *n, struct reader *r, struct tensor **ret)
{
    bool new = reader_u8(r) != 0;
    char name[HVD_MAX_NAME + 1];
    if (new)
        reader_str(r, name, sizeof(name));
    uint64_t id = reader_u64(r);
    if (r->failed)
        return -EPROTO;
    struct tensor *e = new ? tensors_find(&n->table, name) : tensors_by_id(&n->table, id);
    if (!e || e->state != TENSOR_SUBMITTED || !e->told || (!new && !e->by_id))
        return -EPROTO;
    if (new) {
        int rc = read_table(n, e, r);
        if (rc == 0 && id)
            rc = tensors_set_id(&n->table, e, id);
        else if (rc == 0 && e->id)
            tensors_drop_id(&n->table, e);
        if (rc < 0)
            return rc;
        e->cached = e->want;
        e->by_id = id != 0;
    }
    if (new)
        n->stats.negotiated++;
    else
        n->stats.cached++;
    e->told = false; /* so that a tensor listed twice in a batch is an error */
    *ret = e;
    return 0;
}

static int follow_batch(struct negotiate *n, struct reader *r)
{
    uint8_t bound = reader_u8(r);
    uint32_t count = reader_u32(r);
    if (r->failed || bound > 1 || count == 0 || count > n->nsubmitted || n->end.reached)
        return -EPROTO;
    int rc = make_room(n, count);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = read_item(n, r, &n->picked[i]);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < count; i++) {
        struct tensor *e = n->picked[i];
        follow_forget(n, e); /* the tensor is submitted, so its entry is not released */
        if (n->root && e->id) {
            list_remove(&e->lru);
            list_append(&n->lru, &e->lru);
        }
    }
    if (bound && !list_empty(&n->owed.queue))
        return owed_add(n, n->picked, count, false);
    return follow_hand_out(n, n->picked, count, (struct running_batch){.bound = bound});
}

static int follow_evict(struct negotiate *n, struct reader *r)
{
    struct tensor *e = tensors_by_id(&n->table, reader_u64(r));
    if (r->failed || !e)
        return -EPROTO;
    bool own = e->state == TENSOR_SUBMITTED && e->by_id;
    tensors_drop_id(&n->table, e);
    announce_evicted(n, e, own);
    tensors_release(&n->table, e);
    return 0;
}

static int follow_fail(struct negotiate *n, struct reader *r)
{
    char name[HVD_MAX_NAME + 1];
    struct err reason = {0};
    reader_str(r, name, sizeof(name));
    int code = (int32_t)reader_u32(r);
    reader_str(r, reason.msg, sizeof(reason.msg));
    if (r->failed || code >= 0)
        return -EPROTO;
    reason.code = code;
    struct tensor *e = tensors_find(&n->table, name);
    if (!e)
        return 0; /* the tensor is not submitted on this rank */
    bool here = e->state == TENSOR_SUBMITTED;
    uint64_t ticket = e->ticket;
    if (here) {
        list_remove(&e->mine);
        n->nsubmitted--;
        e->state = TENSOR_IDLE;
        e->prioritized = false;
    }
    follow_forget(n, e);
    if (here)
        n->ops.fail(n->ctx, ticket, &reason);
    return 0;
}

int follow_log(struct negotiate *n, struct reader *r)
{
    int rc = n->frozen ? -EPROTO : 0;
    while (rc == 0 && r->pos < r->len) {
        switch (reader_u8(r)) {
        case LOG_BATCH:
            rc = follow_batch(n, r);
            break;
        case LOG_EVICT:
            rc = follow_evict(n, r);
            break;
        case LOG_FAIL:
            rc = follow_fail(n, r);
            break;
        case LOG_ANEW:
            n->generation++;
            fusion_reset(&n->fusion);
            rounds_reset(&n->rounds);
            announce_anew(n, false);
            break;
        case LOG_END:
            n->end.reached = true;
            break;
        default:
            rc = -EPROTO;
        }
    }
    return rc < 0 ? rc : reader_ok(r) ? 0 : -EPROTO;
}
