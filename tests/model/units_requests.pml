/* SPDX-License-Identifier: Apache-2.0
 *
 * units_requests: which members a rank counts, requests and what users get, segments (units.pml).
 */

/* ---- which members a rank counts (core/engine/world) ------------------------------------------- */

/* r: the members that are in its newest world and the same processes since that of epoch `from`
 * (world_has_kept()). working: and that were in all of its worlds since then, in no broken unit
 * (world_has_worked()). */
inline filter(w, from, working)
{
    r = roster[E];
    p = 0;
    e = 1;
    do
    :: e <= E ->
        if
        :: HAS(been[w], e) ->
            r = r & ~(e > from -> fresh[e] & ~p : 0);
            r = r & (working && e >= from -> roster[e] & ~broken[e] : 255);
            p = fresh[e]
        :: else
        fi;
        e++
    :: else -> break
    od;
    e = 0;
    p = 0
}

/* q: whether set s of the newest world lacks a rank, and the others do not know (set_is_untold). */
inline untold(w, s)
{
#ifdef BUG_UNTOLD
    q = false
#else
    q = FIXED(s) && state[X] != NONE && !HAS(broken[E], w) &&
        COUNT(roster[E] & AT_PLACES(PLACES(s))) < COUNT(PLACES(s))
#endif
}

/* ---- requests ----------------------------------------------------------------------------------- */

#define waits(w, s)                                                                               \
    (state[OF(w, s)] != NONE &&                                                                   \
     (pending[OF(w, s)] || (next[OF(w, s)] == 2 * round[w] && at[w] == STEP)))
#define is_through(w, s) (state[OF(w, s)] == NONE || next[OF(w, s)] > 2 * round[w])
/* The other thread has submitted what it submits in this hvd_commit(). */
#define is_submitted(w, s)                                                                        \
    (state[OF(w, s)] == NONE || pending[OF(w, s)] || next[OF(w, s)] != 2 * round[w] + 1 ||         \
     !HAS(BESIDE, s))
#if S > 2
#define every(what, w) (what(w, 0) && what(w, 1) && what(w, 2))
#elif S > 1
#define every(what, w) (what(w, 0) && what(w, 1))
#else
#define every(what, w) what(w, 0)
#endif

inline ends(w, s)
{
    pending[X] = false;
    next[X] = next[X] + (HAS(BESIDE, s) || next[X] % 2 == 1 -> 1 : 2)
}

/* -EOWNERDEAD */
inline fails(w, s)
{
    dead_for_a_reason = HAS(excused, w) || (FIXED(s) && (next[X] < 2 * round[w] || (target[X] & gone) != 0));
    assert(dead_for_a_reason);
    alike = !FIXED(s) || ((got[R_(s, next[X])] | stale[R_(s, next[X])]) & ~gone) == 0;
    assert(alike);
    dead[R_(s, next[X])] = dead[R_(s, next[X])] | BIT(w);
    ends(w, s)
}

/* -ESTALE */
inline is_stale(w, s)
{
    alike = ((got[R_(s, next[X])] | (FIXED(s) -> dead[R_(s, next[X])] : 0)) & ~gone) == 0;
    assert(alike);
    stale[R_(s, next[X])] = stale[R_(s, next[X])] | BIT(w);
    ends(w, s)
}

/* Of these, every one that lives has contributed. */
inline find_contributors(s, n)
{
    r = 0;
    m = 0;
    do
    :: m < M -> r = r | (comes[m] <= n -> BIT(m) : 0); m++
    :: else -> break
    od;
    m = 0;
    r = r & AT_PLACES(PLACES(s)) & ~gone & ~excused
}

inline returns(w, s)
{
    can_get_result = seg[X] != 0 && WHOLE(s, seg[X], done[X]);
    assert(can_get_result);
    v = ranks[SEG(s, seg[X])];
    z = R_(s, next[X]);
    never_smaller = !FIXED(s) || COUNT(v) == COUNT(PLACES(s));
    assert(never_smaller);
    works_here = FIXED(s) || !HAS(broken[E], w);
    assert(works_here);
    same_result = result[z] == 0 || result[z] == v;
    assert(same_result);
    alike = ((stale[z] | (FIXED(s) -> dead[z] : 0)) & ~gone) == 0;
    assert(alike);
    find_contributors(s, next[X]);
    has_all = (r & ~v) == 0;
    assert(has_all);
    r = 0;
    result[z] = v;
    got[z] = got[z] | BIT(w);
    z = 0;
    v = 0;
    done[X] = done[X] + 1;
    seg[X] = 0;
    knew[X] = false;
    ends(w, s)
}

/* The circle fails (circle_fail). before: the request only if it is older than the gain. */
inline fail_circle(w, s, before)
{
    if
#ifdef BUG_FAILSNOW
    :: waits(w, s) -> fails(w, s)
#else
    :: waits(w, s) && (!before || next[X] < 2 * round[w]) -> fails(w, s)
#endif
    :: else
    fi;
    state[X] = FAILED;
    seg[X] = 0;
    knew[X] = false
}

/* ---- segments ------------------------------------------------------------------------------------ */

/* q: a rank or an answer of this epoch has segment i of the set. */
inline is_mapped(s, i)
{
    q = false;
    m = 0;
    do
    :: m < M -> q = q || circle[OF(m, s)] == i || seg[OF(m, s)] == i; m++
    :: else -> break
    od;
    m = 0;
    do
    :: m < nanswers -> q = q || (ans_set[m] == s && ans_seg[m] == i); m++
    :: else -> break
    od;
    m = 0
}

/* Clears segments that nobody needs, so that their states do not differ. */
inline sweep()
{
    k = 0;
    do
    :: k < S ->
        i = 1;
        do
        :: i <= SEGS ->
            is_mapped(k, i);
            if
            :: !q ->
                ranks[SEG(k, i)] = 0;
                top[SEG(k, i)] = 0;
                staged[SEG(k, i)] = 0;
                word[SEG(k, i)] = false
            :: else
            fi;
            i++
        :: else -> break
        od;
        k++
    :: else -> break
    od;
    k = 0;
    i = 0;
    q = false
}

/* The segment of answer j. */
inline make_segment(s)
{
    if
    :: ans_seg[j] == 0 ->
        i = 1;
        do
        :: i <= SEGS && ranks[SEG(s, i)] != 0 -> i++
        :: else -> break
        od;
        assert(i <= SEGS);
        ans_seg[j] = i;
        ranks[SEG(s, i)] = ans_list[j];
        top[SEG(s, i)] = ans_done[j] + (ans_final[j] && how[w] == CIRCLE -> 1 : 0);
        i = 0
    :: else
    fi
}
