/* SPDX-License-Identifier: Apache-2.0
 *
 * repair: model of how an elastic job survives a loss (core/engine/REPAIR.md) and how its rosters
 * are made (core/member/README.md), for spin. It has three workers, a joiner (number 3), a
 * coordinator that may be lost and restarted, and an adversary. README.md says what is modelled and
 * what is not; run.sh runs it.
 *
 * A death is two steps here: the coordinator gives a member up (`gone`), and the process ends
 * (`stopped`). In between it is a zombie, which continues as if nothing had happened, for any
 * length of time. Every flag, cell and frame belongs to an epoch: arrays have an entry for each
 * epoch.
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
#define COMMIT 9 /* number of the operation that is hvd_commit(); 9: none, and no joiner */
#endif
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef RESTARTS
#define RESTARTS 0 /* restarts of the coordinator */
#endif
#ifndef FALSE_ALARMS
#define FALSE_ALARMS 0 /* a rank takes a peer for lost although no member was given up */
#endif
#ifndef FIRST
#define FIRST 7 /* the first world: ranks 0, 1 and 2; 15: number 3 is a fourth member, not a joiner */
#endif
#ifndef MIN
#define MIN 1
#endif
#ifndef LEAVE
#define LEAVE 0 /* ranks call hvd_shutdown(): 1: when all operations are done; 2: between any two operations */
#endif
#ifndef GPU
#define GPU 0 /* batches on GPUs, at most 4 */
#endif
#ifndef WINDOW
#define WINDOW 2 /* of them, how many a rank has in flight */
#endif
#ifndef EPOCHS
#define EPOCHS 7 /* if more epochs are needed, the job makes no progress */
#endif

#define N      4
#define J      3
#define PIECES 3

/* The algorithms. SLICES: in place, two owners; a slice overwrites its input after its owner has
 * set RED. WHOLE: each rank sums all ranks' staged inputs. BEHIND: the input is saved, the result
 * is computed, a barrier follows. */
#define SLICES 0
#define WHOLE  1
#define BEHIND 2
#define kind(s) ((s) == 0 -> K0 : ((s) == 1 -> K1 : K2))

/* A value is {operation, one bit for a planned change, set of contributors}. */
#define VALUE(s, who) (((s) << 5) | (who))
#define WHO(v)        ((v) & 15)
#define HEARD         16
#define OF(v)         ((v) >> 5)

#define BIT(w)   (1 << (w))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1) + (((m) >> 3) & 1))
#define SEAT(m, w) COUNT((m) & (BIT(w) - 1))

/* ---- the memory that is shared, an entry an epoch ------------------------------------------------ */
byte roster[EPOCHS];  /* members; I1: written only once */
byte conn[EPOCHS];    /* ranks that are in the mesh */
bool aborted[EPOCHS]; /* a rank has set the abort word and closed its connections */
bool applied[EPOCHS]; /* the roster contains the planned change */
byte upto[EPOCHS];    /* decision: operations that some rank has finished */
byte final[EPOCHS];   /* decision: pieces of operation upto that are final */
#if LEAVE
byte parted[EPOCHS];  /* decision: most operations that a departed rank had finished */
#endif

#define AT(e, seat) ((e) * N + (seat))
byte in_[EPOCHS * N];      /* flags: operations staged */
byte out[EPOCHS * N];      /* operations after which the rank reads no staging any more */
byte behind[EPOCHS * N];   /* barrier after an operation */
byte red[EPOCHS * 2];      /* flags of owners: slices that are complete */
byte cell[EPOCHS * N * 2]; /* staging */

/* All seats have set the flag to v or more. */
#define TOLD(flag, e, v)                                                                          \
    (flag[AT(e, 0)] >= (v) && (COUNT(roster[e]) < 2 || flag[AT(e, 1)] >= (v)) &&                  \
     (COUNT(roster[e]) < 3 || flag[AT(e, 2)] >= (v)) &&                                           \
     (COUNT(roster[e]) < 4 || flag[AT(e, 3)] >= (v)))

/* ---- ranks --------------------------------------------------------------------------------------- */
mtype = { OFF, RUN, WAIT, CONNECT, SETTLE, REST, GONE };
mtype = { JOINS, REVOKED, BOUNDARY };
mtype phase[N];
mtype why[N];     /* reason of the last HELLO */
byte epoch[N];    /* the newest roster it has */
byte seg[N];      /* epoch in which the operation in flight was staged */
byte done[N];
bool started[N];  /* operation `done` is staged, in RUN or REST */
byte got[N];      /* pieces of it that are in the output and final */
bool whole[N];    /* it has the result and has not passed the barrier after it */
byte saved[N];    /* pieces whose input was saved */
byte said[N];     /* pieces that were final when the flags were read, in this repair */
bool looked[N];   /* the flags were read */
bool stale[N];    /* has no training state: joined and has not settled */
bool wants[N];    /* agreed on a change that no roster has applied yet */
byte buf[N * 2];  /* the user's tensor, in place: two slices */
byte mail[N];     /* a roster in flight to it */
byte hello[N];    /* the epoch it was in at its last HELLO */
#ifdef BUG_ENTER
byte view;        /* the epoch whose world users see after the boundary */
byte viewers;     /* the ranks that see it */
#endif
#ifdef BUG_VIEW
#define VIEW
#endif
#ifdef VIEW
byte asked[N];    /* the epoch it was in when its user called hvd_commit() */
byte met[N];      /* epochs whose mesh was complete on this rank */
#endif

/* ---- coordinator and adversary ---------------------------------------------------------------------- */
byte gone;           /* given up; agents remember it for a new coordinator */
byte stopped;        /* members whose process has ended */
#if LEAVE
byte left;           /* have said BYE; their agents know how many operations they had finished */
/* What the coordinator knows: the most operations that a departed rank had finished. */
byte leavers;
#else
#define left 0
#endif
byte known = 1;      /* the newest epoch that the coordinator knows */
byte newest = 1;     /* the newest that any coordinator has made */
byte attached = 15;  /* agents that it has heard from */
byte restarts, alarms;

#if GPU
/* ---- batches on GPUs: counts of a rank, over all epochs, and flags of an epoch --------------------- */
byte own[N];            /* batches that are whole on the rank; what its report says */
byte finished[N];       /* batches whose results its user has */
byte used[N];           /* batches that have overwritten their input */
byte retained[N];       /* of these, those of which it has a copy */
byte gpu_value[N * GPU]; /* results that its user has not seen: contributors; 0: none, or wrong */
bool settled[N];        /* in CONNECT: its lane has followed the decision */
byte launched[EPOCHS * N];
byte told_up[EPOCHS * N];   /* whole on this seat and on all below it */
byte told_down[EPOCHS * N]; /* whole on all seats */
byte cut[EPOCHS * N];       /* it has aborted: 1 + the batches that were whole there */
byte gpu_upto[EPOCHS];      /* decision */
byte gpu_result[GPU];       /* what users have seen, and the ranks that have it */
byte gpu_has[GPU];
byte gpu_joined = 9; /* the first batch that the joiner takes part in */
#define gpu_settled(w) settled[w]
#else
#define gpu_settled(w) true
#endif

/* What users have seen: each operation's result, and the ranks that have it. */
byte result[(NOPS + 1) * 2];
byte has[NOPS + 1];
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
#define ready(w)     ((done[w] == NOPS && gpu_all_done(w)) || ((gone | left) & BIT(w)) != 0)
#define all_done     (ready(0) && ready(1) && ready(2) && (ready(3) || joined == 9))
/* Below min the job waits, possibly forever. */
#define too_few (COUNT((COMMIT == 9 -> FIRST : 15) & ~gone) < MIN)
#define over    (all_done || too_few)

/* Not part of the state: used within a step. */
hidden byte i, m, p, q, e, s, v, sum[2], seats;

#define E epoch[w]
#define connected (phase[w] == CONNECT && conn[E] == roster[E])
#ifdef VIEW
#define up ((met[w] & BIT(E)) != 0)
#else
#define up true
#endif

#include "gpu_lane.pml"
#include "rank.pml"
#include "membership.pml"
