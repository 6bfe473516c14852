/* SPDX-License-Identifier: Apache-2.0
 *
 * units_sets: how the members of a set meet, break it, and make its circle (units.pml).
 */

/* ---- meetings ------------------------------------------------------------------------------------- */

inline enter(w, s)
{
#ifdef BUG_COUNTS
    filter(w, since[X], false);
#else
    filter(w, since[X], !FIXED(s));
#endif
    list[X] = list[X] & r;
    r = 0;
    since[X] = E;
    assert(HAS(list[X], w));
    i = s * POINTS;
    do
    :: i < (s + 1) * POINTS && point[i] != list[X] -> i++
    :: else -> break
    od;
    i = (i == (s + 1) * POINTS -> s * POINTS : i);
    do
    :: i < (s + 1) * POINTS && point[i] != list[X] && point[i] != 0 -> i++
    :: else -> break
    od;
    assert(i < (s + 1) * POINTS);
    meets_once = !HAS(came[i], w);
    assert(meets_once);
    point[i] = list[X];
    came[i] = came[i] | BIT(w);
    blanks[i] = blanks[i] | (blank[X] -> BIT(w) : 0);
    breaks[i] = breaks[i] || (breaks_it[X] && !blank[X]);
#ifndef BUG_STALES
    stales[i] = stales[i] || staled[X];
#endif
    meets[X] = list[X];
    i = 0
}

inline take_answer(w)
{
    j = OF(w, ans_set[taken[w]]);
    met[j] = (meets[j] == ans_list[taken[w]] && met[j] == 0 -> taken[w] + 1 : met[j]);
    taken[w] = taken[w] + 1;
    j = 0
}

/* Rank 0 answers the meeting at point i of set s. */
inline answer(s)
{
    assert(nanswers < LOG);
    j = nanswers;
    ans_set[j] = s;
    ans_list[j] = point[i];
    ans_blanks[j] = blanks[i];
    ans_breaks[j] = breaks[i];
    ans_stales[j] = stales[i];
    m = 0;
    do
    :: m < M ->
        if
        :: HAS(point[i] & ~blanks[i], m) && done[OF(m, s)] > ans_done[j] -> ans_done[j] = done[OF(m, s)]
        :: else
        fi;
        m++
    :: else -> break
    od;
    m = 0;
    ans_whole[j] = (point[i] & ~blanks[i]) != 0;
    do
    :: m < M ->
        if
        :: HAS(point[i] & ~blanks[i], m) ->
            q = done[OF(m, s)] == ans_done[j] && knew[OF(m, s)];
            ans_behind[j] = ans_behind[j] || done[OF(m, s)] < ans_done[j];
            ans_final[j] = ans_final[j] || q;
            ans_whole[j] = ans_whole[j] && q
        :: else
        fi;
        m++
    :: else -> break
    od;
    m = 0;
    j = 0;
    q = false;
    nanswers++;
    point[i] = 0;
    came[i] = 0;
    blanks[i] = 0;
    breaks[i] = false;
    stales[i] = false
}

/* ---- a circle ends, or is made --------------------------------------------------------------------- */

/* The end of an epoch for a set, or ranks come to it: freezes the report. */
inline end_circle(w, s)
{
    if
    :: circle[X] != 0 ->
        knew[X] = seg[X] != 0 && WHOLE(s, seg[X], done[X]);
        if
        :: seg[X] != 0 -> word[SEG(s, seg[X])] = true
        :: else
        fi;
        circle[X] = 0;
        state[X] = LOST
    :: else
    fi
}

/* Of a broken unit: a set that shrinks goes on without this rank (set_stays_out). */
inline stay_out(w, s)
{
    gains[X] = false;
    held[X] = false;
    if
    :: state[X] == LOST ->
        blank[X] = true;
        fail_circle(w, s, false)
    :: else
    fi
}

#define stays_out(w, s) (state[OF(w, s)] != NONE && !FIXED(s) && HAS(broken[E], w))

/* u: the list is the target without those that have been lost (has_target). */
inline has_target(w, s)
{
    filter(w, target_since[X], !FIXED(s));
    u = (target[X] & r) == list[X];
    r = 0
}

/* Requests wait for the end of the meeting in which it is. */
inline stays_lost(w, s)
{
#ifndef BUG_CLOSED
    state[X] = (state[X] == FAILED -> LOST : state[X])
#else
    skip
#endif
}

/* The members of the target meet (set_gain). */
inline gain_set(w, s)
{
    held[X] = false;
    if
    :: met[X] == 0 ->
        gains[X] = false;
        has_target(w, s);
        if
        :: u && meets[X] != 0 -> stays_lost(w, s)
#ifndef BUG_TWICE
        :: u && meets[X] == 0 && since[X] == E && breaks_it[X] && state[X] == FAILED
            /* these members have met in this epoch, and the set is broken again */
#endif
        :: else ->
            end_circle(w, s);
            meets[X] = 0;
            state[X] = LOST;
            list[X] = target[X];
            since[X] = target_since[X];
            enter(w, s)
        fi;
        u = false
    :: else -> stays_lost(w, s) /* first that circle is made */
    fi
}

/* Answer j: this rank begins to make the circle, or to settle. */
inline make(w, s, kind)
{
    making[w] = 1 + j;
    how[w] = kind;
    knew[X] = knew[X] || (kind != ANEW && done[X] == ans_done[j] && ans_final[j]);
    meshed[j] = meshed[j] | BIT(w)
}

/* Requests from before the gain end. */
inline end_stale(w, s)
{
    if
#ifndef BUG_RUNS
    :: waits(w, s) && next[X] < 2 * round[w] -> is_stale(w, s)
#endif
    :: else
    fi;
    staled[X] = true;
    seg[X] = 0;
    knew[X] = false
}

/* A fixed set is broken, or was: an operation that a member has finished is finished here, too. All
 * others fail (end_operations). */
inline end_operations(w, s, before)
{
    if
    :: done[X] < ans_done[j] || (ans_whole[j] && !ans_breaks[j]) -> returns(w, s)
    :: else
    fi;
    fail_circle(w, s, before)
}

inline break_set(w, s)
{
    untold(w, s);
    conflicts = conflicts | (q -> BIT(w) : 0);
    q = false;
    if
    :: !breaks_it[X] && !blank[X] -> end_operations(w, s, false)
    :: else -> fail_circle(w, s, false)
    fi;
    breaks_it[X] = true
}

inline renew_fixed(w, s)
{
    if
    :: ans_blanks[j] == 0 && !ans_breaks[j] -> make(w, s, CIRCLE)
    :: else ->
        if
#ifdef BUG_FAILSNEW
        :: !breaks_it[X] && !blank[X] -> end_operations(w, s, false)
#else
        :: !breaks_it[X] && !blank[X] && older[X] -> end_operations(w, s, true)
#endif
        :: else
        fi;
        state[X] = LOST;
        end_stale(w, s);
        make(w, s, ANEW)
    fi
}

inline renew_shrinking(w, s)
{
    if
    :: ans_blanks[j] == 0 && !ans_stales[j] -> make(w, s, CIRCLE)
#ifndef BUG_UNSETTLED
    :: (ans_blanks[j] != 0 || ans_stales[j]) && (ans_behind[j] || ans_final[j]) ->
        if
        :: blank[X] -> enter(w, s)
        :: else -> make(w, s, SETTLES)
        fi
#endif
    :: else ->
        end_stale(w, s);
        make(w, s, ANEW)
    fi
}

/* The driver carries out an answer (go_on). */
inline go_on(w, s)
{
    j = met[X] - 1;
    met[X] = 0;
    meets[X] = 0;
    q = COUNT(ans_list[j]) < COUNT(PLACES(s)) || HAS(broken[E], w); /* is_broken_now() */
    if
#ifdef BUG_POLICY
    :: FIXED(s) && q && !breaks_it[X] && !blank[X] -> make(w, s, CIRCLE)
    :: FIXED(s) && q && (breaks_it[X] || blank[X]) -> break_set(w, s)
#else
    :: FIXED(s) && q -> break_set(w, s)
#endif
    :: FIXED(s) && !q -> renew_fixed(w, s)
    :: !FIXED(s) -> renew_shrinking(w, s)
    fi;
    j = 0;
    q = false;
    if
    :: making[w] == 0 && meets[X] == 0 && !HAS(conflicts, w) && gains[X] -> gain_set(w, s)
    :: else
    fi;
    sweep()
}

/* The mesh of answer j is complete. */
inline settle(w, s)
{
    can_settle = state[X] == LOST && (how[w] == ANEW || done[X] + 1 >= ans_done[j]);
    assert(can_settle);
    if
    :: how[w] != ANEW && (done[X] < ans_done[j] || ans_final[j]) -> returns(w, s)
    :: else -> seg[X] = 0 /* restarts the operation */
    fi;
    knew[X] = false;
    making[w] = 0;
    if
    :: how[w] == SETTLES -> enter(w, s)
    :: else ->
#ifndef BUG_DONE
        done[X] = (how[w] == ANEW -> ans_done[j] : done[X]);
#endif
        make_segment(s);
        circle[X] = ans_seg[j];
        state[X] = WORKS;
        blank[X] = false;
        breaks_it[X] = false;
        older[X] = false;
        staled[X] = false;
        if
        :: gains[X] ->
            has_target(w, s);
            if
#ifdef BUG_AGAIN
            :: true -> gain_set(w, s)
#else
            :: u -> gains[X] = false
            :: !u -> gain_set(w, s)
#endif
            fi;
            u = false
        :: else
        fi
    fi;
    how[w] = 0;
    sweep()
}
