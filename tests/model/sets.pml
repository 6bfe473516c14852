/* SPDX-License-Identifier: Apache-2.0
 *
 * sets: model of how the sets of an elastic job are made by their members (hvd_set_form), repaired,
 * and removed (core/engine/SETS.md; REPAIR.md, Sets), for spin. README.md says what is modelled and
 * what is not; run.sh runs it.
 *
 * The world is coarse here: a rank revokes its epoch and reports in one step, the coordinator
 * publishes the next roster in the step in which the last report comes, and a rank takes it in one
 * step. repair.pml has the details. A rank has a process for the world and one for each of its
 * sets. Two threads run in it: the driver, which has the progress lock, and for each set one of
 * the user's. A step of the user's thread needs the lock, so it can be made only while the driver
 * neither repairs the world nor makes a set's circle (`free`).
 */

/* ---- the setting: run.sh gives others --------------------------------------------------------- */
#ifndef FIRST
#define FIRST 7 /* the first world, at most ranks 0 to 3 */
#endif
#ifndef S
#define S 1 /* sets, at most 3 */
#endif
#ifndef S0
#define S0 7 /* members of set 0 */
#endif
#ifndef S1
#define S1 6 /* members of set 1 */
#endif
#ifndef S2
#define S2 5 /* members of set 2 */
#endif
#ifndef FORMS
#define FORMS 1 /* sets that their members form; the others work from the beginning */
#endif
#ifndef REMOVES
#define REMOVES 0 /* sets that are removed after their operations */
#endif
#ifndef ADDED
#define ADDED 0 /* sets of hvd_set_add(), which are removed by votes of the world */
#endif
#ifndef NOPS
#define NOPS 1 /* operations of each set, at most 2. The first one of a set that is formed is the
                  barrier with which hvd_set_form() ends */
#endif
#ifndef BUSY
#define BUSY 0 /* sets that another thread of each member uses once more, beside the removal */
#endif
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef ALARMS
#define ALARMS 0 /* the world enters another epoch although no rank was lost, as at a planned change */
#endif
#ifndef ZOMBIES
#define ZOMBIES 0 /* 1: a lost rank goes on with operations of its sets, for any length of time */
#endif
#ifndef FAILS
#define FAILS 0 /* members that cannot connect, because of an error of their own */
#endif
#ifndef EPOCHS
#define EPOCHS 7 /* if more epochs are needed, the job makes no progress */
#endif

#define N 4
#define BIT(w)   (1 << (w))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1) + (((m) >> 3) & 1))
#define MEM(s)   ((s) == 0 -> S0 : ((s) == 1 -> S1 : S2))
#define HAS(m, b) (((m) & BIT(b)) != 0)

/* ---- the world ------------------------------------------------------------------------------------ */
mtype = { RUN, WAIT, CONNECT, OFF };
mtype phase[N];
byte epoch[N];       /* the newest roster it has */
byte blocked[N];     /* the driver makes the circle of this set: 1 + set; 4 + set: it settles */
byte roster[EPOCHS];
byte conn[EPOCHS];   /* ranks that are in the mesh */
bool over[EPOCHS];   /* a rank has given it up and told its peers */
byte claims[EPOCHS]; /* what the reports say: BIT(s) set s is made, BIT(4 + s) it is removed */
byte newest = 1;
byte gone, stopped;  /* given up; process has ended */
byte alarms, fails;
byte deaths_max, alarms_max; /* of this history, so that it also ends with fewer than possible */

#define SURVIVES(w) (!HAS(gone, w))
#define E           epoch[w]
#define free(w)     (phase[w] == RUN && blocked[w] == 0 && SURVIVES(w))
/* The report is sent, and no roster is newer than the one it was sent in. */
#define has_said(w) (!HAS(roster[newest] & ~gone, w) || (phase[w] == WAIT && epoch[w] == newest))

/* ---- meetings in the newest epoch that a rank runs in ------------------------------------------------- */
#define REPAIR    0
#define CARDS     1
#define CONNECTED 2
#define REMOVE    3 /* and the last one, REMOVE + 1 */
#define ROUNDS    5
#define LOG       14
byte current = 1;         /* this epoch */
byte entered[S * ROUNDS]; /* ranks */
byte refuses;             /* BIT(s): a member brings an error to the last meeting that is open; BIT(4 + s):
                             a member that meets for a repair removes the set */
byte harder;              /* BIT(s): the error is not only that a connection was lost */
byte answers[LOG];        /* of rank 0: 4 * (set * ROUNDS + round) + what comes of it: */
#define WELL  0
#define BAD   1           /* a member has failed; of a repair: a member is removing the set */
#define AGAIN 2           /* members have lost connections; all begin anew */
byte nanswers;
byte taken[N];            /* answers that have come to the rank, or do not concern it */
byte met[N];              /* sets that have met and whose circles are to be made: 1 + the first one, 4 * ... */
byte meshed[S];           /* ranks that make the set's circle */
byte upto[S];             /* decision: operations that some member has finished */
bool final[S];            /* decision: the result of operation upto is final */
bool broken[S];           /* a member could not connect, so that others lose the connection to it */

#if ADDED
/* Votes are operations of the world: they outlive epochs. Entries as of meetings. */
byte voted[S * ROUNDS];   /* ranks */
byte vote[S * ROUNDS];    /* 1: all are for it; 2: the vote has ended otherwise */
bool against[S * ROUNDS]; /* a rank is against it */
#endif

#define AT(s, r) ((s) * ROUNDS + (r))
/* Those that have to enter. */
#define MEETS(s) (MEM(s) & roster[current])

/* ---- sets, an entry for each rank and set ----------------------------------------------------------- */
#define OF(w, s) ((w) * S + (s))
#define X OF(w, s)
mtype = { NONE, MAKING, WORKS, LOST, REMOVED };
mtype state[N * S];  /* enum circle_state */
mtype = { FORM, IN_CARDS, HAS_CARDS, IN_LAST, KNOWS, BARRIER, USES, REMOVES_IT, IN_IDLE, ALL_IDLE,
          CLOSED, IN_CLOSED, GOES, LEAVES, BACK, REFUSED, ENDED };
mtype at[N * S];     /* where the user's thread is */
byte in[N * S];      /* the epoch of its meeting */
byte ranks_of[N * S]; /* the epoch in which the set's ranks are numbered (set.boot.epoch) */
byte circle[N * S];  /* the epoch of its circle; 0: it has none */
bool ending[N * S];  /* it is being removed and has no operations */
bool told[N * S];    /* others know that this rank makes no circle of it (told_of_removal) */
bool meets[N * S];   /* its repair has begun (struct set) */
bool heard[N * S];   /* in its repair a member said that it is removing the set */
bool decided[N * S]; /* the last meeting has ended well */
bool forming[N * S]; /* this rank claims that the set is made, if it is decided */
bool removed[N * S]; /* this rank claims that the set is removed */
byte done[N * S];    /* operations */
byte more[N * S];    /* 1: another thread has submitted one more */
byte seg[N * S];     /* the epoch in which the operation in flight was staged; 0: there is none */
bool kept[N * S];    /* the epoch has ended, and settling has not succeeded since */
bool knew[N * S];    /* its report: the result of the operation in flight was final */

/* The set's segments, an entry an epoch. */
#define OPS (NOPS + 1)
#define SEG(s, e) ((s) * EPOCHS + (e))
byte staged[S * EPOCHS * OPS]; /* ranks, for each operation */
bool word[S * EPOCHS];         /* abort word */
#define STAGED(s, e, op) staged[SEG(s, e) * OPS + (op)]
#define WHOLE(s, e, op)  (STAGED(s, e, op) == (MEM(s) & roster[e]))

byte result[S * OPS]; /* what a user has got: contributors; 0: none has it */

#define idle(w, s)   (done[OF(w, s)] == NOPS + more[OF(w, s)])
#define closed(w, s)                                                                              \
    (at[OF(w, s)] == CLOSED || at[OF(w, s)] == IN_CLOSED || at[OF(w, s)] == GOES ||               \
     at[OF(w, s)] == LEAVES || at[OF(w, s)] == BACK || at[OF(w, s)] == REFUSED)
#define no_set(w, s) (at[OF(w, s)] == ENDED && state[OF(w, s)] == NONE)
#define has_it(w, s) (HAS(MEM(s) & ~gone, w) && done[OF(w, s)] > 0)
#define failed(w, s) (HAS(MEM(s) & ~gone, w) && no_set(w, s))
#define stays(w, s)  (HAS(MEM(s) & ~gone, w) && at[OF(w, s)] == ENDED && state[OF(w, s)] != REMOVED)
#define any(what, s) (what(0, s) || what(1, s) || what(2, s) || what(3, s))

/* Not part of the state: used within a step. */
hidden byte e, i, k, m, r, v;
/* What assertions say. */
hidden byte made_for_all, made_for_none, has_all_survivors, same_result, can_get_result;
hidden byte removed_by_all, meets_once, all_have_finished;

/* ---- operations --------------------------------------------------------------------------------------- */

/* Clears segments that no rank has mapped any more, so that their states do not differ. */
#define maps(w, s) (!HAS(stopped, w) && (circle[OF(w, s)] == e || seg[OF(w, s)] == e))
inline sweep(s)
{
    e = 1;
    do
    :: e < newest ->
        if
        :: !any(maps, s) ->
            word[SEG(s, e)] = false;
            k = 0;
            do
            :: k < OPS -> STAGED(s, e, k) = 0; k++
            :: else -> break
            od
        :: else
        fi;
        e++
    :: else -> break
    od;
    e = 0;
    k = 0
}

/* S1, S2, S3. What a rank returns that was given up counts, too. */
inline user_returns(w, s, value)
{
    made_for_all = !any(failed, s);
    assert(made_for_all);
    has_all_survivors = (value & MEM(s) & ~gone) == (MEM(s) & ~gone);
    assert(has_all_survivors);
    same_result = result[s * OPS + done[X]] == 0 || result[s * OPS + done[X]] == value;
    assert(same_result);
    result[s * OPS + done[X]] = value;
    done[X] = done[X] + 1;
    seg[X] = 0
}

inline settle(w, s)
{
    assert(state[X] == LOST && done[X] + 1 >= upto[s]);
    if
    :: done[X] < upto[s] || final[s] ->
        can_get_result = seg[X] != 0 && WHOLE(s, seg[X], done[X]);
        assert(can_get_result);
        v = MEM(s) & roster[seg[X]];
        user_returns(w, s, v)
    :: else -> seg[X] = 0 /* restarts the operation */
    fi;
    kept[X] = false;
    knew[X] = false;
    circle[X] = E;
    state[X] = WORKS;
    blocked[w] = 0;
    sweep(s)
}

/* ---- meetings ----------------------------------------------------------------------------------------- */

#define mine(w, a) (HAS(MEM(((a) / 4) / ROUNDS), w))
/* Passes answers that do not concern the rank. */
inline pass(w)
{
    do
    :: phase[w] == RUN && E == current && taken[w] < nanswers && !mine(w, answers[taken[w]]) ->
        taken[w] = taken[w] + 1
    :: else -> break
    od
}

/* Rank 0 answers the meeting. */
inline answer(s, round)
{
    assert(nanswers < LOG);
    v = WELL;
    if
    :: round == REPAIR && HAS(refuses, 4 + s) ->
        v = BAD;
        refuses = refuses & ~BIT(4 + s)
    :: round == REPAIR && !HAS(refuses, 4 + s) -> decide(s)
    :: round == CARDS -> broken[s] = false
    :: round != REPAIR && round != CARDS ->
        if
        :: HAS(refuses, s) -> v = (round != CONNECTED || HAS(harder, s) -> BAD : AGAIN)
        :: else
        fi;
        refuses = refuses & ~BIT(s);
        harder = harder & ~BIT(s)
    fi;
    answers[nanswers] = 4 * AT(s, round) + v;
    v = 0;
    nanswers++;
    entered[AT(s, round)] = 0;
    pass(0);
    pass(1);
    pass(2);
    pass(3);
    m = 0
}

/* The reports that the members have brought do not change until settling has succeeded. */
inline decide(s)
{
    upto[s] = 0;
    m = 0;
    do
    :: m < N ->
        if
        :: HAS(MEETS(s), m) && done[m * S + s] > upto[s] -> upto[s] = done[m * S + s]
        :: else
        fi;
        m++
    :: else -> break
    od;
    m = 0;
    do
    :: m < N ->
        if
        :: HAS(MEETS(s), m) && done[m * S + s] == upto[s] && knew[m * S + s] -> final[s] = true
        :: else
        fi;
        m++
    :: else -> break
    od;
    m = 0
}

inline meet(w, s, round, bad)
{
    assert(current == E && !HAS(entered[AT(s, round)], w));
    entered[AT(s, round)] = entered[AT(s, round)] | BIT(w);
    refuses = refuses | (bad -> BIT(s) : 0)
}

/* The same by a vote, if the set is one of hvd_set_add(). */
inline meet_or_vote(w, s, round, bad)
{
#if ADDED
    if
    :: HAS(ADDED, s) ->
        voted[AT(s, round)] = voted[AT(s, round)] | BIT(w);
        against[AT(s, round)] = against[AT(s, round)] || bad
    :: else -> meet(w, s, round, bad)
    fi
#else
    meet(w, s, round, bad)
#endif
}

#define is_met(w, s) ((met[w] & 3) == 1 + (s) || ((met[w] >> 2) & 3) == 1 + (s) || ((met[w] >> 4) & 3) == 1 + (s))

inline enter_repair(w, s)
{
    state[X] = LOST;
    ranks_of[X] = E;
    meets_once = !is_met(w, s) && !HAS(entered[AT(s, REPAIR)], w);
    assert(meets_once);
    meets[X] = true;
#ifdef BUG_UNTOLD
    meet(w, s, REPAIR, false)
#else
    told[X] = told[X] || ending[X];
    meet(w, s, REPAIR, false);
    refuses = refuses | (ending[X] -> BIT(4 + s) : 0)
#endif
}

/* Of the sets whose circles are to be made, this one is made no more. */
inline forget_met(w, s)
{
    if
    :: (met[w] & 3) == 1 + s -> met[w] = met[w] >> 2
    :: (met[w] & 3) != 1 + s && ((met[w] >> 2) & 3) == 1 + s -> met[w] = (met[w] & 3) | ((met[w] >> 4) << 2)
    :: (met[w] & 3) != 1 + s && ((met[w] >> 2) & 3) != 1 + s && (met[w] >> 4) == 1 + s -> met[w] = met[w] & 15
    :: else
    fi
}

/* The members have met. */
inline make_circle(w, s)
{
    forget_met(w, s);
#ifndef BUG_TWICE
    meets[X] = false;
#endif
    if
    :: heard[X] ->
        heard[X] = false;
#ifndef BUG_TOLD
        told[X] = true;
#endif
        if
#ifndef BUG_NOREMEET
        :: !ending[X] -> enter_repair(w, s)
#endif
        :: else
        fi
    :: else ->
        blocked[w] = 1 + s;
        meshed[s] = meshed[s] | BIT(w)
#ifndef BUG_STALE
        ;
        knew[X] = knew[X] || (done[X] == upto[s] && final[s])
#endif
    fi
}

/* Rank 0 has an answer for the user's thread, or for the driver. */
inline take_answer(w, s)
{
    r = (answers[taken[w]] / 4) % ROUNDS;
    v = answers[taken[w]] & 3;
    taken[w] = taken[w] + 1;
    pass(w);
    if
    :: r == REPAIR && state[X] == LOST ->
#ifdef BUG_TWICE
        meets[X] = false;
#endif
        heard[X] = (v == BAD);
        met[w] = (met[w] == 0 -> 1 + s : (met[w] < 4 -> met[w] + 4 * (1 + s) : met[w] + 16 * (1 + s)))
    :: r == REPAIR && state[X] != LOST
    :: r == CARDS ->
        assert(at[X] == IN_CARDS);
        at[X] = HAS_CARDS
    :: r == CONNECTED && v == 0 ->
        assert(at[X] == IN_LAST);
        decided[X] = true;
        at[X] = KNOWS
    :: r == CONNECTED && v == AGAIN ->
        assert(at[X] == IN_LAST);
        no_longer(w, s);
        at[X] = FORM
    :: r == CONNECTED && v == BAD ->
        assert(at[X] == IN_LAST);
        made_for_none = !any(has_it, s);
        assert(made_for_none);
        no_longer(w, s);
        at[X] = ENDED
    :: r == REMOVE ->
        assert(at[X] == IN_IDLE);
        at[X] = (v == 0 -> ALL_IDLE : ENDED)
    :: r == REMOVE + 1 && v == 0 ->
        assert(at[X] == IN_CLOSED && ending[X]);
        decided[X] = true;
        removed[X] = true;
        at[X] = GOES
    :: r == REMOVE + 1 && v == 1 ->
        assert(at[X] == IN_CLOSED);
        at[X] = REFUSED
    fi;
    r = 0;
    v = 0
}

/* ---- the world's epochs ------------------------------------------------------------------------------- */

#ifdef BUG_CLAIM
#define says_made(w, s) false
#else
#ifdef BUG_LATECLAIM
#define says_made(w, s) (forming[OF(w, s)] && decided[OF(w, s)] && state[OF(w, s)] != MAKING)
#else
#define says_made(w, s) (forming[OF(w, s)] && decided[OF(w, s)])
#endif
#endif
#ifdef BUG_GONE
#define says_removed(w, s) false
#else
#define says_removed(w, s) removed[OF(w, s)]
#endif

/* The coordinator has the reports of all live members. */
inline publish()
{
    if
    :: has_said(0) && has_said(1) && has_said(2) && has_said(3) && (roster[newest] & ~gone) != 0 ->
        newest++;
        assert(newest < EPOCHS); /* there is progress */
        roster[newest] = roster[newest - 1] & ~gone;
        m = 0;
        do
        :: m < N * S ->
            i = m % S;
            if
            :: HAS(roster[newest] & MEM(i), m / S) ->
                claims[newest] = claims[newest] | (says_made(m / S, i) -> BIT(i) : 0) |
                                 (says_removed(m / S, i) -> BIT(4 + i) : 0)
            :: else
            fi;
            m++
        :: else -> break
        od;
        m = 0;
        i = 0
    :: else
    fi
}

/* The end of an epoch for a set: freezes the report. */
inline end_circle(w, s)
{
    if
    :: circle[X] != 0 ->
#ifndef BUG_NOWORD
        word[SEG(s, E)] = word[SEG(s, E)] || seg[X] != 0;
#endif
        kept[X] = true;
        knew[X] = seg[X] != 0 && WHOLE(s, seg[X], done[X]);
        circle[X] = 0;
        state[X] = (state[X] == WORKS -> LOST : state[X])
    :: else ->
#ifdef BUG_REREAD
        knew[X] = knew[X] || (kept[X] && seg[X] != 0 && WHOLE(s, seg[X], done[X]))
#endif
    fi
}

inline revoke(w)
{
    over[E] = true;
    m = 0;
    do
    :: m < S ->
        end_circle(w, m);
        told[w * S + m] = false;
        meets[w * S + m] = false;
        heard[w * S + m] = false;
        m++
    :: else -> break
    od;
    m = 0;
    blocked[w] = 0;
    taken[w] = 0;
    met[w] = 0;
    phase[w] = WAIT;
    publish()
}

/* Reads what the reports claim. */
inline read_claims(w)
{
    m = 0;
    do
    :: m < S ->
        decided[w * S + m] = decided[w * S + m] || (forming[w * S + m] && HAS(claims[E], m));
        if
        :: ending[w * S + m] && HAS(claims[E], 4 + m) ->
            decided[w * S + m] = true;
#ifndef BUG_FORWARD
            removed[w * S + m] = true
#endif
        :: else
        fi;
        m++
    :: else -> break
    od;
    m = 0
}

/* Its control tree works, so meetings are possible. What was open in an older epoch is gone. */
inline begin_meetings(w)
{
    if
    :: current < E ->
        current = E;
        nanswers = 0;
        refuses = 0;
        harder = 0;
        m = 0;
        do
        :: m < S * ROUNDS -> entered[m] = 0; m++
        :: else -> break
        od;
        m = 0;
        do
        :: m < LOG -> answers[m] = 0; m++
        :: else -> break
        od;
        m = 0;
        do
        :: m < S ->
            meshed[m] = 0;
            upto[m] = 0;
            final[m] = false;
            broken[m] = false;
            m++
        :: else -> break
        od;
        m = 0
    :: else
    fi
}

proctype world(byte w)
{
end:
    do
    :: d_step { /* revokes the epoch, reports */
        (phase[w] == RUN || phase[w] == CONNECT) && SURVIVES(w) && ((roster[E] & gone) != 0 || over[E]) ->
            revoke(w)
       }
    :: d_step { /* gives up the epoch although no rank was lost, reports */
        alarms < alarms_max && phase[w] == RUN && SURVIVES(w) ->
            alarms++;
            revoke(w)
       }
    :: d_step { /* takes the roster, connects */
        phase[w] == WAIT && E < newest && SURVIVES(w) ->
            epoch[w] = E + 1;
            read_claims(w);
            conn[E] = conn[E] | BIT(w);
            phase[w] = CONNECT
       }
    :: d_step { /* gets the roster behind the word that one of its ranks was lost, reports again */
        phase[w] == WAIT && E < newest && SURVIVES(w) && (roster[newest] & gone) != 0 ->
            epoch[w] = E + 1;
            over[E] = true;
            publish()
       }
    :: d_step { /* is in the new epoch; lost sets meet */
        phase[w] == CONNECT && SURVIVES(w) && conn[E] == roster[E] ->
            begin_meetings(w);
            phase[w] = RUN;
            m = 0;
            do
            :: m < S ->
                if
#ifdef BUG_UNREPAIRED
                :: state[w * S + m] == LOST && !ending[w * S + m] -> enter_repair(w, m)
#else
                :: state[w * S + m] == LOST -> enter_repair(w, m)
#endif
                :: else
                fi;
                m++
            :: else -> break
            od;
            pass(w);
            m = 0
       }
    od
}

/* ---- a set on a rank ---------------------------------------------------------------------------------- */

#if ADDED
/* A rank votes while its driver is free. Then the vote may end without it, also while it makes a circle, but not
   while the world is repaired. */
#define may_vote(w) (!HAS(FIRST & ~gone, w) || phase[w] == RUN)
#define all_may     (may_vote(0) && may_vote(1) && may_vote(2) && may_vote(3))
#define ends(s, r)                                                                                \
    (vote[AT(s, r)] == 0 && voted[AT(s, r)] != 0 && (MEM(s) & ~gone & ~voted[AT(s, r)]) == 0)
#endif
/* The other members expect this rank in the mesh that they are about to make. */
#if defined(BUG_UNREPAIRED) || defined(BUG_NOWAIT)
#define is_expected(w, s) false
#else
#define is_expected(w, s) (state[OF(w, s)] == LOST && !told[OF(w, s)])
#endif
/* A removal begins when the set has been repaired. So no member is removing the set a second time while others have
   not yet heard of its first time. */
#ifdef BUG_EARLY
#define may_begin(w, s) true
#else
#define may_begin(w, s) (state[OF(w, s)] != LOST)
#endif
#define root(w)      (free(w) && current == E && (roster[E] & (BIT(w) - 1)) == 0)
#define all_in(s, r) (entered[AT(s, r)] != 0 && entered[AT(s, r)] == MEETS(s))

/* Ends hvd_set_form() without a set. */
inline no_longer(w, s)
{
    forming[X] = false;
    decided[X] = false;
    state[X] = NONE;
    circle[X] = 0;
    ranks_of[X] = 0;
    kept[X] = false;
    ending[X] = false;
    told[X] = false;
    in[X] = 0
}

/* The set is opened, or stays although it should have been removed (sets_works). */
inline works(w, s)
{
    ending[X] = false;
    told[X] = false;
    decided[X] = decided[X] && forming[X];
    in[X] = 0;
    if
#ifdef BUG_SETWORKS
    :: true -> state[X] = WORKS
#else
    :: circle[X] == E -> state[X] = WORKS
#endif
    :: circle[X] != E && meets[X] -> state[X] = LOST
    :: circle[X] != E && !meets[X] -> enter_repair(w, s)
    fi
}

proctype member(byte w; byte s)
{
end:
    do
    /* ---- rank 0: a member has entered its repair before any other meeting ---- */
    :: d_step { /* as rank 0: answers a repair */
        root(w) && all_in(s, REPAIR) -> answer(s, REPAIR)
       }
    :: d_step { /* as rank 0: answers a meeting */
        root(w) && !all_in(s, REPAIR) &&
            (all_in(s, CARDS) || all_in(s, CONNECTED) || all_in(s, REMOVE) ||
             all_in(s, REMOVE + 1)) ->
            if
            :: all_in(s, CARDS) -> answer(s, CARDS)
            :: all_in(s, CONNECTED) -> answer(s, CONNECTED)
            :: all_in(s, REMOVE) -> answer(s, REMOVE)
            :: all_in(s, REMOVE + 1) -> answer(s, REMOVE + 1)
            fi
       }
    /* ---- the driver ---- */
    :: d_step { /* gets an answer of rank 0 */
        free(w) && current == E && taken[w] < nanswers && (answers[taken[w]] / 4) / ROUNDS == s &&
            HAS(MEM(s), w) -> take_answer(w, s)
       }
    :: d_step { /* makes the circle, or meets again without those that remove the set */
#ifdef BUG_ORDER
        free(w) && is_met(w, s) -> make_circle(w, s)
#else
        free(w) && (met[w] & 3) == 1 + s -> make_circle(w, s)
#endif
       }
    :: d_step { /* has the circle's mesh */
        phase[w] == RUN && SURVIVES(w) && blocked[w] == 1 + s && meshed[s] == MEETS(s) ->
#ifdef BUG_KEEP
            seg[X] = 0;
#endif
            blocked[w] = 4 + s
       }
    :: d_step { /* settles, goes on */
        phase[w] == RUN && SURVIVES(w) && blocked[w] == 4 + s -> settle(w, s)
       }
    :: d_step { /* stages an operation */
        phase[w] == RUN && !HAS(stopped, w) && blocked[w] == 0 && state[X] == WORKS && circle[X] == E &&
            done[X] < NOPS + more[X] && seg[X] == 0 ->
            seg[X] = E;
            STAGED(s, E, done[X]) = STAGED(s, E, done[X]) | BIT(w)
       }
    :: d_step { /* returns an operation */
        phase[w] == RUN && !HAS(stopped, w) && blocked[w] == 0 && circle[X] == E && seg[X] == E &&
            WHOLE(s, E, done[X]) && !word[SEG(s, E)] ->
            v = MEM(s) & roster[E];
            user_returns(w, s, v);
            v = 0
       }
    /* ---- hvd_set_form() ---- */
    :: d_step { /* hvd_set_form: brings its card */
        at[X] == FORM && free(w) && (MEM(s) & ~roster[E]) == 0 ->
            in[X] = E;
            at[X] = IN_CARDS;
            meet(w, s, CARDS, false)
       }
    :: d_step { /* hvd_set_form: -EOWNERDEAD */
        at[X] == FORM && free(w) && (MEM(s) & ~roster[E]) != 0 ->
            made_for_none = !any(has_it, s);
            assert(made_for_none);
            no_longer(w, s);
            at[X] = ENDED
       }
    :: d_step { /* the epoch has ended: begins anew */
        (at[X] == IN_CARDS || at[X] == HAS_CARDS) && free(w) && in[X] < E -> at[X] = FORM
       }
    :: d_step { /* has a mesh, begins the last meeting */
        at[X] == HAS_CARDS && free(w) && in[X] == E ->
            if
#ifdef BUG_RESET
            :: broken[s] -> at[X] = FORM /* -ECONNRESET becomes -EAGAIN */
#endif
            :: else ->
                state[X] = MAKING;
                ranks_of[X] = E;
                circle[X] = E;
                forming[X] = true;
                at[X] = IN_LAST;
                meet(w, s, CONNECTED, broken[s])
            fi
       }
    :: d_step { /* has no mesh, begins the last meeting */
        at[X] == HAS_CARDS && free(w) && in[X] == E && fails < FAILS ->
            fails++;
            broken[s] = true;
            if
            :: harder = harder | BIT(s) /* an error of its own */
            :: true                     /* -ECONNRESET */
            fi;
            at[X] = IN_LAST;
            meet(w, s, CONNECTED, true)
       }
    :: d_step { /* the epoch has ended in the last meeting: has the set, or begins anew */
        at[X] == IN_LAST && free(w) && in[X] < E ->
            if
            :: decided[X] -> at[X] = KNOWS
            :: else ->
                no_longer(w, s);
                at[X] = FORM
            fi
       }
    :: d_step { /* opens the set */
        at[X] == KNOWS && free(w) ->
#ifdef BUG_EARLYEND
            forming[X] = false;
#endif
            works(w, s);
            at[X] = BARRIER
       }
    :: d_step { /* all members have the set: its claim ends */
        at[X] == BARRIER && free(w) && done[X] > 0 ->
            forming[X] = false;
            decided[X] = false;
            at[X] = USES
       }
    :: d_step { /* -ETIMEDOUT: a member has got an error */
        at[X] == IN_CARDS && free(w) && in[X] == E && HAS(entered[AT(s, CARDS)], w) && any(failed, s) ->
            made_for_none = !any(has_it, s);
            assert(made_for_none);
            entered[AT(s, CARDS)] = entered[AT(s, CARDS)] & ~BIT(w);
            no_longer(w, s);
            at[X] = ENDED
       }
    /* ---- hvd_set_remove() ---- */
    :: d_step { /* another thread submits */
        HAS(BUSY, s) && more[X] == 0 && state[X] != REMOVED && free(w) && !closed(w, s) &&
            state[X] != NONE && state[X] != MAKING -> more[X] = 1
       }
    :: d_step { /* hvd_set_remove: asks whether all are idle */
        ((at[X] == USES && done[X] >= NOPS && HAS(REMOVES, s)) || at[X] == REMOVES_IT) && free(w) &&
            may_begin(w, s) ->
            in[X] = ranks_of[X];
            assert(in[X] == E);
            ending[X] = false;
            decided[X] = false;
            at[X] = IN_IDLE;
            meet_or_vote(w, s, REMOVE, !idle(w, s))
       }
    :: d_step { /* the epoch has ended: asks again */
        at[X] == IN_IDLE && free(w) && in[X] < E && !HAS(ADDED, s) -> at[X] = REMOVES_IT
       }
    :: d_step { /* closes the set */
        at[X] == ALL_IDLE && free(w) ->
            ending[X] = idle(w, s);
            decided[X] = false;
            at[X] = CLOSED
       }
    :: d_step { /* asks whether all have closed it */
        at[X] == CLOSED && free(w) ->
#ifdef BUG_ROUNDS
            in[X] = ranks_of[X];
#endif
            if
            :: in[X] < E && !HAS(ADDED, s) -> at[X] = (ending[X] && decided[X] -> GOES : BACK)
            :: else ->
                at[X] = IN_CLOSED;
                meet_or_vote(w, s, REMOVE + 1, !ending[X])
            fi
       }
    :: d_step { /* the epoch has ended in the last meeting: removes the set, or goes back */
        at[X] == IN_CLOSED && free(w) && in[X] < E && !HAS(ADDED, s) ->
            at[X] = (ending[X] && decided[X] -> GOES : BACK)
       }
#if ADDED
    :: d_step { /* a vote ends */
        all_may && (ends(s, REMOVE) || ends(s, REMOVE + 1)) ->
            r = (ends(s, REMOVE) -> REMOVE : REMOVE + 1);
            vote[AT(s, r)] = (against[AT(s, r)] -> 2 : 1);
            r = 0
       }
    :: d_step { /* knows that all are idle, or that one is not */
        at[X] == IN_IDLE && free(w) && vote[AT(s, REMOVE)] != 0 ->
            at[X] = (vote[AT(s, REMOVE)] == 1 -> ALL_IDLE : ENDED)
       }
    :: d_step { /* knows that all have closed it, or that one has not */
        at[X] == IN_CLOSED && free(w) && vote[AT(s, REMOVE + 1)] != 0 ->
            at[X] = (vote[AT(s, REMOVE + 1)] == 1 -> GOES : REFUSED)
       }
#endif
    :: d_step { /* opens the set again */
        at[X] == BACK && free(w) ->
            works(w, s);
            at[X] = REMOVES_IT
       }
    :: d_step { /* -EBUSY: opens the set again */
        at[X] == REFUSED && free(w) ->
            works(w, s);
            at[X] = ENDED
       }
    :: d_step { /* -ETIMEDOUT: a member has got -EBUSY */
        at[X] == IN_IDLE && !HAS(ADDED, s) && free(w) && in[X] == E &&
            HAS(entered[AT(s, REMOVE)], w) && any(stays, s) ->
            entered[AT(s, REMOVE)] = entered[AT(s, REMOVE)] & ~BIT(w);
            at[X] = ENDED
       }
    :: d_step { /* has waited for the repair */
        at[X] == GOES && free(w) && !is_expected(w, s) -> at[X] = LEAVES
       }
    :: d_step { /* has removed the set */
        at[X] == LEAVES && free(w) ->
            forget_met(w, s);
            ending[X] = false;
            told[X] = false;
            meets[X] = false;
            heard[X] = false;
            removed_by_all = !any(stays, s);
            assert(removed_by_all);
            state[X] = REMOVED;
            circle[X] = 0;
            ranks_of[X] = 0;
            kept[X] = false;
            decided[X] = false;
            in[X] = 0;
            at[X] = ENDED;
            sweep(s)
       }
    od
}

/* ---- adversary, judge --------------------------------------------------------------------------------- */

/* The process has ended: its state does not count any more. */
inline clear(w)
{
    stopped = stopped | BIT(w);
    phase[w] = OFF;
    epoch[w] = 0;
    blocked[w] = 0;
    taken[w] = 0;
    met[w] = 0;
    m = 0;
    do
    :: m < S ->
        state[w * S + m] = NONE;
        at[w * S + m] = ENDED;
        in[w * S + m] = 0;
        ranks_of[w * S + m] = 0;
        circle[w * S + m] = 0;
        ending[w * S + m] = false;
        told[w * S + m] = false;
        meets[w * S + m] = false;
        heard[w * S + m] = false;
        decided[w * S + m] = false;
        forming[w * S + m] = false;
        removed[w * S + m] = false;
        done[w * S + m] = 0;
        more[w * S + m] = 0;
        seg[w * S + m] = 0;
        kept[w * S + m] = false;
        knew[w * S + m] = false;
        sweep(m);
        m++
    :: else -> break
    od;
    m = 0
}

#define finished(w, s)                                                                            \
    (!HAS(FIRST & MEM(s) & ~gone, w) || no_set(w, s) ||                                           \
     (at[OF(w, s)] == USES && idle(w, s) && !HAS(REMOVES, s)) ||                                         \
     (at[OF(w, s)] == ENDED && (state[OF(w, s)] == REMOVED || idle(w, s))))
#define all_finished(s) (finished(0, s) && finished(1, s) && finished(2, s) && finished(3, s))
#if S > 2
#define all_over (all_finished(0) && all_finished(1) && all_finished(2))
#elif S > 1
#define all_over (all_finished(0) && all_finished(1))
#else
#define all_over all_finished(0)
#endif

inline give_up(w)
{
    d_step { /* gives a rank up */
        COUNT(gone) < deaths_max && phase[w] != OFF && SURVIVES(w) && !all_over ->
            gone = gone | BIT(w);
            if
            :: !ZOMBIES || phase[w] != RUN -> clear(w)
            :: else
            fi;
            publish()
    }
}

inline stop(w)
{
    d_step { /* ends a zombie */
        HAS(gone & ~stopped, w) -> clear(w)
    }
}

proctype adversary()
{
end:
    do
    :: give_up(0)
    :: give_up(1)
    :: give_up(2)
    :: give_up(3)
#if ZOMBIES
    :: stop(0)
    :: stop(1)
    :: stop(2)
    :: stop(3)
#endif
    od
}

#define is_gone(w, s)  (HAS(MEM(s) & ~gone, w) && state[OF(w, s)] == REMOVED)
/* When no process can take a step, every survivor has finished. */
proctype judge()
{
end:
    timeout ->
        d_step { /* nothing can happen any more */
            all_have_finished = all_over;
            assert(all_have_finished);
            removed_by_all = !any(is_gone, 0) || !any(stays, 0);
            assert(removed_by_all);
#if S > 1
            removed_by_all = !any(is_gone, 1) || !any(stays, 1);
            assert(removed_by_all);
#endif
#if S > 2
            removed_by_all = !any(is_gone, 2) || !any(stays, 2);
            assert(removed_by_all);
#endif
        }
}

init
{
    d_step {
        roster[1] = FIRST;
        conn[1] = FIRST;
        m = 0;
        do
        :: m < N ->
            phase[m] = (HAS(FIRST, m) -> RUN : OFF);
            epoch[m] = (HAS(FIRST, m) -> 1 : 0);
            i = 0;
            do
            :: i < S ->
                if
                :: !HAS(FIRST & MEM(i), m) ->
                    state[m * S + i] = NONE;
                    at[m * S + i] = ENDED
                :: HAS(FIRST & MEM(i), m) && HAS(FORMS, i) ->
                    state[m * S + i] = NONE;
                    at[m * S + i] = FORM
                :: else ->
                    state[m * S + i] = WORKS;
                    at[m * S + i] = USES;
                    ranks_of[m * S + i] = 1;
                    circle[m * S + i] = 1
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
    :: alarms_max < ALARMS -> alarms_max++
    :: break
    od;
    atomic {
        run world(0);
        run world(1);
        run world(2);
        run world(3);
        run member(0, 0);
        run member(1, 0);
        run member(2, 0);
        run member(3, 0);
#if S > 1
        run member(0, 1);
        run member(1, 1);
        run member(2, 1);
        run member(3, 1);
#endif
#if S > 2
        run member(0, 2);
        run member(1, 2);
        run member(2, 2);
        run member(3, 2);
#endif
        run adversary();
        run judge()
    }
}
