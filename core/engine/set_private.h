/* SPDX-License-Identifier: Apache-2.0
 *
 * set_private: the parts of making a set that set_make.c and set_form.c share.
 */
#ifndef HVD_ENGINE_SET_PRIVATE_H
#define HVD_ENGINE_SET_PRIVATE_H

#include "core/base/buf.h"
#include "core/engine/sets.h"

struct mesh_listener;

/* A card and its length: see transport/card.h. */
#define CARD_BYTES (2 + 128 + 20 * SOCK_MAX_ADDRS)

/* Connection setup among members that are all known to be alive; or HVD_START_TIMEOUT, if that is
 * shorter. */
#define CONNECT_MS 10000

/* A set that is being made. */
struct making {
    struct set *set;
    struct mesh_listener *listener; /* on members */
    struct buf card;                /* of this rank */
    struct err mine;                /* why this rank cannot go on */
};

/* Creates the set, with room for all cards, so that taking them cannot fail any more; on a member
 * opens its sockets and writes its card. Failures are in m->mine. */
void making_open(struct making *m, struct engine *e, const int *ranks, int n);

/* On a member that has all cards: makes a mesh with the others, and a circle of it. Blocks for
 * CONNECT_MS at most. Failures are in m->mine. */
void making_connect(struct making *m);

/* Frees what is not the set's. rc < 0: the set, too. */
void making_end(struct making *m, struct engine *e, int rc);

#endif
