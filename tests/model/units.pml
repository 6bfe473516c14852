/* SPDX-License-Identifier: Apache-2.0
 *
 * units: model of sets of both policies in a job that keeps places: a fixed set that loses a rank
 * breaks its unit, a set that shrinks goes on without the unit, and a replacement brings all of them
 * back at a boundary (core/engine/SETS.md, Elastic jobs; REPAIR.md, Units), for spin. README.md says
 * what is modelled and what is not; run.sh runs it. As in sets.pml the world is coarse, and a step of
 * a user's thread needs the progress lock.
 *
 * A member is a rank process: 0 to N - 1 begin at the place of their number, the others join. All
 * masks below are of members, but for those of places.
 */

/* ---- the setting: run.sh gives others --------------------------------------------------------- */
#ifndef N
#define N 3 /* places */
#endif
#ifndef JOINERS
#define JOINERS 1 /* at most 2 */
#endif
#ifndef S
#define S 2 /* sets, at most 3. Set 0 and set 2 are fixed, set 1 shrinks */
#endif
#ifndef P0
#define P0 3 /* places of set 0 */
#endif
#ifndef P1
#define P1 7 /* places of set 1 */
#endif
#ifndef P2
#define P2 6 /* places of set 2 */
#endif
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef DIES
#define DIES 255 /* the members that may be lost */
#endif
#ifndef ALARMS
#define ALARMS 0 /* the world enters another epoch although no rank was lost */
#endif
#ifdef ALARMED /* where in hvd_commit() a rank may begin that; else anywhere */
#define may_alarm(w) (at[w] == ALARMED)
#else
#define may_alarm(w) true
#endif
#ifndef BESIDE
#define BESIDE 0 /* sets in which another thread of each rank submits an operation during hvd_commit() */
#endif
#ifndef ROUNDS
#define ROUNDS 2 /* each has an operation in each set. Between two of them is hvd_commit() */
#endif
#ifndef EPOCHS
#define EPOCHS 8 /* if more epochs are needed, the job makes no progress */
#endif

#define M         (N + JOINERS)
#define FIRST     (BIT(N) - 1)
#define BIT(w)    (1 << (w))
#define HAS(m, b) (((m) & BIT(b)) != 0)
#define COUNT(m)                                                                                  \
    (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1) + (((m) >> 3) & 1) + (((m) >> 4) & 1) +      \
     (((m) >> 5) & 1))
#define PLACES(s) ((s) == 0 -> P0 : ((s) == 1 -> P1 : P2))
#define FIXED(s)  ((s) != 1)

/* ---- the world -------------------------------------------------------------------------------- */
mtype = { OFF, RUN, WAIT, CONNECT };
mtype phase[M];
byte epoch[M];         /* the newest roster it has */
byte been[M];          /* BIT(e): it was in the mesh of epoch e (engine.worlds) */
byte view[M];          /* the epoch of its user's world */
byte place[JOINERS];   /* N: none yet */
byte roster[EPOCHS];
byte fresh[EPOCHS];    /* its members that have joined and not yet entered a world */
byte broken[EPOCHS];   /* its members that are part of a broken unit */
byte changes[EPOCHS];  /* planned changes that it contains */
byte conn[EPOCHS];     /* members that are in the mesh */
bool over[EPOCHS];     /* a rank has given it up and told its peers */
byte newest = 1;
byte announced;        /* planned changes, each of which admits a joiner */
byte gone;             /* lost */
byte boundary;         /* members whose last report came at a boundary, not after a loss */
byte entered = FIRST;  /* members whose user has entered a world */
byte conflicts;        /* members that are about to give up their epoch, see set_is_untold() */
byte alarms;
byte deaths_max, joiners_max, alarms_max; /* of this history, so that it also ends with fewer than possible */

#define E        epoch[w]
#define LIVES(w) (!HAS(gone, w))
#define free(w)  (phase[w] == RUN && making[w] == 0 && LIVES(w) && !HAS(conflicts, w))
#define has_said(w)                                                                               \
    (!HAS(roster[newest] & ~gone, w) || (phase[w] == WAIT && epoch[w] == newest))
/* Members that have, or had, one of these places. */
#if JOINERS > 1
#define AT_PLACES(p)                                                                              \
    (((p) & FIRST) | (HAS((p) & FIRST, place[0]) -> BIT(N) : 0) |                                 \
     (HAS((p) & FIRST, place[1]) -> BIT(N + 1) : 0))
#else
#define AT_PLACES(p) (((p) & FIRST) | (HAS((p) & FIRST, place[0]) -> BIT(N) : 0))
#endif
#define PLACE(w) ((w) < N -> (w) : place[((w) < N -> 0 : (w) - N)])

#if M > 5
#define all_members(what) (what(0) && what(1) && what(2) && what(3) && what(4) && what(5))
#elif M > 4
#define all_members(what) (what(0) && what(1) && what(2) && what(3) && what(4))
#else
#define all_members(what) (what(0) && what(1) && what(2) && what(3))
#endif

/* ---- votes: operations of the world, which outlive epochs. One is open, one has ended ----------- */
byte voted, vote_change, vote_max, vote_min, vote_round;
bool vote_table;     /* ranks join, or come to sets (set_table_due) */
byte unheard;          /* members that have not heard the end */
byte end_epoch, end_answers; /* those answers of this epoch come before the end does */
byte end_change, end_max, end_min, end_round;
bool end_table;

/* ---- the program ------------------------------------------------------------------------------ */
mtype = { STEP, IN_VOTE, IN_BARRIER, LEAVES, IN_AGREE, IN_SHARE };
mtype at[M];           /* STEP: outside of hvd_commit() */
byte round[M];
byte change[M];        /* the planned change that the ranks have agreed on */
byte excused;          /* members that may get -EOWNERDEAD: in no world, or of a broken unit */
byte comes[M];         /* the first request in which others miss it */
byte knows = FIRST;    /* members that know the sets */

/* ---- meetings of epoch `current`, on rank 0 ----------------------------------------------------- */
#define POINTS 2       /* most lists of members with which a set is met in one epoch */
#define LOG    8
byte current = 1;
byte point[S * POINTS];   /* the list */
byte came[S * POINTS];    /* members that have entered */
byte blanks[S * POINTS];  /* those that are blank */
bool breaks[S * POINTS];  /* for one of them the set is broken */
bool stales[S * POINTS];  /* on one of them requests have ended */
byte nanswers;
byte ans_set[LOG], ans_list[LOG], ans_blanks[LOG], meshed[LOG], ans_seg[LOG];
byte ans_done[LOG];       /* the decision: operations that some member has finished */
bool ans_breaks[LOG], ans_stales[LOG];
bool ans_behind[LOG];     /* some other member has not finished that many */
bool ans_final[LOG];      /* some member has the result of operation ans_done, counted from 0 */
bool ans_whole[LOG];      /* all that are not blank have it */
byte taken[M];            /* answers that have come to the rank */
byte making[M];           /* the driver makes the circle of this answer: 1 + the answer */
mtype = { CIRCLE, ANEW, SETTLES };
mtype how[M];

/* ---- sets, an entry for each member and set ----------------------------------------------------- */
#define OF(w, s) ((w) * S + (s))
#define X OF(w, s)
mtype = { NONE, WORKS, LOST, FAILED };
mtype state[M * S];
bool blank[M * S], breaks_it[M * S], gains[M * S]; /* struct set; breaks_it: set.broken */
bool held[M * S];      /* it does not meet before the rank has heard of the gain */
bool older[M * S];     /* its last circle was made before ranks came to the set */
bool staled[M * S];    /* requests from before a gain have ended on it, and the circle is not made */
byte list[M * S];      /* set.members */
byte since[M * S];     /* set.boot.epoch, the epoch of the list */
byte target[M * S], target_since[M * S];
byte meets[M * S];     /* the list with which it is in a meeting; 0: it is in none */
byte met[M * S];       /* 1 + the answer that is to be carried out */
byte circle[M * S];    /* its segment; 0: it has none */
byte seg[M * S];       /* that in which the operation in flight was staged; 0: there is none */
bool knew[M * S];      /* its report: the result of the operation in flight was final */
byte done[M * S];

/* Requests: number 2 * round is the one of the round, the next one that of the other thread. */
byte next[M * S];
bool pending[M * S];

/* Segments of a set. The operation `top` is the last one that was staged. */
#define SEGS 4
#define SEG(s, i) ((s) * SEGS + (i) - 1)
byte ranks[S * SEGS], top[S * SEGS], staged[S * SEGS];
bool word[S * SEGS];   /* abort word */
#define WHOLE(s, i, op)                                                                           \
    ((op) < top[SEG(s, i)] || ((op) == top[SEG(s, i)] && staged[SEG(s, i)] == ranks[SEG(s, i)]))

/* What users have got, for each request: the contributors, and the members with each end. */
#define REQS (2 * ROUNDS)
byte result[S * REQS], got[S * REQS], dead[S * REQS], stale[S * REQS];
#define R_(s, n) ((s) * REQS + (n))

hidden byte c, e, i, j, k, m, p, r, v, z;
hidden byte q, u;
hidden byte never_smaller, same_result, can_get_result, has_all, alike, works_here, meets_once;
hidden byte dead_for_a_reason, all_have_finished, was_there, can_settle;

#include "units_requests.pml"
#include "units_sets.pml"
#include "units_world.pml"
#include "units_steps.pml"

init
{
    d_step {
        roster[1] = FIRST;
        conn[1] = FIRST;
        place[0] = N;
        place[JOINERS - 1] = N;
        m = 0;
        do
        :: m < M ->
            phase[m] = (HAS(FIRST, m) -> RUN : OFF);
            epoch[m] = (HAS(FIRST, m) -> 1 : 0);
            been[m] = (HAS(FIRST, m) -> BIT(1) : 0);
            view[m] = epoch[m];
            at[m] = STEP;
            i = 0;
            do
            :: i < S ->
                if
                :: HAS(FIRST & PLACES(i), m) ->
                    state[OF(m, i)] = WORKS;
                    list[OF(m, i)] = PLACES(i);
                    since[OF(m, i)] = 1;
                    target[OF(m, i)] = PLACES(i);
                    target_since[OF(m, i)] = 1;
                    circle[OF(m, i)] = 1;
                    ranks[SEG(i, 1)] = PLACES(i)
                :: else -> state[OF(m, i)] = NONE
                fi;
                i++
            :: else -> break
            od;
            m++
        :: else -> break
        od;
        m = 0;
        i = 0
    };
    do
    :: deaths_max < DEATHS -> deaths_max++
    :: joiners_max < JOINERS -> joiners_max++
    :: alarms_max < ALARMS -> alarms_max++
    :: break
    od;
    atomic {
        m = 0;
        do
        :: m < M -> run rank(m); m++
        :: else -> break
        od;
        i = 0;
        do
        :: i < S * M -> run member(i % M, i / M); i++
        :: else -> break
        od;
        i = 0;
        m = 0;
        run world();
        run adversary();
        run judge()
    }
}
