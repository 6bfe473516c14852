/* SPDX-License-Identifier: Apache-2.0
 *
 * units_world: epochs, votes, and hvd_commit() with the return of ranks to their sets (units.pml).
 */

/* ---- the world's epochs ------------------------------------------------------------------------------ */

/* q: a rank of the newest roster tells of set s in its report (is_told). */
inline find_told(s)
{
    q = false;
    m = 0;
    do
    :: m < M ->
        if
        :: HAS(roster[newest] & knows, m) ->
            e = newest;
            do
            :: !HAS(been[m], e) -> e--
            :: else -> break
            od;
            q = q || HAS(AT_PLACES(PLACES(s)), m) ||
                (roster[e] & ~fresh[e] & AT_PLACES(PLACES(s))) == 0
        :: else
        fi;
        m++
    :: else -> break
    od;
    e = 0;
    m = 0
}

/* Which members are part of a broken unit (core/engine/units). v: sets that are told of, z: places of
 * broken units. */
inline find_broken()
{
    v = 0;
    z = 0;
    k = 0;
    do
    :: k < S ->
        find_told(k);
        if
        :: FIXED(k) && q ->
            v = v | BIT(k);
            z = z | (COUNT(roster[newest] & AT_PLACES(PLACES(k))) < COUNT(PLACES(k)) -> PLACES(k) : 0)
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0;
#ifndef BUG_ALONE
    do
    :: k < S -> z = z | (HAS(v, k) && (PLACES(k) & z) != 0 -> PLACES(k) : 0); k++
    :: else -> break
    od;
#endif
    k = 0;
    broken[newest] = roster[newest] & AT_PLACES(z);
    excused = excused | broken[newest];
    v = 0;
    z = 0;
    q = false
}

/* Joiners take the lowest free places. */
inline admit()
{
    m = N + changes[newest];
    do
    :: m < N + announced ->
        p = 0;
        do
        :: p < N && (roster[newest] & AT_PLACES(BIT(p))) != 0 -> p++
        :: else -> break
        od;
        assert(p < N);
        place[m - N] = p;
        roster[newest] = roster[newest] | BIT(m);
        phase[m] = WAIT;
        epoch[m] = newest - 1;
        at[m] = LEAVES;
        excused = excused | BIT(m);
        m++
    :: else -> break
    od;
    m = 0;
    p = 0;
    changes[newest] = announced
}

/* The coordinator publishes the next epoch when it has the reports of all live members. */
inline publish()
{
    q = (roster[newest] & ~gone) != 0;
    m = 0;
    do
    :: m < M -> q = q && has_said(m); m++
    :: else -> break
    od;
    m = 0;
    if
    :: q ->
        newest++;
        assert(newest < EPOCHS); /* there is progress */
        roster[newest] = roster[newest - 1] & ~gone;
        changes[newest] = changes[newest - 1];
        if
        :: (roster[newest] & ~boundary) == 0 -> admit()
        :: else
        fi;
        boundary = 0;
        fresh[newest] = roster[newest] & ~entered;
        find_broken()
    :: else
    fi;
    q = false
}

inline leave_epoch(w, at_boundary)
{
    over[E] = over[E] || !at_boundary;
    boundary = (at_boundary -> boundary | BIT(w) : boundary & ~BIT(w));
    conflicts = conflicts & ~BIT(w);
    making[w] = 0;
    how[w] = 0;
    taken[w] = 0;
    c = 0;
    do
    :: c < S ->
        end_circle(w, c);
        meets[OF(w, c)] = 0;
        met[OF(w, c)] = 0;
        held[OF(w, c)] = false;
        c++
    :: else -> break
    od;
    c = 0;
    phase[w] = WAIT;
    publish();
    sweep()
}

/* What was open in an older epoch is gone. */
inline begin_meetings(w)
{
    if
    :: current < E ->
        current = E;
        nanswers = 0;
        m = 0;
        do
        :: m < S * POINTS ->
            point[m] = 0;
            came[m] = 0;
            blanks[m] = 0;
            breaks[m] = false;
            stales[m] = false;
            m++
        :: else -> break
        od;
        m = 0;
        do
        :: m < LOG ->
            ans_set[m] = 0;
            ans_list[m] = 0;
            ans_blanks[m] = 0;
            ans_done[m] = 0;
            ans_seg[m] = 0;
            ans_breaks[m] = false;
            ans_stales[m] = false;
            ans_final[m] = false;
            ans_whole[m] = false;
            ans_behind[m] = false;
            meshed[m] = 0;
            m++
        :: else -> break
        od;
        m = 0
    :: else
    fi
}

/* Its members meet in this epoch (meets_again). */
#ifdef BUG_SILENT
#define may_enter(w, s) (meets[OF(w, s)] == 0 && state[OF(w, s)] == LOST)
#else
#define may_enter(w, s) (meets[OF(w, s)] == 0 && (state[OF(w, s)] == LOST || breaks_it[OF(w, s)]))
#endif

inline enter_epoch(w)
{
    been[w] = been[w] | BIT(E);
    begin_meetings(w);
    phase[w] = RUN;
    c = 0;
    do
    :: c < S ->
        if
        :: stays_out(w, c) -> stay_out(w, c)
        :: !stays_out(w, c) && gains[OF(w, c)] -> gain_set(w, c)
#ifdef BUG_SHARES
        :: !stays_out(w, c) && !gains[OF(w, c)] && may_enter(w, c) ->
#else
        :: !stays_out(w, c) && !gains[OF(w, c)] && may_enter(w, c) && at[w] == IN_SHARE ->
            held[OF(w, c)] = true
        :: !stays_out(w, c) && !gains[OF(w, c)] && may_enter(w, c) && at[w] != IN_SHARE ->
#endif
            enter(w, c)
        :: else
        fi;
        c++
    :: else -> break
    od;
    c = 0;
    sweep()
}

/* ---- hvd_commit() -------------------------------------------------------------------------------------- */

/* asks: the vote is about the epoch and the table of sets. */
inline vote(w, asks)
{
    assert(!HAS(voted, w));
    voted = voted | BIT(w);
    if
    :: asks ->
        vote_max = (E > vote_max -> E : vote_max);
        vote_min = (vote_min == 0 || E < vote_min -> E : vote_min);
        vote_change = (announced > vote_change -> announced : vote_change);
        filter(w, view[w], true);
        vote_table = vote_table || (view[w] != E && (fresh[E] != 0 || (HAS(entered, w) &&
                     (roster[E] & ~broken[E] & ~r) != 0)));
        r = 0
    :: else
    fi;
    vote_round = (round[w] > vote_round -> round[w] : vote_round)
}

#define may_vote(w)                                                                               \
    (!HAS(roster[newest], w) ||                                                                   \
     (HAS(voted, w) && (!LIVES(w) || (phase[w] == RUN && epoch[w] == newest))))
#define all_may_vote all_members(may_vote)
inline end_vote()
{
    assert((unheard & ~gone) == 0);
    unheard = roster[newest] & ~gone;
    end_epoch = newest;
    end_answers = (current == newest -> nanswers : 0);
    end_change = vote_change;
    end_max = vote_max;
    end_min = vote_min;
    end_round = vote_round;
    end_table = vote_table;
    voted = 0;
    vote_change = 0;
    vote_max = 0;
    vote_min = 0;
    vote_round = 0;
    vote_table = false
}

inline end_commit(w)
{
    round[w] = end_round + 1;
    at[w] = STEP
}

/* The user enters the world of the epoch on which all have agreed. */
inline enter_world(w)
{
    was_there = HAS(been[w], end_max);
    assert(was_there);
    view[w] = end_max;
    entered = entered | BIT(w);
    if
    :: end_table ->
        at[w] = IN_SHARE;
        vote(w, false)
    :: else -> end_commit(w)
    fi
}

/* The user sees other members of the set (show). */
inline show_set(w, s)
{
    if
    :: !HAS(knows, w) && HAS(AT_PLACES(PLACES(s)), w) -> /* a joiner learns of it */
        state[X] = LOST;
        blank[X] = true;
        list[X] = roster[view[w]] & AT_PLACES(PLACES(s));
        since[X] = E;
        next[X] = 2 * round[w]
    :: else
    fi;
    v = roster[view[w]] & ~broken[view[w]] & AT_PLACES(PLACES(s));
    if
    :: state[X] != NONE && !HAS(broken[view[w]], w) && (!FIXED(s) || COUNT(v) == COUNT(PLACES(s))) ->
        target[X] = v;
        target_since[X] = E;
        has_target(w, s);
        gains[X] = blank[X] || breaks_it[X] || !u;
        older[X] = older[X] || gains[X];
        u = false
    :: else
    fi;
    v = 0
}

/* It is in all of its sets again, unless its unit has broken since. */
inline end_excuse(w)
{
    q = HAS(broken[view[w]], w);
    e = view[w];
    do
    :: e <= newest -> q = q || HAS(broken[e], w); e++
    :: else -> break
    od;
    e = 0;
    if
    :: !q && HAS(excused, w) ->
        excused = excused & ~BIT(w);
        comes[w] = 2 * round[w]
    :: else
    fi;
    q = false
}

/* The members of a fixed set have met that is not whole: nobody makes a circle. */
#define breaks_now(w, s)                                                                          \
    (FIXED(s) && met[OF(w, s)] != 0 &&                                                            \
     (COUNT(ans_list[met[OF(w, s)] - 1]) < COUNT(PLACES(s)) || HAS(broken[E], w)))

#ifdef BUG_STAYS
#define is_out(w, s) false
#else
#define is_out(w, s) stays_out(w, s)
#endif
inline gain_or_meet(w, s)
{
    if
#ifndef BUG_LATE
    :: gains[X] && breaks_now(w, s) -> go_on(w, s)
    :: gains[X] && !breaks_now(w, s) -> gain_set(w, s)
#else
    :: gains[X] -> gain_set(w, s)
#endif
    :: !gains[X] && blank[X] && state[X] == LOST && meets[X] == 0 && !held[X] ->
        fail_circle(w, s, false)
    :: !gains[X] && held[X] ->
        held[X] = false;
        enter(w, s)
    :: else
    fi
}

/* All ranks know the same sets (sets_gain). */
inline gain(w)
{
    round[w] = end_round + 1;
    end_excuse(w);
    c = 0;
    do
    :: c < S ->
        show_set(w, c);
        if
        :: blank[OF(w, c)] ->
            untold(w, c);
            conflicts = conflicts | (q -> BIT(w) : 0);
            q = false
        :: else
        fi;
        c++
    :: else -> break
    od;
    knows = knows | BIT(w);
    c = 0;
    do
    :: c < S ->
        if
        :: HAS(conflicts, w) /* it gives up the epoch first */
        :: !HAS(conflicts, w) && is_out(w, c) -> stay_out(w, c)
        :: else -> gain_or_meet(w, c)
        fi;
        c++
    :: else -> break
    od;
    c = 0;
    at[w] = STEP;
    sweep()
}

/* The end of a vote comes to the rank. */
inline hear(w)
{
    unheard = unheard & ~BIT(w);
    if
    :: (at[w] == IN_VOTE || at[w] == IN_AGREE) && end_max != end_min -> vote(w, true)
    :: at[w] == IN_VOTE && end_max == end_min && end_change > changes[E] ->
        change[w] = end_change;
        at[w] = IN_BARRIER;
        vote(w, false)
    :: at[w] == IN_VOTE && end_max == end_min && end_change <= changes[E] && end_max == view[w] ->
        end_commit(w)
    :: (at[w] == IN_AGREE || (at[w] == IN_VOTE && end_change <= changes[E] && end_max != view[w])) &&
           end_max == end_min -> enter_world(w)
    :: at[w] == IN_BARRIER -> at[w] = LEAVES
    :: at[w] == IN_SHARE -> gain(w)
    fi
}
/* Before the world changes for it, its other thread has submitted. */
#define may_hear(w)                                                                               \
    ((E > end_epoch || taken[w] >= end_answers) &&                                                \
     (every(is_submitted, w) ||                                                                   \
      (at[w] == IN_VOTE && (end_max != end_min || end_change > changes[E]))))
