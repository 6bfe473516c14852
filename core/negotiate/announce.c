/* SPDX-License-Identifier: Apache-2.0
 *
 * announce: the messages up the tree. A tensor that was submitted on this rank, and that every
 * child has announced, is announced to the parent: by its cache id if all requests equal the cached
 * ones, otherwise in full.
 *
 * Part of negotiate, see negotiate_impl.h.
 */
#include <string.h>

#include "core/base/clock.h"
#include "core/negotiate/negotiate_impl.h"
#include "core/negotiate/signature.h"

/* Records of UP_READY: u8 kind (with PRIORITIZED), then what the kind needs. */
enum {
    RECORD_ID = 1,        /* u64 id */
    RECORD_FULL,          /* str name, u64 cache id (that of the claims by cache id), claims */
    RECORD_PRIORITY_ID,   /* u64 id */
    RECORD_PRIORITY_NAME, /* str name */
    PRIORITIZED = 0x80,
};

/* time until an announcement is tried again after a failed allocation */
#define RETRY_NS (1 * CLOCK_MS)

static void heard(struct negotiate *n, struct tensor *e, uint64_t now)
{
    if (e->since)
        return;
    e->since = now ? now : 1;
    list_append(&n->partial, &e->partial);
    stall_heard(n, e);
    if (join_some(n))
        join_heard(n, e);
}

static void check_complete(struct negotiate *n, struct tensor *e)
{
    if (e->complete || e->state != TENSOR_SUBMITTED || e->nready != (uint32_t)n->nchildren)
        return;
    e->complete = true;
    list_remove(&e->partial);
    list_append(&n->out, &e->out);
}

void announce_submitted(struct negotiate *n, struct tensor *e, uint64_t now)
{
    heard(n, e, now);
    check_complete(n, e);
}

void announce_prioritize(struct negotiate *n, struct tensor *e)
{
    e->prioritized = true;
    if (n->root && e->told)
        fusion_prioritize(&n->fusion, e);
    if (!n->root && e->told && !e->priority_told && list_empty(&e->out))
        list_append(&n->out, &e->out);
}

/* ---- to the parent ------------------------------------------------------------------------ */

static bool all_by_id(const struct negotiate *n, const struct tensor *e)
{
    if (!e->id || !e->by_id || e->claims)
        return false;
    for (int i = 0; i < n->nchildren; i++)
        if (!tensor_child_has(e->child_by_id, i))
            return false;
    return true;
}

int announce_gather(struct negotiate *n, struct tensor *e)
{
    struct rankset *ids = &n->scratch;
    rankset_clear(ids);
    if (e->by_id)
        rankset_add(ids, n->config.rank);
    for (int i = 0; i < n->nchildren; i++)
        if (tensor_child_has(e->child_by_id, i))
            rankset_union(ids, &n->children[i].below);
    if (rankset_next(ids, 0) >= 0) {
        struct signature common = signature_common(&e->cached);
        if (claims_add(&e->claims, true, &common, ids, NULL) < 0)
            return -ENOMEM;
    }
    if (e->by_id)
        return 0;
    struct signature common = signature_common(&e->want);
    struct claim *own;
    rankset_clear(ids);
    rankset_add(ids, n->config.rank);
    if (claims_add(&e->claims, false, &common, ids, &own) < 0)
        return -ENOMEM;
    if (!signature_has_dim0(&e->want))
        return 0;
    return claim_set_extra(own, n->config.rank, e->want.shape[0]);
}

static int write_record(struct negotiate *n, struct tensor *e)
{
    struct buf *b = &n->up;
    uint8_t prioritized = e->prioritized ? PRIORITIZED : 0;
    if (e->told) {
        buf_put_u8(b, e->id ? RECORD_PRIORITY_ID : RECORD_PRIORITY_NAME);
        if (e->id)
            buf_put_u64(b, e->id);
        else
            buf_put_str(b, e->name);
    } else if (all_by_id(n, e)) {
        buf_put_u8(b, RECORD_ID | prioritized);
        buf_put_u64(b, e->id);
    } else {
        if (announce_gather(n, e) < 0)
            return -ENOMEM;
        buf_put_u8(b, RECORD_FULL | prioritized);
        buf_put_str(b, e->name);
        buf_put_u64(b, e->id);
        claims_write(e->claims, b);
    }
    return b->failed ? -ENOMEM : 0;
}

static void send_up(struct negotiate *n)
{
    n->ops.send(n->ctx, NEGOTIATE_PARENT, &n->up);
}

static void send_hello(struct negotiate *n)
{
    if (n->hello_sent || n->nhello != n->nchildren)
        return;
    negotiate_begin(n, &n->up, UP_HELLO);
    rankset_write(&n->below, &n->up);
    if (n->up.failed)
        return;
    send_up(n);
    n->hello_sent = true;
}

uint64_t announce_flush(struct negotiate *n, uint64_t now)
{
    uint64_t again = now + RETRY_NS;
    send_hello(n);
    if (!n->hello_sent)
        return n->nhello == n->nchildren ? again : UINT64_MAX;
    if (list_empty(&n->out))
        return UINT64_MAX;
    negotiate_begin(n, &n->up, UP_READY);
    if (n->up.failed)
        return again;
    list_for_each(at, next, &n->out)
    {
        struct tensor *e = list_entry(at, struct tensor, out);
        if (n->up.len > MESSAGE_SOFT_MAX) {
            send_up(n);
            negotiate_begin(n, &n->up, UP_READY); /* reuses the buffer's memory */
        }
        size_t len = n->up.len;
        if (write_record(n, e) < 0) {
            n->up.len = len;
            n->up.failed = false;
            break;
        }
        list_remove(&e->out);
        e->told = true;
        e->priority_told = e->prioritized;
    }
    send_up(n);
    return list_empty(&n->out) ? UINT64_MAX : again;
}

/* ---- from a child -------------------------------------------------------------------------- */

int announce_hello(struct negotiate *n, int child, struct reader *r)
{
    struct child *c = &n->children[child];
    if (c->hello)
        return -EPROTO;
    rankset_read(&c->below, r);
    if (!reader_ok(r) || !rankset_has(&c->below, c->rank) || rankset_overlap(&c->below, &n->below))
        return -EPROTO;
    rankset_union(&n->below, &c->below);
    c->hello = true;
    n->nhello++;
    if (n->root && n->nhello == n->nchildren && rankset_count(&n->below) != n->config.size)
        return -EPROTO;
    return 0;
}

static int child_has(struct negotiate *n, struct tensor *e, int child, uint64_t now)
{
    if (tensor_child_has(e->child_ready, child))
        return -EPROTO;
    e->child_ready[child >> 6] |= 1ULL << (child & 63);
    e->nready++;
    heard(n, e, now);
    check_complete(n, e);
    return 0;
}

static int recv_id(struct negotiate *n, int child, uint64_t id, bool prioritized, uint64_t now)
{
    struct tensor *e = tensors_by_id(&n->table, id);
    /* The id was evicted while the child's message was in flight: the child announces the tensor
     * again in full. */
    if (!e)
        return id >> 32 && id_slot(id) < n->config.cache_capacity ? 0 : -EPROTO;
    e->child_by_id[child >> 6] |= 1ULL << (child & 63);
    e->prioritized = e->prioritized || prioritized;
    return child_has(n, e, child, now);
}

static int read_name(struct reader *r, char *name)
{
    reader_str(r, name, HVD_MAX_NAME + 1);
    return r->failed || !name[0] ? -EPROTO : 0;
}

static int recv_full(struct negotiate *n, int child, struct reader *r, bool prioritized,
                     uint64_t now)
{
    char name[HVD_MAX_NAME + 1];
    if (read_name(r, name) < 0)
        return -EPROTO;
    uint64_t id = reader_u64(r);
    struct tensor *e = tensors_by_id(&n->table, id);
    if (e && strcmp(e->name, name) != 0)
        return -EPROTO;
    if (!e && n->table.count >= TENSORS_MAX)
        return -EPROTO;
    bool known = e;
    if (!e)
        e = tensors_get(&n->table, name);
    if (!e)
        return -ENOMEM;
    /* Not known: the id was evicted, or is 0. If the message has claims by an evicted id, all its
     * claims are read and dropped, and the child announces the tensor again. */
    struct signature nothing = {.device = -1};
    struct signature cached = known ? e->cached : nothing;
    struct claim *claims = NULL;
    int rc = claims_read(&claims, n->config.size, &cached, r, &n->scratch);
    bool mixed = false;
    for (struct claim *c = claims; c; c = c->next)
        mixed = mixed || c->by_id;
    if (rc == 0 && (r->failed || !rankset_equal(&n->scratch, &n->children[child].below)))
        rc = -EPROTO;
    if (rc == 0 && !(mixed && !known)) {
        if (mixed)
            e->child_mixed[child >> 6] |= 1ULL << (child & 63);
        e->prioritized = e->prioritized || prioritized;
        rc = claims_move(&e->claims, &claims);
        if (rc == 0)
            rc = child_has(n, e, child, now);
    }
    claims_free(&claims);
    tensors_release(&n->table, e);
    return rc;
}

static void recv_priority(struct negotiate *n, int child, struct tensor *e)
{
    /* A request for priority without an announcement is too late: the tensor is in a batch already.
     */
    if (e && tensor_child_has(e->child_ready, child))
        announce_prioritize(n, e);
}

int announce_recv(struct negotiate *n, int child, struct reader *r, uint64_t now)
{
    if (!n->children[child].hello)
        return -EPROTO;
    int rc = 0;
    while (rc == 0 && r->pos < r->len) {
        uint8_t kind = reader_u8(r);
        bool prioritized = kind & PRIORITIZED;
        char name[HVD_MAX_NAME + 1];
        switch (kind & ~PRIORITIZED) {
        case RECORD_ID:
            rc = recv_id(n, child, reader_u64(r), prioritized, now);
            break;
        case RECORD_FULL:
            rc = recv_full(n, child, r, prioritized, now);
            break;
        case RECORD_PRIORITY_ID:
            recv_priority(n, child, tensors_by_id(&n->table, reader_u64(r)));
            break;
        case RECORD_PRIORITY_NAME:
            rc = read_name(r, name);
            if (rc == 0)
                recv_priority(n, child, tensors_find(&n->table, name));
            break;
        default:
            rc = -EPROTO;
        }
        if (r->failed)
            rc = rc < 0 ? rc : -EPROTO;
    }
    return rc;
}

/* ---- starting over ------------------------------------------------------------------------- */

void announce_evicted(struct negotiate *n, struct tensor *e, bool own)
{
    bool by_id = own;
    for (int i = 0; i < n->nchildren; i++) {
        uint64_t bit = 1ULL << (i & 63);
        if (!((e->child_by_id[i >> 6] | e->child_mixed[i >> 6]) & bit))
            continue;
        e->child_by_id[i >> 6] &= ~bit;
        e->child_mixed[i >> 6] &= ~bit;
        e->child_ready[i >> 6] &= ~bit;
        e->nready--;
        by_id = true;
    }
    if (!by_id)
        return; /* the announcement was in full and does not depend on the id */
    claims_drop_ids(&e->claims);
    list_remove(&e->out);
    e->complete = e->told = e->priority_told = false;
    list_remove(&e->partial);
    if (e->state != TENSOR_SUBMITTED && e->nready == 0) {
        e->since = 0;
        return;
    }
    list_append(&n->partial, &e->partial);
    check_complete(n, e);
}

void announce_anew(struct negotiate *n, bool frozen)
{
    for (uint32_t i = 0; i < n->table.npool; i++)
        if (n->table.pool[i])
            follow_forget(n, n->table.pool[i]);
    if (frozen)
        return;
    list_for_each(at, next, &n->submitted)
    {
        /* The tensor has waited since it was submitted, not since now. */
        struct tensor *e = list_entry(at, struct tensor, mine);
        announce_submitted(n, e, e->submitted);
    }
}
