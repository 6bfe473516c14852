/* SPDX-License-Identifier: Apache-2.0
 *
 * membership: the coordinator, the adversary that gives members up and loses the coordinator, and
 * the judge. Part of repair.pml.
 */

hidden byte list, most, pieces, revoked, all_whole;

/* A joiner whose first epoch failed is a joiner again. */
#define joins_again                                                                               \
    (ready_joiner && (attached & BIT(J)) != 0 && epoch[J] == known && mail[J] == 0 -> BIT(J) : 0)
#define expected    (roster[known] & ~gone & ~left & ~(joins_again))
#ifdef BUG_HELLO
#define said_hello(w) (hello[w] != 0) /* of any epoch, not only of the newest one */
#else
#define said_hello(w) (hello[w] == known)
#endif
#define revoked_by(w) ((expected & BIT(w)) != 0 && hello[w] == known)
#define asked         (revoked_by(0) || revoked_by(1) || revoked_by(2) || revoked_by(3))
#define answered(w) ((expected & BIT(w)) == 0 || said_hello(w))
/* The coordinator has heard of every member, also of departed ones. */
#define complete    ((roster[known] & ~gone & ~(joins_again) & ~attached) == 0)
#define waiting     (ready_joiner && (attached & BIT(J)) != 0 && (expected & BIT(J)) == 0)
#ifdef BUG_MIN
#define enough (COUNT(expected) >= MIN)
#else
#define enough (COUNT(expected) + (waiting -> 1 : 0) >= MIN)
#endif

#define stale_ones                                                                                \
    ((stale[0] -> 1 : 0) | (stale[1] -> 2 : 0) | (stale[2] -> 4 : 0) | (stale[3] -> 8 : 0))

#define has_it(w) ((epoch[w] >= known || mail[w] != 0 -> BIT(w) : 0))
#define told (has_it(0) | has_it(1) | has_it(2) | has_it(3))

/* The decision from the reports of all members with state: D, and which pieces of operation D are
 * final. */
inline decide()
{
    most = 0;
    pieces = 0;
    revoked = false;
    m = 0;
    do
    :: m < N ->
        if
        :: (expected & BIT(m)) != 0 ->
            revoked = revoked || why[m] == REVOKED;
            if
            :: !stale[m] && done[m] > most ->
                most = done[m];
                pieces = said[m]
            :: !stale[m] && done[m] == most -> pieces = pieces | said[m]
            :: else
            fi
        :: else
        fi;
        m++
    :: else -> break
    od;
    /* True when every survivor has the whole result. A rank that has passed the barrier after it
     * may be lost or have left. */
    all_whole = true;
    m = 0;
    do
    :: m < N ->
        all_whole = all_whole && ((expected & BIT(m)) == 0 || stale[m] || (done[m] == most && whole[m]));
        m++
    :: else -> break
    od;
#ifndef BUG_PASSED
    if
    :: all_whole && (expected & ~stale_ones) != 0 ->
        most++;
        pieces = 0
    :: else
    fi;
#endif
    all_whole = false
#if LEAVE
    ;
    /* The survivors' reports imply the same number. */
    assert(leavers <= most || (leavers == most + 1 && pieces == PIECES));
    if
    :: leavers > most ->
        most = leavers;
        pieces = 0
    :: else
    fi
#endif
}

#if GPU
/* A roster is made: all survivors' reports are known. */
inline gpu_decide()
{
    k = GPU + 1;
    v = 0;
    m = 0;
    do
    :: m < N ->
        if
        :: (expected & BIT(m)) != 0 && !stale[m] ->
            v = (finished[m] > v -> finished[m] : v);
#ifdef BUG_GLARGEST
            k = (k > GPU || own[m] > k -> own[m] : k)
#else
            k = (own[m] < k -> own[m] : k)
#endif
        :: else
        fi;
        m++
    :: else -> break
    od;
    assert(k >= v); /* otherwise -EPROTO */
    gpu_upto[e] = (k > GPU -> 0 : k);
    m = 0;
    do
    :: m < N ->
        launched[AT(e, m)] = gpu_upto[e];
        told_up[AT(e, m)] = gpu_upto[e];
        told_down[AT(e, m)] = gpu_upto[e];
        m++
    :: else -> break
    od
}
#else
inline gpu_decide() { skip }
#endif

inline publish()
{
    decide();
    list = expected;
    e = newest + 1;
#ifdef BUG_TERM
    e = known + 1;
#endif
    assert(e < EPOCHS);     /* I6: there is progress */
    assert(roster[e] == 0); /* I1, I5 */
    if
    :: !revoked ->
        list = list | (waiting -> BIT(J) : 0);
        applied[e] = true
    :: else -> applied[e] = applied[known]
    fi;
    roster[e] = list;
    upto[e] = most;
    gpu_decide();
    final[e] = pieces;
#if LEAVE
    parted[e] = leavers;
#endif
    newest = (e > newest -> e : newest);
    m = 0;
    do
    :: m < N ->
        out[AT(e, m)] = most; /* fresh memory: no rank has anything left to read */
#ifdef BUG_EPOCH
        in_[AT(e, m)] = in_[AT(known, m)]; /* the same memory, and flags without an epoch */
        behind[AT(e, m)] = behind[AT(known, m)];
        cell[AT(e, m) * 2] = cell[AT(known, m) * 2];
        cell[AT(e, m) * 2 + 1] = cell[AT(known, m) * 2 + 1];
#endif
        if
        :: (list & BIT(m)) != 0 -> mail[m] = e
        :: else
        fi;
        m++
    :: else -> break
    od;
    known = e;
    e = 0;
    sweep()
}

proctype coordinator()
{
end:
    do
    :: d_step { /* publishes an epoch */
        !over && complete && asked && answered(0) && answered(1) && answered(2) && answered(3) &&
            enough -> publish()
       }
    /* Sends a roster that a lost coordinator published to members that have not got it. */
    :: d_step { /* sends the newest roster to members that lack it */
        restarts > 0 && complete && (expected & ~told) != 0 ->
            m = 0;
            do
            :: m < N ->
                if
                :: (expected & BIT(m)) != 0 && epoch[m] < known -> mail[m] = known
                :: else
                fi;
                m++
            :: else -> break
            od;
            m = 0
       }
    od
}
inline give_up(w)
{
    d_step { /* gives a member up */
        COUNT(gone) < DEATHS && SURVIVES(w) && phase[w] != OFF && !over -> gone = gone | BIT(w)
    }
}

/* The process of a member that was given up ends. */
inline stop(w)
{
    d_step { /* ends a zombie */
        (gone & ~stopped & BIT(w)) != 0 ->
            stopped = stopped | BIT(w);
            phase[w] = OFF;
            why[w] = 0;
            hello[w] = 0;
            epoch[w] = 0;
            done[w] = 0;
            mail[w] = 0;
            stale[w] = false;
            wants[w] = false;
            begins_anew(w);
            buf[w * 2] = 0;
            buf[w * 2 + 1] = 0;
            gpu_reset(w, 0);
            sweep()
    }
}

/* An agent tells a new coordinator the newest roster that it has and whether its rank waits.
 * Rosters that the previous coordinator has sent and that are still in flight are dropped: they are
 * of an older term. */
inline attach(w)
{
    d_step { /* an agent tells the new coordinator */
        (attached & BIT(w)) == 0 && SURVIVES(w) ->
            attached = attached | BIT(w);
            known = (epoch[w] > known -> epoch[w] : known);
#if LEAVE
            leavers = (parted[epoch[w]] > leavers -> parted[epoch[w]] : leavers);
            leavers = ((left & BIT(w)) != 0 && done[w] > leavers -> done[w] : leavers);
#endif
#ifndef BUG_TERM
            mail[w] = 0
#endif
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
    :: stop(0)
    :: stop(1)
    :: stop(2)
    :: stop(3)
    /* The coordinator is lost; a new one hears from the agents, one by one. */
    :: d_step { /* the coordinator is lost, a new one starts */
        restarts < RESTARTS && !over ->
            restarts++;
            known = 0;
#if LEAVE
            leavers = 0;
#endif
            attached = 0
       }
    :: attach(0)
    :: attach(1)
    :: attach(2)
    :: attach(3)
    od
}

/* I6: when no process can take a step, everything is done. */
proctype judge()
{
end:
    timeout -> assert(over)
}

init
{
    d_step {
        joined = ((FIRST & BIT(J)) != 0 -> 0 : 9);
#if GPU
        gpu_joined = joined;
#endif
        roster[1] = FIRST;
        conn[1] = FIRST;
        m = 0;
        do
        :: m < N ->
            if
            :: (FIRST & BIT(m)) == 0 -> phase[m] = OFF
            :: else ->
                phase[m] = RUN;
                epoch[m] = 1;
#ifdef VIEW
                met[m] = BIT(1);
#endif
                begins_anew(m)
            fi;
            m++
        :: else -> break
        od;
        m = 0
    };
    atomic {
        run rank(0);
        run rank(1);
        run rank(2);
        run rank(3);
#if GPU
        run lane(0);
        run lane(1);
        run lane(2);
        run lane(3);
#endif
        run coordinator();
        run adversary();
        run judge()
    }
}
