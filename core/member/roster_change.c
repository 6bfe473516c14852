/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_change: an elastic job's planned changes, replacements, and time limits. See roster.h.
 *
 * target is the wanted number of ranks. These count towards it: live members that were not asked to
 * leave, members that are to be started, and members whose program has ended well.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/member/roster_private.h"

#define BACKOFF_FIRST CLOCK_S
#define BACKOFF_MAX   (60 * CLOCK_S)
#define HEALTHY       (60 * CLOCK_S) /* a run this long resets the backoff */
#define EVICT_AFTER   (30 * CLOCK_S) /* until a silent survivor is ended */

/* Members that count towards the target. */
static int have(const struct roster *r)
{
    return roster_members_count(&r->members, member_is_wanted) + r->starts.n + r->ends.finished;
}

bool roster_limit_reached(const struct roster *r)
{
    return r->is_elastic && r->elastic.reset_limit > 0 && r->restarts >= r->elastic.reset_limit;
}

/* ---- starts --------------------------------------------------------------------------------- */

static void add_start(struct roster *r, int agent, uint64_t due, bool replaces)
{
    if (r->starts.n < r->elastic.max)
        roster_starts_add(&r->starts, (struct roster_start){agent, due, replaces});
}

static void start_due(struct roster *r, uint64_t now)
{
    for (int i = 0; i < r->starts.n; i++) {
        const struct roster_start *s = &r->starts.list[i];
        int slot = -1, agent = -1;
        if (s->due <= now)
            agent = roster_agents_choose(&r->agents, &r->members, s->agent, &slot);
        if (agent < 0)
            continue;
        int member = roster_add_member(r, agent, slot);
        if (member < 0)
            return; /* out of memory: the next tick tries again */
        roster_step(r, member, RANK_JOIN, now, NULL);
        roster_note(r, NOTE_START, member, slot, "");
        roster_starts_remove(&r->starts, i--);
    }
}

void roster_forget_start(struct roster *r)
{
    r->restarts -= roster_starts_forget(&r->starts);
}

void roster_replace(struct roster *r, int member, uint64_t now)
{
    const struct roster_member *m = &r->members.list[member];
    struct roster_agent *a = &r->agents.list[m->agent];
    struct roster_slot *p = &a->slots[m->assignment.local_rank];
    bool healthy = m->started && now - m->started >= HEALTHY;
    uint64_t first = r->elastic.backoff_first ? r->elastic.backoff_first : BACKOFF_FIRST;
    uint64_t most = r->elastic.backoff_max ? r->elastic.backoff_max : BACKOFF_MAX;
    uint64_t twice = p->backoff * 2 < most ? p->backoff * 2 : most;
    p->backoff = healthy || !p->backoff ? first : twice;
    a->draining |= r->hosted; /* the pod ends with its rank */
    if (have(r) >= r->target)
        return;
    if (roster_limit_reached(r))
        return;
    r->restarts++;
    add_start(r, a->lost || a->draining ? -1 : m->agent, now + p->backoff, true);
}

/* ---- members that leave --------------------------------------------------------------------- */

void roster_ask_to_leave(struct roster *r, int member, const char *text)
{
    struct roster_member *m = &r->members.list[member];
    m->leaving = true;
    if (!member_survives(m))
        roster_note(r, NOTE_LEAVE, member, 0, text);
}

/* Whether m, which has the higher number, leaves before b. Where hosts have an order: the last host
 * first. Then members without the state, the newest first. Then the highest rank. */
static bool goes_before(const struct roster *r, const struct roster_member *m,
                        const struct roster_member *b)
{
    int mine = r->agents.list[m->agent].order, other = r->agents.list[b->agent].order;
    bool survives = member_survives(m);
    if (mine != other)
        return mine > other;
    if (survives != member_survives(b))
        return !survives;
    return !survives || m->rank >= b->rank;
}

/* The next member to leave, -1: none. */
static int choose_leaver(const struct roster *r)
{
    int best = -1;
    for (int i = 0; i < r->members.n; i++) {
        const struct roster_member *m = &r->members.list[i];
        if (!member_is_wanted(m) || member_may_return(m))
            continue;
        const struct roster_member *b = best < 0 ? NULL : &r->members.list[best];
        if (!b || goes_before(r, m, b))
            best = i;
    }
    return best;
}

/* n ranks fewer. Pending starts are cancelled before any rank is asked to leave. */
static void shrink(struct roster *r, int n, const char *text)
{
    for (; n > 0 && r->starts.n > 0; n--)
        r->starts.n--;
    for (; n > 0; n--) {
        int leaver = choose_leaver(r);
        if (leaver >= 0)
            roster_ask_to_leave(r, leaver, text);
    }
}

/* Ranks that may still come back are not counted here: each one is when it does. */
void roster_came_back(struct roster *r)
{
    int n = have(r) - roster_members_count(&r->members, member_may_return) - r->target;
    if (r->is_elastic && !r->rebuilding && !r->stopping && !r->closing)
        shrink(r, n, "a rank that had left came back, and the job has more ranks than its target");
}

void roster_wind_down(struct roster *r, uint64_t now)
{
    char text[256];
    r->starts.n = 0;
    for (int i = 0; i < r->members.n && !r->stopping; i++) {
        const struct roster_member *m = &r->members.list[i];
        if (!member_is_wanted(m) || (m->was_in && !member_awaits_boundary(m)))
            continue;
        roster_describe_outsider(r, i, now, text, sizeof(text));
        roster_ask_to_leave(r, i, text);
    }
}

/* ---- planned changes ------------------------------------------------------------------------ */

static int check_change(const struct roster *r, struct err *err)
{
    if (!r->is_elastic)
        return err_set(err, EOPNOTSUPP,
                       "this job has a fixed size: only one that was started with --min-np or "
                       "--max-np can change");
    if (r->stopping || r->closing || roster_is_finished(r))
        return err_set(err, ERANGE, "the job is ending");
    if (r->rebuilding)
        return err_set(err, ERANGE, "the job's agents are still asked what they know: try again");
    return 0;
}

static int check_size(const struct roster *r, int np, struct err *err)
{
    if (np < r->elastic.min)
        return err_set(err, ERANGE, "%d ranks would be less than the job's minimum of %d", np,
                       r->elastic.min);
    if (np > r->elastic.max)
        return err_set(err, ERANGE, "%d ranks would be more than the job's maximum of %d", np,
                       r->elastic.max);
    int slots = roster_agents_count_slots(&r->agents);
    if (np > r->target && np > slots)
        return err_set(err, ERANGE, "%d ranks: the hosts have room for %d", np, slots);
    return 0;
}

void roster_fill(struct roster *r, uint64_t now)
{
    int limit = r->elastic.reset_limit;
    while (have(r) < r->target && r->starts.n < r->elastic.max && !roster_is_finished(r) &&
           (limit == 0 || r->restarts < limit)) {
        r->restarts += limit > 0;
        add_start(r, -1, now, limit > 0);
    }
    shrink(r, have(r) - r->target, "the job is to be smaller");
    start_due(r, now);
    roster_consider(r, now);
}

uint32_t roster_apply_change(struct roster *r, uint64_t now)
{
    r->changes.requested++;
    while (have(r) < r->target && r->starts.n < r->elastic.max)
        add_start(r, -1, now, false);
    shrink(r, have(r) - r->target, "the job is to be smaller");
    start_due(r, now);
    roster_consider(r, now);
    return r->changes.requested;
}

int roster_scale(struct roster *r, int np, uint64_t now, uint32_t *ret_change, struct err *err)
{
    char text[96];
    int rc = check_change(r, err);
    if (rc == 0)
        rc = check_size(r, np, err);
    if (rc < 0)
        return rc;
    if (np == r->target) {
        *ret_change = r->changes.requested;
        return 0;
    }
    snprintf(text, sizeof(text), "scaled from %d to %d ranks", r->target, np);
    roster_changes_add_plan(&r->changes, text);
    r->target = np;
    *ret_change = roster_apply_change(r, now);
    return 0;
}

int roster_drain_rank(struct roster *r, int rank, uint64_t now, uint32_t *ret_change,
                      struct err *err)
{
    char text[96];
    int rc = check_change(r, err), member = 0;
    if (rc < 0)
        return rc;
    while (member < r->members.n &&
           (r->members.list[member].rank != rank || !member_survives(&r->members.list[member])))
        member++;
    if (rank < 0 || member == r->members.n)
        return err_set(err, ENOENT, "no rank %d: the job has ranks 0 to %d", rank, r->size - 1);
    if (r->members.list[member].leaving) {
        *ret_change = r->changes.requested;
        return 0;
    }
    rc = check_size(r, r->target - 1, err);
    if (rc < 0)
        return rc;
    snprintf(text, sizeof(text), "rank %d was drained", rank);
    roster_changes_add_plan(&r->changes, text);
    r->target--;
    roster_ask_to_leave(r, member, text);
    *ret_change = roster_apply_change(r, now);
    return 0;
}

static bool is_host(const struct roster_agent *a, const char *host)
{
    return strcmp(a->host, host) == 0;
}

/* Lists the agents' hosts for an error text. */
static void list_hosts(const struct roster *r, char *dst, size_t size)
{
    size_t n = 0;
    dst[0] = '\0';
    for (int a = 0; a < r->agents.n && n + 1 < size; a++) {
        snprintf(dst + n, size - n, "%s%s", a ? ", " : "", r->agents.list[a].host);
        n = strlen(dst);
    }
}

/* Number of wanted members on that host; -1: no such host. */
static int count_on_host(const struct roster *r, const char *host)
{
    int n = -1;
    for (int a = 0; a < r->agents.n; a++) {
        if (!is_host(&r->agents.list[a], host))
            continue;
        n = n < 0 ? 0 : n;
        for (int i = 0; i < r->members.n; i++)
            n += r->members.list[i].agent == a && member_is_wanted(&r->members.list[i]);
    }
    return n;
}

static bool is_drained(const struct roster *r, const char *host)
{
    for (int a = 0; a < r->agents.n; a++)
        if (is_host(&r->agents.list[a], host) && !r->agents.list[a].lost &&
            !r->agents.list[a].draining)
            return false;
    return true;
}

int roster_drain_host(struct roster *r, const char *host, uint64_t now, uint32_t *ret_change,
                      struct err *err)
{
    char text[MEMBER_NAME_MAX + 32], list[512];
    int rc = check_change(r, err), n = count_on_host(r, host);
    if (rc < 0)
        return rc;
    list_hosts(r, list, sizeof(list));
    if (n < 0)
        return err_set(err, ENOENT, "no host \"%.100s\": the job's hosts are %s", host, list);
    rc = r->hosted ? 0 : check_size(r, r->target - n, err);
    if (rc < 0)
        return rc;
    /* The cluster reported the end of the pod before its drain request came. */
    if (r->hosted && is_drained(r, host)) {
        *ret_change = r->changes.requested;
        return 0;
    }
    snprintf(text, sizeof(text), "host %s was drained", host);
    roster_changes_add_plan(&r->changes, text);
    r->target -= r->hosted ? 0 : n;
    for (int i = 0; i < r->members.n; i++)
        if (is_host(&r->agents.list[r->members.list[i].agent], host) &&
            member_is_wanted(&r->members.list[i]))
            roster_ask_to_leave(r, i, text);
    for (int a = 0; a < r->agents.n; a++)
        r->agents.list[a].draining |= is_host(&r->agents.list[a], host);
    *ret_change = roster_apply_change(r, now);
    return 0;
}

/* ---- time limits ---------------------------------------------------------------------------- */

/* Some survivors have answered a loss or are at a boundary and wait for the others, which should
 * follow in milliseconds. Ends members that do not follow for EVICT_AFTER. */
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
    start_due(r, now);
    roster_consider(r, now);
    if (r->is_elastic)
        evict_silent(r, now);
}
