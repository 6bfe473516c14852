/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_life: see roster_life.h.
 */
#include "core/member/roster_life.h"

#include <signal.h>
#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/words.h"
#include "core/member/roster_replace.h"

/* If a rank is reported killed by a signal within this time after another rank failed with an exit
 * code, the killed rank was probably the cause, and the report of its agent took longer. */
#define FIRST_WINDOW (300 * CLOCK_MS)

bool roster_is_part(const struct roster *r, const struct roster_member *m)
{
    return !m->leaving && (m->was_in || r->epoch == 0);
}

/* ---- the end of a member -------------------------------------------------------------------- */

/* State of a member before an event changes it. */
struct before {
    enum rank_state state;
    bool survived; /* it was in the world and could go on */
};

static bool was_inside(const struct before *before)
{
    return before->state == RANK_READY || before->state == RANK_ACTIVE;
}

static enum end_job job_of(const struct roster *r)
{
    return !r->is_elastic ? END_FIXED : r->hosted ? END_CLUSTER : END_ELASTIC;
}

static enum end_way way_of(const struct roster *r, const struct roster_member *m)
{
    if (m->state == RANK_FINISHED)
        return END_ZERO;
    if (r->agents.list[m->agent].lost)
        return r->is_elastic && roster_agents_count_slots(&r->agents) < r->elastic.min
                   ? END_LAST_HOST
                   : END_HOST;
    return m->code > 0 ? END_CODE : END_SIGNAL;
}

static enum end_time time_of(const struct roster *r, const struct roster_member *m,
                             const struct before *before)
{
    bool failed = m->state == RANK_FAILED, inside = was_inside(before);
    if (failed && r->stopping)
        return END_STOPPING;
    if (m->leaving && (failed || !before->survived))
        return END_LEAVING;
    if (failed && r->closing && r->is_elastic)
        return END_CLOSING;
    bool disturbed = m->disturbed && m->code != -SIGKILL; /* that has a reason of its own */
    if (!r->is_elastic && (disturbed || (failed && r->ends.early >= 0 && inside)))
        return END_DISTURBED;
    if (before->state == RANK_LEFT && !m->unable)
        return r->is_elastic && roster_members_count(&r->members, member_survives) > 0
                   ? END_LEFT_EARLY
                   : END_LEFT;
    if (r->epoch == 0)
        return inside ? END_WAITING : END_UNBORN;
    return inside && m->was_in ? END_INSIDE : END_OUTSIDE;
}

/* True when the killed member's end probably came before the end that was reported first. */
static bool is_real_first(const struct roster *r, int member, uint64_t now)
{
    const struct roster_member *first = r->ends.first >= 0 ? &r->members.list[r->ends.first] : NULL;
    return first && r->members.list[member].code < 0 && first->code > 0 &&
           now - first->ended_at < FIRST_WINDOW;
}

/* The end of a member that was asked to leave and is out of the world is no loss. An exit with 0 is
 * a loss if other ranks may wait for the member. */
static enum note_type end_note(const struct roster_member *m, const struct before *before)
{
    if (m->leaving && !before->survived)
        return NOTE_ENDED;
    return m->state == RANK_FAILED || was_inside(before) ? NOTE_LOST : NOTE_ENDED;
}

static void act_end(struct roster *r, int member, const struct before *before, uint64_t now)
{
    char text[512];
    struct roster_member *m = &r->members.list[member];
    m->end = rank_end_of(job_of(r), way_of(r, m), time_of(r, m, before));
    m->ended_at = now ? now : 1;
    r->ends.ended++;
    r->ends.finished += m->state == RANK_FINISHED && roster_is_part(r, m) && !m->unable;
    if (m->end == END_FAILS_JOB && is_real_first(r, member, now))
        r->ends.first = member;
    roster_ends_record(&r->ends, member, m->end);
    roster_describe_end(r, member, text, sizeof(text));
    roster_note(r, end_note(m, before), member, m->code, text);
    if (m->end == END_REPLACED || m->end == END_REPLACED_OR_FAILS)
        roster_replace(r, member, now);
}

/* The rank reports that it cannot go on; its process may still run. */
static void act_tell(struct roster *r, int member)
{
    char text[600];
    struct roster_member *m = &r->members.list[member];
    m->unable = true;
    roster_describe_end(r, member, text, sizeof(text));
    roster_note(r, NOTE_LOST, member, m->code, text);
}

/* ---- states --------------------------------------------------------------------------------- */

int roster_check_step(const struct roster *r, int member, enum rank_event event, struct err *err)
{
    enum rank_state state = r->members.list[member].state;
    if (rank_step(state, event))
        return 0;
    return err_set(err, EPROTO, "rank %d is %s: no %s is expected", member, rank_state_name(state),
                   rank_event_name(event));
}

int roster_step(struct roster *r, int member, enum rank_event event, uint64_t now, struct err *err)
{
    char text[512];
    struct roster_member *m = &r->members.list[member];
    const struct rank_row *row = rank_step(m->state, event);
    if (!row)
        return roster_check_step(r, member, event, err);
    const struct before before = {m->state, member_survives(m)};
    if (row->next == RANK_READY && r->members.ready == 0)
        r->members.first_ready = now;
    if (row->next == RANK_READY && m->state != RANK_READY)
        m->waits = now;
    r->members.ready += (row->next == RANK_READY) - (m->state == RANK_READY);
    m->state = row->next;
    if (event == RANK_BYE && before.survived)
        m->left_at = now ? now : 1;
    if (event == RANK_CARD) {
        m->left_at = 0;
        m->disturbed = m->unable = false; /* hvd_init() again: the rank begins anew */
    }
    if (row->action == RANK_DO_END)
        act_end(r, member, &before, now);
    if (row->action == RANK_DO_TELL)
        act_tell(r, member);
    if (before.survived && (rank_has_ended(m->state) || m->unable)) {
        roster_describe_end(r, member, text, sizeof(text));
        roster_next_add_cause(&r->next, now, text);
    }
    return 0;
}

void roster_lose_agent(struct roster *r, int agent, const char *text, uint64_t now)
{
    struct roster_agent *a = &r->agents.list[agent];
    a->lost = true;
    for (int i = 0; i < r->members.n; i++) {
        struct roster_member *m = &r->members.list[i];
        if (m->agent != agent)
            continue;
        if (!rank_has_ended(m->state)) {
            char why[WORDS_MAX];
            snprintf(why, sizeof(why), "lost: %s", text);
            words_set(&m->text, why);
            m->code = 1;
        }
        roster_step(r, i, RANK_AGENT_LOST, now, NULL);
    }
}
