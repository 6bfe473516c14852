/* SPDX-License-Identifier: Apache-2.0
 *
 * negotiate_impl: the state of one node of the tree, shared by the files that make up negotiate:
 *
 *   negotiate.c  the calls of negotiate.h      announce.c  what travels up: ready tensors
 *   decide.c     the root makes the log        follow.c    what travels down: the log is followed
 *   thaw.c       plan and thaw                 stall.c     who is missing (status.c: and waits in
 * what)
 *
 * Everything runs under the engine's progress lock.
 */
#ifndef HVD_NEGOTIATE_NEGOTIATE_IMPL_H
#define HVD_NEGOTIATE_NEGOTIATE_IMPL_H

#include "core/negotiate/fusion.h"
#include "core/negotiate/negotiate.h"
#include "core/negotiate/plan.h"
#include "core/negotiate/rounds.h"
#include "core/negotiate/running.h"
#include "core/negotiate/stall.h"
#include "core/negotiate/tensor.h"

/* A message is u8 type, u64 generation, and what the type needs. */
enum message {
    UP_HELLO = 1,  /* rankset: everybody below, the sender with them */
    UP_READY,      /* records of tensors */
    UP_THAW_ASK,   /* somebody below cannot follow the plan */
    UP_THAW_AT,    /* u64: batches every rank below has handed out */
    UP_STATUS,     /* status.c */
    UP_STALLED,    /* stall.c */
    DOWN_LOG = 32, /* records of the log */
    DOWN_PLAN,     /* plan.h; begins a generation */
    DOWN_THAW_ASK,
    DOWN_THAWED, /* u64 keep; begins a generation */
    DOWN_STALL,  /* str: one line of a stall report */
    DOWN_STATUS, /* status.c */
    DOWN_LOST,   /* str: why nothing can go on */
};

enum {
    MESSAGE_SOFT_MAX = 256 << 10, /* a message that is longer is sent before the next record */
    TENSORS_MAX = 1 << 18,        /* names a node keeps: bounds what peers can make us hold */
};

struct child {
    int rank;
    bool hello;
    struct rankset below;
    bool thaw_told;   /* answered the thaw that is under way */
    bool status_told; /* answered the inquiry that is open */
};

struct negotiate {
    struct negotiate_config config;
    struct negotiate_ops ops;
    void *ctx;
    struct child *children;
    int nchildren, nhello;
    struct rankset below; /* this rank and everybody below it */
    bool root, hello_sent;

    uint64_t generation;
    struct tensors table;
    struct list submitted; /* tensor.mine: submitted here, in no batch yet */
    uint32_t nsubmitted;
    struct list out;     /* tensor.out: to be announced; on the root: to be judged */
    struct list partial; /* tensor.partial */
    struct running running;
    uint64_t handed, done; /* batches handed out and done since the beginning */
    struct buf up, down;
    uint64_t now; /* of the call that is on */
    int failed; /* -ENOMEM in a call that cannot say so: the next negotiate_recv() or submit does */
    struct rankset scratch;
    struct negotiate_tensor *batch; /* arguments of ops.batch */
    struct tensor **picked;         /* tensors of the batch that is read */
    size_t cap_batch;

    bool frozen;        /* the plan is in force */
    bool thaw_asked;    /* somebody at or below this node wants to leave it */
    bool thaw_ask_sent; /* and the parent was told so */
    bool thawing;       /* nothing is handed out until everybody has said how far it got */
    bool thaw_answered; /* this node has, for everybody below too */
    struct plan plan;
    int nthaw;            /* children that have answered */
    uint64_t thaw_keep;   /* the smallest answer so far */
    uint64_t urged_since; /* somebody waits for what the plan does not hand out; 0: nobody */
    uint64_t watch_since, watch_mark; /* of batches standing still */
    bool watch_busy;

    struct stall stall;

    struct fusion fusion; /* the rest: root only */
    struct rounds rounds;
    struct list lru;
    uint32_t *versions;   /* of cache slots */
    uint32_t *free_slots; /* a stack of those that were evicted */
    uint32_t nversions, nfree, cap_slots;
    uint32_t thaw_backoff; /* doublings of freeze_after */
    uint64_t looked_at;    /* length of the log when it was last looked at */
    uint64_t proposal;     /* number of the last plan that was thought of */
    bool flush_soon;       /* `down` is long */
    uint64_t pending;      /* batches in `down`, not flushed yet */
    bool merge;            /* the plan may merge batches */

    struct negotiate_stats stats;
};

/* announce.c */
void announce_submitted(struct negotiate *n, struct tensor *e, uint64_t now);
int announce_recv(struct negotiate *n, int child, struct reader *r, uint64_t now);
int announce_hello(struct negotiate *n, int child, struct reader *r);
void announce_urge(struct negotiate *n, struct tensor *e);

/* Sends what is to be told; when to come again, because memory was short, UINT64_MAX: need not. */
uint64_t announce_flush(struct negotiate *n, uint64_t now);

/* Forgets what was announced in the former generation and announces again what is submitted. */
void announce_anew(struct negotiate *n, bool frozen);

/* decide.c */
int decide_init(struct negotiate *n);
void decide_fini(struct negotiate *n);
uint64_t decide_tick(struct negotiate *n, uint64_t now);
void decide_flush_log(struct negotiate *n);

/* To the log: the tensor is over. code: negative errno. */
void decide_fail(struct negotiate *n, const char *name, int code, const char *text);

/* To the log, which is flushed: everybody announces again in a new generation. */
void decide_anew(struct negotiate *n);

/* thaw.c */
void thaw_propose(struct negotiate *n);
int thaw_follow_plan(struct negotiate *n, struct reader *r, uint64_t now);
void thaw_submitted(struct negotiate *n, struct tensor *e);
void thaw_urge(struct negotiate *n, struct tensor *e);
void thaw_walk(struct negotiate *n);
int thaw_recv_ask(struct negotiate *n, const struct reader *r);
int thaw_recv_at(struct negotiate *n, int child, struct reader *r);
int thaw_follow_ask(struct negotiate *n, const struct reader *r);
int thaw_follow_thawed(struct negotiate *n, struct reader *r, uint64_t now);
uint64_t thaw_tick(struct negotiate *n, uint64_t now);

/* stall.c */
int stall_init(struct negotiate *n);
void stall_fini(struct negotiate *n);
void stall_heard(struct negotiate *n, const struct tensor *e);
int stall_follow_stall(struct negotiate *n, struct reader *r);
int stall_follow_lost(struct negotiate *n, struct reader *r);
int stall_recv_hint(struct negotiate *n, struct reader *r);
uint64_t stall_tick(struct negotiate *n, uint64_t now);

/* status.c */
int status_follow(struct negotiate *n, struct reader *r);

/* Begins the gathering of answers with this rank's own; sends what has been gathered. */
void status_own(struct negotiate *n);
void status_answer(struct negotiate *n);
int status_recv(struct negotiate *n, int child, struct reader *r);

/* follow.c */
int follow_log(struct negotiate *n, struct reader *r);

/* Tensors that were submitted here are handed to the engine as the next batch. -ENOMEM. */
int follow_hand_out(struct negotiate *n, struct tensor **tensors, size_t count, bool frozen);

/* Nothing below is known to have it any more. */
void follow_forget(struct negotiate *n, struct tensor *e);

/* Makes the claims of the whole subtree complete: this rank's own and those by id. -ENOMEM. */
int announce_gather(struct negotiate *n, struct tensor *e);

/* The id of e was evicted: what was said by it (own: by this rank) is to be said again in full. */
void announce_evicted(struct negotiate *n, struct tensor *e, bool own);

/* Sends down to every child. */
void negotiate_send_down(struct negotiate *n, const struct buf *msg);

/* Starts a message. */
void negotiate_begin(struct negotiate *n, struct buf *b, enum message type);

#endif
