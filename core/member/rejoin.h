/* SPDX-License-Identifier: Apache-2.0
 *
 * rejoin: what an agent of an elastic job knows, for a coordinator that knows nothing because it
 * was started in the middle: the newest roster, and each member here with what it has said last.
 * It is part of the body of /v1/join (README.md). Both ends use it; pure, any thread.
 *
 * The functions below with json_t are for protocol.c, cards.c and rejoin.c alone.
 */
#ifndef HVD_MEMBER_REJOIN_H
#define HVD_MEMBER_REJOIN_H

#include <jansson.h>

#include "core/member/protocol.h"

struct rejoin_member {
    int member, local_rank, pid;
    uint32_t epoch; /* of the last roster that it got, 0: none */
    bool over;      /* its process is gone and reaped: code, text, tail */
    bool dead;      /* known to be dead, perhaps not reaped yet */
    int code;       /* exit code or -signal; with out: -errno */
    char text[512];
    char tail[MEMBER_TEXT_MAX];
    bool hello, bye; /* it has said so */
    bool arrived;    /* it has a place, and has not said that it is ready to come in */
    bool out;        /* its BYE was: I cannot go on */
    uint64_t done;   /* operations that it had finished when it said BYE */
    bool leaving;    /* it was told to leave */
    bool waiting;    /* it said HELLO and has no answer: why, was_in, card */
    enum card_why why;
    uint32_t was_in;
    struct buf card;
    uint64_t batches, bytes;
};

struct rejoin {
    uint32_t change;          /* the last planned one that was announced here */
    struct roster_body world; /* the newest roster that came here; n 0: none */
    int n;
    struct rejoin_member *members;
    int known; /* all members that were ever heard of here have lower numbers */
};

json_t *rejoin_pack(const struct rejoin *rejoin);

/* Foreign bytes: -EINVAL with the field; ret is untouched then. */
int rejoin_unpack(json_t *j, struct rejoin *ret, struct err *err);
void rejoin_fini(struct rejoin *rejoin);

/* cards.c */
json_t *roster_pack(const struct roster_body *body);
int roster_unpack(json_t *j, struct roster_body *ret, struct err *err);
int card_why_read(const char *name, enum card_why *ret, struct err *err);

#endif
