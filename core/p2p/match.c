/* SPDX-License-Identifier: Apache-2.0
 *
 * match: see match.h.
 */
#include "core/p2p/match.h"

#include <stdlib.h>

#include "core/base/hash.h"

static size_t bucket(int from, uint32_t tag)
{
    return hash_mix((uint64_t)(uint32_t)from << 32 | tag) % MATCH_BUCKETS;
}

void match_init(struct match *m)
{
    *m = (struct match){.nany = 0};
    for (size_t i = 0; i < MATCH_BUCKETS; i++) {
        list_init(&m->posted[i]);
        list_init(&m->posted_any[i]);
        list_init(&m->by_sender[i]);
        list_init(&m->by_tag[i]);
    }
}

void arrival_free(struct arrival *arrival)
{
    if (arrival)
        free(arrival->data);
    free(arrival);
}

void match_forget(struct match *m, int from)
{
    for (size_t i = 0; i < MATCH_BUCKETS; i++)
        list_for_each(at, next, &m->by_sender[i])
        {
            struct arrival *a = list_entry(at, struct arrival, by_sender);
            if (from != P2P_ANY && a->from != from)
                continue;
            a->held = false;
            if (from != P2P_ANY && a->data && a->have == a->bytes)
                continue;
            list_remove(&a->by_sender);
            list_remove(&a->by_tag);
            arrival_free(a);
        }
}

void match_fini(struct match *m)
{
    match_forget(m, P2P_ANY);
}

/* The oldest arrival that the receive takes. */
static struct arrival *oldest(struct match *m, const struct p2p_op *op)
{
    bool any = op->peer == P2P_ANY;
    struct list *head =
        any ? &m->by_tag[bucket(0, op->tag)] : &m->by_sender[bucket(op->peer, op->tag)];
    list_for_each(at, next, head)
    {
        struct arrival *a = any ? list_entry(at, struct arrival, by_tag)
                                : list_entry(at, struct arrival, by_sender);
        if (a->tag == op->tag && (any || a->from == op->peer))
            return a;
    }
    return NULL;
}

struct arrival *match_post(struct match *m, struct p2p_op *op)
{
    struct arrival *a = oldest(m, op);
    if (a) {
        list_remove(&a->by_sender);
        list_remove(&a->by_tag);
        return a;
    }
    bool any = op->peer == P2P_ANY;
    list_append(any ? &m->posted_any[bucket(0, op->tag)] : &m->posted[bucket(op->peer, op->tag)],
                &op->at);
    op->posted = true;
    m->nany += any;
    return NULL;
}

static struct p2p_op *first_in(struct list *head, int peer, uint32_t tag)
{
    list_for_each(at, next, head)
    {
        struct p2p_op *op = list_entry(at, struct p2p_op, at);
        if (op->tag == tag && op->peer == peer)
            return op;
    }
    return NULL;
}

void match_cancel(struct match *m, struct p2p_op *op)
{
    list_remove(&op->at);
    op->posted = false;
    m->nany -= op->peer == P2P_ANY;
}

struct p2p_op *match_arrive(struct match *m, int from, uint32_t tag)
{
    struct p2p_op *op = first_in(&m->posted[bucket(from, tag)], from, tag);
    struct p2p_op *any = first_in(&m->posted_any[bucket(0, tag)], P2P_ANY, tag);
    if (!op || (any && any->number < op->number))
        op = any;
    if (op)
        match_cancel(m, op);
    return op;
}

void match_keep(struct match *m, struct arrival *arrival)
{
    list_append(&m->by_sender[bucket(arrival->from, arrival->tag)], &arrival->by_sender);
    list_append(&m->by_tag[bucket(0, arrival->tag)], &arrival->by_tag);
}
