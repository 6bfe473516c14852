/* SPDX-License-Identifier: Apache-2.0
 *
 * units_steps: the steps of ranks, of the world, of the adversary and of the judge (units.pml).
 */

#define finished(w)                                                                               \
    (phase[w] == OFF || !LIVES(w) ||                                                              \
     (at[w] == STEP && round[w] == ROUNDS - 1 && every(is_through, w)))
#define all_over all_members(finished)

proctype rank(byte w)
{
end:
    do
    /* ---- the world ---- */
    :: d_step { /* revokes the epoch, reports */
        (phase[w] == RUN || phase[w] == CONNECT) && LIVES(w) &&
            ((roster[E] & gone) != 0 || over[E] || HAS(conflicts, w)) -> leave_epoch(w, false)
       }
    :: d_step { /* gives up the epoch although no rank was lost, reports */
        alarms < alarms_max && may_alarm(w) && phase[w] == RUN && LIVES(w) && !all_over ->
            alarms++;
            leave_epoch(w, false)
       }
    :: d_step { /* leaves the epoch at the boundary, reports */
        at[w] == LEAVES && free(w) && changes[E] < change[w] && every(is_submitted, w) ->
            leave_epoch(w, true)
       }
    :: d_step { /* takes the roster, connects */
        phase[w] == WAIT && E < newest && LIVES(w) ->
            epoch[w] = E + 1;
            conn[E] = conn[E] | BIT(w);
            phase[w] = CONNECT
       }
    :: d_step { /* gets the roster behind the word that one of its ranks was lost, reports again */
        phase[w] == WAIT && E < newest && LIVES(w) && (roster[newest] & gone) != 0 ->
            epoch[w] = E + 1;
            over[E] = true;
            boundary = boundary & ~BIT(w);
            publish()
       }
    :: d_step { /* is in the new epoch; lost sets meet */
        phase[w] == CONNECT && LIVES(w) && conn[E] == roster[E] -> enter_epoch(w)
       }
    :: d_step { /* gives up a circle whose other ranks have left at the boundary */
        making[w] != 0 && phase[w] == RUN && LIVES(w) && (at[w] == IN_BARRIER || at[w] == LEAVES) &&
            (boundary & ans_list[making[w] - 1]) != 0 && !over[E] ->
            making[w] = 0;
            how[w] = 0
       }
    /* ---- hvd_commit() ---- */
    :: d_step { /* hvd_commit: votes */
        at[w] == STEP && round[w] < ROUNDS - 1 && free(w) && every(is_through, w) ->
            at[w] = IN_VOTE;
            vote(w, true)
       }
    :: d_step { /* hears the end of a vote */
        HAS(unheard, w) && free(w) && may_hear(w) -> hear(w)
       }
    :: d_step { /* is in the new world, votes on its epoch */
        at[w] == LEAVES && free(w) && changes[E] >= change[w] ->
            at[w] = IN_AGREE;
            change[w] = 0;
            vote(w, true)
       }
    /* ---- sets ---- */
    :: d_step { /* gets an answer of rank 0 */
        free(w) && current == E && taken[w] < nanswers ->
            take_answer(w)
       }
    :: d_step { /* the circle has its mesh: settles, goes on */
        making[w] != 0 && phase[w] == RUN && LIVES(w) && !HAS(conflicts, w) &&
            meshed[making[w] - 1] == (ans_list[making[w] - 1] &
                                      ~(how[w] == SETTLES -> ans_blanks[making[w] - 1] : 0)) ->
            j = making[w] - 1;
            c = ans_set[j];
            settle(w, c);
            c = 0;
            j = 0
       }
    od
}

/* all_answered: rank 0 has answered each meeting that is complete. A vote ends only then, because
 * rank 0 answers before it hears of votes that came later. */
#define is_full(i) (came[i] != 0 && came[i] == point[i])
#if S > 2
#define all_answered                                                                              \
    (!is_full(0) && !is_full(1) && !is_full(2) && !is_full(3) && !is_full(4) && !is_full(5))
#elif S > 1
#define all_answered (!is_full(0) && !is_full(1) && !is_full(2) && !is_full(3))
#else
#define all_answered (!is_full(0) && !is_full(1))
#endif
/* ---- a set on a rank --------------------------------------------------------------------------- */

#define root(w) (free(w) && current == E && (roster[E] & AT_PLACES(BIT(PLACE(w)) - 1)) == 0)
/* No other answer that the rank has to carry out is older. */
#define is_after(w, t) (met[OF(w, t)] == 0 || met[OF(w, t)] >= met[X])
#if S > 2
#define is_first(w) (is_after(w, 0) && is_after(w, 1) && is_after(w, 2))
#elif S > 1
#define is_first(w) (is_after(w, 0) && is_after(w, 1))
#else
#define is_first(w) true
#endif
#define agrees(m)                                                                                 \
    (!HAS(ranks[SEG(s, circle[X])], m) ||                                                         \
     (circle[OF(m, s)] == circle[X] && waits(m, s) && done[OF(m, s)] == done[X] &&                \
      next[OF(m, s)] == next[X]))
#define all_agree all_members(agrees)

proctype member(byte w; byte s)
{
end:
    do
    :: d_step { /* as rank 0: answers a meeting */
        root(w) && (is_full(s * POINTS) || is_full(s * POINTS + 1)) ->
            i = (is_full(s * POINTS) -> s * POINTS : s * POINTS + 1);
            answer(s);
            take_answer(w);
            i = 0
       }
    :: d_step { /* carries out an answer */
        free(w) && met[X] != 0 && is_first(w) -> go_on(w, s)
       }
    :: d_step { /* -EOWNERDEAD at once */
        free(w) && state[X] == FAILED && waits(w, s) -> fails(w, s)
       }
    :: d_step { /* another thread submits */
        HAS(BESIDE, s) && free(w) && (at[w] == IN_VOTE || at[w] == IN_BARRIER || at[w] == LEAVES) &&
            !is_submitted(w, s) ->
            pending[X] = true;
            if
            :: state[X] == FAILED -> fails(w, s)
            :: else
            fi
       }
    :: d_step { /* stages an operation */
        free(w) && state[X] == WORKS && seg[X] == 0 && waits(w, s) &&
            ((top[SEG(s, circle[X])] == done[X] && staged[SEG(s, circle[X])] != 0) || all_agree) ->
            seg[X] = circle[X];
            i = SEG(s, seg[X]);
            staged[i] = (top[i] == done[X] -> staged[i] | BIT(w) : BIT(w));
            top[i] = done[X];
            i = 0
       }
    :: d_step { /* returns an operation */
        free(w) && state[X] == WORKS && seg[X] != 0 && WHOLE(s, seg[X], done[X]) &&
            !word[SEG(s, seg[X])] -> returns(w, s)
       }
    od
}

/* ---- adversary, judge -------------------------------------------------------------------------- */

/* The process has ended: its state does not count any more. */
inline clear(w)
{
    phase[w] = OFF;
    epoch[w] = 0;
    been[w] = 0;
    view[w] = 0;
    at[w] = STEP;
    round[w] = 0;
    change[w] = 0;
    taken[w] = 0;
    making[w] = 0;
    how[w] = 0;
    comes[w] = 0;
    unheard = unheard & ~BIT(w);
    conflicts = conflicts & ~BIT(w);
    boundary = boundary & ~BIT(w);
    excused = excused & ~BIT(w);
    c = 0;
    do
    :: c < S ->
        state[OF(w, c)] = NONE;
        blank[OF(w, c)] = false;
        breaks_it[OF(w, c)] = false;
        gains[OF(w, c)] = false;
        held[OF(w, c)] = false;
        older[OF(w, c)] = false;
        staled[OF(w, c)] = false;
        list[OF(w, c)] = 0;
        since[OF(w, c)] = 0;
        target[OF(w, c)] = 0;
        target_since[OF(w, c)] = 0;
        meets[OF(w, c)] = 0;
        met[OF(w, c)] = 0;
        circle[OF(w, c)] = 0;
        seg[OF(w, c)] = 0;
        knew[OF(w, c)] = false;
        done[OF(w, c)] = 0;
        next[OF(w, c)] = 0;
        pending[OF(w, c)] = false;
        c++
    :: else -> break
    od;
    c = 0
}

/* What is no step of one rank. */
proctype world()
{
end:
    do
    :: d_step { /* a vote of the world ends */
        voted != 0 && all_may_vote && all_answered -> end_vote()
       }
    :: d_step { /* announces a joiner */
        announced < joiners_max && COUNT(gone) > announced && !all_over -> announced++
       }
    od
}

inline lose(w)
{
    gone = gone | BIT(w);
    clear(w);
    publish();
    sweep()
}

#define may_die(w)                                                                                \
    (COUNT(gone) < deaths_max && HAS(DIES, w) && phase[w] != OFF && LIVES(w) && !all_over)

proctype adversary()
{
end:
    do
    :: d_step { /* member 0 is lost */
        may_die(0) -> lose(0)
       }
    :: d_step { /* member 1 is lost */
        may_die(1) -> lose(1)
       }
    :: d_step { /* member 2 is lost */
        may_die(2) -> lose(2)
       }
    :: d_step { /* member 3 is lost */
        may_die(3) -> lose(3)
       }
#if M > 4
    :: d_step { /* member 4 is lost */
        may_die(4) -> lose(4)
       }
#endif
#if M > 5
    :: d_step { /* member 5 is lost */
        may_die(5) -> lose(5)
       }
#endif
    od
}

/* When no process can take a step, every survivor has finished. */
proctype judge()
{
end:
    timeout ->
        d_step { /* nothing can happen any more */
            all_have_finished = all_over;
            assert(all_have_finished)
        }
}
