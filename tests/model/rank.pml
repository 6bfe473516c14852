/* SPDX-License-Identifier: Apache-2.0
 *
 * rank: one member: its operations, and the steps revoke, report, connect, settle, go on. Part of
 * repair.pml. Each option of the loop is one step that the progress thread takes without looking at
 * other ranks. Between two steps anything may happen, and the process may end.
 */

/* After a boundary with a planned change, the view is the newest roster that a rank is in. */
inline enter_view(w)
{
#ifdef BUG_ENTER
    if
    :: SURVIVES(w) ->
        assert((viewers & ~gone) == 0 || view == epoch[w]);
        viewers = viewers | BIT(w);
        view = epoch[w]
    :: else
    fi
#else
    skip
#endif
}

#define OWNER(ep, piece) ((piece) % COUNT(roster[ep]))
#define NO_SEAT 9

/* What a boundary agrees on: the largest epoch of any rank, if all report the same one; otherwise
 * the ranks ask again. A rank that enters this epoch's view must have been in that epoch. */
inline view_is_known(w)
{
#ifdef VIEW
    v = 0;
    e = 255;
    i = 0;
    do
    :: i < N ->
        if
        :: (WHO(buf[w * 2]) & BIT(i)) != 0 ->
            v = (asked[i] > v -> asked[i] : v);
            e = (asked[i] < e -> asked[i] : e)
        :: else
        fi;
        i++
    :: else -> break
    od;
#ifndef BUG_VIEW
    assert(v != e || (met[w] & BIT(v)) != 0);
#else
    assert((met[w] & BIT(v)) != 0);
#endif
    e = 0
#else
    skip
#endif
}

/* Checks I3, and that no contribution is missing or counted twice. What a given-up rank returns
 * counts too: its user may have told others of it. Afterwards the user overwrites the result. */
inline user_returns(w)
{
    s = done[w];
    assert(OF(buf[w * 2]) == s && OF(buf[w * 2 + 1]) == s);
    assert((WHO(buf[w * 2]) & MEMBERS(s)) == MEMBERS(s));
    assert((WHO(buf[w * 2 + 1]) & MEMBERS(s)) == MEMBERS(s));
    if
    :: has[s] == 0 ->
        result[s * 2] = buf[w * 2];
        result[s * 2 + 1] = buf[w * 2 + 1]
    :: else ->
        assert(result[s * 2] == buf[w * 2]);
        assert(result[s * 2 + 1] == buf[w * 2 + 1])
    fi;
    has[s] = has[s] | BIT(w);
    if
    :: (MEMBERS(s) & ~has[s]) == 0 && (gone & ~stopped & ~has[s]) == 0 ->
        has[s] = 0;
        result[s * 2] = 0;
        result[s * 2 + 1] = 0
    :: else
    fi;
    if
    :: SURVIVES(w) && s == COMMIT -> view_is_known(w)
    :: else
    fi;
    wants[w] = wants[w] || (s == COMMIT && (buf[w * 2] & HEARD) != 0);
    done[w] = s + 1;
    begins_anew(w);
    sweep()
}

/* Puts the input of the next operation into the user's tensor. */
inline begins_anew(w)
{
    buf[w * 2] = VALUE(done[w], BIT(w));
    buf[w * 2 + 1] = VALUE(done[w], BIT(w));
    started[w] = false;
    got[w] = 0;
    whole[w] = false;
    saved[w] = 0;
    said[w] = 0;
    looked[w] = false;
    seg[w] = 0
}

/* I4: a rank that runs a piece again still has its input. */
inline input_is_there(w, piece)
{
    assert((saved[w] & BIT(piece)) != 0 ||
           (OF(buf[w * 2 + piece]) == done[w] && WHO(buf[w * 2 + piece]) == BIT(w)))
}

/* Writes to the rank's own cell. BUG_NOFENCE: an epoch shares its segment with the next one. */
inline cell_write(ep, seat, piece, value)
{
    cell[AT(ep, seat) * 2 + piece] = value;
#ifdef BUG_NOFENCE
    cell[AT(newest, seat) * 2 + piece] = value;
#endif
}

/* Sums a piece over all ranks' staged inputs into sum[piece]. mine: the seat whose input is still
 * in its own buffer, or NO_SEAT. */
inline sum_up(ep, piece, mine, w)
{
    sum[piece] = VALUE(done[w], 0);
    i = 0;
    do
    :: i < COUNT(roster[ep]) ->
        if
        :: i == mine -> v = buf[w * 2 + piece]
        :: else -> v = cell[AT(ep, i) * 2 + piece]
        fi;
        assert(OF(v) == done[w]);            /* a value of this operation */
        assert((WHO(v) & WHO(sum[piece])) == 0); /* no contribution is counted twice */
        assert(WHO(v) != 0);
        sum[piece] = sum[piece] | v;
        i++
    :: else -> break
    od
}

/* Copies a final piece from the old segment to the output. */
inline fetch(w, piece)
{
    e = seg[w];
    assert(e != 0);
    if
    :: kind(done[w]) == SLICES ->
        v = cell[AT(e, OWNER(e, piece)) * 2 + piece];
        assert(OF(v) == done[w] && red[e * 2 + piece] > done[w]);
        buf[w * 2 + piece] = v
    :: kind(done[w]) == WHOLE ->
        assert(TOLD(in_, e, done[w] + 1));
        sum_up(e, piece, NO_SEAT, w);
        buf[w * 2 + piece] = sum[piece]
    :: else -> assert(false)
    fi;
    got[w] = got[w] | BIT(piece)
}

/* Reads which pieces of the operation in flight are final. */
inline look(w)
{
    if
    :: started[w] && kind(done[w]) == SLICES ->
        said[w] = said[w] | (red[seg[w] * 2] > done[w] -> 1 : 0) |
                  (red[seg[w] * 2 + 1] > done[w] -> 2 : 0)
    :: started[w] && kind(done[w]) == WHOLE && TOLD(in_, seg[w], done[w] + 1) -> said[w] = PIECES
    :: else
    fi;
    looked[w] = true
}

/* Revoke and report. The flags are read once: flags that a zombie sets later must not count,
 * because other ranks may have restarted the operation by then. Pieces that were final before stay
 * final. */
inline say_hello(w, y)
{
    if
#ifdef BUG_REREAD
    :: y == REVOKED && phase[w] != REST && seg[w] != 0 -> look(w)
#else
    :: y == REVOKED && phase[w] == RUN && !looked[w] -> look(w)
#endif
    :: else
    fi;
#ifndef BUG_STALE
    said[w] = said[w] | got[w];
#endif
    if
#ifdef BUG_NOWORD
    :: y != BOUNDARY && (roster[epoch[w]] & gone) == 0 -> aborted[epoch[w]] = true
#else
    :: y != BOUNDARY -> aborted[epoch[w]] = true
#endif
    :: else
    fi;
#ifdef BUG_HANGUP
    aborted[epoch[w]] = true;
#endif
    gpu_report(w);
    hello[w] = epoch[w];
    why[w] = y;
    phase[w] = WAIT
}

#define unmapped(w)                                                                               \
    (!LIVES(w) || phase[w] == OFF || (epoch[w] != e && seg[w] != e && mail[w] != e))

/* Clears segments that no rank has mapped any more, so that their states do not differ. */
inline sweep()
{
    e = 1;
    do
    :: e < newest ->
        if
        :: roster[e] != 0 && e != known && unmapped(0) && unmapped(1) &&
           unmapped(2) && unmapped(3) -> clear(e)
        :: else
        fi;
        e++
    :: else -> break
    od;
    e = 0
}
inline clear(x)
{
    roster[x] = 0;
    conn[x] = 0;
    aborted[x] = false;
    applied[x] = false;
    upto[x] = 0;
#if LEAVE
    parted[x] = 0;
#endif
    final[x] = 0;
    gpu_clear(x);
    red[x * 2] = 0;
    red[x * 2 + 1] = 0;
    i = 0;
    do
    :: i < N ->
        in_[AT(x, i)] = 0;
        out[AT(x, i)] = 0;
        behind[AT(x, i)] = 0;
        cell[AT(x, i) * 2] = 0;
        cell[AT(x, i) * 2 + 1] = 0;
        i++
    :: else -> break
    od
}

/* Copies the rank's input to its own cell. SLICES: only the slices that other ranks own. */
inline stage(w, heard)
{
    e = epoch[w];
    s = done[w];
    q = SEAT(roster[e], w);
    v = VALUE(s, BIT(w)) | heard;
    p = 0;
    do
    :: p < 2 ->
        if
        :: phase[w] == REST && (got[w] & BIT(p)) != 0
        :: else ->
            input_is_there(w, p);
            if
            :: phase[w] == RUN -> buf[w * 2 + p] = v
            :: else
            fi;
            if
            :: phase[w] == RUN && kind(s) == SLICES && OWNER(e, p) == q
            :: else -> cell_write(e, q, p, v)
            fi
        fi;
        p++
    :: else -> break
    od;
    if
    :: phase[w] == RUN && kind(s) == BEHIND -> saved[w] = PIECES
    :: else
    fi;
    if
    :: phase[w] == RUN ->
#ifdef VIEW
        asked[w] = (s == COMMIT && asked[w] == 0 -> e : asked[w]);
#endif
        seg[w] = e
    :: else
    fi;
    in_[AT(e, q)] = s + 1;
    started[w] = true
}

/* Reduces all slices that this seat owns. */
inline reduce_own(w)
{
    e = epoch[w];
    q = SEAT(roster[e], w);
    p = 0;
    do
    :: p < 2 ->
        if
        :: OWNER(e, p) == q ->
            sum_up(e, p, q, w);
            cell_write(e, q, p, sum[p]);
            buf[w * 2 + p] = sum[p];
            got[w] = got[w] | BIT(p);
            red[e * 2 + p] = done[w] + 1
        :: else
        fi;
        p++
    :: else -> break
    od
}

inline copy_out(w, piece)
{
    e = epoch[w];
    v = cell[AT(e, OWNER(e, piece)) * 2 + piece];
    assert(OF(v) == done[w]);
    buf[w * 2 + piece] = v;
    got[w] = got[w] | BIT(piece)
}

/* Sums all pieces that are not in the output yet. All inputs must be staged. */
inline sum_all(w)
{
    e = epoch[w];
    p = 0;
    do
    :: p < 2 ->
        if
        :: (got[w] & BIT(p)) == 0 ->
            sum_up(e, p, NO_SEAT, w);
            buf[w * 2 + p] = sum[p]
        :: else
        fi;
        p++
    :: else -> break
    od
}

/* The operation is done, and this rank reads no staging any more. */
inline finish(w)
{
    out[AT(epoch[w], SEAT(roster[epoch[w]], w))] = done[w] + 1;
    user_returns(w)
}

/* No rank returns a result in a mesh that another rank has given up: that rank's report is out and
 * may not say that the result is final. */
#ifdef BUG_RETURN
#define goes_on true
#else
#define goes_on (!aborted[epoch[w]])
#endif

inline finish_slices(w)
{
    if
    :: got[w] == PIECES && goes_on -> finish(w)
    :: else
    fi
}

#define stays ((left & BIT(w)) == 0)
#if LEAVE
#define lacks_one ((done[w] < NOPS || !gpu_all_done(w)) && (roster[E] & left) != 0) /* it waits for a departed rank */
#else
#define lacks_one false
#endif
#define runs    (phase[w] == RUN && done[w] < NOPS && !(wants[w] && !applied[E]))
#define under(k) (runs && started[w] && kind(done[w]) == k)
#define owns(p)  (OWNER(E, p) == SEAT(roster[E], w))
#define lacks(p) ((got[w] & BIT(p)) == 0)
#define is_red(p) (red[E * 2 + p] > done[w])
#define staged   TOLD(in_, E, done[w] + 1)
#ifdef BUG_REUSE
#define room     true
#else
#define room     TOLD(out, E, done[w])
#endif
#ifdef BUG_NOBARRIER
#define passed   true
#else
#define passed   TOLD(behind, E, done[w] + 1)
#endif
#ifdef BUG_HELLO
#define listens(w) true
#else
#define listens(w) (phase[w] == WAIT)
#endif
#define barriered (phase[w] == REST || under(BEHIND))
#ifdef BUG_LOCALGUESS
#define F (said[w] | got[w])
#define D done[w]
#else
#define F final[E]
#define D upto[E]
#endif
#define settles  (connected && up && !stale[w] && gpu_settled(w) && done[w] == D)
#define catches_up (connected && up && !stale[w] && gpu_settled(w) && done[w] + 1 == D)

proctype rank(byte w)
{
end:
    do
    /* ---- operations ---- */
    :: d_step { /* stages its input */
        runs && LIVES(w) && !started[w] && room -> stage(w, 0)
       }
    :: d_step { /* stages its input; it knows of a change */
        runs && LIVES(w) && !started[w] && room && done[w] == COMMIT && ready_joiner ->
            stage(w, HEARD)
       }
    :: d_step { /* reduces the slices it owns */
        under(SLICES) && LIVES(w) && staged && ((owns(0) && lacks(0)) || (owns(1) && lacks(1))) ->
            reduce_own(w);
            finish_slices(w)
       }
    :: d_step { /* copies slice 0 out */
        under(SLICES) && LIVES(w) && !owns(0) && lacks(0) && is_red(0) ->
            copy_out(w, 0);
            finish_slices(w)
       }
    :: d_step { /* copies slice 1 out */
        under(SLICES) && LIVES(w) && !owns(1) && lacks(1) && is_red(1) ->
            copy_out(w, 1);
            finish_slices(w)
       }
    :: d_step { /* sums up everything and returns */
        under(WHOLE) && LIVES(w) && staged && goes_on ->
            sum_all(w);
            finish(w)
       }
    /* ---- with a barrier after it; also the remaining part in a repair ---- */
    :: d_step { /* stages the rest */
        phase[w] == REST && LIVES(w) && !started[w] -> stage(w, 0)
       }
    :: d_step { /* has summed up and sets its barrier flag */
        barriered && LIVES(w) && started[w] && !whole[w] && staged ->
            sum_all(w);
            whole[w] = true;
            behind[AT(E, SEAT(roster[E], w))] = done[w] + 1
       }
    :: d_step { /* passes the barrier and returns */
        barriered && LIVES(w) && whole[w] && passed ->
            phase[w] = RUN;
            finish(w)
       }
    /* ---- boundary ---- */
    :: d_step { /* sees the change applied */
        phase[w] == RUN && LIVES(w) && wants[w] && applied[E] ->
            wants[w] = false;
            enter_view(w)
       }
    :: d_step { /* boundary: HELLO */
        phase[w] == RUN && LIVES(w) && wants[w] && !applied[E] -> say_hello(w, BOUNDARY)
       }
    :: d_step { /* joins: HELLO */
        w == J && phase[w] == OFF && COMMIT != 9 && LIVES(w) && !over ->
            stale[w] = true;
            why[w] = JOINS;
            phase[w] = WAIT
       }
#if LEAVE
    :: d_step { /* leaves: BYE */
        (phase[w] == RUN || phase[w] == WAIT || phase[w] == CONNECT) && LIVES(w) && SURVIVES(w) &&
            !stale[w] && !started[w] &&
            (LEAVE == 2 || (done[w] == NOPS && gpu_all_done(w))) && gpu_may_leave(w) ->
            left = left | BIT(w);
            leavers = ((attached & BIT(w)) != 0 && done[w] > leavers -> done[w] : leavers);
            gpu_leave(w);
            phase[w] = OFF;
            why[w] = 0;
            hello[w] = 0;
            mail[w] = 0;
            sweep()
       }
#endif
    /* ---- revoke, report ---- */
    :: d_step { /* revokes: HELLO */
        phase[w] != WAIT && phase[w] != OFF && SURVIVES(w) && !over && stays &&
            ((roster[E] & gone) != 0 || aborted[E] || lacks_one) ->
            say_hello(w, (stale[w] -> JOINS : REVOKED))
       }
    :: d_step { /* false alarm: HELLO */
        alarms < FALSE_ALARMS && phase[w] != WAIT && phase[w] != OFF && SURVIVES(w) && !over ->
            alarms++;
            say_hello(w, (stale[w] -> JOINS : REVOKED))
       }
    /* ---- install, connect ---- */
    :: d_step { /* takes a roster, connects */
        LIVES(w) && mail[w] != 0 && listens(w) ->
            assert(mail[w] > epoch[w]); /* I2 */
            gpu_abort(w); /* all survivors have reported */
            epoch[w] = mail[w];
            mail[w] = 0;
            why[w] = 0;
            gpu_take_decision(w);
#if !defined(BUG_STALE) && !defined(BUG_LOCALGUESS)
            said[w] = said[w] | (done[w] == upto[epoch[w]] -> final[epoch[w]] : 0);
#endif
#ifndef BUG_HELLO
            hello[w] = 0;
#endif
            phase[w] = CONNECT;
            conn[epoch[w]] = conn[epoch[w]] | BIT(w);
            sweep()
       }
    /* ---- settle ---- */
#ifdef VIEW
    :: d_step { /* the mesh is up */
        connected && LIVES(w) && (met[w] & BIT(epoch[w])) == 0 ->
            met[w] = met[w] | BIT(epoch[w])
       }
#endif
    :: d_step { /* joiner: enters the epoch and gets the state */
        connected && up && LIVES(w) && stale[w] ->
            stale[w] = false;
            enter_view(w);
            joined = upto[E];
            done[w] = upto[E];
#if GPU
            gpu_joined = gpu_upto[E];
            gpu_reset(w, gpu_upto[E]);
#endif
            begins_anew(w);
            phase[w] = RUN
       }
    :: d_step { /* takes over the whole result and returns */
        catches_up && LIVES(w) && whole[w] -> user_returns(w)
       }
    :: d_step { /* catches up: fetches a piece */
        catches_up && LIVES(w) && !whole[w] ->
            if
            :: lacks(0) -> fetch(w, 0)
            :: else -> fetch(w, 1)
            fi;
            if
            :: got[w] == PIECES -> user_returns(w)
            :: else
            fi
       }
    :: d_step { /* restarts the operation */
        settles && LIVES(w) && F == 0 ->
            assert(got[w] == 0);
            input_is_there(w, 0);
            input_is_there(w, 1);
            begins_anew(w);
            phase[w] = RUN;
            sweep()
       }
    :: d_step { /* fetches a final piece */
        settles && LIVES(w) && (F & ~got[w]) != 0 ->
            assert((got[w] & ~F) == 0);
            if
            :: lacks(0) && (F & 1) != 0 -> fetch(w, 0)
            :: else -> fetch(w, 1)
            fi
       }
    :: d_step { /* has all final pieces and returns */
        settles && LIVES(w) && F == PIECES && got[w] == PIECES ->
            phase[w] = RUN;
            finish(w)
       }
    :: d_step { /* saves the input of the remaining part */
        settles && LIVES(w) && F != 0 && F != PIECES && got[w] == F ->
            p = (lacks(0) -> 0 : 1);
            input_is_there(w, p);
            saved[w] = saved[w] | BIT(p);
            whole[w] = false;
            started[w] = false;
            phase[w] = REST
       }
    od
}
