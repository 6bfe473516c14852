/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous: all ranks meet at one TCP address: rank 0 (the root) listens, the others (peers)
 * connect, everybody proves to know the key, and everybody leaves with everybody's card.
 *
 * Blocks the caller, bounded by the deadline. The sources env and slurm use it. Strangers are
 * refused and counted, and the exchange goes on.
 */
#ifndef HVD_BOOT_RENDEZVOUS_H
#define HVD_BOOT_RENDEZVOUS_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/mac.h"

struct rendezvous {
    char host[256];
    char port[8];
    int rank, size;
    uint8_t key[MAC_KEY_SIZE]; /* zeros where there is none */
    bool anywhere;             /* false: loopback addresses only, because there is no key */
};

/* What the exchange leaves. */
struct meeting {
    struct buf *cards;               /* [size], given by the caller, filled in rank order */
    uint8_t session[MAC_NONCE_SIZE]; /* fresh for each exchange, the same on all ranks */
    uint64_t refused;                /* strangers, wrong keys, garbage */
};

/* "host:port" or "[ipv6]:port". source names the setting for err. */
int rendezvous_parse(const char *text, const char *source, struct rendezvous *rv, struct err *err);

/* err names the ranks that did not come. */
int rendezvous_meet(const struct rendezvous *rv, const struct buf *card, uint64_t deadline,
                    struct meeting *meeting, struct err *err);

/* ---- the two ends, each in a file of its own ---------------------------------------------- */

int rendezvous_root(const struct rendezvous *rv, const struct buf *card, uint64_t deadline,
                    struct meeting *meeting, struct err *err);
int rendezvous_peer(const struct rendezvous *rv, const struct buf *card, uint64_t deadline,
                    struct meeting *meeting, struct err *err);

/* Rank 0's listening socket; waits a moment for a port that is taken. */
int rendezvous_listen(const struct rendezvous *rv, uint64_t deadline, int *ret_fd, struct err *err);

/* The addresses of the rendezvous (freeaddrinfo). 1: the name does not resolve now, err says why.
 * -EPERM: an address beyond loopback without a key. -ENOMEM. */
int rendezvous_resolve(const struct rendezvous *rv, struct addrinfo **ret, struct err *err);

#endif
