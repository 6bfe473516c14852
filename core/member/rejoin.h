/* SPDX-License-Identifier: Apache-2.0
 *
 * rejoin: what an agent of an elastic job tells a coordinator that took over a running job and
 * knows nothing: the newest roster, and the last known state of each member on its host. Part of
 * the body of /v1/join (README.md). Used by agents and coordinator; pure, any thread.
 *
 * The functions below with json_t are for protocol.c, cards.c and rejoin.c only.
 */
#ifndef HVD_MEMBER_REJOIN_H
#define HVD_MEMBER_REJOIN_H

#include <jansson.h>

#include "core/member/protocol.h"

struct rejoin_member {
    int member, local_rank, pid;
    uint32_t epoch; /* epoch of the last roster that the member got, 0: none */
    bool over;      /* the process has ended and was reaped; code, text and tail are set */
    bool dead;      /* known to be dead, perhaps not reaped yet */
    int code;       /* exit code or -signal; with out: -errno */
    char text[512];
    char tail[MEMBER_TEXT_MAX];
    bool hello, bye; /* it has sent HELLO; it has sent BYE */
    bool arrived;    /* it has provisional numbers, and is not ready for admission */
    bool out;        /* its BYE reported that it cannot go on */
    uint64_t done;   /* operations that it had finished at its BYE */
    bool leaving;    /* it was told to leave */
    bool waiting;    /* the member sent HELLO and has no roster yet; why, was_in and card are set */
    enum card_why why;
    uint32_t was_in;
    struct buf card;
    uint64_t batches, bytes;
};

struct rejoin {
    uint32_t change; /* the last planned change that was announced to this agent */
    /* The newest roster that this agent got; epoch 0: none. n 0: the agent does not send it,
     * because the coordinator has said that it has that roster, or a newer one. */
    struct roster_body world;
    int n;
    struct rejoin_member *members;
    int known; /* every member number that this agent ever saw is lower */
};

/* The epoch of the roster that a coordinator has, from its 404; 0: none, or it does not say. */
uint32_t rejoin_read_have(const char *text, size_t len);

json_t *rejoin_pack(const struct rejoin *rejoin);

/* Parses untrusted input: -EINVAL with the field in err; ret is unchanged then. */
int rejoin_unpack(json_t *j, struct rejoin *ret, struct err *err);
void rejoin_fini(struct rejoin *rejoin);

/* cards.c */
json_t *roster_pack(const struct roster_body *body);
int roster_unpack(json_t *j, struct roster_body *ret, struct err *err);
int card_why_read(const char *name, enum card_why *ret, struct err *err);

#endif
