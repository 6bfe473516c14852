/* SPDX-License-Identifier: Apache-2.0
 *
 * negotiate: the calls of negotiate.h; see negotiate_impl.h for the rest.
 */
#include "core/negotiate/negotiate.h"

#include <stdlib.h>
#include <string.h>

#include "core/negotiate/negotiate_impl.h"
#include "core/negotiate/signature.h"

void negotiate_begin(struct negotiate *n, struct buf *b, enum message type)
{
    buf_reset(b);
    buf_put_u8(b, (uint8_t)type);
    buf_put_u64(b, n->generation);
}

void negotiate_send_down(struct negotiate *n, const struct buf *msg)
{
    for (int i = 0; i < n->nchildren; i++)
        n->ops.send(n->ctx, n->children[i].rank, msg);
}

static int check_config(const struct negotiate_config *c, struct err *err)
{
    if (c->size < 1 || c->rank < 0 || c->rank >= c->size)
        return err_set(err, EINVAL, "rank %d of %d", c->rank, c->size);
    if ((c->parent < 0) != (c->rank == 0) || c->parent >= c->size || c->parent == c->rank)
        return err_set(err, EINVAL, "rank %d has parent %d", c->rank, c->parent);
    for (int i = 0; i < c->nchildren; i++)
        if (c->children[i] < 1 || c->children[i] >= c->size || c->children[i] == c->rank)
            return err_set(err, EINVAL, "rank %d has child %d", c->rank, c->children[i]);
    return 0;
}

static int create_children(struct negotiate *n, const struct negotiate_config *config)
{
    n->children = calloc((size_t)config->nchildren + 1, sizeof(*n->children));
    if (!n->children)
        return -ENOMEM;
    n->nchildren = config->nchildren;
    for (int i = 0; i < n->nchildren; i++) {
        n->children[i].rank = config->children[i];
        if (rankset_init(&n->children[i].below, config->size) < 0)
            return -ENOMEM;
    }
    return 0;
}

int negotiate_create(const struct negotiate_config *config, const struct negotiate_ops *ops,
                     void *ctx, struct negotiate **ret, struct err *err)
{
    int rc = check_config(config, err);
    if (rc < 0)
        return rc;
    struct negotiate *n = calloc(1, sizeof(*n));
    if (!n)
        return err_set(err, ENOMEM, "out of memory");
    n->config = *config;
    n->config.children = NULL;
    n->ops = *ops;
    n->ctx = ctx;
    n->root = config->rank == 0;
    n->generation = 1;
    list_init(&n->submitted);
    list_init(&n->out);
    list_init(&n->partial);
    owed_init(&n->owed);
    if (create_children(n, config) < 0 || rankset_init(&n->below, config->size) < 0 ||
        rankset_init(&n->scratch, config->size) < 0 ||
        rankset_init(&n->join.who, config->size) < 0 ||
        tensors_init(&n->table, config->cache_capacity, config->nchildren) < 0 ||
        decide_init(n) < 0 || stall_init(n) < 0) {
        negotiate_destroy(n);
        return err_set(err, ENOMEM, "out of memory");
    }
    rankset_add(&n->below, config->rank);
    *ret = n;
    return 0;
}

void negotiate_destroy(struct negotiate *n)
{
    if (!n)
        return;
    decide_fini(n);
    stall_fini(n);
    owed_fini(&n->owed);
    if (n->table.buckets)
        tensors_fini(&n->table);
    for (int i = 0; i < n->nchildren; i++)
        rankset_fini(&n->children[i].below);
    free(n->children);
    rankset_fini(&n->below);
    rankset_fini(&n->scratch);
    running_fini(&n->running);
    plan_fini(&n->plan);
    buf_fini(&n->up);
    buf_fini(&n->down);
    buf_fini(&n->join.message);
    rankset_fini(&n->join.who);
    free(n->batch);
    free(n->picked);
    free(n);
}

/* ---- submissions --------------------------------------------------------------------------- */

static int check_submission(const char *name, const struct signature *sig, struct err *err)
{
    size_t len = strnlen(name, HVD_MAX_NAME + 1);
    if (len == 0 || len > HVD_MAX_NAME)
        return err_set(err, EINVAL, "a name has 1 to %d bytes", HVD_MAX_NAME);
    return signature_check(sig, err) < 0 ? err_prefix(err, "'%s'", name) : 0;
}

int negotiate_submit(struct negotiate *n, const char *name, const struct signature *sig,
                     uint64_t now, uint64_t *ret_id, struct err *err)
{
    int rc = check_submission(name, sig, err);
    if (rc < 0)
        return rc;
    if (n->failed)
        return err_set(err, -n->failed, "negotiation has failed");
    struct tensor *e = tensors_get(&n->table, name);
    if (!e)
        return err_set(err, ENOMEM, "out of memory");
    if (e->state != TENSOR_IDLE)
        return err_set(err, EEXIST, "'%s' is in flight already", name);
    free(e->asked);
    e->asked = NULL;
    e->want = *sig;
    e->by_id = e->id && signature_equal(&e->cached, sig);
    e->state = e->owed ? TENSOR_OWED : TENSOR_SUBMITTED;
    e->waited = false;
    e->submitted = now;
    e->stall_told = e->since ? e->stall_told : 0;
    e->submit_batch = n->done_to;
    n->stall.last_call = now;
    *ret_id = tensors_ticket(&n->table, e);
    n->now = now;
    if (e->owed) {
        owed_submitted(n, e);
        return 0;
    }
    list_append(&n->submitted, &e->mine);
    n->nsubmitted++;
    if (n->frozen)
        thaw_submitted(n, e);
    else
        announce_submitted(n, e, now);
    return 0;
}

void negotiate_prioritize(struct negotiate *n, uint64_t id, bool waits, uint64_t now)
{
    struct tensor *e = tensors_by_ticket(&n->table, id);
    if (!e || (e->state != TENSOR_SUBMITTED && e->state != TENSOR_OWED))
        return;
    n->now = now;
    e->waited = e->waited || waits;
    if (e->state == TENSOR_OWED)
        return;
    if (n->frozen)
        thaw_prioritize(n, e);
    else if (!e->prioritized)
        announce_prioritize(n, e);
}

void negotiate_done(struct negotiate *n, uint64_t number)
{
    const struct running_batch *b = running_get(&n->running, number);
    if (!b)
        return;
    for (uint32_t i = 0; i < b->n; i++) {
        struct tensor *e = running_tensor(&n->running, b, i);
        e->state = TENSOR_IDLE;
        join_idle(n, e);
        tensors_release(&n->table, e);
    }
    if (b->frozen)
        plan_done(&n->plan, b->index, b->bound);
    running_remove(&n->running, number);
    n->done_to = number >= n->done_to ? number + 1 : n->done_to;
}

/* ---- messages ------------------------------------------------------------------------------ */

static int recv_up(struct negotiate *n, int child, uint8_t type, uint64_t generation,
                   struct reader *r, uint64_t now)
{
    if (type == UP_HELLO)
        return announce_hello(n, child, r);
    if (type == UP_STATUS)
        return status_recv(n, child, r);
    if (type == UP_SETTLED)
        return owed_recv_settled(n, child, r);
    if (type == UP_CONFLICT)
        return owed_recv_conflict(n, r);
    if (type == UP_JOIN)
        return join_recv(n, child, r);
    if (type == UP_END)
        return end_recv(n, r);
    if (generation > n->generation)
        return -EPROTO; /* only the parent sends messages of a new generation */
    if (generation < n->generation)
        return 0; /* sent before the sender knew of the new generation */
    switch (type) {
    case UP_READY:
        return n->frozen ? -EPROTO : announce_recv(n, child, r, now);
    case UP_STALLED:
        return stall_recv_hint(n, r);
    case UP_THAW_ASK:
        return thaw_recv_ask(n, r);
    case UP_THAW_AT:
        return thaw_recv_at(n, child, r);
    default:
        return -EPROTO;
    }
}

static int recv_down(struct negotiate *n, uint8_t type, uint64_t generation, struct reader *r,
                     uint64_t now)
{
    if (generation != n->generation)
        return -EPROTO;
    switch (type) {
    case DOWN_LOG:
        return follow_log(n, r);
    case DOWN_STALL:
        return stall_follow_stall(n, r);
    case DOWN_LOST:
        return stall_follow_lost(n, r);
    case DOWN_STATUS:
        return status_follow(n, r);
    case DOWN_WANTED:
        return join_follow_wanted(n, r);
    case DOWN_JOINED:
        return join_follow_joined(n, r);
    case DOWN_PLAN:
        return thaw_follow_plan(n, r, now);
    case DOWN_THAW_ASK:
        return thaw_follow_ask(n, r);
    case DOWN_THAWED:
        return thaw_follow_thawed(n, r, now);
    default:
        return -EPROTO;
    }
}

int negotiate_recv(struct negotiate *n, int from, const void *msg, size_t len, uint64_t now,
                   struct err *err)
{
    struct reader r = reader_over(msg, len);
    uint8_t type = reader_u8(&r);
    uint64_t generation = reader_u64(&r);
    int rc = -EPROTO, child = 0;
    n->now = now;
    if (!r.failed && from == NEGOTIATE_PARENT && !n->root) {
        struct buf copy = {.data = (uint8_t *)(uintptr_t)msg, .len = len, .cap = len};
        negotiate_send_down(n, &copy);
        rc = recv_down(n, type, generation, &r, now);
    } else if (!r.failed) {
        while (child < n->nchildren && n->children[child].rank != from)
            child++;
        if (child < n->nchildren)
            rc = recv_up(n, child, type, generation, &r, now);
    }
    /* Of these two ops.lost has reported the failure. */
    if (rc == 0 && type != DOWN_LOST && type != UP_CONFLICT)
        rc = n->failed;
    if (rc < 0)
        return err_set(err, -rc, "negotiation: %s from %s %d (type %u, %zu bytes)",
                       rc == -ENOMEM   ? "out of memory at a message"
                       : rc == -EPROTO ? "bad message"
                                       : "has failed earlier; message",
                       from == NEGOTIATE_PARENT ? "parent" : "child",
                       from == NEGOTIATE_PARENT ? n->config.parent : from, type, len);
    return 0;
}

uint64_t negotiate_tick(struct negotiate *n, uint64_t now)
{
    n->now = now;
    end_tick(n);
    uint64_t due = thaw_tick(n, now), stalled = stall_tick(n, now);
    if (!n->frozen) {
        due = n->root ? decide_tick(n, now) : announce_flush(n, now);
        if (n->frozen) /* a plan has arrived */
            due = thaw_tick(n, now);
    }
    uint64_t owed = owed_tick(n, now);
    due = owed < due ? owed : due;
    uint64_t joins = join_tick(n, now); /* behind the greeting */
    due = joins < due ? joins : due;
    return stalled < due ? stalled : due;
}

int negotiate_failed(const struct negotiate *n)
{
    return n->failed;
}

bool negotiate_frozen(const struct negotiate *n)
{
    return n->frozen && !n->thawing;
}

bool negotiate_try_next(struct negotiate *n, const char *name, const struct signature *sig,
                        struct negotiate_next *ret)
{
    if (!n->frozen || n->thawing || n->nsubmitted || n->running.n > n->running.nbound)
        return false;
    uint32_t count;
    bool bound;
    struct tensor *e = *plan_batch(&n->plan, &count, &bound);
    if (count != 1 || bound || sig->group_size || e->state != TENSOR_IDLE ||
        strcmp(e->name, name) != 0 || !signature_equal(&e->cached, sig) ||
        signature_has_dim0(sig) || running_reserve(&n->running, 1) < 0)
        return false;
    e->by_id = true;
    e->state = TENSOR_RUNNING;
    e->submit_batch = n->done_to;
    running_add(&n->running, e);
    struct running_batch how = {.frozen = true, .index = n->plan.walked};
    *ret = (struct negotiate_next){.id = tensors_ticket(&n->table, e),
                                   .number = running_close(&n->running, how)};
    n->stats.frozen++;
    plan_advance(&n->plan);
    return true;
}

void negotiate_get_stats(const struct negotiate *n, struct negotiate_stats *ret)
{
    *ret = n->stats;
}
