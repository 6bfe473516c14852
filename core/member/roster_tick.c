/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_tick: time limits of a job, and its end by a signal or a stop. See roster.h.
 */
#include <signal.h>

#include "core/base/clock.h"
#include "core/member/roster_epoch.h"
#include "core/member/roster_leave.h"
#include "core/member/roster_rebuild.h"
#include "core/member/roster_target.h"

#define EVICT_AFTER (30 * CLOCK_S) /* until a silent survivor is killed */

/* Some survivors have answered a loss or are at a boundary and wait for the other survivors, which
 * should follow in milliseconds. Kills members that do not follow for EVICT_AFTER. */
static void evict_silent(struct roster *r, uint64_t now)
{
    if (!r->next.answering_since || now - r->next.answering_since < EVICT_AFTER)
        return;
    for (int i = 0; i < r->members.n; i++) {
        if (!member_survives(&r->members.list[i]) || r->members.list[i].state == RANK_READY)
            continue;
        roster_note(r, NOTE_EVICT, i, 0,
                    "it did not answer for 30 s while the other ranks waited: it was killed");
        r->next.answering_since = now; /* check again after the same time */
    }
}

void roster_tick(struct roster *r, uint64_t now)
{
    roster_work_sample(&r->work, now);
    if (r->rebuilding) {
        if (now >= r->rebuild_by)
            roster_rebuild(r, now);
        return;
    }
    if (r->stopping)
        return;
    roster_start_due(r, now);
    roster_consider(r, now);
    if (r->is_elastic)
        evict_silent(r, now);
}

void roster_give_up(struct roster *r, int member, const char *text)
{
    roster_note(r, NOTE_LOST, member, 0, text);
}

void roster_signal(struct roster *r, int signo)
{
    roster_note(r, NOTE_SIGNAL, -1, signo, "");
    if (signo == SIGUSR1 || signo == SIGUSR2)
        return;
    r->closing = true;
    r->starts.n = 0;
}

void roster_stop(struct roster *r, const char *reason, int grace_ms)
{
    r->stopping = true;
    roster_wind_down(r, 0);
    roster_note(r, NOTE_STOP, -1, grace_ms, reason);
}
