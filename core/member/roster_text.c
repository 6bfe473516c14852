/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_text: texts about a roster for users: ends of ranks, lists of ranks. See roster.h.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/words.h"
#include "core/member/roster_private.h"

void roster_name(int rank, int member, char *dst, size_t size)
{
    if (rank < 0)
        snprintf(dst, size, "member %d", member);
    else if (rank == member)
        snprintf(dst, size, "rank %d", rank);
    else
        snprintf(dst, size, "rank %d (member %d)", rank, member);
}

void roster_end_text(const char *name, const char *host, int pid, int code, bool early,
                     const char *text, char *dst, size_t size)
{
    if (text[0]) {
        snprintf(dst, size, "%s on %s: %s", name, host, text);
    } else if (code < 0) {
        const char *signal = sigabbrev_np(-code);
        snprintf(dst, size, "%s on %s (pid %d) was ended by signal %d (SIG%s)", name, host, pid,
                 -code, signal ? signal : "?");
    } else if (early) {
        snprintf(dst, size, "%s on %s (pid %d) left early: it exited without hvd_shutdown()", name,
                 host, pid);
    } else {
        snprintf(dst, size, "%s on %s (pid %d) exited with code %d", name, host, pid, code);
    }
}

void roster_describe_end(const struct roster *r, int member, char *dst, size_t size)
{
    char name[64];
    const struct roster_member *m = &r->members.list[member];
    const char *host = r->agents.list[m->agent].host;
    roster_name(r->is_elastic && r->epoch > 0 ? m->was_rank : member, member, name, sizeof(name));
    if (m->unable && !rank_has_ended(m->state))
        snprintf(dst, size, "%s on %s (pid %d) cannot go on: %s", name, host, m->pid,
                 m->text ? m->text : strerror(-m->code));
    else if (m->left_at && (m->state == RANK_LEFT || m->end == END_STOPPED))
        snprintf(dst, size, "%s on %s (pid %d) called hvd_shutdown()", name, host, m->pid);
    else if (m->state == RANK_FAILED && m->code == 0 && !m->text)
        snprintf(dst, size, "%s on %s (pid %d) died", name, host,
                 m->pid); /* the cause is not known yet */
    else
        roster_end_text(name, host, m->pid, m->code, m->end == END_EARLY, words(m->text), dst,
                        size);
}

/* Appends text; cuts what does not fit. */
static void append(char *dst, size_t size, const char *text)
{
    size_t len = strlen(dst);
    snprintf(dst + len, size - len, "%s", text);
}

/* Appends a range of ranks as "3" or "3-5". */
static void append_run(char *dst, size_t size, int from, int to)
{
    char run[32];
    if (from == to)
        snprintf(run, sizeof(run), "%s%d", dst[0] ? ", " : "", from);
    else
        snprintf(run, sizeof(run), "%s%d-%d", dst[0] ? ", " : "", from, to);
    append(dst, size, run);
}

/* Appends the matching ranks of one agent, with its host. */
static void append_agent(const struct roster *r, int agent, enum rank_state state, char *dst,
                         size_t size)
{
    int from = -1;
    bool any = false;
    for (int i = 0; i <= r->members.n; i++) {
        bool in = i < r->members.n && r->members.list[i].agent == agent &&
                  r->members.list[i].state == state;
        if (in && from < 0)
            from = i;
        if (in || from < 0)
            continue;
        append_run(dst, size, from, i - 1);
        from = -1;
        any = true;
    }
    if (!any)
        return;
    append(dst, size, " (");
    append(dst, size, r->agents.list[agent].host);
    append(dst, size, ")");
}

void roster_list(const struct roster *r, enum rank_state state, char *dst, size_t size)
{
    dst[0] = '\0';
    for (int a = 0; a < r->agents.n; a++)
        append_agent(r, a, state, dst, size);
    if (!dst[0])
        append(dst, size, "none");
}

/* ---- the state of the job ------------------------------------------------------------------- */

static bool is_leaver(const struct roster_member *m)
{
    return m->leaving && member_survives(m);
}

static bool is_starting(const struct roster_member *m)
{
    return m->state == RANK_ASSIGNED || m->state == RANK_RUNNING || m->state == RANK_ARRIVED;
}

static bool is_unborn(const struct roster_member *m)
{
    return m->state == RANK_EXPECTED || m->state == RANK_ASSIGNED;
}

const char *roster_state(const struct roster *r)
{
    if (r->stopping || (r->ends.ended > 0 && roster_done(r)) ||
        (r->is_elastic && roster_members_count(&r->members, member_survives) == 0 &&
         roster_is_finished(r)))
        return "ending";
    if (r->epoch == 0)
        return r->members.ready > 0 || roster_members_count(&r->members, is_unborn) > 0 ? "starting"
                                                                                        : "running";
    if (r->next.waiting_since)
        return "waiting";
    if (r->changes.announced > r->changes.applied || r->starts.n > 0 ||
        roster_members_count(&r->members, is_leaver) > 0 ||
        (r->is_elastic && roster_members_count(&r->members, member_is_joiner) +
                                  roster_members_count(&r->members, is_starting) >
                              0))
        return "changing";
    return "running";
}

static void say_starts(const struct roster *r, uint64_t now, char *dst, size_t size)
{
    char text[160];
    uint64_t due = roster_starts_due(&r->starts);
    if (r->starts.n == 0)
        return;
    if (roster_agents_free_slots(&r->agents, &r->members) == 0)
        snprintf(text, sizeof(text), "; %d to be started when a host has room", r->starts.n);
    else if (now == 0)
        snprintf(text, sizeof(text), "; %d to be started", r->starts.n);
    else
        snprintf(text, sizeof(text), "; %d to be started, the next in %llu s", r->starts.n,
                 (unsigned long long)(due > now ? (due - now + CLOCK_S - 1) / CLOCK_S : 0));
    append(dst, size, text);
}

void roster_waiting_for(const struct roster *r, uint64_t now, char *dst, size_t size)
{
    char text[160];
    int survivors = roster_members_count(&r->members, member_survives),
        joiners = roster_members_count(&r->members, member_is_joiner);
    int starting = roster_members_count(&r->members, is_starting);
    dst[0] = '\0';
    if (!r->next.waiting_since && (r->epoch > 0 || r->members.ready == 0))
        return;
    if (survivors > 0)
        snprintf(dst, size, "at least %d ranks: %d have the state in memory, %d new ones are ready",
                 r->elastic.min, survivors, joiners);
    else
        snprintf(dst, size, "ranks to begin with: %d of %d ready",
                 r->is_elastic ? joiners : r->members.ready, r->target);
    snprintf(text, sizeof(text), "; %d started and not ready yet", starting);
    if (starting > 0)
        append(dst, size, text);
    say_starts(r, now, dst, size);
}
