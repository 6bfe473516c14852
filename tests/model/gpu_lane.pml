/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_lane: a rank's lane of batches on GPUs (core/engine/gpu_lane.h, whole.h): launched in the
 * log's order with no barrier between them, up to WINDOW in flight. A batch that is whole on all
 * ranks is done. Part of repair.pml, if GPU is not 0. The counts go from rank to rank in a chain,
 * seat 0 is the root; one message may stand for many batches, so the last one is all that a link
 * holds.
 *
 * The tensors are in place. A batch in flight has overwritten its input. It lands when all ranks
 * have launched it. NCCL on a rank that has aborted goes on without data: what lands on the others
 * then is wrong.
 */

#if GPU

hidden byte k; /* not part of the state: used within a step */

#define ME AT(E, SEAT(roster[E], w))
#define IS_ROOT (SEAT(roster[E], w) == 0)
#define IS_LAST (SEAT(roster[E], w) + 1 == COUNT(roster[E]))

#define CUT(ep, seat, k) (cut[AT(ep, seat)] != 0 && cut[AT(ep, seat)] <= (k) + 1)
#define is_broken(ep, k) (CUT(ep, 0, k) || CUT(ep, 1, k) || CUT(ep, 2, k) || CUT(ep, 3, k))

/* Members that the result of batch k must contain, and on which it must be whole. */
#define GPU_MEMBERS(k) ((gpu_joined <= (k) -> 15 : 7) & ~gone & ~left)
#define has_whole(x, k)                                                                           \
    ((GPU_MEMBERS(k) & BIT(x)) == 0 || phase[x] == OFF || stale[x] || own[x] > (k))

/* The user has the result, and overwrites the tensor. */
inline gpu_returns(w)
{
    k = finished[w];
    v = gpu_value[w * GPU + k];
    assert(v != 0);                                   /* it is a result */
    assert((v & GPU_MEMBERS(k)) == GPU_MEMBERS(k));   /* no contribution is missing */
    assert(gpu_result[k] == 0 || gpu_result[k] == v); /* I3 */
    /* Done: it is whole on every survivor. */
    assert(has_whole(0, k) && has_whole(1, k) && has_whole(2, k) && has_whole(3, k));
    gpu_result[k] = v;
    gpu_has[k] = gpu_has[k] | BIT(w);
    if
    :: (GPU_MEMBERS(k) & ~gpu_has[k]) == 0 && (gone & ~stopped & ~gpu_has[k]) == 0 ->
        gpu_result[k] = 0;
        gpu_has[k] = 0
    :: else
    fi;
    gpu_value[w * GPU + k] = 0;
    used[w] = used[w] & ~BIT(k);
    retained[w] = retained[w] & ~BIT(k);
    finished[w] = k + 1
}

/* The process of the rank ends, or the joiner begins. */
inline gpu_reset(w, count)
{
    own[w] = count;
    finished[w] = count;
    used[w] = 0;
    retained[w] = 0;
    settled[w] = false;
    k = 0;
    do
    :: k < GPU -> gpu_value[w * GPU + k] = 0; k++
    :: else -> break
    od
}

/* Aborts the communicator of the rank's epoch. */
inline gpu_abort(w)
{
    if
    :: E != 0 && !stale[w] && cut[ME] == 0 -> cut[ME] = own[w] + 1
    :: else
    fi
}

/* The rank leaves. It sets the abort word before it aborts. */
inline gpu_leave(w)
{
    if
    :: phase[w] != CONNECT && launched[ME] > finished[w] ->
#ifndef BUG_GWORD
        aborted[E] = true;
#endif
        gpu_abort(w)
    :: else
    fi;
    gpu_reset(w, finished[w])
}

/* Before the report. */
inline gpu_report(w)
{
#if defined(BUG_GABORT) || defined(BUG_GEVENTS)
    gpu_abort(w);
#endif
#ifdef BUG_GEVENTS
    /* The events of the aborted work complete, too. */
    if
    :: E != 0 && !stale[w] && own[w] < launched[ME] -> own[w] = launched[ME]
    :: else
    fi
#else
    skip
#endif
}

/* With the next roster: `own` is what the next report says. */
inline gpu_take_decision(w)
{
    settled[w] = false;
#ifndef BUG_GLOWER
    own[w] = (stale[w] -> own[w] : gpu_upto[E])
#endif
}

/* Batches that are decided to be done return. The inputs of all others are restored. */
inline gpu_settle(w)
{
    do
    :: finished[w] < gpu_upto[E] -> gpu_returns(w)
    :: else -> break
    od;
    k = finished[w];
    do
    :: k < GPU ->
        assert((used[w] & ~retained[w] & BIT(k)) == 0); /* I4 */
        /* No user has the result of a batch that survivors run again. */
        assert((used[w] & BIT(k)) == 0 || gpu_has[k] == 0 || !SURVIVES(w));
        gpu_value[w * GPU + k] = 0;
        k++
    :: else -> break
    od;
    used[w] = 0;
    retained[w] = 0;
    settled[w] = true
}

inline gpu_clear(x)
{
    gpu_upto[x] = 0;
    k = 0;
    do
    :: k < N ->
        launched[AT(x, k)] = 0;
        told_up[AT(x, k)] = 0;
        told_down[AT(x, k)] = 0;
        cut[AT(x, k)] = 0;
        k++
    :: else -> break
    od
}

/* The smallest count of this rank and of those below it. */
#ifdef BUG_GTOLD
#define least own[w]
#else
#define least (IS_LAST || own[w] < told_up[ME + 1] -> own[w] : told_up[ME + 1])
#endif

/* On one host a rank sets the abort word before it aborts. */
#ifdef GPU_HOSTS
#define may_land true
#else
#define may_land (!aborted[E])
#endif

#define in_run (phase[w] == RUN && LIVES(w))

/* NCCL between hosts, where no word is seen: a rank does not leave in the middle of a batch. */
#ifdef GPU_HOSTS
#define gpu_may_leave(w) (phase[w] == CONNECT || launched[ME] == finished[w])
#else
#define gpu_may_leave(w) true
#endif
#define gpu_all_done(w) (finished[w] == GPU)

proctype lane(byte w)
{
end:
    do
    :: d_step { /* launches a batch on its GPU */
        in_run && launched[ME] < GPU && launched[ME] - finished[w] < WINDOW &&
            !(wants[w] && !applied[E]) ->
            assert((used[w] & BIT(launched[ME])) == 0); /* I4 */
            used[w] = used[w] | BIT(launched[ME]);
            retained[w] = retained[w] | BIT(launched[ME]);
            launched[ME] = launched[ME] + 1
       }
    :: d_step { /* a batch lands: it is whole on this rank */
        in_run && own[w] < launched[ME] && TOLD(launched, E, own[w] + 1) && may_land ->
            gpu_value[w * GPU + own[w]] = (is_broken(E, own[w]) -> 0 : roster[E]);
#ifdef BUG_GKEPT
            retained[w] = retained[w] & ~BIT(own[w]);
#endif
            own[w] = own[w] + 1
       }
    :: d_step { /* tells its parent how many batches are whole */
        in_run && !IS_ROOT && least > told_up[ME] -> told_up[ME] = least
       }
    :: d_step { /* root: tells how many batches are whole on all ranks */
        in_run && IS_ROOT && least > told_down[ME] -> told_down[ME] = least
       }
    :: d_step { /* passes that on */
        in_run && !IS_ROOT && told_down[ME - 1] > told_down[ME] ->
            told_down[ME] = told_down[ME - 1]
       }
    :: d_step { /* returns a batch that is whole on all ranks */
        in_run && finished[w] < told_down[ME] -> gpu_returns(w)
       }
    :: d_step { /* settles the batches on its GPU */
        connected && up && LIVES(w) && !stale[w] && !settled[w] -> gpu_settle(w)
       }
    od
}

#else
#define gpu_may_leave(w) true
#define gpu_all_done(w)  true
inline gpu_reset(w, count) { skip }
inline gpu_report(w) { skip }
inline gpu_take_decision(w) { skip }
inline gpu_clear(x) { skip }
inline gpu_leave(w) { skip }
inline gpu_abort(w) { skip }
#endif
