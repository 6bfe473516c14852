/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p_private: what the files of p2p share: p2p.c (operations), channel.c (frames to be sent) and
 * channel_recv.c. A channel has the messages to and from one peer, as frames on two links. A frame
 * is a message of the link's, with the tag {u8 type, u56 number}; integers are little endian. What
 * the number and the body are:
 *
 * - EAGER: the message's tag; its bytes.
 * - REQUEST: the message's tag; u64 bytes, u64 the sender's id, u64 the address of the bytes, or 0:
 *   they cannot be copied, or REQUEST_FLIES: they can fly. The sender has a large message.
 * - GRANT: the sender's id; u64 the receiver's id: send it; or GRANT_COPIES: the receiver copies
 *   it; or GRANT_FLIES: it flies; or 0: the receiver has it (after a copy, and in elastic jobs
 *   always), or has no room.
 * - DATA: the receiver's id; at most FRAME_CHUNK bytes of the message, in order.
 * - CREDIT: 0; u64 cost of all EAGER messages so far that the receiver does not keep any more, u64
 *   the serial up to which it has taken in all messages.
 * - AT: 0; u64 serial of the next message on the link. Only in a later epoch: the sender sends
 *   again what the receiver may not have. A serial above all that the receiver has ends that.
 * - PROCESS: 0; u64 pid, u64 address, 16 bytes: the sender's process (direct.h). The first frame
 *   to a rank of the same host.
 *
 * EAGER and REQUEST are messages: they have the order of the submissions, and serials from 1 on.
 */
#ifndef HVD_P2P_P2P_PRIVATE_H
#define HVD_P2P_P2P_PRIVATE_H

#include "core/p2p/direct.h"
#include "core/p2p/match.h"
#include "core/p2p/p2p.h"

enum frame {
    FRAME_EAGER = 1,
    FRAME_REQUEST,
    FRAME_GRANT,
    FRAME_DATA,
    FRAME_CREDIT,
    FRAME_PROCESS,
    FRAME_AT
};

#define FRAME_NUMBER  ((1ULL << 56) - 1)
#define REQUEST_FLIES 1 /* no address */
#define GRANT_COPIES  UINT64_MAX
#define GRANT_FLIES   (UINT64_MAX - 1)
#define FRAME_BODY    32       /* most bytes of a body other than a message's */
#define FRAME_CHUNK   P2P_PART /* also of one visit to another process */

/* Most large messages that wait here: a sender cannot have more in flight. */
#define LARGE_MAX (1u << 20)

/* What a message that is kept costs: without a part for its struct, the bound would let a sender
 * make the receiver keep any number of empty ones. */
static inline size_t message_cost(size_t bytes)
{
    return bytes + 128;
}

/* Whether it is an address in the sender's process. */
static inline bool is_address(uint64_t address)
{
    return address > REQUEST_FLIES;
}

static inline uint64_t frame_tag(enum frame type, uint64_t number)
{
    return (uint64_t)type << 56 | number;
}

/* A copy of an EAGER message of an elastic job. */
struct retained {
    struct list at; /* in channel.retained */
    uint64_t serial;
    uint32_t tag;
    size_t bytes;
    uint8_t data[];
};

struct channel {
    struct list at; /* in p2p.channels */
    int peer;
    size_t nposted; /* receives from this peer that wait for a message */

    /* sending */
    struct link *out;
    struct list waiting; /* sends that are not announced, in order */
    struct list asked;   /* large sends that wait for a GRANT: of those whose data is sent, for 0 */
    size_t copied;       /* of those: how many the peer copies */
    struct list granted; /* large sends whose data is sent, in turns */
    struct list flying_out; /* large sends that fly */
    bool introduces;        /* PROCESS is to be sent */
    uint64_t charged;       /* message_cost() of all EAGER messages so far */
    uint64_t credited;      /* of those that the peer does not keep any more */
    uint64_t sent;          /* the last serial */
    uint64_t acked;         /* the peer has all messages up to this serial */
    uint64_t stream;        /* the last serial on this epoch's link */
    struct list retained;   /* copies of EAGER messages after `acked`, in order */
    /* What is sent again in this epoch before anything new. */
    bool renews;           /* it has not all been sent yet */
    struct list *next_old; /* in `retained`: the next one; its head: none */
    struct list renewing;  /* large sends, in the order of their serials */
    struct list granting; /* receives for which a GRANT is to be sent: it asks for the data, or says
                             that it is copied or does not fit */
    /* The last id that this rank gave to a large message here: sends and receives share them. */
    uint64_t ids;
    enum frame sending; /* 0: no frame is sent in part */
    struct xfer tx;
    struct p2p_op *tx_op;     /* NULL: a frame without message, or one that is sent again */
    struct retained *tx_copy; /* of EAGER in an elastic job */
    bool chunk_sent;          /* the last frame was DATA: now it is the turn of `waiting` */
    uint8_t tx_body[FRAME_BODY];

    /* receiving */
    struct link *in;
    bool news;                     /* bytes have come: see p2p_has_news() */
    struct direct_process process; /* pid > 0: the peer's memory can be read */
    struct list copying;           /* receives whose large message is read from there */
    struct list receiving;         /* receives whose large message is coming */
    struct list flying_in;         /* receives whose large message flies */
    size_t nlarge;                 /* large messages that wait for a receive */
    size_t holds;                  /* cost of the EAGER messages that wait for a receive */
    uint64_t freed;                /* cost of those that do not any more, and */
    uint64_t told;      /* of those of them of which the peer has been told in this epoch */
    uint64_t seen;      /* the last serial that has come in whole */
    uint64_t at_serial; /* the last one on this epoch's link */
    bool resumes;       /* the peer has not sent again all that it has to */
    struct list larges; /* large messages that wait for a receive, in the order of their serials */
    struct list stale;  /* those that the peer has not sent again yet, in the same order */
    /* Receives that had taken a message in an earlier epoch: op.serial says which. */
    struct list waiting_again;
    uint64_t *answers; /* [nanswers] the peer's ids of messages that this rank has: GRANT 0 */
    size_t nanswers, answers_cap;
    enum frame reading; /* 0: no frame is received in part */
    bool peeked;        /* the next frame waits for room: its tag and its length */
    uint64_t peeked_tag, peeked_len;
    struct xfer rx;
    uint64_t rx_number;
    struct p2p_op *rx_op; /* of EAGER and DATA; NULL: rx_new */
    struct arrival *rx_new;
    uint8_t *rx_waste; /* the message does not fit: its bytes, to be freed */
    uint8_t rx_body[FRAME_BODY];
};

struct p2p {
    struct mesh *mesh; /* NULL: suspended */
    int rank, size;    /* in that, or in the last one */
    bool elastic;
    const struct p2p_stage *stage;
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

/* Ends a receive with complete bytes. *data is memory of malloc() if the receive is staged; then it
 * is taken over, and *data is NULL, if the bytes fit. */
void p2p_deliver(struct p2p *p, struct p2p_op *op, int from, uint8_t **data, size_t bytes);

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

/* What the EAGER messages cost that the peer may still keep. */
static inline uint64_t channel_kept(const struct channel *c)
{
    return c->charged - c->credited;
}

/* The receive takes a large message of the peer's, which has the id there. */
void channel_take_large(struct channel *c, struct p2p_op *op, const struct arrival *large);

/* Reads a part of a message from the peer's memory. */
void channel_copy(struct channel *c);

/* Sends what the link takes. 0 or -errno; *moved is set if anything was sent. */
int channel_send(struct p2p *p, struct channel *c, bool *moved);

/* A receive has its message, or has no room for it, and only GRANT 0 is to be sent. */
bool channel_is_over(const struct p2p_op *op);

/* Ends such a receive. */
void channel_end_receive(struct p2p *p, struct channel *c, struct p2p_op *op);

/* The peer has left, and no operation has anything to send to it. */
void channel_stop_sending(struct channel *c);

/* The peer has all messages up to this serial. */
void channel_acked(struct channel *c, uint64_t serial);

/* ---- channel_epoch.c: the end of an epoch, and the next one (p2p_suspend(), p2p_resume()) ---- */

void channel_suspend(struct p2p *p, struct channel *c);
void channel_resume(struct channel *c, int peer, bool introduces);

/* The receive that had taken the message in an earlier epoch, and waits for it since. NULL: none.
 * It is in no list any more. */
struct p2p_op *channel_taken(struct channel *c, uint64_t serial);

/* The peer sends a message again that this rank has seen: a large one. 0 or -errno. */
int channel_renewed(struct channel *c, uint64_t serial, uint64_t id, uint64_t address);

/* ---- channel_recv.c ---- */

/* Receives what has come. 0 or -errno; *moved is set if anything was received. */
int channel_recv(struct p2p *p, struct channel *c, bool *moved);

#endif
