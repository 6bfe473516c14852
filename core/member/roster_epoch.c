/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_epoch: see roster_epoch.h.
 */
#include "core/member/roster_epoch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/member/roster_arrivals.h"
#include "core/member/roster_leave.h"
#include "core/member/roster_life.h"
#include "core/member/roster_world.h"

#define ERRED_WORLDS 3 /* after this many erred worlds in a row the program itself is at fault */
#define TOGETHER     (500 * CLOCK_MS) /* how long a ready joiner waits for joiners that start up */
#define HEALTHY      (60 * CLOCK_S)

/* True when the member has been in a world and has called hvd_init again. */
static bool has_come_back(const struct roster_member *m)
{
    return member_is_joiner(m) && m->was_in && !member_awaits_boundary(m);
}

/* True when the member may still call hvd_init. */
static bool is_coming(const struct roster_member *m)
{
    return !rank_has_ended(m->state) && !m->leaving && !m->unable && m->state != RANK_READY &&
           m->state != RANK_ACTIVE;
}

static bool is_waiting(const struct roster_member *m)
{
    return m->state == RANK_READY;
}

/* True when the member waits at the boundary that all ranks of its world agreed on. */
static bool is_at_boundary(const struct roster_member *m)
{
    return m->state == RANK_READY && m->why == CARD_BOUNDARY;
}

static bool is_staying(const struct roster_member *m)
{
    return member_survives(m) && !m->leaving;
}

static int count_both(const struct roster *r, bool (*is)(const struct roster_member *m),
                      bool (*too)(const struct roster_member *m))
{
    int n = 0;
    for (int i = 0; i < r->members.n; i++)
        n += is(&r->members.list[i]) && too(&r->members.list[i]);
    return n;
}

static void add_count(struct roster *r, uint64_t now, int n, const char *what)
{
    char text[64];
    snprintf(text, sizeof(text), "%d %s%s", n, n == 1 ? "rank " : "ranks ", what);
    if (n > 0)
        roster_next_add_cause(&r->next, now, text);
}

/* Whether members that were asked to leave stay for one more epoch and give joiners the state,
 * because no member that stays has it. */
static bool is_handover(const struct roster *r)
{
    return roster_members_count(&r->members, is_staying) == 0;
}

/* The most ranks of the next epoch. In a handover no joiner takes a place beyond the target: the
 * members that leave make room for it at the boundary after that. One joiner is admitted in any
 * case. */
static int most_ranks(const struct roster *r)
{
    if (!r->elastic.keep_places || !is_handover(r))
        return r->elastic.max;
    return r->target > 2 ? r->target : 2;
}

/* How many members stay in a handover: all that the joiners leave room for, and at least one. */
static int count_held(const struct roster *r)
{
    int room = most_ranks(r) - roster_members_count(&r->members, member_is_joiner);
    if (!is_handover(r))
        return 0;
    return room > 1 ? room : 1;
}

/* Whether this member was asked to leave and leaves at this boundary. The members with the lowest
 * ranks stay for the joiners. */
static bool goes_now(const struct roster *r, const struct roster_member *m)
{
    int before = 0;
    if (!m->leaving || !member_survives(m))
        return false;
    for (int i = 0; i < r->members.n; i++)
        before += member_survives(&r->members.list[i]) && r->members.list[i].rank < m->rank;
    int held = count_held(r);
    return held == 0 || before >= held;
}

/* Removes the members for which goes_now() is true from the world. Returns their number. */
static int remove_leaving(struct roster *r, uint64_t now)
{
    int n = 0;
    for (int i = 0; i < r->members.n; i++) {
        const struct roster_member *m = &r->members.list[i];
        if (!goes_now(r, m))
            continue;
        roster_step(r, i, RANK_REMOVE, now, NULL);
        roster_note(r, NOTE_LEAVE, i, 0, "it was asked to leave, the world goes on without it");
        n++;
    }
    return n;
}

/* Appends joiners by member number until the list has `most` members. Returns their number. */
static int add_joiners(const struct roster *r, struct roster_placed *list, int n, int most)
{
    for (int i = 0; i < r->members.n && n < most; i++) {
        const struct roster_member *m = &r->members.list[i];
        if (member_is_joiner(m))
            list[n++] = (struct roster_placed){i, -1, r->agents.list[m->agent].order};
    }
    return n;
}

/* Fills list with the members of the next epoch and their places, in order of their ranks. Returns
 * their number. */
static int choose_members(const struct roster *r, bool boundary, struct roster_placed *list)
{
    int n = 0;
    for (int i = 0; i < r->members.n; i++) {
        const struct roster_member *m = &r->members.list[i];
        if (member_survives(m) && !(boundary && goes_now(r, m)))
            list[n++] = (struct roster_placed){i, m->place, 0};
    }
    int survivors = n;
    if (boundary)
        n = add_joiners(r, list, n, most_ranks(r));
    roster_places_give(list, survivors, n, r->elastic.keep_places);
    return n;
}

static void announce(struct roster *r, uint64_t now)
{
    roster_next_since(&r->next.cause_at, now);
    if (r->changes.plan[0])
        roster_next_add_cause(&r->next, now, r->changes.plan);
    roster_note(r, NOTE_CHANGE, -1, (int)roster_changes_announce(&r->changes), "");
}

/* Adds ranks that called hvd_shutdown() while others train: their end is no loss, but the next
 * epoch is made without them. */
static void add_departed(struct roster *r, uint64_t now)
{
    char text[512];
    for (int i = 0; i < r->members.n; i++) {
        const struct roster_member *m = &r->members.list[i];
        if (m->rank < 0 || !m->left_at || m->unable)
            continue;
        roster_describe_end(r, i, text, sizeof(text));
        if (!strstr(r->next.cause, text))
            roster_next_add_cause(&r->next, now, text);
    }
}

/* Names a cause when all ranks of the last epoch have given it up though none has ended or left. If
 * that epoch was made for a loss and no rank has reported that it is in it, that loss is also the
 * cause of the next epoch. */
static void explain_retry(struct roster *r, uint64_t now)
{
    char text[96];
    if (r->last.lost && r->work.repair_epoch != r->epoch) {
        snprintf(r->next.cause, sizeof(r->next.cause), "%s", r->last.cause);
        snprintf(text, sizeof(text), "epoch %u did not come to be", r->epoch);
    } else {
        snprintf(text, sizeof(text), "the ranks of epoch %u have lost each other, none has ended",
                 r->epoch);
    }
    roster_next_add_cause(&r->next, now, text);
}

/* Every survivor waits: publishes the next epoch if it is large enough. */
static void publish_next(struct roster *r, bool boundary, uint64_t now)
{
    struct roster_placed *list = calloc((size_t)r->members.n + 1, sizeof(*list));
    int joiners = roster_members_count(&r->members, member_is_joiner);
    int n = list ? choose_members(r, boundary, list) : -ENOMEM, least = roster_min_now(r);
    /* Without a boundary no joiner is admitted, because joiners have no training state. They count
     * towards the minimum all the same: the survivors' roster announces a change, so they admit the
     * joiners at their next boundary. */
    if (n > 0 && n + (boundary ? 0 : joiners) >= least) {
        if (boundary) {
            int survivors = roster_members_count(&r->members, member_survives);
            int left = remove_leaving(r, now);
            add_count(r, now, left, "left as asked");
            add_count(r, now, n - (survivors - left), "joined");
            if (!r->next.cause[0])
                roster_next_add_cause(&r->next, now, "nobody has joined or left after all");
            r->changes.applied = r->changes.announced;
        } else {
            add_departed(r, now);
            if (!r->next.cause[0])
                explain_retry(r, now);
        }
        if (!boundary && n < least && !roster_changes_pending(&r->changes))
            announce(r, now);
        roster_publish(r, list, n, false, now);
        r->last.lost = !boundary;
    } else if (n >= 0) {
        roster_next_since(&r->next.waiting_since, now);
    }
    free(list);
}

/* ---- a world of new members ----------------------------------------------------------------- */

/* Publishes an epoch of new members only: the first epoch, and the first one after all survivors
 * were lost. It waits for all members that are to be in it. When the program has finished on some
 * rank, or a rank has called hvd_shutdown() and goes on alone, a new world is begun only if a rank
 * calls hvd_init again. */
static void publish_new_world(struct roster *r, uint64_t now)
{
    int have = roster_members_count(&r->members, member_is_joiner),
        coming = roster_members_count(&r->members, is_coming);
    int slots = roster_agents_free_slots(&r->agents, &r->members) + r->arriving;
    coming += r->starts.n < slots ? r->starts.n : slots;
    if (r->epoch > 0 && roster_members_count(&r->members, has_come_back) == 0 &&
        (roster_is_finished(r) || roster_members_count(&r->members, member_may_return) > 0))
        return;
    if (r->epoch > 0)
        roster_next_since(&r->next.waiting_since, now);
    uint64_t since = r->next.waiting_since > r->members.first_ready ? r->next.waiting_since
                                                                    : r->members.first_ready;
    bool late = now - since >= r->elastic.start_limit;
    if (have == 0 || have < roster_min_now(r) || (coming > 0 && !late))
        return;
    struct roster_placed *list = calloc((size_t)have, sizeof(*list));
    if (list) {
        int n = add_joiners(r, list, 0, have);
        roster_places_give(list, 0, n, r->elastic.keep_places);
        roster_changes_apply_all(&r->changes);
        if (r->epoch > 0 && !r->next.cause[0])
            add_count(r, now, n, "began anew");
        roster_publish(r, list, n, true, now);
    }
    free(list);
}

static void publish_fixed(struct roster *r, uint64_t now)
{
    struct roster_placed *list = calloc((size_t)r->members.n, sizeof(*list));
    for (int i = 0; list && i < r->members.n; i++)
        list[i] = (struct roster_placed){i, i, 0};
    if (list)
        roster_publish(r, list, r->members.n, true, now);
    free(list);
}

/* ---- what to do after an event -------------------------------------------------------------- */

static bool is_starting(const struct roster_member *m)
{
    return m->rank < 0 && !m->leaving && !m->was_in &&
           (m->state == RANK_ASSIGNED || m->state == RANK_RUNNING || m->state == RANK_EXPECTED ||
            m->state == RANK_ARRIVED);
}

static bool is_leaver(const struct roster_member *m)
{
    return m->leaving && member_survives(m);
}

/* Announces a pending change: leaving members at once; joiners when all started members are ready,
 * or after TOGETHER. */
static void consider_change(struct roster *r, uint64_t now)
{
    int joiners = roster_members_count(&r->members, member_is_joiner);
    int leavers = roster_members_count(&r->members, is_staying) > 0
                      ? roster_members_count(&r->members, is_leaver)
                      : 0;
    if (joiners == 0)
        r->next.joiner_ready = 0;
    else
        roster_next_since(&r->next.joiner_ready, now);
    if (leavers > 0 && r->changes.requested > r->changes.announced) {
        announce(r, now);
        return;
    }
    if (roster_changes_pending(&r->changes))
        return;
    int starting = roster_members_count(&r->members, is_starting);
    bool late = joiners > 0 && now - r->next.joiner_ready >= TOGETHER;
    if (leavers > 0 || (joiners > 0 && (starting == 0 || late)))
        announce(r, now);
    else if (r->changes.requested > r->changes.applied && joiners + starting + r->starts.n == 0)
        roster_changes_apply_all(&r->changes); /* the change has become void */
}

/* True when the member ended with an exit code, not by a signal and not with its host. */
static bool has_erred(const struct roster_member *m)
{
    return m->state == RANK_FAILED && m->code > 0 && !m->text;
}

static bool has_rank(const struct roster_member *m)
{
    return m->rank >= 0;
}

/* Every member of the world is lost. If every rank ended with an error of its own, in ERRED_WORLDS
 * worlds in a row, the program is at fault and the job ends: restarting it again and again would
 * hide that. If --reset-limit is given, it decides instead. */
static void judge_loss(struct roster *r, uint64_t now)
{
    if (r->next.judged == r->epoch)
        return;
    r->next.judged = r->epoch;
    bool erred = count_both(r, has_rank, has_erred) == r->world.n;
    bool healthy = now - r->last.at >= HEALTHY;
    r->next.erred_worlds = !erred ? 0 : healthy ? 1 : r->next.erred_worlds + 1;
    if (r->next.erred_worlds == ERRED_WORLDS && r->elastic.reset_limit == 0 && !r->hosted &&
        r->ends.first < 0)
        r->ends.first = r->ends.last_failed;
}

void roster_consider(struct roster *r, uint64_t now)
{
    if (r->rebuilding)
        return;
    if (!r->is_elastic) {
        if (r->members.ready == r->members.n)
            publish_fixed(r, now);
        return;
    }
    if (r->stopping)
        return;
    int survivors = roster_members_count(&r->members, member_survives);
    if (survivors == 0) {
        judge_loss(r, now);
        if (roster_is_finished(r))
            roster_wind_down(r, now);
        publish_new_world(r, now);
        return;
    }
    roster_number_arrivals(r);
    int waiting = count_both(r, member_survives, is_waiting);
    r->next.answering_since = waiting == 0              ? 0
                              : r->next.answering_since ? r->next.answering_since
                                                        : now;
    if (waiting == survivors)
        publish_next(r, count_both(r, member_survives, is_at_boundary) == survivors, now);
    consider_change(r, now);
}
