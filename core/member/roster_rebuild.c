/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_rebuild: see roster_rebuild.h.
 *
 * The newest roster that any agent has becomes the world. Members first get the state that they had
 * before their latest events. Then their deaths are applied as if they were reported now, so that
 * waiting members get their answers by the normal rules.
 */
#include "core/member/roster_rebuild.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/words.h"
#include "core/member/roster_life.h"
#include "core/member/roster_target.h"

/* Limit of member numbers that agents may claim, because each costs memory. */
#define UNSAVED_MEMBERS_MAX MEMBER_RANKS_MAX

#define UNREPORTED 1 /* ended_at of members that no agent has reported */

int roster_begin_rebuild(struct roster *r, const char *job, const uint8_t key[MEMBER_KEY_SIZE],
                         const struct roster_host *hosts, int nhosts,
                         const struct roster_elastic *elastic, const struct roster_saved *saved,
                         uint64_t rebuild_by, struct err *err)
{
    size_t n = (size_t)saved->nleaving;
    int rc = roster_make(r, job, key, hosts, nhosts, saved->target, err);
    if (rc == 0)
        rc = roster_make_elastic(r, elastic, err);
    int *leaving = rc == 0 ? calloc(n + 1, sizeof(*leaving)) : NULL;
    if (rc == 0 && !leaving)
        rc = err_set(err, ENOMEM, "no memory for %d members", saved->nleaving);
    if (rc < 0 || !leaving)
        return rc;
    if (n)
        memcpy(leaving, saved->leaving, n * sizeof(*leaving));
    r->saved = *saved;
    r->saved.leaving = leaving;
    r->term = saved->term;
    r->hosted = saved->target_only;
    r->rebuilding = true;
    r->rebuild_by = rebuild_by;
    return 0;
}

/* ---- gathering ------------------------------------------------------------------------------ */

/* An upper bound of the member numbers that the previous coordinator can have used: it stores the
 * number of members before agents hear of more. When nothing is stored, agents' claims are limited.
 */
int roster_members_end(const struct roster *r)
{
    if (r->saved.target_only)
        return UNSAVED_MEMBERS_MAX;
    int64_t end = (int64_t)r->saved.nmembers + r->elastic.max;
    return end < MEMBER_NUMBER_MAX ? (int)end : MEMBER_NUMBER_MAX;
}

static bool is_told(const struct rejoin *told, int member)
{
    for (int i = 0; told && i < told->n; i++)
        if (told->members[i].member == member)
            return true;
    return false;
}

static int check_told(const struct roster *r, int agent, const struct rejoin *told, struct err *err)
{
    for (int i = 0; i < told->n; i++) {
        const struct rejoin_member *m = &told->members[i];
        bool twice =
            m->member >= roster_members_end(r) || m->local_rank >= r->agents.list[agent].room;
        for (int a = 0; a < r->agents.n && !twice; a++)
            twice = a != agent && is_told(r->agents.list[a].told, m->member);
        for (int k = 0; k < i && !twice; k++)
            twice = told->members[k].member == m->member;
        twice |= r->saved.target_only && told->known > UNSAVED_MEMBERS_MAX;
        if (twice)
            return err_set(err, EINVAL, "agent \"%.64s\" cannot have member %d in slot %d",
                           r->agents.list[agent].uid, m->member, m->local_rank);
    }
    return 0;
}

static bool is_newest(const struct roster *r, const struct roster_body *world)
{
    return world->n > 0 && (r->gathered.n == 0 || world->epoch > r->gathered.epoch);
}

static int check_world(const struct roster *r, const struct roster_body *world, struct err *err)
{
    for (int i = 0; i < world->n; i++) {
        const struct card *c = &world->cards[i];
        bool known = r->saved.target_only || roster_find(r, c->agent) >= 0;
        if (c->member >= roster_members_end(r) || !known)
            return err_set(err, EINVAL, "a roster with member %d of agent \"%.64s\"", c->member,
                           c->agent);
        for (int k = 0; k < i; k++)
            if (world->cards[k].member == c->member)
                return err_set(err, EINVAL, "a roster with member %d twice", c->member);
    }
    return 0;
}

static void forget_told(struct roster_agent *a)
{
    if (a->told)
        rejoin_fini(a->told);
    free(a->told);
    a->told = NULL;
}

/* Only the newest roster of all agents is kept: thousands of copies would not fit into memory. */
static void take_told(struct roster *r, struct roster_agent *a, struct rejoin *told)
{
    struct roster_body *world = &told->world;
    uint32_t epoch = world->epoch;
    if (is_newest(r, world)) {
        roster_body_fini(&r->gathered);
        r->gathered = *world;
        *world = (struct roster_body){0};
    }
    roster_body_fini(world);
    world->epoch = epoch;
    forget_told(a);
    a->told = told;
}

int roster_gather(struct roster *r, int agent, struct join_body *body, uint64_t now,
                  struct err *err)
{
    struct roster_agent *a = &r->agents.list[agent];
    int rc = body->rejoin ? check_told(r, agent, body->rejoin, err) : 0;
    if (rc == 0 && body->rejoin && is_newest(r, &body->rejoin->world))
        rc = check_world(r, &body->rejoin->world, err);
    else if (rc == 0 && body->rejoin && body->rejoin->world.n == 0 &&
             body->rejoin->world.epoch > r->gathered.epoch)
        rc = err_set(err, ENOENT, "this coordinator has no roster of epoch %u: send it",
                     roster_epoch_number(body->rejoin->world.epoch));
    if (rc < 0) {
        a->joined = false;
        forget_told(a);
        return rc;
    }
    if (body->rejoin)
        take_told(r, a, TAKE(body->rejoin));
    bool all = r->arriving == 0;
    for (int i = 0; i < r->agents.n; i++)
        all &= r->agents.list[i].joined || r->agents.list[i].lost;
    if (all)
        roster_rebuild(r, now);
    return 0;
}

/* A member that waits since an older epoch than the newest one is answered by the newest roster. */
bool roster_gathers_waiting(const struct roster *r)
{
    for (int a = 0; a < r->agents.n && r->rebuilding; a++) {
        const struct rejoin *told = r->agents.list[a].lost ? NULL : r->agents.list[a].told;
        for (int i = 0; told && i < told->n; i++) {
            const struct rejoin_member *m = &told->members[i];
            bool asks = m->why == CARD_REVOKED || m->why == CARD_BOUNDARY;
            if (m->waiting && asks && !m->over && !m->dead && m->epoch >= r->gathered.epoch)
                return true;
        }
    }
    return false;
}

/* ---- members and their states --------------------------------------------------------------- */

static void take_world(struct roster *r)
{
    for (int a = 0; a < r->agents.n; a++) {
        const struct rejoin *told = r->agents.list[a].told;
        if (told && told->change > r->changes.announced)
            r->changes.announced = told->change;
    }
    if (r->gathered.n > 0) {
        r->world = r->gathered;
        r->gathered = (struct roster_body){0};
        r->epoch = r->world.epoch;
        r->size = r->world.n;
        r->changes.applied = r->world.change;
        roster_note_done(r, r->world.departed_done);
        memcpy(r->key, r->world.key, sizeof(r->key));
    }
    if (r->changes.announced < r->changes.applied)
        r->changes.announced = r->changes.applied;
    r->changes.requested =
        r->saved.change > r->changes.announced ? r->saved.change : r->changes.announced;
}

/* When hosts are not stored: adds the hosts of the world whose agents have not joined, so that they
 * count as lost. */
static int add_absent(struct roster *r)
{
    for (int i = 0; i < r->world.n; i++) {
        const struct card *c = &r->world.cards[i];
        struct roster_host host = {c->agent, c->host, 0, 1};
        if (roster_find(r, c->agent) < 0 && roster_add_host(r, &host, NULL) < 0)
            return -ENOMEM;
    }
    return 0;
}

int roster_add_ended(struct roster *r, int n)
{
    if (roster_members_reserve(&r->members, n) < 0)
        return -ENOMEM;
    for (int i = r->members.n; i < n; i++, r->ends.ended++)
        r->members.list[i] = (struct roster_member){.state = RANK_FINISHED,
                                                    .end = END_FINISHED,
                                                    .rank = -1,
                                                    .was_rank = -1,
                                                    .place = -1,
                                                    .reaped = true,
                                                    .ended_at = UNREPORTED,
                                                    .assignment = {i, 0, 0, r->agents.n}};
    r->members.n = n > r->members.n ? n : r->members.n;
    return 0;
}

bool roster_is_unreported(const struct roster_member *m)
{
    return m->ended_at == UNREPORTED;
}

/* Creates all members that have ever had a number, as ended; agents' data revives some below. */
static int make_members(struct roster *r)
{
    int n = r->saved.nmembers;
    for (int a = 0; a < r->agents.n; a++) {
        const struct rejoin *told = r->agents.list[a].told;
        for (int i = 0; told && i < told->n; i++)
            n = told->members[i].member >= n ? told->members[i].member + 1 : n;
        if (r->saved.target_only && told && told->known > n)
            n = told->known;
    }
    for (int i = 0; i < r->world.n; i++)
        n = r->world.cards[i].member >= n ? r->world.cards[i].member + 1 : n;
    return roster_add_ended(r, n);
}

/* The member's state before its latest events, which are applied later. */
static enum rank_state state_of(const struct roster *r, const struct rejoin_member *t, int rank)
{
    if (!t->hello)
        return RANK_RUNNING;
    /* A waiting HELLO is either answered by the present roster, which has not arrived, or is for
     * the next one. */
    if (t->waiting)
        return rank >= 0 && t->epoch < r->epoch ? RANK_ACTIVE : RANK_READY;
    if (t->arrived && rank < 0 && !t->leaving)
        return RANK_ARRIVED;
    if (t->bye || t->leaving)
        return t->out && rank >= 0 ? RANK_ACTIVE : RANK_LEFT;
    return rank >= 0 ? RANK_ACTIVE : RANK_LEFT; /* the member was given up before, and stays so */
}

static void assign(struct roster *r, int agent, int member, int local_rank)
{
    struct roster_agent *a = &r->agents.list[agent];
    struct roster_member *m = &r->members.list[member];
    m->agent = agent;
    m->assignment = (struct assignment){member, local_rank, agent, r->agents.n};
    if (local_rank < a->room && member > a->slots[local_rank].member)
        a->slots[local_rank].member = member;
}

void roster_take_member(struct roster *r, int agent, struct rejoin_member *t, uint64_t now)
{
    struct roster_member *m = &r->members.list[t->member];
    int rank = m->rank;
    r->ends.ended -= rank_has_ended(m->state);
    assign(r, agent, t->member, t->local_rank);
    m->state = state_of(r, t, rank);
    m->pid = t->pid;
    m->started = now;
    m->was_in = rank >= 0 || t->epoch > 0;
    m->leaving |= t->leaving;
    m->unable = rank < 0 && (t->out || (m->state == RANK_LEFT && !t->bye && !t->leaving));
    m->batches = t->batches;
    m->bytes = t->bytes;
    roster_note_done(r, t->done);
    r->work.batches += t->batches;
    r->work.bytes += t->bytes;
    m->reaped = false;
    m->ended_at = 0;
    m->end = END_NONE;
    if (m->state != RANK_READY)
        return;
    m->why = t->why;
    m->card = t->card;
    t->card = (struct buf){0};
    r->members.ready++;
    r->members.first_ready = now;
}

/* Members of the world first, because the state of a member depends on whether it is in the world.
 * A member of the world that no agent reports becomes active here and is found dead below. */
static void take_members(struct roster *r, uint64_t now)
{
    for (int i = 0; i < r->world.n; i++) {
        const struct card *c = &r->world.cards[i];
        struct roster_member *m = &r->members.list[c->member];
        m->rank = m->was_rank = i;
        m->place = c->place;
        m->is_new = c->is_new;
        m->was_in = true;
        m->moved = now;
        m->agent = roster_find(r, c->agent);
    }
    for (int a = 0; a < r->agents.n; a++)
        for (int i = 0; r->agents.list[a].told && i < r->agents.list[a].told->n; i++)
            roster_take_member(r, a, &r->agents.list[a].told->members[i], now);
    for (int i = 0; i < r->world.n; i++) {
        struct roster_member *m = &r->members.list[r->world.cards[i].member];
        if (!rank_has_ended(m->state))
            continue;
        m->state = RANK_ACTIVE;
        m->reaped = false;
        m->ended_at = 0;
        m->end = END_NONE;
        r->ends.ended--;
    }
}

/* Marks members that the previous coordinator has asked to leave. A member in no world is told to
 * leave (unless its agent knows already), because no boundary will remove it. */
static void take_leaving(struct roster *r)
{
    for (int i = 0; i < r->saved.nleaving; i++) {
        int member = r->saved.leaving[i];
        if (member < 0 || member >= r->members.n)
            continue;
        struct roster_member *m = &r->members.list[member];
        if (rank_has_ended(m->state) || m->leaving)
            continue;
        m->leaving = true;
        if (!member_survives(m) && (m->state != RANK_LEFT || m->unable))
            roster_note(r, NOTE_LEAVE, member, 0, "the previous hvdrun asked it to leave");
    }
}

/* ---- their ends ----------------------------------------------------------------------------- */

void roster_take_end(struct roster *r, const struct rejoin_member *t, uint64_t now)
{
    struct roster_member *m = &r->members.list[t->member];
    m->code = t->code;
    words_set(&m->text, t->text);
    member_take_tail(m, t->tail);
    if (t->out && m->state == RANK_ACTIVE)
        roster_step(r, t->member, RANK_UNABLE, now, NULL);
    if (!t->over && !t->dead)
        return;
    m->reaped = t->over;
    bool bad = !t->over || t->code != 0 || (t->out && t->code < 0);
    roster_step(r, t->member, bad ? RANK_EXIT_BAD : RANK_EXIT_OK, now, NULL);
}

void roster_take_missing(struct roster *r, int agent, const struct rejoin *told, uint64_t now)
{
    for (int i = 0; i < r->world.n; i++) {
        int member = r->world.cards[i].member;
        struct roster_member *m = &r->members.list[member];
        if (m->agent != agent || is_told(told, member))
            continue;
        words_set(&m->text, r->hosted ? "it ended while no operator was there"
                                      : "it ended while no hvdrun was there");
        m->code = 1;
        m->reaped = true;
        roster_step(r, member, RANK_EXIT_BAD, now, NULL);
    }
}

/* Agents that have not joined: those of a hosted roster may still come (roster_late.c). */
static void take_absent(struct roster *r, uint64_t now)
{
    for (int i = 0; i < r->agents.n; i++) {
        struct roster_agent *a = &r->agents.list[i];
        if (a->joined && !a->lost)
            continue;
        if (r->hosted && !a->lost)
            a->away = true;
        else
            roster_lose_agent(r, i,
                              a->joined ? "it was lost while the job's agents were gathered"
                                        : "it did not come back to this hvdrun",
                              now);
    }
}

void roster_rebuild(struct roster *r, uint64_t now)
{
    r->target = r->saved.target;
    r->restarts = r->saved.restarts;
    for (int a = 0; a < r->agents.n; a++)
        if (r->agents.list[a].lost)
            forget_told(&r->agents.list[a]);
    take_world(r);
    if (add_absent(r) < 0 || make_members(r) < 0) {
        r->rebuild_by = now + 1; /* out of memory: the next tick tries again */
        return;
    }
    take_members(r, now);
    take_leaving(r);
    /* All ends are applied before any epoch is published. */
    for (int a = 0; a < r->agents.n; a++)
        for (int i = 0; r->agents.list[a].told && i < r->agents.list[a].told->n; i++)
            roster_take_end(r, &r->agents.list[a].told->members[i], now);
    for (int a = 0; a < r->agents.n; a++)
        if (r->agents.list[a].joined && !r->agents.list[a].lost)
            roster_take_missing(r, a, r->agents.list[a].told, now);
    take_absent(r, now);
    r->rebuilding = false;
    r->last = (struct roster_last){.epoch = r->epoch, .at = now};
    snprintf(r->last.cause, sizeof(r->last.cause), "another %s has taken over",
             r->hosted ? "operator" : "hvdrun");
    if (r->changes.announced > r->changes.applied)
        roster_note(r, NOTE_CHANGE, -1, (int)r->changes.announced, "");
    for (int a = 0; a < r->agents.n; a++)
        forget_told(&r->agents.list[a]);
    roster_fill(r, now);
}
