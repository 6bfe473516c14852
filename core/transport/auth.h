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
 * The connector proves first, so that a process without the key learns nothing. Both nonces are in
 * both proofs, so that a recorded handshake cannot be replayed. The two roles are in the proofs, so
 * that nothing can be reflected. Only the connection is authenticated, not the data sent on it
 * later. Nonblocking; no byte beyond the handshake is read.
 */
#ifndef HVD_TRANSPORT_AUTH_H
#define HVD_TRANSPORT_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/mac.h"

#define AUTH_VERSION        2
#define AUTH_HELLO_SIZE     56
#define AUTH_CHALLENGE_SIZE 40

/* The class of a connection says what it is for: enum link_class, or this value: */
#define AUTH_CLASS_LOCAL 4
#define AUTH_CLASSES     5

/* The two ranks, and their roster. */
struct auth_id {
    uint8_t cls;
    uint32_t epoch, size, from, to;
};

struct auth {
    const uint8_t *key;
    struct auth_id id; /* the acceptor sets epoch, size and to, as it expects them; the connector
                          sends the other fields */
    uint64_t deadline; /* what the peer has sent by then is read, however late this is called */
    bool accepts;
    uint8_t state;
    uint8_t hello[AUTH_HELLO_SIZE];
    uint8_t challenge[AUTH_CHALLENGE_SIZE];
    uint8_t in[64];
    size_t in_len;
    uint8_t out[64];
    size_t out_len;
};

/* key is borrowed and must stay valid during the handshake. */
void auth_connect(struct auth *a, const uint8_t key[MAC_KEY_SIZE], const struct auth_id *id,
                  uint64_t deadline);
void auth_accept(struct auth *a, const uint8_t key[MAC_KEY_SIZE], const struct auth_id *expect,
                 uint64_t deadline);

/* 0: both sides have proven the key (acceptor: and got "go"), 1: call again when the socket is
 * readable or the deadline has passed (it is later for a peer that has proven the key), -EPROTO:
 * malformed or another version, -EACCES: wrong key or an unexpected rank, -ETIMEDOUT, -ECONNRESET:
 * closed by the peer. */
int auth_progress(struct auth *a, int fd, struct err *err);

/* Called by the connector after 0: tells the acceptor that this connection will be used. */
int auth_go(int fd);

/* Returns whether the acceptor knows that the peer has the key, and waits for "go". */
bool auth_has_proven(const struct auth *a);

/* Returns whether the end of the connection was harmless: the peer closed it before it sent
 * anything, or sent a valid hello and then used another connection. */
bool auth_left_politely(const struct auth *a);

#endif
