/* SPDX-License-Identifier: Apache-2.0
 *
 * repair: how an elastic job survives (core/engine/REPAIR.md) and how its rosters are made
 * (core/member/README.md), for spin: three workers, a joiner (number 3), a coordinator that may be
 * lost and come back, and an adversary. README.md has what is modelled and what is not; run.sh runs it.
 *
 * A death is two things here: the coordinator gives a member up (`gone`), and the process stops. In
 * between it is a zombie that goes on as if nothing had happened, for as long as it likes.
 * Every flag, cell and frame belongs to an epoch: arrays have an entry for each.
 */

/* ---- the setting: run.sh gives others --------------------------------------------------------- */
#ifndef NOPS
#define NOPS 2 /* operations, at most 3 */
#endif
#ifndef K0
#define K0 SLICES
#endif
#ifndef K1
#define K1 WHOLE
#endif
#ifndef K2
#define K2 SLICES
#endif
#ifndef COMMIT
#define COMMIT 9 /* which of them is hvd_commit(): 9: none, nobody joins */
#endif
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef RESTARTS
#define RESTARTS 0 /* of the coordinator */
#endif
#ifndef FALSE_ALARMS
#define FALSE_ALARMS 0 /* somebody lost touch although nobody was given up */
#endif
#ifndef FIRST
#define FIRST 7 /* the world at the begin: 0, 1 and 2; 15: 3 is no joiner, but the fourth */
#endif
#ifndef MIN
#define MIN 1
#endif
#ifndef LEAVE
#define LEAVE 0 /* ranks call hvd_shutdown(): 1: done with everything; 2: between any two operations */
#endif
#ifndef EPOCHS
#define EPOCHS 7 /* more of them than this: the job does not get on */
#endif

#define N      4
#define J      3
#define PIECES 3

/* How an operation is done. SLICES: in place, two owners, a slice overwrites its input when its
 * owner has told RED. WHOLE: each sums up everybody's staged input. BEHIND: the input is saved, the
 * result is computed, a barrier behind it. */
#define SLICES 0
#define WHOLE  1
#define BEHIND 2
#define kind(s) ((s) == 0 -> K0 : ((s) == 1 -> K1 : K2))

/* A value is {operation, one bit of a planned change, who contributed}. */
#define VALUE(s, who) (((s) << 5) | (who))
#define WHO(v)        ((v) & 15)
#define HEARD         16
#define OF(v)         ((v) >> 5)

#define BIT(w)   (1 << (w))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1) + (((m) >> 3) & 1))
#define SEAT(m, w) COUNT((m) & (BIT(w) - 1))

/* ---- the memory that is shared, an entry an epoch ------------------------------------------------ */
byte roster[EPOCHS];  /* members; I1: written once */
byte conn[EPOCHS];    /* who is in the mesh */
bool aborted[EPOCHS]; /* abort word, closed connections */
bool applied[EPOCHS]; /* the planned change is in it */
byte upto[EPOCHS];    /* decision: operations that are done somewhere */
byte final[EPOCHS];   /* decision: pieces of operation upto that are final */
#if LEAVE
byte parted[EPOCHS];  /* decision: operations that one who had left by then had done */
#endif

#define AT(e, seat) ((e) * N + (seat))
byte in_[EPOCHS * N];      /* flags: operations staged */
byte out[EPOCHS * N];      /* nothing of anybody is read any more */
byte behind[EPOCHS * N];   /* barrier behind an operation */
byte red[EPOCHS * 2];      /* owners: slices that are complete */
byte cell[EPOCHS * N * 2]; /* staging */

/* All seats have told v. */
#define TOLD(flag, e, v)                                                                          \
    (flag[AT(e, 0)] >= (v) && (COUNT(roster[e]) < 2 || flag[AT(e, 1)] >= (v)) &&                  \
     (COUNT(roster[e]) < 3 || flag[AT(e, 2)] >= (v)) &&                                           \
     (COUNT(roster[e]) < 4 || flag[AT(e, 3)] >= (v)))

/* ---- ranks --------------------------------------------------------------------------------------- */
mtype = { OFF, RUN, WAIT, CONNECT, SETTLE, REST, GONE };
mtype = { JOINS, REVOKED, BOUNDARY };
mtype phase[N];
mtype why[N];     /* of the last HELLO */
byte epoch[N];    /* the newest roster it has */
byte seg[N];      /* where the operation under way was staged */
byte done[N];
bool started[N];  /* operation `done` is staged, in RUN or REST */
byte got[N];      /* pieces of it that are in the output and final */
bool whole[N];    /* its result is here, the barrier behind it was not passed */
byte saved[N];    /* pieces whose input was saved */
byte said[N];     /* pieces that were final when the flags were read, in this repair */
bool looked[N];   /* they were read */
bool stale[N];    /* has no state: joined and did not settle yet */
bool wants[N];    /* agreed on a change that no roster has applied yet */
byte buf[N * 2];  /* the user's tensor, in place: two slices */
byte mail[N];     /* a roster on its way */
byte hello[N];    /* the epoch it was in when it said HELLO last */
#ifdef BUG_ENTER
byte view;        /* the world that users see behind the boundary, and those who do */
byte viewers;
#endif
#ifdef BUG_VIEW
#define VIEW
#endif
#ifdef VIEW
byte asked[N];    /* the epoch it was in when its user called hvd_commit() */
byte met[N];      /* epochs whose mesh came to be here */
#endif

/* ---- coordinator and adversary ---------------------------------------------------------------------- */
byte gone;           /* given up; agents keep it for a coordinator that comes back */
byte stopped;        /* processes that have ended */
#if LEAVE
byte left;           /* have said BYE; their agents know what they had done */
byte leavers;        /* what the coordinator knows of it: the most that one of them had done */
#else
#define left 0
#endif
byte known = 1;      /* the newest epoch the coordinator knows of */
byte newest = 1;     /* the newest that any coordinator has made */
byte attached = 15;  /* agents it has heard of */
byte restarts, alarms;

/* What users saw: the result of the operation and who has it. */
byte result[NOPS * 2];
byte has[NOPS];
byte joined = 9; /* the first operation that the joiner takes part in */

#define LIVES(w)     ((stopped & BIT(w)) == 0)
#define SURVIVES(w)  ((gone & BIT(w)) == 0)
#if LEAVE == 2
#define had_left(s, w) ((left & BIT(w)) != 0 && done[w] <= (s) -> BIT(w) : 0)
#define without(s) (had_left(s, 0) | had_left(s, 1) | had_left(s, 2) | had_left(s, 3))
#else
#define without(s) 0
#endif
#define MEMBERS(s)   ((joined <= (s) -> 15 : 7) & ~gone & ~(without(s)))
#define ready_joiner (phase[J] == WAIT && why[J] == JOINS && SURVIVES(J))
#define ready(w)     (done[w] == NOPS || ((gone | left) & BIT(w)) != 0)
#define all_done     (ready(0) && ready(1) && ready(2) && (ready(3) || joined == 9))
/* Below min the job waits, and may wait for ever. */
#define too_few (COUNT((COMMIT == 9 -> FIRST : 15) & ~gone) < MIN)
#define over    (all_done || too_few)

#include "rank.pml"
#include "membership.pml"
