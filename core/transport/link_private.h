/* SPDX-License-Identifier: Apache-2.0
 *
 * link_private: the inside of a link, for link.c (its life and its two carriers), xfer.c
 * (transfers), message.c (control queues) and the mesh (net.h).
 */
#ifndef HVD_TRANSPORT_LINK_PRIVATE_H
#define HVD_TRANSPORT_LINK_PRIVATE_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/buf.h"
#include "core/transport/link.h"
#include "core/transport/net.h"

#define LINK_HEADER_SIZE 24
#define LINK_MAGIC       0x6c645648u /* "HVdl" */
#define LINK_AHEAD       4096

/* Tags from here on are the mesh's own. */
#define LINK_TAG_OWN     0xffffffffffffff00ULL
#define LINK_TAG_GOODBYE (LINK_TAG_OWN + 1)
#define LINK_TAG_LOST    (LINK_TAG_OWN + 2) /* body as CTL_LOST */
#define LINK_OWN_MAX     1024

/* What carries the bytes. Bytes moved, 0: would block, -errno: the connection is over. */
struct link_ops {
    ssize_t (*write)(struct link *link, const struct iovec *iov, int n);
    ssize_t (*read)(struct link *link, void *dst, size_t n);
    bool reads_ahead; /* a call costs more than copying a few bytes twice */
};

struct link_header {
    uint32_t magic, generation;
    uint64_t tag, length;
};

struct link {
    struct mesh_net *net;
    int peer;
    enum link_class cls;
    const struct link_ops *ops; /* NULL until there is a connection */
    struct net_watch watch;
    bool asked;    /* by mesh_link(): it connects, if that is this rank's part */
    int error;     /* what every call answers from now on */
    bool gone;     /* the connection is over; the verdict is not out yet */
    bool hup;      /* the peer has closed its side; what it sent before may still be unread */
    bool readable; /* control: there may be more in the socket */

    bool tx_open; /* in the middle of a message */
    uint8_t debt_header[LINK_HEADER_SIZE];
    size_t debt_header_left; /* of a cancelled message: the last so many bytes of its header */
    uint64_t debt_zeros;

    bool rx_open; /* rx is the message that comes now */
    bool rx_swallow;
    struct link_header rx;
    uint64_t rx_left; /* payload bytes not taken yet */
    uint8_t ahead[LINK_AHEAD];
    size_t ahead_pos, ahead_len;

    struct buf out; /* control: frames to send */
    size_t out_done;
    struct buf in; /* control: u32 length and message, the last one maybe unfinished */
};

/* ---- life (link.c) ---- */

/* The link to a peer, fresh and unconnected if there was none. NULL: out of memory. */
struct link *link_get(struct mesh_net *net, int peer, enum link_class cls);

/* A connection from the peer is welcome: there is none yet. */
bool link_expects(const struct link *link);

/* Takes the connected, proven socket over. */
void link_established(struct link *link, int fd);

/* Lets it run over the shared segment. */
void link_use_pipe(struct link *link);

/* The carrier reported rc (< 0). */
void link_broken(struct link *link, int rc);

/* The same when it reported rc as something was written: what the peer said last, perhaps why it
 * ends, is read first. */
void link_write_failed(struct link *link, int rc);

/* The peer sent nonsense: -EPROTO for ever. */
int link_nonsense(struct link *link, const char *what);

/* Sends a message of the mesh itself if that is possible at once. */
void link_say(struct link *link, uint64_t tag, const struct buf *body);

/* Reads a data link to its end: nothing on it matters any more but a goodbye. */
void link_drain(struct link *link);

/* Nothing has come for so long, not even an acknowledgement of data or of keep-alive: the peer's
 * machine is dead or cut off. (A process that is only stopped acknowledges: its kernel does.) */
bool link_silent(struct link *link, uint64_t ms);

void link_close(struct link *link);
void link_destroy(struct link *link);

/* ---- framing (xfer.c) ---- */

void link_put_header(uint8_t dst[LINK_HEADER_SIZE], uint32_t generation, uint64_t tag,
                     uint64_t length);

/* Sends what is left of a cancelled message. 0, 1, -errno. */
int link_flush_debt(struct link *link);

/* 0: link->rx is the header of the next message, after swallowing what is to be swallowed and
 * handling what is the mesh's own; 1: not here yet; -errno. */
int link_next_header(struct link *link);

/* Payload of the message at hand; bytes, 0: none now, -errno. */
ssize_t link_read_payload(struct link *link, void *dst, size_t n);

/* ---- control (message.c) ---- */

/* Reads what has come into link->in. */
void link_pull(struct link *link);

#endif
