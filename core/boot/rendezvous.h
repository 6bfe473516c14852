/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous: all ranks meet at one TCP address: rank 0 (the root) listens, the other ranks (peers)
 * connect, each proves that it knows the key, and each gets every rank's card.
 *
 * Blocks the caller until the deadline at most. Used by boot_rendezvous.c. Refuses and counts
 * connections that are not of this job; the exchange continues.
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
    uint8_t key[MAC_KEY_SIZE]; /* zeros when there is none */
    bool anywhere;             /* false: loopback addresses only, because there is no key */
};

/* The result of an exchange. */
struct rendezvous_result {
    struct buf *cards;               /* [size], given by the caller, filled in rank order */
    uint8_t session[MAC_NONCE_SIZE]; /* fresh for each exchange, the same on all ranks */
    uint64_t refused; /* refused connections: wrong key, no hvd frame, not of this job */
};

/* Parses "host:port" or "[ipv6]:port". source names the setting for err. */
int rendezvous_parse(const char *text, const char *source, struct rendezvous *rv, struct err *err);

/* Exchanges cards. On -ETIMEDOUT of rank 0, err names the missing ranks. */
int rendezvous_exchange(const struct rendezvous *rv, const struct buf *card, uint64_t deadline,
                        struct rendezvous_result *result, struct err *err);

/* ---- the two ends, each in a file of its own ---------------------------------------------- */

int rendezvous_root(const struct rendezvous *rv, const struct buf *card, uint64_t deadline,
                    struct rendezvous_result *result, struct err *err);
int rendezvous_peer(const struct rendezvous *rv, const struct buf *card, uint64_t deadline,
                    struct rendezvous_result *result, struct err *err);

/* Opens rank 0's listening socket; retries for 2 s while the port is in use. */
int rendezvous_listen(const struct rendezvous *rv, uint64_t deadline, int *ret_fd, struct err *err);

/* Resolves the address; the caller frees *ret with freeaddrinfo(). 1: the name does not resolve
 * now, err has the reason. -EPERM: an address other than loopback, without a key. -ENOMEM. */
int rendezvous_resolve(const struct rendezvous *rv, struct addrinfo **ret, struct err *err);

#endif
