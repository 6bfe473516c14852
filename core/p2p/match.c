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

void match_remove(struct arrival *arrival)
{
    list_remove(&arrival->by_sender);
    list_remove(&arrival->by_tag);
    list_remove(&arrival->larges);
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
            match_remove(a);
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

/* The list in which the receive waits. */
static struct list *list_for(struct match *m, const struct p2p_op *op)
{
    return op->peer == P2P_ANY ? &m->posted_any[bucket(0, op->tag)]
                               : &m->posted[bucket(op->peer, op->tag)];
}

struct arrival *match_post(struct match *m, struct p2p_op *op)
{
    struct arrival *a = oldest(m, op);
    if (a) {
        match_remove(a);
        return a;
    }
    list_append(list_for(m, op), &op->at);
    op->posted = true;
    m->nany += op->peer == P2P_ANY;
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
    list_init(&arrival->larges);
    list_append(&m->by_sender[bucket(arrival->from, arrival->tag)], &arrival->by_sender);
    list_append(&m->by_tag[bucket(0, arrival->tag)], &arrival->by_tag);
}

/* Moves all nodes to the end of another list. */
static void move_all(struct list *from, struct list *to)
{
    list_for_each(at, next, from)
    {
        list_remove(at);
        list_append(to, at);
    }
}

void match_renumber(struct match *m, const int *now)
{
    struct list posted, arrivals;
    list_init(&posted);
    list_init(&arrivals);
    for (size_t i = 0; i < MATCH_BUCKETS; i++) {
        move_all(&m->posted[i], &posted);
        move_all(&m->by_sender[i], &arrivals);
    }
    list_for_each(at, next, &posted)
    {
        struct p2p_op *op = list_entry(at, struct p2p_op, at);
        list_remove(at);
        op->peer = now[op->peer];
        list_append(list_for(m, op), at);
    }
    list_for_each(at, next, &arrivals)
    {
        struct arrival *a = list_entry(at, struct arrival, by_sender);
        list_remove(at);
        a->from = now[a->from];
        if (a->from >= 0) {
            list_append(&m->by_sender[bucket(a->from, a->tag)], at);
        } else {
            match_remove(a);
            arrival_free(a);
        }
    }
}
