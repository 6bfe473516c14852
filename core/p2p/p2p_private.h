/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p_private: what the files of p2p share: p2p.c (operations), channel.c (frames to be sent) and
 * channel_recv.c. A channel has the messages to and from one peer, as frames on two links. A frame
 * is a message of the link's, with the tag {u8 type, u56 number}; integers are little endian. What
 * the number and the body are:
 *
 * - EAGER: the message's tag; its bytes.
 * - REQUEST: the message's tag; u64 bytes, u64 the sender's id, u64 the address of the bytes. The
 *   sender has a large message.
 * - GRANT: the sender's id; u64 the receiver's id: send it; or GRANT_COPIES: the receiver copies
 *   it; or 0: the receiver has copied it, or has no room.
 * - DATA: the receiver's id; at most FRAME_CHUNK bytes of the message, in order.
 * - CREDIT: 0; u64 cost of EAGER messages that the receiver does not keep any more.
 * - PROCESS: 0; u64 pid, u64 address, 16 bytes: the sender's process (direct.h). The first frame
 *   to a rank of the same host.
 *
 * EAGER and REQUEST have the order of the submissions.
 */
#ifndef HVD_P2P_P2P_PRIVATE_H
#define HVD_P2P_P2P_PRIVATE_H

#include "core/p2p/direct.h"
#include "core/p2p/match.h"
#include "core/p2p/p2p.h"

enum frame { FRAME_EAGER = 1, FRAME_REQUEST, FRAME_GRANT, FRAME_DATA, FRAME_CREDIT, FRAME_PROCESS };

#define FRAME_NUMBER ((1ULL << 56) - 1)
#define GRANT_COPIES UINT64_MAX
#define FRAME_BODY   32                /* most bytes of a body other than a message's */
#define FRAME_CHUNK  ((size_t)1 << 20) /* also of one visit to another process */

/* Most large messages that wait here: a sender cannot have more in flight. */
#define LARGE_MAX (1u << 20)

/* What a message that is kept costs: without a part for its struct, the bound would let a sender
 * make the receiver keep any number of empty ones. */
static inline size_t message_cost(size_t bytes)
{
    return bytes + 128;
}

static inline uint64_t frame_tag(enum frame type, uint64_t number)
{
    return (uint64_t)type << 56 | number;
}

struct channel {
    struct list at; /* in p2p.channels */
    int peer;
    size_t nposted; /* receives from this peer that wait for a message */

    /* sending */
    struct link *out;
    struct list waiting;  /* sends that are not announced, in order */
    struct list asked;    /* large sends that wait for a GRANT */
    size_t copied;        /* of those: how many the peer copies */
    struct list granted;  /* large sends whose data is sent, in turns */
    bool introduces;      /* PROCESS is to be sent */
    size_t kept;          /* cost of the EAGER messages that the peer may still keep */
    struct list granting; /* receives for which a GRANT is to be sent: it asks for the data, or says
                             that it is copied or does not fit */
    /* The last id that this rank gave to a large message here: sends and receives share them. */
    uint64_t ids;
    enum frame sending; /* 0: no frame is sent in part */
    struct xfer tx;
    struct p2p_op *tx_op; /* NULL: a frame without message */
    bool chunk_sent;      /* the last frame was DATA: now it is the turn of `waiting` */
    uint8_t tx_body[FRAME_BODY];

    /* receiving */
    struct link *in;
    bool news;                     /* bytes have come: see p2p_has_news() */
    struct direct_process process; /* pid > 0: the peer's memory can be read */
    struct list copying;           /* receives whose large message is read from there */
    struct list receiving;         /* receives whose large message is coming */
    size_t nlarge;                 /* large messages that wait for a receive */
    size_t holds;                  /* cost of the EAGER messages that wait for a receive */
    size_t freed;       /* cost of those that do not, of which the peer has not been told */
    enum frame reading; /* 0: no frame is received in part */
    struct xfer rx;
    uint64_t rx_number;
    struct p2p_op *rx_op; /* of EAGER and DATA; NULL: rx_new */
    struct arrival *rx_new;
    uint8_t *rx_waste; /* the message does not fit: its bytes, to be freed */
    uint8_t rx_body[FRAME_BODY];
};

struct p2p {
    struct mesh *mesh;
    p2p_done_f *done;
    void *ctx;
    struct match match;
    struct channel **of;  /* [size] by peer; NULL: not used yet */
    struct list channels; /* all of them */
    uint64_t numbers;
    uint8_t mark[DIRECT_MARK];
    struct direct_process own; /* pid 0: no other process can read this one's memory */
    struct list ops;           /* operations that have not ended, in the order of submission */
};

/* ---- p2p.c ---- */

/* Ends a receive with complete bytes. */
void p2p_deliver(struct p2p *p, struct p2p_op *op, int from, const uint8_t *data, size_t bytes);

/* The channel to a peer, created at the first call. NULL: no memory. */
struct channel *p2p_channel(struct p2p *p, int peer);

/* Ends an operation that is in no list but p2p.ops. */
void p2p_end(struct p2p *p, struct p2p_op *op, const struct err *err);

/* A receive has its message, which fits. */
void p2p_received(struct p2p *p, struct p2p_op *op, int from, size_t bytes);

/* Ends a receive whose room is too small. */
void p2p_too_small(struct p2p *p, struct p2p_op *op, int from, size_t bytes);

/* The receive that a message goes to; NULL: none waits for it. */
struct p2p_op *p2p_take_posted(struct p2p *p, struct channel *c, uint32_t tag);

/* ---- channel.c: what this rank sends ---- */

/* introduces: the peer is on this host. */
struct channel *channel_create(int peer, bool introduces);
void channel_destroy(struct channel *c);

/* Whether a frame is to be sent. */
bool channel_has_output(const struct channel *c);

/* Whether one is to be sent that an operation waits for. */
bool channel_sends_for_ops(const struct channel *c);

/* Whether this rank waits for a frame of the peer. */
bool channel_needs_input(const struct channel *c);

/* Whether the bytes of a message are on their way. */
bool channel_moves(const struct channel *c);

/* The receive takes a large message of the peer's, which has the id there. */
void channel_take_large(struct channel *c, struct p2p_op *op, const struct arrival *large);

/* Reads a part of a message from the peer's memory. */
void channel_copy(struct channel *c);

/* Sends what the link takes. 0 or -errno; *moved is set if anything was sent. */
int channel_send(struct p2p *p, struct channel *c, bool *moved);

/* ---- channel_recv.c ---- */

/* Receives what has come. 0 or -errno; *moved is set if anything was received. */
int channel_recv(struct p2p *p, struct channel *c, bool *moved);

#endif
