/* SPDX-License-Identifier: Apache-2.0
 *
 * link_private: the internals of a link, for link.c (creation, end and the two carriers), xfer.c
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

/* Tags from here on are for the mesh's own messages. */
#define LINK_TAG_OWN     0xffffffffffffff00ULL
#define LINK_TAG_GOODBYE (LINK_TAG_OWN + 1)
#define LINK_TAG_LOST    (LINK_TAG_OWN + 2) /* body as CTL_LOST */
#define LINK_OWN_MAX     1024

/* A carrier of bytes. Functions return the bytes moved, 0: would block, -errno: the connection
 * has ended. */
struct link_ops {
    ssize_t (*write)(struct link *link, const struct iovec *iov, int n);
    ssize_t (*read)(struct link *link, void *dst, size_t n);
    /* A call costs more than copying so many bytes twice: they are read ahead. */
    size_t ahead;
    bool wakes; /* the descriptor becomes readable when there is more to read */
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
    bool asked;    /* mesh_link() was called: the link connects, if this rank is the connector */
    int error;     /* what every call returns from now on */
    bool gone;     /* the connection has ended; the reason is not known yet */
    bool hup;      /* the peer has closed its side; data that it sent before may still be unread */
    bool readable; /* control: the socket may have more data */

    uint64_t pipe_read; /* of a pipe: see shm_pipe_write() */
    bool tx_open;       /* a message has been sent in part */
    uint8_t debt_header[LINK_HEADER_SIZE];
    /* how many bytes at the end of a cancelled message's header are unsent */
    size_t debt_header_left;
    uint64_t debt_zeros;

    bool rx_open; /* rx is the header of the current message */
    bool rx_swallow;
    struct link_header rx;
    uint64_t rx_left; /* payload bytes not read yet */
    uint8_t ahead[LINK_AHEAD];
    size_t ahead_pos, ahead_len;

    struct buf out; /* control: frames to send */
    size_t out_done;
    struct buf in; /* control: u32 length and message, repeated; the last may be incomplete */
};

/* ---- life (link.c) ---- */

/* The link to a peer; creates it unconnected if there is none. NULL: no memory. */
struct link *link_get(struct mesh_net *net, int peer, enum link_class cls);

/* Returns whether this rank makes the connection, rather than the peer. */
bool link_connects(const struct link *link);

/* Returns whether a connection from the peer is expected: there is none yet. */
bool link_expects(const struct link *link);

/* Takes over the connected and authenticated socket. */
void link_established(struct link *link, int fd);

/* Makes the link use the shared segment. */
void link_use_pipe(struct link *link);

/* Reports an error of the carrier: rc < 0. */
void link_broken(struct link *link, int rc);

/* Like link_broken(), for an error while writing: first reads the peer's last message, which may
 * explain why the connection ended. */
void link_write_failed(struct link *link, int rc);

/* The peer has sent malformed data: the link fails with -EPROTO from now on. */
int link_nonsense(struct link *link, const char *what);

/* Sends a message of the mesh itself, if that is possible without waiting. */
void link_say(struct link *link, uint64_t tag, const struct buf *body);

/* Reads a link that is not for control to its end and drops all but a goodbye. */
void link_drain(struct link *link);

/* Returns whether nothing has arrived for ms milliseconds, not even an acknowledgement of data or
 * of a keep-alive probe: the peer's machine has failed or is disconnected. (For a process that is
 * only stopped the kernel still acknowledges.) */
bool link_silent(struct link *link, uint64_t ms);

void link_close(struct link *link);
void link_destroy(struct link *link);

/* ---- framing (xfer.c) ---- */

void link_put_header(uint8_t dst[LINK_HEADER_SIZE], uint32_t generation, uint64_t tag,
                     uint64_t length);

/* Sends the rest of a cancelled message. 0: all is sent; 1: call again, also after an error of the
 * carrier, which link_write_failed() has handled. */
int link_flush_debt(struct link *link);

/* 0: link->rx is the header of the next message; stale messages have been dropped, and messages
 * of the mesh itself handled. 1: not here yet; -errno. */
int link_next_header(struct link *link);

/* Reads payload of the current message. Bytes, 0: none now, -errno. */
ssize_t link_read_payload(struct link *link, void *dst, size_t n);

/* ---- control (message.c) ---- */

/* Reads available data into link->in. */
void link_pull(struct link *link);

#endif
