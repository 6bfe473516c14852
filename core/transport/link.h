/* SPDX-License-Identifier: Apache-2.0
 *
 * link: an ordered byte channel from this rank to one peer, over TCP or over a pipe in the shared
 * segment; collectives and negotiation see no difference.
 *
 * A link is made by mesh_link() and owned by the mesh. mesh_progress() connects it in the
 * background; until then transfers return 1, in progress. Everything is nonblocking and runs under
 * the engine's progress lock. After the first error a link stays broken and every call returns that
 * error (-ECONNRESET: the connection has ended; -EPROTO: the peer sent malformed data). When a
 * connection ends without goodbye, transfers still return 1 until mesh_progress() has found out
 * which rank was lost and why, at most 150 ms later: so call it while waiting for a transfer.
 *
 * On the wire a message is a 24-byte header {magic u32, generation u32, tag u64, length u64},
 * little endian, and the payload. A data link drops messages of an older generation (the rest of a
 * cancelled operation). A message of a later generation stays unread, and transfers return 1, until
 * this rank has cancelled the operation, too. Any other unexpected message fails with -EPROTO.
 */
#ifndef HVD_TRANSPORT_LINK_H
#define HVD_TRANSPORT_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"

enum link_class {
    LINK_CONTROL, /* for negotiation: small, whole messages */
    LINK_DATA,    /* for the payload of collectives */
    /* For messages between two ranks (core/p2p), in one direction each, so that a rank can send to
     * one that does not expect it: what this rank sends to the peer, and what the peer sends. They
     * have no generations. */
    LINK_SEND,
    LINK_RECV,
    LINK_CLASSES,
};

struct link;

/* A transfer in one direction: one message, of which each call moves as much as it can. A link
 * has at most one unfinished transfer in each direction. The caller owns the struct and the
 * memory, which must stay valid until it is done. */
struct xfer {
    struct link *link;
    uint64_t tag;
    uint8_t *data;
    size_t len;
    size_t done; /* payload bytes moved so far: a receiver may use data[0..done) already */
    uint8_t header[24];
    size_t header_done;
};

void xfer_start(struct xfer *x, struct link *link, uint64_t tag, void *data, size_t len);

/* Sends until `ready` bytes (<= len) of the payload are sent. For pipelining, the caller
 * increases ready as its data becomes valid. 0: the transport has all len bytes; 1: call again. */
int xfer_send(struct xfer *x, size_t ready);

/* Receives. 0: all len bytes are there; 1: call again. -EPROTO unless the message has this tag
 * and length. */
int xfer_recv(struct xfer *x);

/* Finds the next message of a link whose messages are not known beforehand (LINK_RECV). 0: *ret_tag
 * and *ret_len are those of a message, for xfer_start(). 1: there is none yet. -errno. */
int link_peek(struct link *link, uint64_t *ret_tag, uint64_t *ret_len);

/* Cancels an unfinished transfer. The link stays in step: the rest of the message is sent as
 * zeros, or read and dropped, before the next message. */
void xfer_cancel_send(struct xfer *x);
void xfer_cancel_recv(struct xfer *x);

/* Whole messages on a control link, of at most LINK_MESSAGE_MAX bytes; larger ones: -EMSGSIZE. */
#define LINK_MESSAGE_MAX (16u << 20)

/* Copies the message into the link's queue and sends as much as possible. */
int link_post(struct link *link, const void *msg, size_t len);

/* Sends what is queued; 0: the queue is empty, 1: call again. */
int link_flush(struct link *link);

/* 0: msg holds the next message (its old content is replaced), 1: there is none yet. */
int link_take(struct link *link, struct buf *msg);

#endif
