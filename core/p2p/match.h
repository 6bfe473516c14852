/* SPDX-License-Identifier: Apache-2.0
 *
 * match: which message goes to which receive. A receive takes the oldest message of its sender and
 * tag (P2P_ANY: of its tag, in the order of arrival); a message goes to the oldest receive that
 * takes it. Pure: no I/O. Messages of one sender must be told in the order in which they were sent.
 */
#ifndef HVD_P2P_MATCH_H
#define HVD_P2P_MATCH_H

#include "core/p2p/op.h"

/* A message that has come before its receive. */
struct arrival {
    struct list by_sender, by_tag; /* match's own */
    struct list larges;            /* of a large one: in channel.larges or channel.stale */
    int from;
    uint32_t tag;
    size_t bytes;
    uint64_t serial; /* see p2p_op.serial */
    bool stale; /* announced in an earlier epoch, and not again in this one: see channel.stale */
    /* What the message is: exactly one of these. */
    uint8_t *data;       /* its bytes, of which `have` have been received; owned */
    uint64_t id;         /* > 0: the sender waits until a receive asks for this id (large) */
    uint64_t address;    /* of the bytes of that, in its process */
    struct p2p_op *self; /* this rank sends it to itself */
    size_t have;
    bool held;         /* data counts in the sender's channel.holds */
    struct p2p_op *op; /* data is not complete yet: the receive that waits for it */
};

#define MATCH_BUCKETS 256

struct match {
    struct list posted[MATCH_BUCKETS];     /* receives from one sender */
    struct list posted_any[MATCH_BUCKETS]; /* receives with P2P_ANY as source, by tag */
    struct list by_sender[MATCH_BUCKETS];  /* arrivals */
    struct list by_tag[MATCH_BUCKETS];
    size_t nany; /* how many receives with P2P_ANY as source wait */
};

void match_init(struct match *m);

/* Frees the arrivals. The receives are the caller's. */
void match_fini(struct match *m);

/* A receive, of a higher number than those before: returns the arrival that it takes, which is the
 * caller's now. NULL: there is none, and the receive waits. */
struct arrival *match_post(struct match *m, struct p2p_op *op);

/* A message: returns the receive that it goes to. NULL: there is none; see match_keep(). */
struct p2p_op *match_arrive(struct match *m, int from, uint32_t tag);

/* Keeps a message for a later receive. Takes it over. */
void match_keep(struct match *m, struct arrival *arrival);

/* Takes out a receive that waits. */
void match_cancel(struct match *m, struct p2p_op *op);

/* Takes out an arrival, which is the caller's now. */
void match_remove(struct arrival *arrival);

/* The sender's channel ends: drops its arrivals whose bytes are not all here, and no channel holds
 * the others. P2P_ANY: drops all arrivals. */
void match_forget(struct match *m, int from);

/* Ranks get other numbers: that of rank r is now[r] from here on. now[r] is -1: the rank is gone,
 * and its arrivals are dropped; no receive from it waits. Receives keep their order. */
void match_renumber(struct match *m, const int *now);

void arrival_free(struct arrival *arrival);

#endif
