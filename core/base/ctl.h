/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl: the frames between a rank and its agent, over one inherited Unix stream socket.
 *
 * The agent gives the rank its end as descriptor HVD_AGENT_FD. A frame is {u32 length of body, u16
 * type, u16 flags (number of descriptors that ride along)}, little endian, then the body. Bodies
 * are written and read with base/buf.h. The same code serves both ends. Foreign bytes: a frame that
 * does not parse is -EPROTO and ends the connection.
 *
 *   type     direction      body
 *   HELLO    rank > agent   u16 version, u32 pid, u8 why (enum ctl_why), u32 epoch it was in
 *                           (0: none), bytes card (to the end). The answer is ROSTER, LEAVE or,
 *                           to one that joins, PLACE
 *   ROSTER   agent > rank   u32 epoch, u32 rank, u32 size, 32 bytes job key, u32 change (the
 *                           last planned one that is in it), u64 operations that one who has said
 *                           BYE had finished (the most of all), then for each rank: u8 flags
 *                           (enum ctl_roster_flag), u32 member, u32 length, card
 *   SHARE    rank > agent > the other ranks of this agent: u32 epoch, u32 from rank (filled by the
 *                           agent), u16 what, body; with descriptors (memfd, eventfd)
 *   PROGRESS rank > agent   u64 batches done (a rank that joined counts on from the others' number
 *                           at that time), u64 bytes, u8 state (1 active, 2 stalled), text
 *   LOST     agent > rank   u32 member that is dead, i32 exit code or -signal, text
 *   BYE      rank > agent   i32 status: 0: hvd_shutdown was called, the end is no failure; -errno:
 *                           this rank cannot go on, the others are to do without it; u64
 *                           operations it has finished; text (to the end): why it cannot go on
 *   CHANGE   agent > rank   u32 change: a planned one waits for the next boundary
 *   LEAVE    agent > rank   text: the world goes on without this member; the answer to a HELLO
 *   LIFELINE agent > rank   one descriptor, base/lifeline.h: to be held from now on
 *   REPAIRED rank > agent   u32 epoch it is in, u64 ns from hearing of the loss until it was over
 *   PLACE    agent > rank   u32 epoch, u32 rank, u32 size, u32 local rank, u32 local size, u32
 * cross rank, u32 cross size: others train. This would be its place if it came in now; it says
 * HELLO (enter) when it is ready to. Its card is forgotten
 */
#ifndef HVD_BASE_CTL_H
#define HVD_BASE_CTL_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/fd.h"

#define CTL_VERSION  3
#define CTL_BODY_MAX (16u << 20)

enum ctl_type {
    CTL_HELLO = 1,
    CTL_ROSTER,
    CTL_SHARE,
    CTL_PROGRESS,
    CTL_LOST,
    CTL_BYE,
    CTL_CHANGE,
    CTL_LEAVE,
    CTL_LIFELINE,
    CTL_REPAIRED,
    CTL_PLACE,
};

/* Why a rank says HELLO. */
enum ctl_why {
    CTL_JOIN,     /* hvd_init() */
    CTL_REVOKED,  /* its epoch has lost a member, or it lost touch with one */
    CTL_BOUNDARY, /* all of its epoch agreed on a planned change */
    CTL_ENTER,    /* it has a place, and is ready to be let in at the next boundary */
    CTL_WHYS,
};

enum ctl_roster_flag {
    CTL_LOCAL = 1, /* of the same agent as the receiver */
    CTL_NEW = 2,   /* was in no epoch before: it has no state */
};

/* Descriptors of one frame, which the queues of several receivers may share. The last reference
 * that is dropped closes them. */
struct ctl_cargo {
    int refs;
    bool lent; /* the descriptors are not closed */
    size_t n;
    int fds[]; /* [n] */
};

/* Takes the descriptors over, also on failure (NULL: no memory). One reference: the caller's. */
struct ctl_cargo *ctl_cargo_create(const int *fds, size_t n);
void ctl_cargo_drop(struct ctl_cargo *cargo); /* NULL: nothing */

/* A queued frame with descriptors. */
struct ctl_ride {
    size_t at; /* in out: its first byte */
    struct ctl_cargo *cargo;
};

/* One end of the socket with what was read of an unfinished frame. Nonblocking. */
struct ctl {
    int fd; /* not owned */
    struct buf in;
    int fds[FD_MAX_PASSED];
    size_t nfds;
    struct buf out; /* what the socket did not take yet */
    struct ctl_ride *rides;
    size_t nrides, max_rides;
    uint64_t refused_since; /* clock: the kernel passes no descriptors since then; 0: it does */
};

struct ctl_frame {
    uint16_t type;
    const uint8_t *body; /* inside ctl.in: until the next call */
    size_t len;
    int fds[FD_MAX_PASSED]; /* the receiver's to close */
    size_t nfds;
};

/* Makes fd nonblocking. Not a byte beyond a frame is read: between two frames another struct ctl
 * may go on with the same socket. */
void ctl_init(struct ctl *c, int fd);
void ctl_fini(struct ctl *c);

/* Queues a frame and sends what the socket takes. 0: all is sent or queued. fds stay the caller's;
 * what is queued has copies of them. */
int ctl_send(struct ctl *c, enum ctl_type type, const struct buf *body, const int *fds,
             size_t nfds);

/* The same with descriptors that the queue refers to and does not copy. */
int ctl_send_cargo(struct ctl *c, enum ctl_type type, const struct buf *body,
                   struct ctl_cargo *cargo);

/* ctl_flush(): too many descriptors are in flight (ETOOMANYREFS), or the kernel has no memory for
 * them. No event tells when this ends: call again after CTL_LATER_MS. */
#define CTL_LATER    2
#define CTL_LATER_MS 5

/* For so long without a descriptor passed, ctl_flush() gives CTL_LATER. Then it fails. */
#define CTL_REFUSED_S 10

/* 0: nothing left to send; 1: call again when writable; CTL_LATER; -errno: -ECONNRESET: the other
 * end is gone, else descriptors cannot be passed. */
int ctl_flush(struct ctl *c);

/* Why descriptors cannot be passed, in words: rc is what ctl_flush() gave. */
void ctl_refused_text(int rc, char *text, size_t size);

/* 0: a whole frame in *ret; 1: none yet; -ECONNRESET: the other end is gone; -EPROTO. */
int ctl_recv(struct ctl *c, struct ctl_frame *ret);

/* Waits for a frame until the deadline. */
int ctl_wait(struct ctl *c, struct ctl_frame *ret, uint64_t deadline);

#endif
