/* SPDX-License-Identifier: Apache-2.0
 *
 * roster: see roster.h. Creation, and the end of the job.
 */
#include "core/member/roster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/member/roster_private.h"

#define NOTES_MORE 16 /* preallocated notes in addition to one per rank: signals, a stop */

/* Horovod's cross rank: the index among the hosts that have a rank with this local rank. */
static void fill_cross_ranks(struct roster *r)
{
    for (int i = 0; i < r->members.n; i++) {
        struct assignment *assignment = &r->members.list[i].assignment;
        assignment->cross_rank = assignment->cross_size = 0;
        for (int a = 0; a < r->agents.n; a++) {
            const struct roster_agent *other = &r->agents.list[a];
            int local = assignment->local_rank;
            if (local >= other->nslots || other->slots[local].member < 0)
                continue;
            assignment->cross_size++;
            assignment->cross_rank += a < r->members.list[i].agent;
        }
    }
}

int roster_add_member(struct roster *r, int agent, int slot)
{
    int member = roster_members_add(&r->members, agent, slot, r->agents.n);
    if (member >= 0)
        r->agents.list[agent].slots[slot].member = member;
    return member;
}

/* Adds a host with its first members. */
static int add_host(struct roster *r, const struct roster_host *host)
{
    int agent = roster_agents_add(&r->agents, host), rc = agent < 0 ? agent : 0;
    for (int i = 0; i < host->nranks && rc >= 0; i++)
        rc = roster_add_member(r, agent, i);
    return rc < 0 ? rc : 0;
}

int roster_add_host(struct roster *r, const struct roster_host *host, struct err *err)
{
    return add_host(r, host) < 0 ? err_set(err, ENOMEM, "no memory for one more host") : 0;
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
    *r = (struct roster){.size = size};
    roster_ends_init(&r->ends);
    if (r->size < 1 || r->size > MEMBER_RANKS_MAX)
        return err_set(err, EINVAL, "%d ranks: want 1 to %d", r->size, MEMBER_RANKS_MAX);
    r->target = r->size;
    int rc = roster_notes_init(&r->notes, r->size + NOTES_MORE);
    if (rc == 0)
        rc = roster_members_reserve(&r->members, r->size);
    for (int h = 0; h < nhosts && rc == 0; h++)
        rc = add_host(r, &hosts[h]);
    if (rc < 0) {
        roster_fini(r);
        return err_set(err, ENOMEM, "no memory for %d ranks", size);
    }
    snprintf(r->job, sizeof(r->job), "%s", job);
    memcpy(r->key, key, sizeof(r->key));
    fill_cross_ranks(r);
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
    /* These members are started as soon as a host has a slot. */
    for (int i = r->members.n; i < r->size && r->hosted; i++)
        roster_starts_add(&r->starts, (struct roster_start){.agent = -1});
    return 0;
}

void roster_fini(struct roster *r)
{
    roster_members_fini(&r->members);
    roster_agents_fini(&r->agents);
    roster_body_fini(&r->world);
    roster_body_fini(&r->gathered);
    roster_notes_fini(&r->notes);
    roster_starts_fini(&r->starts);
    free((int *)r->saved.leaving);
    explicit_bzero(r, sizeof(*r));
}

int roster_note_agent(const struct roster *r, const struct note *n)
{
    bool special = n->type == NOTE_START || n->type == NOTE_LEAVE || n->type == NOTE_EVICT ||
                   n->type == NOTE_NUMBERS;
    return special ? r->members.list[n->member].agent : -1;
}

int roster_find(const struct roster *r, const char *uid)
{
    return roster_agents_find(&r->agents, uid);
}

/* Notes for each rank's end and for a stop are preallocated. A later note is dropped when memory is
 * exhausted. */
void roster_note(struct roster *r, enum note_type type, int member, int code, const char *text)
{
    struct note n = {.type = type, .member = member, .code = code, .epoch = r->epoch};
    snprintf(n.text, sizeof(n.text), "%s", text);
    roster_notes_add(&r->notes, &n);
}

/* ---- the end -------------------------------------------------------------------------------- */

int roster_min_now(const struct roster *r)
{
    int min = r->elastic.min - r->ends.finished;
    return min > 1 ? min : 1;
}

/* True when the program has ended on some rank that was in the world, so that a new rank would have
 * no peer to train with. A command that never calls hvd_init() has no world: it is finished when it
 * has ended well on some rank and runs on none. */
bool roster_is_finished(const struct roster *r)
{
    if (r->epoch == 0 && !r->hosted && r->ends.finished > 0 && r->ends.ended == r->members.n)
        return true;
    return r->epoch > 0 && (r->ends.finished > 0 || r->ends.at_end >= 0);
}

bool roster_state_is_there(const struct roster *r)
{
    return r->rebuilding || roster_members_count(&r->members, member_survives) > 0 ||
           roster_members_count(&r->members, member_may_return) > 0 || roster_is_finished(r);
}

bool roster_done(const struct roster *r)
{
    return !r->rebuilding && r->ends.ended == r->members.n && r->starts.n == 0;
}

int roster_culprit(const struct roster *r)
{
    return roster_ends_culprit(&r->ends, r->is_elastic,
                               roster_members_count(&r->members, member_survives));
}

/* Its operations had failed, and it has gone on and then ended without hvd_shutdown(). */
static bool has_gone_on(const struct roster_member *m)
{
    return m->disturbed && !m->left_at && m->state == RANK_FINISHED;
}

int roster_named(const struct roster *r)
{
    int named = -1;
    if (r->ends.first >= 0 || r->ends.follower < 0 || r->is_elastic)
        return roster_culprit(r);
    if (r->ends.early >= 0)
        return r->ends.early;
    for (int i = 0; i < r->members.n; i++)
        if (has_gone_on(&r->members.list[i]))
            return i;
    for (int i = 0; i < r->members.n; i++)
        if (r->members.list[i].left_at && !r->members.list[i].disturbed &&
            (named < 0 || r->members.list[i].left_at < r->members.list[named].left_at))
            named = i;
    return named >= 0 ? named : r->ends.follower;
}

int roster_exit_code(const struct roster *r)
{
    int culprit = roster_culprit(r);
    if (culprit < 0)
        return 0;
    int code = r->members.list[culprit].code;
    return code < 0 ? 128 - code : code;
}
