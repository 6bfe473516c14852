/* SPDX-License-Identifier: Apache-2.0
 *
 * order_up: announcements on their way to the root. Between two ticks a node adds up those of its
 * children and of its own rank; a node other than the root then sends them on.
 *
 * Part of order, see order_impl.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/negotiate/order_impl.h"

enum { HEADER = 9, INIT_BYTES = 25, DROP_BYTES = 9 };

void order_up_clear(struct order_up *u)
{
    for (uint32_t i = 0; i < u->nops; i++)
        free(u->ops[i].before);
    u->nops = u->begun = u->drained = 0;
    buf_reset(&u->inits);
    buf_reset(&u->drops);
    pairs_clear(&u->index);
}

void order_up_fini(struct order_up *u)
{
    order_up_clear(u);
    buf_fini(&u->inits);
    buf_fini(&u->drops);
    pairs_fini(&u->index);
    free(u->ops);
}

/* ---- operations ----------------------------------------------------------------------------- */

static struct order_announced *get(struct order_up *u, struct order_ref ref)
{
    uint32_t i = pairs_get(&u->index, ref.group, ref.k);
    if (i != PAIRS_NONE)
        return &u->ops[i];
    if (u->nops == u->cap) {
        uint32_t cap = u->cap ? 2 * u->cap : 16;
        struct order_announced *more = realloc(u->ops, cap * sizeof(*more));
        if (!more)
            return NULL;
        u->ops = more;
        u->cap = cap;
    }
    if (pairs_put(&u->index, ref.group, ref.k, u->nops) < 0)
        return NULL;
    u->ops[u->nops] = (struct order_announced){.ref = ref};
    return &u->ops[u->nops++];
}

static int add_before(struct order_announced *a, struct order_ref ref)
{
    for (uint32_t i = 0; i < a->nbefore; i++)
        if (a->before[i].group == ref.group && a->before[i].k == ref.k)
            return 0;
    if (a->nbefore == a->cap) {
        uint32_t cap = a->cap ? 2 * a->cap : 1;
        struct order_ref *more = realloc(a->before, cap * sizeof(*more));
        if (!more)
            return -ENOMEM;
        a->before = more;
        a->cap = cap;
    }
    a->before[a->nbefore++] = ref;
    return 0;
}

/* Adds what a child or this rank has announced. -EPROTO: the key is another one. */
static int add(struct order *o, const struct order_announced *said)
{
    if (o->up.nops >= ORDER_OPS_MAX)
        return -EPROTO;
    struct order_announced *a = get(&o->up, said->ref);
    if (!a)
        return -ENOMEM;
    if (a->count == 0)
        a->key = said->key;
    if (a->key != said->key || said->count > (uint32_t)o->config.size - a->count)
        return -EPROTO;
    a->count += said->count;
    a->early = a->early || said->early;
    for (uint32_t i = 0; i < said->nbefore; i++)
        if (add_before(a, said->before[i]) < 0)
            return -ENOMEM;
    return 0;
}

/* ---- this rank ------------------------------------------------------------------------------ */

static void put_init(struct order *o, struct order_group *g)
{
    struct buf *b = &o->up.inits;
    buf_put_u8(b, ORDER_INIT);
    buf_put_u32(b, (uint32_t)o->config.rank);
    buf_put_u64(b, g->id);
    buf_put_u32(b, (uint32_t)g->size);
    buf_put_u64(b, g->committed);
    g->told = true;
}

int order_announce_op(struct order *o, const struct order_op *op)
{
    if (!op->group->told)
        put_init(o, op->group);
    struct order_announced said = {.ref = {.group = op->group->id, .k = op->k},
                                   .key = op->key,
                                   .count = 1,
                                   .early = op->early,
                                   .before = &o->last,
                                   .nbefore = o->has_last};
    int rc = add(o, &said);
    o->last = said.ref;
    o->has_last = true;
    return o->up.inits.failed ? -ENOMEM : rc;
}

int order_announce_drained(struct order *o)
{
    int rc = 0;
    o->up.drained++;
    list_for_each(at, next, &o->waiting)
    {
        rc = rc < 0 ? rc : order_announce_op(o, list_entry(at, struct order_op, at));
    }
    return rc;
}

int order_announce_begin(struct order *o)
{
    for (uint32_t i = 0; i < o->ngroups; i++) {
        o->groups[i]->told = false;
        if (o->groups[i]->ready > 0)
            put_init(o, o->groups[i]);
    }
    o->up.begun++;
    if (o->up.inits.failed)
        return -ENOMEM;
    return o->draining ? 0 : order_announce_drained(o);
}

int order_announce_drop(struct order *o, const struct order_group *g)
{
    if (!g->told)
        return 0;
    buf_put_u8(&o->up.drops, ORDER_DROP);
    buf_put_u64(&o->up.drops, g->id);
    return o->up.drops.failed ? -ENOMEM : 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Reads what follows the kind. a->before is owned by the caller, also after an error. */
int order_announced_read(struct order_announced *a, uint32_t size, struct reader *r)
{
    a->ref.group = reader_u64(r);
    a->ref.k = reader_u64(r);
    a->key = reader_u64(r);
    a->count = reader_u32(r);
    a->early = reader_u8(r) != 0;
    a->nbefore = reader_u32(r);
    if (r->failed || a->count == 0 || a->count > size || a->nbefore > a->count ||
        a->nbefore > (r->len - r->pos) / 16)
        return -EPROTO;
    if (a->nbefore == 0)
        return 0;
    a->before = calloc(a->nbefore, sizeof(*a->before));
    if (!a->before)
        return -ENOMEM;
    for (uint32_t i = 0; i < a->nbefore; i++) {
        a->before[i].group = reader_u64(r);
        a->before[i].k = reader_u64(r);
    }
    return 0;
}

static int read_op(struct order *o, struct reader *r)
{
    struct order_announced said = {.before = NULL};
    int rc = order_announced_read(&said, (uint32_t)o->config.size, r);
    if (rc == 0)
        rc = add(o, &said);
    free(said.before);
    return rc;
}

/* Copies a record that is not added up. */
static int copy(struct reader *r, size_t len, struct buf *to)
{
    const void *bytes = reader_bytes(r, len - 1);
    if (!bytes)
        return -EPROTO;
    buf_put_u8(to, r->data[r->pos - len]);
    buf_put(to, bytes, len - 1);
    return to->failed ? -ENOMEM : 0;
}

static int read_count(const struct order *o, struct reader *r, uint32_t *sum)
{
    uint32_t n = reader_u32(r);
    if (r->failed || n > (uint32_t)o->config.size - *sum)
        return -EPROTO;
    *sum += n;
    return 0;
}

static int read_record(struct order *o, struct reader *r)
{
    switch (reader_u8(r)) {
    case ORDER_INIT:
        return copy(r, INIT_BYTES, &o->up.inits);
    case ORDER_BEGUN:
        return read_count(o, r, &o->up.begun);
    case ORDER_DRAINED:
        return read_count(o, r, &o->up.drained);
    case ORDER_OP:
        return read_op(o, r);
    case ORDER_DROP:
        return copy(r, DROP_BYTES, &o->up.drops);
    default:
        return -EPROTO;
    }
}

int order_up_recv(struct order *o, struct reader *r)
{
    while (r->pos < r->len) {
        int rc = read_record(o, r);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Sends the message and begins another one, if it is long or the last one. */
static void pass(struct order *o, bool last)
{
    size_t least = last ? HEADER + 1 : ORDER_PART;
    if (o->msg.failed || o->msg.len < least)
        return;
    o->ops.send(o->ctx, NEGOTIATE_PARENT, &o->msg);
    order_begin(o, &o->msg, ORDER_UP);
}

static void put_records(struct order *o, const struct buf *records, size_t each)
{
    for (size_t at = 0; at < records->len; at += each) {
        buf_put(&o->msg, records->data + at, each);
        pass(o, false);
    }
}

static void put_count(struct order *o, enum order_record kind, uint32_t n)
{
    if (n == 0)
        return;
    buf_put_u8(&o->msg, (uint8_t)kind);
    buf_put_u32(&o->msg, n);
}

static void put_op(struct order *o, const struct order_announced *a)
{
    struct buf *b = &o->msg;
    buf_put_u8(b, ORDER_OP);
    buf_put_u64(b, a->ref.group);
    buf_put_u64(b, a->ref.k);
    buf_put_u64(b, a->key);
    buf_put_u32(b, a->count);
    buf_put_u8(b, a->early);
    buf_put_u32(b, a->nbefore);
    for (uint32_t i = 0; i < a->nbefore; i++) {
        buf_put_u64(b, a->before[i].group);
        buf_put_u64(b, a->before[i].k);
    }
    pass(o, false);
}

int order_up_send(struct order *o)
{
    struct order_up *u = &o->up;
    if (u->inits.len == 0 && u->drops.len == 0 && !u->begun && !u->drained && u->nops == 0)
        return 0;
    order_begin(o, &o->msg, ORDER_UP);
    put_records(o, &u->inits, INIT_BYTES);
    put_count(o, ORDER_BEGUN, u->begun);
    put_count(o, ORDER_DRAINED, u->drained);
    for (uint32_t i = 0; i < u->nops; i++)
        put_op(o, &u->ops[i]);
    put_records(o, &u->drops, DROP_BYTES);
    pass(o, true);
    if (o->msg.failed)
        return -ENOMEM;
    order_up_clear(u);
    return 0;
}
