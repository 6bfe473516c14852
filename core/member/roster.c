/* SPDX-License-Identifier: Apache-2.0
 *
 * roster: see roster.h. Creation, the life of each member, and the end of the job. Messages of
 * agents are in roster_events.c.
 */
#include "core/member/roster.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/member/rank_end.h"
#include "core/member/roster_private.h"

/* If a rank is reported killed by a signal within this time after another rank failed with an exit
 * code, the killed rank was probably the cause, and the report of its agent took longer. */
#define FIRST_WINDOW (300 * CLOCK_MS)

#define NOTES_MORE 16 /* preallocated notes in addition to one per rank: signals, a stop */

/* Horovod's cross rank: the index among the hosts that have a rank with this local rank. */
static void fill_seats(struct roster *r)
{
    for (int i = 0; i < r->nmembers; i++) {
        struct assignment *assignment = &r->members[i].assignment;
        assignment->cross_rank = assignment->cross_size = 0;
        for (int a = 0; a < r->nagents; a++) {
            const struct roster_agent *other = &r->agents[a];
            int local = assignment->local_rank;
            if (local >= other->nslots || other->slots[local].member < 0)
                continue;
            assignment->cross_size++;
            assignment->cross_rank += a < r->members[i].agent;
        }
    }
}

int roster_reserve(struct roster *r, int n)
{
    int cap = r->members_cap ? r->members_cap : 8;
    while (cap < n)
        cap *= 2;
    if (cap == r->members_cap)
        return 0;
    struct roster_member *grown = realloc(r->members, (size_t)cap * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    r->members = grown;
    r->members_cap = cap;
    return 0;
}

int roster_add_member(struct roster *r, int agent, int slot)
{
    if (r->nmembers == MEMBER_NUMBER_MAX || roster_reserve(r, r->nmembers + 1) < 0)
        return -ENOMEM;
    int member = r->nmembers++;
    r->members[member] = (struct roster_member){.agent = agent,
                                                .rank = -1,
                                                .was_rank = -1,
                                                .assignment = {member, slot, agent, r->nagents}};
    r->agents[agent].slots[slot].member = member;
    return member;
}

static void agent_fini(struct roster_agent *a)
{
    findings_fini(&a->findings);
    if (a->told)
        rejoin_fini(a->told);
    free(a->told);
    free(a->slots);
    free(a->uid);
    free(a->host);
    free(a->self);
}

int roster_add_agent(struct roster *r, const struct roster_host *host)
{
    struct roster_agent *a = &r->agents[r->nagents];
    a->uid = strdup(host->uid);
    a->host = strdup(host->host);
    a->nslots = host->slots > host->nranks ? host->slots : host->nranks;
    a->room = a->nslots;
    a->slots = calloc((size_t)a->nslots + 1, sizeof(*a->slots));
    if (!a->slots || !a->uid || !a->host) {
        agent_fini(a);
        return -ENOMEM;
    }
    for (int i = 0; i < a->nslots; i++)
        a->slots[i].member = -1;
    int index = r->nagents++, rc = 0;
    for (int i = 0; i < host->nranks && rc >= 0; i++)
        rc = roster_add_member(r, index, i);
    return rc < 0 ? rc : 0;
}

int roster_init(struct roster *r, const char *job, const uint8_t key[MEMBER_KEY_SIZE],
                const struct roster_host *hosts, int nhosts, struct err *err)
{
    int size = 0;
    for (int h = 0; h < nhosts; h++)
        size += hosts[h].nranks;
    return roster_make(r, job, key, hosts, nhosts, size, err);
}

int roster_init_hosted(struct roster *r, const char *job, const uint8_t key[MEMBER_KEY_SIZE],
                       int size, struct err *err)
{
    int rc = roster_make(r, job, key, NULL, 0, size, err);
    if (rc == 0)
        r->hosted = true;
    return rc;
}

int roster_make(struct roster *r, const char *job, const uint8_t key[MEMBER_KEY_SIZE],
                const struct roster_host *hosts, int nhosts, int size, struct err *err)
{
    *r = (struct roster){.size = size,
                         .first = -1,
                         .early = -1,
                         .follower = -1,
                         .spoilt = -1,
                         .owed = -1,
                         .last_failed = -1};
    if (r->size < 1 || r->size > MEMBER_RANKS_MAX)
        return err_set(err, EINVAL, "%d ranks: want 1 to %d", r->size, MEMBER_RANKS_MAX);
    r->target = r->members_cap = r->size;
    r->members = calloc((size_t)r->size, sizeof(*r->members));
    r->agents = calloc((size_t)nhosts + 1, sizeof(*r->agents));
    r->notes_cap = r->size + NOTES_MORE;
    r->notes = calloc((size_t)r->notes_cap, sizeof(*r->notes));
    int rc = r->members && r->agents && r->notes ? 0 : -ENOMEM;
    for (int h = 0; h < nhosts && rc == 0; h++)
        rc = roster_add_agent(r, &hosts[h]);
    if (rc < 0) {
        roster_fini(r);
        return err_set(err, ENOMEM, "no memory for %d ranks", size);
    }
    snprintf(r->job, sizeof(r->job), "%s", job);
    memcpy(r->key, key, sizeof(r->key));
    fill_seats(r);
    return 0;
}

int roster_make_elastic(struct roster *r, const struct roster_elastic *elastic, struct err *err)
{
    if (elastic->min < 1 || elastic->min > r->size || elastic->max < r->size ||
        elastic->max > MEMBER_RANKS_MAX)
        return err_set(err, EINVAL, "%d ranks: want at least 1 <= min (%d) and at most max (%d)",
                       r->size, elastic->min, elastic->max);
    if (roster_starts_reserve(&r->starts, elastic->max) < 0)
        return err_set(err, ENOMEM, "no memory for %d ranks", elastic->max);
    r->is_elastic = true;
    r->elastic = *elastic;
    /* Started as soon as a host has a slot. */
    for (int i = r->nmembers; i < r->size && r->hosted; i++)
        roster_starts_add(&r->starts, (struct roster_start){.agent = -1});
    return 0;
}

static void member_fini(struct roster_member *m)
{
    buf_fini(&m->card);
    free(m->text);
    free(m->tail);
}

/* Best effort: without memory the lines are dropped. */
void roster_take_tail(struct roster_member *m, const char *tail)
{
    free(m->tail);
    m->tail = tail[0] ? strdup(tail) : NULL;
}

void roster_fini(struct roster *r)
{
    for (int i = 0; r->members && i < r->nmembers; i++)
        member_fini(&r->members[i]);
    for (int a = 0; r->agents && a < r->nagents; a++)
        agent_fini(&r->agents[a]);
    roster_body_fini(&r->world);
    free(r->members);
    free(r->agents);
    free(r->notes);
    roster_starts_fini(&r->starts);
    free((int *)r->saved.leaving);
    explicit_bzero(r, sizeof(*r));
}

int roster_note_agent(const struct roster *r, const struct note *n)
{
    bool special = n->type == NOTE_START || n->type == NOTE_LEAVE || n->type == NOTE_EVICT ||
                   n->type == NOTE_NUMBERS;
    return special ? r->members[n->member].agent : -1;
}

int roster_find(const struct roster *r, const char *uid)
{
    for (int a = 0; a < r->nagents; a++)
        if (strcmp(r->agents[a].uid, uid) == 0)
            return a;
    return -ENOENT;
}

/* Notes for each rank's end and for a stop are preallocated. A later note is dropped when memory is
 * exhausted. */
void roster_note(struct roster *r, enum note_type type, int member, int code, const char *text)
{
    if (r->nnotes == r->notes_cap) {
        int cap = r->notes_cap * 2;
        struct note *grown = realloc(r->notes, (size_t)cap * sizeof(*grown));
        if (!grown)
            return;
        r->notes = grown;
        r->notes_cap = cap;
    }
    struct note *n = &r->notes[r->nnotes++];
    *n = (struct note){.type = type, .member = member, .code = code, .epoch = r->epoch};
    snprintf(n->text, sizeof(n->text), "%s", text);
}

/* ---- what the table's actions do ------------------------------------------------------------ */

static void act_end(struct roster *r, int member, enum note_type type, uint64_t now)
{
    char text[512];
    struct roster_member *m = &r->members[member];
    r->ended++;
    m->ended_at = now ? now : 1;
    roster_describe_end(r, member, text, sizeof(text));
    roster_note(r, type, member, m->code, text);
}

static void first_to_fail(struct roster *r, int member, uint64_t now)
{
    const struct roster_member *mine = &r->members[member];
    const struct roster_member *first = r->first >= 0 ? &r->members[r->first] : NULL;
    if (!first || (mine->code < 0 && first->code > 0 && now - first->ended_at < FIRST_WINDOW))
        r->first = member;
}

/* The end of a member that was asked to leave and is out of the world is no loss; before that it
 * is. survived: it was in the world until now. */
static enum note_type end_note(const struct roster_member *m, bool survived)
{
    return m->leaving && !survived ? NOTE_ENDED : NOTE_LOST;
}

static enum end_way way_of(const struct roster *r, const struct roster_member *m)
{
    if (r->agents[m->agent].lost)
        return END_HOST;
    return m->code > 0 ? END_CODE : END_SIGNAL;
}

/* before: the member's state before it failed. */
static enum end_time time_of(const struct roster *r, const struct roster_member *m,
                             enum rank_state before)
{
    bool inside = before == RANK_READY || before == RANK_ACTIVE;
    if (!r->is_elastic && (m->disturbed || (r->early >= 0 && inside)))
        return END_DISTURBED;
    if (before == RANK_LEFT && !m->out)
        return roster_count(r, roster_survives) > 0 ? END_LEFT_EARLY : END_LEFT_LAST;
    if (r->epoch == 0)
        return END_UNBORN;
    return r->is_elastic && !m->was_in ? END_OUTSIDE : END_INSIDE;
}

static void act_fail(struct roster *r, int member, enum rank_state before, bool survived,
                     uint64_t now)
{
    struct roster_member *m = &r->members[member];
    enum end_time time = time_of(r, m, before);
    m->stopped = r->stopping;
    act_end(r, member, end_note(m, survived), now);
    if (r->stopping || m->leaving)
        return;
    enum end_verdict verdict = rank_end_verdict(r->is_elastic && !r->closing, way_of(r, m), time);
    /* Before the first epoch a lost host fails the job if the other hosts have no room for the
     * minimum. */
    if (verdict == END_REPLACED && time == END_UNBORN && way_of(r, m) == END_HOST &&
        roster_count_slots(r) < r->elastic.min)
        verdict = END_FIRST;
    if (verdict == END_FIRST && r->hosted &&
        !r->closing) /* hosted: the cluster decides what a failure means */
        verdict = END_REPLACED;
    if (r->is_elastic && !r->closing)
        r->last_failed = member;
    if (verdict == END_FIRST)
        first_to_fail(r, member, now);
    if (verdict == END_FOLLOWS && r->follower < 0)
        r->follower = member;
    if (verdict == END_FAILS_AT_END && r->spoilt < 0)
        r->spoilt = member;
    if (verdict == END_REPLACED_OR_FAILS)
        r->owed = member;
    if (verdict == END_REPLACED_OR_FAILS || verdict == END_REPLACED)
        roster_replace(r, member, now);
}

static void act_early(struct roster *r, int member, bool survived, uint64_t now)
{
    struct roster_member *m = &r->members[member];
    m->early = survived || (!m->leaving && roster_is_part(r, m));
    r->done += roster_is_part(r, m);
    if (r->early < 0 && m->early)
        r->early = member;
    act_end(r, member, end_note(m, survived), now);
}

/* The rank reports that it cannot go on; its process may still run. */
static void act_out(struct roster *r, int member)
{
    char text[600];
    struct roster_member *m = &r->members[member];
    m->out = true;
    roster_describe_end(r, member, text, sizeof(text));
    roster_note(r, NOTE_LOST, member, m->code, text);
}

static void act(struct roster *r, int member, const struct rank_row *row, bool survived,
                uint64_t now)
{
    switch (row->action) {
    case RANK_DO_END:
        r->done += roster_is_part(r, &r->members[member]) && !r->members[member].out;
        act_end(r, member, NOTE_ENDED, now);
        break;
    case RANK_DO_EARLY:
        act_early(r, member, survived, now);
        break;
    case RANK_DO_FAIL:
        act_fail(r, member, row->state, survived, now);
        break;
    case RANK_DO_OUT:
        act_out(r, member);
        break;
    case RANK_DO_NOTHING:
    case RANK_DO_CARD:
    case RANK_ACTIONS:
        break;
    }
}

int roster_check_step(const struct roster *r, int member, enum rank_event event, struct err *err)
{
    enum rank_state state = r->members[member].state;
    if (rank_step(state, event))
        return 0;
    return err_set(err, EPROTO, "rank %d is %s: no %s is expected", member, rank_state_name(state),
                   rank_event_name(event));
}

int roster_step(struct roster *r, int member, enum rank_event event, uint64_t now, struct err *err)
{
    char text[512];
    struct roster_member *m = &r->members[member];
    const struct rank_row *row = rank_step(m->state, event);
    if (!row)
        return roster_check_step(r, member, event, err);
    bool survived = roster_survives(m);
    if (row->next == RANK_READY && r->ready == 0)
        r->first_ready = now;
    if (row->next == RANK_READY && m->state != RANK_READY)
        m->waits = now;
    r->ready += (row->next == RANK_READY) - (m->state == RANK_READY);
    m->state = row->next;
    if (event == RANK_BYE && survived)
        m->left_at = now ? now : 1;
    if (event == RANK_CARD) {
        m->left_at = 0;
        m->disturbed = m->out = false; /* hvd_init() again: the rank begins anew */
    }
    act(r, member, row, survived, now);
    if (survived && (rank_has_ended(m->state) || m->out)) {
        roster_describe_end(r, member, text, sizeof(text));
        roster_add_cause(r, now, text);
    }
    return 0;
}

/* ---- the end -------------------------------------------------------------------------------- */

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

bool roster_done(const struct roster *r)
{
    return !r->rebuilding && r->ended == r->nmembers && r->starts.n == 0;
}

int roster_culprit(const struct roster *r)
{
    int who = r->first >= 0 ? r->first : r->follower;
    if (r->is_elastic && who < 0)
        who = r->spoilt;
    if (r->is_elastic && who < 0 && roster_count(r, roster_survives) == 0)
        who = r->owed;
    if (r->is_elastic && who < 0 && r->done == 0)
        who = r->last_failed;
    return who;
}

int roster_named(const struct roster *r)
{
    int who = -1;
    if (r->first >= 0 || r->follower < 0 || r->is_elastic)
        return roster_culprit(r);
    if (r->early >= 0)
        return r->early;
    for (int i = 0; i < r->nmembers; i++)
        if (r->members[i].left_at && !r->members[i].disturbed &&
            (who < 0 || r->members[i].left_at < r->members[who].left_at))
            who = i;
    return who >= 0 ? who : r->follower;
}

int roster_exit_code(const struct roster *r)
{
    int who = roster_culprit(r);
    if (who < 0)
        return 0;
    int code = r->members[who].code;
    return code < 0 ? 128 - code : code;
}
