/* SPDX-License-Identifier: Apache-2.0
 *
 * roster: see roster.h. The states of a rank are in rank_state.c; words for people in
 * roster_text.c.
 */
#include "core/member/roster.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"

/* A rank that was killed by a signal right after another failed with an exit code was rather the
 * cause: its agent's report had the longer way. */
#define FIRST_WINDOW (300 * CLOCK_MS)

#define NOTES_MORE 16 /* notes there is room for beside one a rank: signals, a stop */

/* Horovod's cross rank: which of the hosts that have this local rank. */
static void fill_seats(struct roster *r)
{
    for (int i = 0; i < r->size; i++) {
        struct roster_agent *own = &r->agents[r->ranks[i].agent];
        int local = i - own->first, cross_rank = 0, cross_size = 0;
        for (int a = 0; a < r->nagents; a++) {
            if (r->agents[a].nranks <= local)
                continue;
            cross_size++;
            cross_rank += &r->agents[a] < own;
        }
        r->ranks[i].seat = (struct seat){i, local, cross_rank, cross_size};
    }
}

int roster_init(struct roster *r, const char *job, const uint8_t key[MEMBER_KEY_SIZE],
                const struct roster_host *hosts, int nhosts, struct err *err)
{
    *r = (struct roster){.first = -1, .early = -1};
    for (int h = 0; h < nhosts; h++)
        r->size += hosts[h].nranks;
    if (r->size < 1 || r->size > MEMBER_RANKS_MAX)
        return err_set(err, EINVAL, "%d ranks: want 1 to %d", r->size, MEMBER_RANKS_MAX);
    r->ranks = calloc((size_t)r->size, sizeof(*r->ranks));
    r->agents = calloc((size_t)nhosts, sizeof(*r->agents));
    r->notes_cap = r->size + NOTES_MORE;
    r->notes = calloc((size_t)r->notes_cap, sizeof(*r->notes));
    if (!r->ranks || !r->agents || !r->notes) {
        roster_fini(r);
        return err_set(err, ENOMEM, "no memory for %d ranks", r->size);
    }
    snprintf(r->job, sizeof(r->job), "%s", job);
    memcpy(r->key, key, sizeof(r->key));
    r->nagents = nhosts;
    for (int h = 0, rank = 0; h < nhosts; h++) {
        struct roster_agent *a = &r->agents[h];
        snprintf(a->uid, sizeof(a->uid), "%s", hosts[h].uid);
        snprintf(a->host, sizeof(a->host), "%s", hosts[h].host);
        a->first = rank;
        a->nranks = hosts[h].nranks;
        for (int i = 0; i < a->nranks; i++)
            r->ranks[rank++].agent = h;
    }
    fill_seats(r);
    return 0;
}

void roster_fini(struct roster *r)
{
    for (int i = 0; r->ranks && i < r->size; i++)
        buf_fini(&r->ranks[i].card);
    for (int a = 0; r->agents && a < r->nagents; a++)
        findings_fini(&r->agents[a].findings);
    free(r->ranks);
    free(r->agents);
    free(r->notes);
    explicit_bzero(r, sizeof(*r));
}

int roster_find(const struct roster *r, const char *uid)
{
    for (int a = 0; a < r->nagents; a++)
        if (strcmp(r->agents[a].uid, uid) == 0)
            return a;
    return -ENOENT;
}

/* There is room for each rank's end and for a stop from the beginning. Beyond that a note that
 * cannot be kept for want of memory is lost. */
static void add_note(struct roster *r, enum note_type type, int rank, int code, const char *text)
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
    *n = (struct note){.type = type, .member = rank, .code = code};
    snprintf(n->text, sizeof(n->text), "%s", text);
}

/* ---- what the table's actions do ------------------------------------------------------------ */

static void act_end(struct roster *r, int rank, enum note_type type, uint64_t now)
{
    char text[512];
    r->over++;
    r->ranks[rank].ended = now ? now : 1;
    roster_describe_end(r, rank, text, sizeof(text));
    add_note(r, type, rank, r->ranks[rank].code, text);
}

static void act_fail(struct roster *r, int rank, uint64_t now)
{
    const struct roster_rank *mine = &r->ranks[rank];
    act_end(r, rank, NOTE_LOST, now);
    if (r->stopping)
        return;
    const struct roster_rank *first = r->first >= 0 ? &r->ranks[r->first] : NULL;
    if (!first || (mine->code < 0 && first->code > 0 && now - first->ended < FIRST_WINDOW))
        r->first = rank;
}

/* Everybody's card is here: the next epoch. */
static void publish(struct roster *r, uint64_t now)
{
    r->epoch++;
    r->ready = 0;
    for (int i = 0; i < r->size; i++) {
        const struct rank_row *row = rank_step(r->ranks[i].state, RANK_INSTALL);
        r->ranks[i].state = row->next;
        r->ranks[i].moved = now;
    }
}

/* Applies one event to one rank. */
static int step(struct roster *r, int rank, enum rank_event event, uint64_t now, struct err *err)
{
    struct roster_rank *mine = &r->ranks[rank];
    const struct rank_row *row = rank_step(mine->state, event);
    if (!row)
        return err_set(err, EPROTO, "rank %d is %s: no %s is expected", rank,
                       rank_state_name(mine->state), rank_event_name(event));
    bool was_ready = mine->state == RANK_READY;
    mine->state = row->next;
    r->ready += (mine->state == RANK_READY) - was_ready;
    switch (row->action) {
    case RANK_DO_CARD:
        if (r->ready == 1 && !was_ready)
            r->first_ready = now;
        if (r->ready == r->size)
            publish(r, now);
        break;
    case RANK_DO_END:
        act_end(r, rank, NOTE_ENDED, now);
        break;
    case RANK_DO_EARLY:
        mine->early = true;
        if (r->early < 0)
            r->early = rank;
        act_end(r, rank, NOTE_LOST, now);
        break;
    case RANK_DO_FAIL:
        act_fail(r, rank, now);
        break;
    case RANK_DO_NOTHING:
    case RANK_ACTIONS:
        break;
    }
    return 0;
}

/* ---- events --------------------------------------------------------------------------------- */

int roster_join(struct roster *r, const struct join_body *body, uint64_t now, struct err *err)
{
    int index = roster_find(r, body->agent);
    if (index < 0)
        return err_set(err, ENOENT, "no agent \"%.64s\" is expected", body->agent);
    struct roster_agent *a = &r->agents[index];
    if (a->gone || (a->joined && a->pid != body->pid))
        return err_set(err, EEXIST, "agent \"%.64s\" has joined before", body->agent);
    a->joined = true;
    a->pid = body->pid;
    a->slots = body->slots;
    a->seen = now;
    snprintf(a->self, sizeof(a->self), "%s", body->host);
    for (int i = 0; i < a->nranks; i++)
        if (rank_step(r->ranks[a->first + i].state, RANK_JOIN))
            step(r, a->first + i, RANK_JOIN, now, NULL);
    return 0;
}

/* The agent a body is from: its index. 1 in *ret_old: the body was applied before. */
static int sender(struct roster *r, const char *uid, uint64_t seq, uint64_t now, bool *ret_old,
                  struct err *err)
{
    int index = roster_find(r, uid);
    if (index < 0 || !r->agents[index].joined)
        return err_set(err, ENOENT, "agent \"%.64s\" has not joined", uid);
    struct roster_agent *a = &r->agents[index];
    if (a->gone)
        return err_set(err, ESTALE, "agent \"%.64s\" was given up", uid);
    a->seen = now;
    *ret_old = seq <= a->seq;
    if (!*ret_old)
        a->seq = seq;
    return index;
}

static bool owns(const struct roster_agent *a, int rank)
{
    return rank >= a->first && rank < a->first + a->nranks;
}

/* No memory: the same body will come again, and is none that was applied. A card or finding of it
 * that was may come twice. */
static int not_taken(struct roster_agent *a, uint64_t seq, struct err *err)
{
    a->seq = seq - 1;
    return err_set(err, ENOMEM, "no memory for what agent \"%.64s\" has to say", a->uid);
}

int roster_cards(struct roster *r, const struct cards_body *body, uint64_t now, struct err *err)
{
    bool old = false;
    int index = sender(r, body->agent, body->seq, now, &old, err);
    if (index < 0 || old)
        return index < 0 ? index : 0;
    if (body->epoch != r->epoch + 1)
        return err_set(err, ESTALE, "cards for epoch %u; the next one is %u", body->epoch,
                       r->epoch + 1);
    for (int i = 0; i < body->n; i++) {
        const struct card *c = &body->cards[i];
        if (!owns(&r->agents[index], c->member))
            return err_set(err, EPROTO, "rank %d is not of agent \"%.64s\"", c->member,
                           body->agent);
        struct roster_rank *mine = &r->ranks[c->member];
        buf_reset(&mine->card);
        buf_put(&mine->card, c->bytes.data, c->bytes.len);
        if (mine->card.failed)
            return not_taken(&r->agents[index], body->seq, err);
        int rc = step(r, c->member, RANK_CARD, now, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int report_one(struct roster *r, const struct report_item *it, uint64_t now, struct err *err)
{
    struct roster_rank *mine = &r->ranks[it->member];
    if (it->pid > 0)
        mine->pid = it->pid;
    switch (it->type) {
    case REPORT_STARTED:
        return step(r, it->member, RANK_START, now, err);
    case REPORT_BYE:
        return step(r, it->member, RANK_BYE, now, err);
    case REPORT_PROGRESS:
        if (it->batches != mine->batches)
            mine->moved = now;
        mine->batches = it->batches;
        mine->bytes = it->bytes;
        return 0;
    case REPORT_EXITED:
        if (rank_is_over(mine->state))
            break;
        mine->code = it->code;
        snprintf(mine->text, sizeof(mine->text), "%s", it->text);
        snprintf(mine->tail, sizeof(mine->tail), "%s", it->tail);
        return step(r, it->member, it->code == 0 ? RANK_EXIT_OK : RANK_EXIT_BAD, now, err);
    case REPORT_DEAD:
    case REPORT_REPAIRED:
    case REPORT_TYPES:
        break;
    }
    return err_set(err, EPROTO, "rank %d is over", it->member);
}

int roster_report(struct roster *r, const struct report_body *body, uint64_t now, struct err *err)
{
    bool old = false;
    int index = sender(r, body->agent, body->seq, now, &old, err);
    if (index < 0 || old)
        return index < 0 ? index : 0;
    for (int i = 0; i < body->n; i++) {
        if (!owns(&r->agents[index], body->items[i].member))
            return err_set(err, EPROTO, "rank %d is not of agent \"%.64s\"", body->items[i].member,
                           body->agent);
        int rc = report_one(r, &body->items[i], now, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int roster_findings(struct roster *r, const struct findings_body *body, uint64_t now,
                    struct err *err)
{
    bool old = false;
    int index = sender(r, body->agent, body->seq, now, &old, err), rc = 0;
    if (index < 0 || old)
        return index < 0 ? index : 0;
    for (int i = 0; i < body->findings.n && rc == 0; i++)
        rc = findings_apply(&r->agents[index].findings, &body->findings.list[i]);
    if (rc == -ENOMEM)
        return not_taken(&r->agents[index], body->seq, err);
    return rc < 0 ? err_set(err, -rc, "no room for findings") : 0;
}

void roster_agent_lost(struct roster *r, int agent, const char *text, uint64_t now)
{
    struct roster_agent *a = &r->agents[agent];
    if (a->gone)
        return;
    a->gone = true;
    for (int i = a->first; i < a->first + a->nranks; i++) {
        if (!rank_is_over(r->ranks[i].state)) {
            snprintf(r->ranks[i].text, sizeof(r->ranks[i].text), "lost: %s", text);
            r->ranks[i].code = 1;
        }
        step(r, i, RANK_AGENT_LOST, now, NULL);
    }
}

void roster_give_up(struct roster *r, int rank, const char *text)
{
    add_note(r, NOTE_LOST, rank, 0, text);
}

void roster_signal(struct roster *r, int signo)
{
    add_note(r, NOTE_SIGNAL, -1, signo, "");
}

void roster_stop(struct roster *r, const char *reason, int grace_ms)
{
    r->stopping = true;
    add_note(r, NOTE_STOP, -1, grace_ms, reason);
}

bool roster_done(const struct roster *r)
{
    return r->over == r->size;
}

int roster_exit_code(const struct roster *r)
{
    if (r->first < 0)
        return 0;
    int code = r->ranks[r->first].code;
    return code < 0 ? 128 - code : code;
}
