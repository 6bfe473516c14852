/* SPDX-License-Identifier: Apache-2.0
 *
 * auth: two ranks prove to each other, over a fresh connection, that they know the mesh's key.
 *
 *   connector > acceptor   hello: version, class, epoch, size, from, to, nonce
 *   acceptor > connector   challenge: nonce
 *   connector > acceptor   proof of (hello, challenge)
 *   acceptor > connector   proof of the same in the other role
 *   connector > acceptor   go: this is the connection that is used (others may have been tried)
 *
 * The one who comes proves first, so a stranger learns nothing. Both nonces are in both proofs: a
 * recorded handshake is worthless. The roles differ: nothing can be reflected. Only the connection
 * is authenticated, not what travels on it later. Nonblocking; no byte beyond the handshake is
 * read.
 */
#ifndef HVD_TRANSPORT_AUTH_H
#define HVD_TRANSPORT_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/mac.h"

#define AUTH_VERSION        1
#define AUTH_HELLO_SIZE     56
#define AUTH_CHALLENGE_SIZE 40

/* What a connection is for: enum link_class, and: */
#define AUTH_CLASS_LOCAL 2
#define AUTH_CLASSES     3

/* Who talks to whom, under which roster. */
struct auth_id {
    uint8_t cls;
    uint32_t epoch, size, from, to;
};

struct auth {
    const uint8_t *key;
    struct auth_id id; /* acceptor: epoch, size and to are what it expects; the rest is told */
    uint64_t deadline;
    bool accepts;
    uint8_t state;
    uint8_t hello[AUTH_HELLO_SIZE];
    uint8_t challenge[AUTH_CHALLENGE_SIZE];
    uint8_t in[64];
    size_t in_len;
    uint8_t out[64];
    size_t out_len;
};

/* key stays the caller's and must outlive the handshake. */
void auth_connect(struct auth *a, const uint8_t key[MAC_KEY_SIZE], const struct auth_id *id,
                  uint64_t deadline);
void auth_accept(struct auth *a, const uint8_t key[MAC_KEY_SIZE], const struct auth_id *expect,
                 uint64_t deadline);

/* 0: proven both ways (acceptor: and told to go), 1: call again when the socket has something,
 * -EPROTO: garbage or another version, -EACCES: wrong key or a rank that has no business here,
 * -ETIMEDOUT, -ECONNRESET: closed by the other end. */
int auth_progress(struct auth *a, int fd, struct err *err);

/* Connector, after 0: takes this connection. */
int auth_go(int fd);

/* The end of the connection was no offence: it came before anything was said, or the other end had
 * said a proper hello and then took another way. */
bool auth_left_politely(const struct auth *a);

#endif
