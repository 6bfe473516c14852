/* SPDX-License-Identifier: Apache-2.0
 *
 * negotiate_impl: the state of one node of the tree, shared by the files that make up negotiate:
 *
 *   negotiate.c  the calls of negotiate.h      announce.c   messages up: ready tensors
 *   decide.c     the root writes the log       follow.c     messages down: following the log
 *   propose.c    the root makes a plan         thaw.c       following and leaving the plan
 *   owed.c       bound batches after a thaw    stall.c      missing ranks
 *   status.c     a node's answers to stall.c       join.c   ranks that have run out of work
 *   end.c        the end of the log
 *
 * Everything runs under the engine's progress lock.
 */
#ifndef HVD_NEGOTIATE_NEGOTIATE_IMPL_H
#define HVD_NEGOTIATE_NEGOTIATE_IMPL_H

#include "core/negotiate/fusion.h"
#include "core/negotiate/negotiate.h"
#include "core/negotiate/owed.h"
#include "core/negotiate/plan.h"
#include "core/negotiate/rounds.h"
#include "core/negotiate/running.h"
#include "core/negotiate/stall.h"
#include "core/negotiate/tensor.h"

/* A message is u8 type, u64 generation, and what the type needs. */
enum message {
    UP_HELLO = 1,  /* rankset: the sender and all ranks below it */
    UP_READY,      /* records of tensors */
    UP_THAW_ASK,   /* a rank at or below the sender cannot follow the plan */
    UP_THAW_AT,    /* u64 keep: the smallest number of batches that a rank at or below the sender
                      has handed out; u64 bind: the largest plan.bound_to of such a rank */
    UP_STATUS,     /* status.c */
    UP_STALLED,    /* stall.c */
    UP_SETTLED,    /* no rank at or below the sender owes a batch: owed.c */
    UP_CONFLICT,   /* str why a rank at or below the sender cannot run a batch that it owes */
    UP_JOIN,       /* u8 flags, u32 the rank that joined last, rankset: join.c */
    UP_END,        /* a rank at or below the sender leaves: end.c */
    DOWN_LOG = 32, /* records of the log */
    DOWN_PLAN,     /* plan.h; begins a generation */
    DOWN_THAW_ASK,
    DOWN_THAWED, /* u64 keep, u64 bind, u8 1: the log ends here; begins a generation */
    DOWN_STALL,  /* str: one line of a stall report */
    DOWN_STATUS, /* status.c */
    DOWN_LOST,   /* u32 rank, i32 negative errno, str why no operation can continue: stall.c */
    DOWN_WANTED, /* str name, signature: what ranks that have joined are to submit: join.c */
    DOWN_JOINED, /* u32 the rank that joined last: all have, and nothing is in flight */
};

enum {
    MESSAGE_SOFT_MAX = 256 << 10, /* a longer message is sent before another record is added */
    TENSORS_MAX = 1 << 18, /* most names on a node: limits the memory that peers can make it use */
};

struct child {
    int rank;
    bool hello;
    struct rankset below;
    bool thaw_told;   /* the child has answered the current thaw */
    bool settled;     /* since the last thaw the child has sent UP_SETTLED */
    bool status_told; /* the child has answered the current inquiry */
    uint8_t join;     /* flags of its last UP_JOIN: join.c */
};

struct negotiate {
    struct negotiate_config config;
    struct negotiate_ops ops;
    void *ctx;
    struct child *children;
    int nchildren, nhello;
    struct rankset below; /* this rank and all ranks below it */
    bool root, hello_sent;

    uint64_t generation;
    struct tensors table;
    struct list submitted; /* tensor.mine: submitted on this rank, not in a batch yet */
    uint32_t nsubmitted;
    struct list out;     /* tensor.out: to be announced; on the root: to be compared */
    struct list partial; /* tensor.partial */
    struct running running;
    uint64_t done_to; /* 1 + the largest number of a batch that is done */
    struct buf up, down;
    uint64_t now; /* time of the current call */
    int failed;   /* negative errno: why negotiation cannot continue; the next negotiate_recv() or
                     negotiate_submit() returns it */
    struct rankset scratch;
    struct negotiate_tensor *batch; /* arguments of ops.batch */
    struct tensor **picked;         /* tensors of the batch that is being read */
    size_t cap_batch;

    bool frozen;        /* the plan is in force: its batches run without negotiation */
    bool thaw_asked;    /* a rank at or below this node wants to leave the plan */
    bool thaw_ask_sent; /* the parent has been told of thaw_asked */
    bool thawing;       /* no batch is handed out until all ranks have reported how far they are */
    bool thaw_answered; /* this node has reported, for all ranks below it, too */
    struct plan plan;
    int nthaw;                     /* children that have answered the thaw */
    uint64_t thaw_keep, thaw_bind; /* the smallest and the largest answer so far */
    bool left; /* this rank's program has left the plan: it submitted what the plan does not have */
    uint64_t prioritized_since; /* since when a caller waits for a tensor that the plan does not
                             hand out; 0: none does */
    uint64_t watch_since, watch_mark; /* for detecting batches that make no progress */
    bool watch_busy;

    struct {
        bool asked;   /* a rank at or below this node leaves */
        bool sent;    /* the parent has been told; on the root: the end is in the log */
        bool reached; /* no batch comes any more */
    } end;

    struct owed owed;
    struct stall stall;
    struct join {
        enum negotiate_join own;
        int below;          /* children at or below which a rank has joined */
        uint8_t told;       /* flags of the last UP_JOIN to the parent */
        uint32_t last;      /* the rank at or below this node that joined last */
        struct rankset who; /* ranks at and below this node that have joined */
        int told_count;     /* how many of them the parent knows */
        struct buf message;
        /* Root: time of the last activity, length of the log then, time of the last report. */
        uint64_t quiet_since, quiet_at, reported;
    } join;

    struct fusion fusion; /* this field and all below: root only */
    struct rounds rounds;
    struct list lru;
    uint32_t *versions;   /* version of each cache slot */
    uint32_t *free_slots; /* a stack of evicted slots */
    uint32_t nversions, nfree, cap_slots;
    uint32_t thaw_backoff; /* how often freeze_after was doubled */
    uint64_t looked_at;    /* length of the log when it was last searched for a period */
    uint64_t proposal;     /* number of the last plan that was considered */
    bool flush_soon;       /* `down` is long: flush it soon */
    uint64_t pending;      /* batches in `down`, not flushed yet */
    bool merge;            /* the plan may merge batches */

    struct negotiate_stats stats;
};

/* announce.c */
void announce_submitted(struct negotiate *n, struct tensor *e, uint64_t now);
int announce_recv(struct negotiate *n, int child, struct reader *r, uint64_t now);
int announce_hello(struct negotiate *n, int child, struct reader *r);
void announce_prioritize(struct negotiate *n, struct tensor *e);

/* Sends pending announcements. Returns when to try again after a failed allocation; UINT64_MAX: not
 * needed. */
uint64_t announce_flush(struct negotiate *n, uint64_t now);

/* Forgets the announcements of the former generation and announces all submitted tensors again.
 * frozen: announces none, because ranks follow the plan without announcements. */
void announce_anew(struct negotiate *n, bool frozen);

/* decide.c */
int decide_init(struct negotiate *n);
void decide_fini(struct negotiate *n);
uint64_t decide_tick(struct negotiate *n, uint64_t now);
void decide_flush_log(struct negotiate *n);

/* Whether a batch of such tensors is bound. */
bool decide_binds(const struct negotiate *n, const struct signature *sig);

/* Appends a failure of the tensor to the log. code: negative errno. */
void decide_fail(struct negotiate *n, const char *name, int code, const char *text);

/* Appends the beginning of a new generation to the log and flushes it: every rank announces its
 * tensors again. */
void decide_anew(struct negotiate *n);

/* Appends the end of the log and flushes it. */
void decide_end(struct negotiate *n);

/* propose.c */
void propose_plan(struct negotiate *n);

/* thaw.c */
int thaw_follow_plan(struct negotiate *n, struct reader *r, uint64_t now);
void thaw_submitted(struct negotiate *n, struct tensor *e);
void thaw_prioritize(struct negotiate *n, struct tensor *e);
void thaw_walk(struct negotiate *n);
int thaw_recv_ask(struct negotiate *n, const struct reader *r);
int thaw_recv_at(struct negotiate *n, int child, struct reader *r);
int thaw_follow_ask(struct negotiate *n, const struct reader *r);
int thaw_follow_thawed(struct negotiate *n, struct reader *r, uint64_t now);
uint64_t thaw_tick(struct negotiate *n, uint64_t now);

/* owed.c */
void owed_init(struct owed *o);
void owed_fini(struct owed *o);

/* A tensor that the first batch lacks and that is not in flight. NULL: there is none. */
const struct tensor *owed_missing(const struct negotiate *n);

/* After a thaw that keeps the first `keep` batches of the plan on all ranks, and the bound ones of
 * the first `bind`. -EPROTO, -ENOMEM. */
int owed_begin(struct negotiate *n, uint64_t keep, uint64_t bind);

/* Appends a bound batch to the queue. Those of its tensors that are submitted belong to it from
 * here on. -ENOMEM. */
int owed_add(struct negotiate *n, struct tensor **tensors, uint32_t count, bool planned);

/* Calls join_ask() for what the queue lacks. */
void owed_ask(struct negotiate *n);

/* A tensor of the queue was submitted. */
void owed_submitted(struct negotiate *n, struct tensor *e);
int owed_recv_settled(struct negotiate *n, int child, const struct reader *r);
int owed_recv_conflict(struct negotiate *n, struct reader *r);
uint64_t owed_tick(struct negotiate *n, uint64_t now);

/* stall.c */
int stall_init(struct negotiate *n);
void stall_fini(struct negotiate *n);
void stall_heard(struct negotiate *n, const struct tensor *e);
int stall_follow_stall(struct negotiate *n, struct reader *r);
int stall_follow_lost(struct negotiate *n, struct reader *r);
int stall_recv_hint(struct negotiate *n, struct reader *r);

/* Sends one line of a stall report to all ranks. */
void stall_say(struct negotiate *n, const char *text);

/* Called on the root: every operation of every rank fails. rank: as in DOWN_LOST. */
void stall_end_all(struct negotiate *n, int rank, int code, const char *text);
uint64_t stall_tick(struct negotiate *n, uint64_t now);

/* join.c */

/* Whether a rank at or below this node has joined. */
bool join_some(const struct negotiate *n);

/* This node has heard of the tensor, and knows its signature. */
void join_heard(struct negotiate *n, struct tensor *e);

/* If this rank has joined and has not submitted the tensor, the engine is asked to. */
void join_ask(struct negotiate *n, struct tensor *e, const struct signature *sig);

/* The batch that had the tensor on this rank is done. */
void join_idle(struct negotiate *n, const struct tensor *e);
int join_recv(struct negotiate *n, int child, struct reader *r);
int join_follow_wanted(struct negotiate *n, struct reader *r);
int join_follow_joined(struct negotiate *n, struct reader *r);

/* Sends changes of the join's state to the parent. The root ends the join when all ranks are
 * drained, or reports that nothing happens. Returns when to call it next. */
uint64_t join_tick(struct negotiate *n, uint64_t now);

/* end.c */
int end_recv(struct negotiate *n, const struct reader *r);

/* Tells the parent that a rank leaves. The root ends the log, or asks for a thaw before. */
void end_tick(struct negotiate *n);

/* status.c */
int status_follow(struct negotiate *n, struct reader *r);

/* Begins collecting the answers to the inquiry, with this rank's own. */
void status_own(struct negotiate *n);
void status_answer(struct negotiate *n);
int status_recv(struct negotiate *n, int child, struct reader *r);

/* follow.c */
int follow_log(struct negotiate *n, struct reader *r);

/* Hands tensors that were submitted on this rank to the engine as the next batch. Of `how`, bound,
 * frozen and index are used. -ENOMEM. */
int follow_hand_out(struct negotiate *n, struct tensor **tensors, size_t count,
                    struct running_batch how);

/* Forgets the announcements of the tensor, by this node and by its children. Frees the entry if
 * nothing needs it. */
void follow_forget(struct negotiate *n, struct tensor *e);

/* Completes the claims of the subtree: adds this rank's own and those by cache id. -ENOMEM. */
int announce_gather(struct negotiate *n, struct tensor *e);

/* The id of e was evicted: announcements by it (own: by this rank) must be repeated in full. */
void announce_evicted(struct negotiate *n, struct tensor *e, bool own);

/* Sends msg to every child. */
void negotiate_send_down(struct negotiate *n, const struct buf *msg);

/* Starts a message. */
void negotiate_begin(struct negotiate *n, struct buf *b, enum message type);

#endif
