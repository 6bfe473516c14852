/* SPDX-License-Identifier: Apache-2.0
 *
 * link: an ordered byte channel from this rank to one peer, over TCP or over a pipe in the shared
 * segment; collectives and negotiation see no difference.
 *
 * A link is made by mesh_link() and owned by the mesh. It connects by itself, in the background of
 * mesh_progress(): until then transfers answer 1, in progress. Everything is nonblocking and runs
 * under the engine's progress lock. After the first error a link stays broken and every call
 * returns that error (-ECONNRESET: the peer is gone; -EPROTO: it sent what makes no sense). When a
 * connection ends without goodbye, transfers still answer 1 until mesh_progress() has found out who
 * was lost and why, at most 150 ms later: do not wait for a transfer without calling that.
 *
 * On the wire a message is a 24-byte header {magic u32, generation u32, tag u64, length u64},
 * little endian, and the payload. A data link drops whole messages of a generation that is past
 * (what is left of a cancelled operation), leaves one of a generation to come where it is (the peer
 * knows of the cancelling already: 1 until this rank does too), and fails with -EPROTO on any other
 * surprise.
 */
#ifndef HVD_TRANSPORT_LINK_H
#define HVD_TRANSPORT_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"

enum link_class {
    LINK_CONTROL, /* negotiation: small messages, whole */
    LINK_DATA,    /* payload of collectives */
    LINK_CLASSES,
};

struct link;

/* A transfer in one direction: one message, moved as far as it goes at each call. A link has at
 * most one unfinished transfer in each direction. The caller owns struct and memory until it is
 * done. */
struct xfer {
    struct link *link;
    uint64_t tag;
    uint8_t *data;
    size_t len;
    size_t done; /* payload bytes moved so far: a receiver may use data[0..done) at once */
    uint8_t header[24];
    size_t header_done;
};

void xfer_start(struct xfer *x, struct link *link, uint64_t tag, void *data, size_t len);

/* Sends on until ready bytes (<= len) of the payload are gone: the caller raises ready as its data
 * becomes valid, which makes pipelines. 0: all len bytes are with the transport; 1: call again. */
int xfer_send(struct xfer *x, size_t ready);

/* Receives. 0: all len bytes are here; 1: call again. The message that comes must carry the tag
 * and the length, else -EPROTO. */
int xfer_recv(struct xfer *x);

/* Gives a transfer up in the middle (its operation is cancelled). The link stays in step: what is
 * left of the message is sent as zeros or swallowed before the next one. */
void xfer_cancel_send(struct xfer *x);
void xfer_cancel_recv(struct xfer *x);

/* Whole messages on a control link, at most LINK_MESSAGE_MAX bytes; other sizes: -EMSGSIZE. */
#define LINK_MESSAGE_MAX (16u << 20)

/* Copies the message into the link's queue and sends what goes. */
int link_post(struct link *link, const void *msg, size_t len);

/* Sends what is queued; 0: nothing is left, 1: call again. */
int link_flush(struct link *link);

/* 0: the next whole message is in msg (replaced), 1: none yet. */
int link_take(struct link *link, struct buf *msg);

#endif
