/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl: the frames between a rank and its agent, over one inherited Unix stream socket.
 *
 * The rank's end of the socket is the descriptor that HVD_AGENT_FD names. A frame is {u32 length of
 * body, u16 type, u16 number of descriptors sent with it}, little endian, then the body. Bodies are
 * written and read with base/buf.h. Both ends use this code. What arrives is untrusted: a frame
 * that does not parse is -EPROTO and ends the connection.
 *
 *   type     direction      body
 *   HELLO    rank > agent   u16 version, u32 pid, u8 why (enum ctl_why), u32 the rank's epoch (0:
 *                           none), bytes card (to the end). The agent answers with ROSTER or LEAVE,
 *                           to a joiner with NUMBERS
 *   ROSTER   agent > rank   u32 epoch, u32 rank, u32 size, 32 bytes job key, u32 number of the last
 *                           planned change that this roster includes, u64 operations finished by
 *                           members that said BYE (the maximum), then for each rank: u8 flags
 *                           (enum ctl_roster_flag), u32 member, u32 place (only with CTL_PLACE),
 *                           u32 length, card
 *   SHARE    rank > agent > the other ranks of this agent: u32 epoch, u32 sending rank (the agent
 *                           fills it in), u16 what, body; with descriptors (memfd, eventfd)
 *   PROGRESS rank > agent   u64 batches done (a joiner continues the others' counter), u64 bytes,
 *                           u8 state (1 active, 2 stalled), text
 *   LOST     agent > rank   u32 lost member, i32 exit code or -signal, text
 *   BYE      rank > agent   i32 status: 0: hvd_shutdown() was called, the exit is no failure;
 *                           -errno: this rank failed, the others continue without it (in a job of
 *                           fixed size: because of another rank; -ESHUTDOWN: that one had shut
 *                           down, and this rank goes on, and says BYE again later); u64
 *                           operations it has finished; text (to the end): why it failed
 *   CHANGE   agent > rank   u32 number of a planned change that waits for the next step boundary
 *   LEAVE    agent > rank   text: the job continues without this member; also answers a HELLO
 *   LIFELINE agent > rank   one descriptor (base/lifeline.h), which the rank holds from now on
 *   REPAIRED rank > agent   u32 the rank's epoch, u64 ns from learning of the loss to the end of
 *                           its repair
 *   NUMBERS  agent > rank   u32 epoch, u32 rank, u32 size, u32 local rank, u32 local size, u32
 *                           cross rank, u32 cross size, u32 place (absent: it is the rank): the
 *                           numbers of this joiner if it joined now, while the members train. Its
 *                           card is forgotten; it says HELLO again, with CTL_ENTER, when it is
 *                           ready to join
 *   SETS     rank > agent   u32 number of sets (hvd_set_add()) that the rank is in; then, since a
 *                           later version, u32 how many of them are broken (hvd_set_fix()), and for
 *                           the first CTL_BROKEN_MAX of these: u32 number of the set, u64 unix ms
 *                           since when, string with its ranks; then, since a later version, u32
 *                           communicators of NCCL's that the rank has, of the world and of sets,
 *                           and if it has any: u64 bytes that are free of its GPU's memory, u64
 *                           bytes of all of it (0: not known), as of when a communicator was last
 *                           made or freed
 *   AWAY     agent > rank   u32 ms: for so long more the coordinator has not served the agent. Sent
 *                           to a rank that waits for ROSTER, whose limit it extends
 */
#ifndef HVD_BASE_CTL_H
#define HVD_BASE_CTL_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/fd.h"

#define CTL_VERSION  3
#define CTL_BODY_MAX (16u << 20)
#define CTL_CARD_MAX 16384 /* bytes of a rank's card, with its report in front */

/* The name of the memfds that ranks pass to each other: the agent finds in /proc how much memory
 * they take. */
#define CTL_MEMFD "hvd"

/* Broken sets that a frame SETS lists, and the longest text of one, with NUL. */
#define CTL_BROKEN_MAX      4
#define CTL_BROKEN_TEXT_MAX 384

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
    CTL_NUMBERS,
    CTL_AWAY,
    CTL_SETS,
};

/* Why a rank says HELLO. */
enum ctl_why {
    CTL_JOIN,     /* hvd_init() was called */
    CTL_REVOKED,  /* its epoch lost a member, or it lost the connection to one */
    CTL_BOUNDARY, /* all ranks of its epoch agreed on a planned change */
    CTL_ENTER,    /* the rank has got NUMBERS and is ready to join at the next boundary */
    CTL_WHYS,
};

enum ctl_roster_flag {
    CTL_LOCAL = 1, /* the rank has the same agent as the receiver */
    CTL_NEW = 2,   /* the rank was in no epoch before and has no training state */
    CTL_PLACE = 4, /* of all ranks of a job that keeps places */
};

/* The descriptors of one frame. The queues of several receivers may share them; dropping the last
 * reference closes them. */
struct ctl_fds {
    int refs;
    bool lent; /* ctl_fds_drop() does not close the descriptors */
    size_t n;
    int fd[]; /* [n] */
};

/* Takes ownership of the descriptors, also on failure. Returns one reference, which the caller
 * owns; NULL: no memory. */
struct ctl_fds *ctl_fds_create(const int *fds, size_t n);
void ctl_fds_drop(struct ctl_fds *fds); /* NULL is fine */

/* A queued frame with descriptors. */
struct ctl_attachment {
    size_t at; /* offset in out of the frame's first byte */
    struct ctl_fds *fds;
};

/* One end of the socket, with what was read so far of an incomplete frame. Nonblocking. */
struct ctl {
    int fd; /* not owned */
    struct buf in;
    int fds[FD_MAX_PASSED];
    size_t nfds;
    struct buf out; /* bytes that the socket has not taken yet */
    struct ctl_attachment *attached;
    size_t nattached, max_attached;
    uint64_t refused_since; /* clock_ns() since when the kernel refuses to pass descriptors; 0: it
                               does not */
};

struct ctl_frame {
    uint16_t type;
    const uint8_t *body; /* inside ctl.in, valid until the next call */
    size_t len;
    int fds[FD_MAX_PASSED]; /* owned by the receiver, who closes them */
    size_t nfds;
};

/* Makes fd nonblocking. Never reads beyond the end of a frame, so that between two frames another
 * struct ctl may take over the socket. */
void ctl_init(struct ctl *c, int fd);
void ctl_fini(struct ctl *c);

/* Queues a frame and sends what the socket takes. 0: all is sent or queued. The caller keeps its
 * fds; a queued frame has copies of them. */
int ctl_send(struct ctl *c, enum ctl_type type, const struct buf *body, const int *fds,
             size_t nfds);

/* Like ctl_send(), but the queue takes a reference to fds instead of copying descriptors. */
int ctl_send_shared(struct ctl *c, enum ctl_type type, const struct buf *body, struct ctl_fds *fds);

/* Result of ctl_flush(): too many descriptors are in flight (ETOOMANYREFS), or the kernel has no
 * memory for them. No event announces the end of this: call again after CTL_RETRY_MS. */
#define CTL_RETRY    2
#define CTL_RETRY_MS 5

/* Once the kernel has refused descriptors for this long, ctl_flush() fails instead of returning
 * CTL_RETRY. */
#define CTL_REFUSED_S 10

/* 0: nothing is queued; 1: call again when the socket is writable; CTL_RETRY; -ECONNRESET: the
 * other end is closed; another -errno: descriptors cannot be passed. */
int ctl_flush(struct ctl *c);

/* Writes why descriptors cannot be passed; rc is the result of ctl_flush(). */
void ctl_refused_text(int rc, char *text, size_t size);

/* 0: a whole frame in *ret; 1: no whole frame yet; -ECONNRESET: the other end is closed; -EPROTO.
 */
int ctl_recv(struct ctl *c, struct ctl_frame *ret);

/* Waits for a frame until the deadline; flushes the queue meanwhile. 0: a whole frame in *ret;
 * -ETIMEDOUT; else the error of ctl_recv() or ctl_flush(). */
int ctl_wait(struct ctl *c, struct ctl_frame *ret, uint64_t deadline);

#endif
