/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_events: applies the messages of agents to the roster. See roster.h.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/words.h"
#include "core/member/roster_epoch.h"
#include "core/member/roster_late.h"
#include "core/member/roster_leave.h"
#include "core/member/roster_life.h"
#include "core/member/roster_rebuild.h"
#include "core/member/roster_replace.h"

int roster_join(struct roster *r, struct join_body *body, uint64_t now, struct err *err)
{
    int index = roster_find(r, body->agent);
    if (index < 0)
        return err_set(err, ENOENT, "no agent \"%.64s\" is expected", body->agent);
    struct roster_agent *a = &r->agents.list[index];
    if (a->lost || (a->joined && a->pid != body->pid))
        return err_set(err, EEXIST, "agent \"%.64s\" has joined before", body->agent);
    if (words_set(&a->self, body->host) < 0)
        return err_set(err, ENOMEM, "no memory for agent \"%.64s\"", body->agent);
    bool late = a->away || (r->hosted && !r->rebuilding && !a->joined && body->rejoin);
    int rc = late ? roster_take_late(r, index, body->rejoin, now, err) : 0;
    if (rc < 0)
        return rc;
    a->joined = true;
    a->pid = body->pid;
    a->reported_slots = body->slots;
    gaps_heard(&a->gaps, now);
    if (r->rebuilding)
        return roster_gather(r, index, body, now, err);
    for (int i = 0; i < r->members.n; i++)
        if (r->members.list[i].agent == index && rank_step(r->members.list[i].state, RANK_JOIN))
            roster_step(r, i, RANK_JOIN, now, NULL);
    return 0;
}

/* Returns the index of the agent that sent a body. *ret_old: the body was applied before. */
static int sender(struct roster *r, const char *uid, uint64_t seq, uint64_t now, bool *ret_old,
                  struct err *err)
{
    int index = roster_find(r, uid);
    if (index < 0 || !r->agents.list[index].joined)
        return err_set(err, ENOENT, "agent \"%.64s\" has not joined", uid);
    struct roster_agent *a = &r->agents.list[index];
    if (a->lost)
        return err_set(err, ESTALE, "agent \"%.64s\" was given up", uid);
    gaps_heard(&a->gaps, now);
    *ret_old = seq <= a->seq;
    if (!*ret_old)
        a->seq = seq;
    return index;
}

/* While the roster gathers, an agent whose ranks have done something tells all that it knows again.
 * It counts as not joined until it has, because a roster that was rebuilt before would not take
 * that any more. Numbers of progress are dropped: the next ones are sums, too. */
static int check_gathering(struct roster *r, int agent, const struct report_body *report,
                           struct err *err)
{
    bool matters = !report;
    for (int i = 0; report && i < report->n; i++)
        matters |=
            report->items[i].type != REPORT_PROGRESS && report->items[i].type != REPORT_REPAIRED;
    if (!r->rebuilding || !matters)
        return 0;
    r->agents.list[agent].joined = false;
    return err_set(err, ENOENT, "the job's agents are being gathered: join again");
}

static int check_owner(const struct roster *r, int index, int member, struct err *err)
{
    if (member < 0 || member >= r->members.n || r->members.list[member].agent != index)
        return err_set(err, EPROTO, "member %d does not belong to agent \"%.64s\"", member,
                       r->agents.list[index].uid);
    return 0;
}

/* Out of memory: marks the body as not applied, so that the agent's retry is applied. Cards and
 * findings that were applied already may be applied twice. */
static int not_taken(struct roster_agent *a, uint64_t seq, struct err *err)
{
    a->seq = seq - 1;
    return err_set(err, ENOMEM, "no memory for a message of agent \"%.64s\"", a->uid);
}

static int card_one(struct roster *r, const struct card *c, uint64_t now, struct err *err)
{
    struct roster_member *m = &r->members.list[c->member];
    struct buf fresh = {0};
    bool survived = member_survives(m), had_left = m->state == RANK_LEFT;
    buf_put(&fresh, c->bytes.data, c->bytes.len);
    if (fresh.failed)
        return -ENOMEM;
    int rc = roster_step(r, c->member, RANK_CARD, now, err);
    if (rc < 0) {
        buf_fini(&fresh);
        return rc;
    }
    buf_fini(&m->card);
    m->card = fresh;
    m->why = c->why;
    r->had_boundary |= c->why == CARD_BOUNDARY;
    /* A loss came before this member had the training state, so it will not be in the next epoch,
     * and no boundary will remove it. */
    if (m->leaving && survived && !member_survives(m))
        roster_note(r, NOTE_LEAVE, c->member, 0, "it was asked to leave before it had the state");
    if (had_left)
        roster_came_back(r);
    return 0;
}

int roster_cards(struct roster *r, const struct cards_body *body, uint64_t now, struct err *err)
{
    bool old = false;
    int index = sender(r, body->agent, body->seq, now, &old, err), rc = 0;
    if (index < 0 || old)
        return index < 0 ? index : 0;
    if (check_gathering(r, index, NULL, err) < 0)
        return -ENOENT;
    if (!r->is_elastic && body->epoch != r->epoch + 1)
        return err_set(err, ESTALE, "cards for epoch %u; the next one is %u", body->epoch,
                       r->epoch + 1);
    for (int i = 0; i < body->n && rc == 0; i++) {
        rc = check_owner(r, index, body->cards[i].member, err);
        if (rc == 0)
            rc = card_one(r, &body->cards[i], now, err);
    }
    roster_consider(r, now);
    return rc == -ENOMEM ? not_taken(&r->agents.list[index], body->seq, err) : rc;
}

static void take_progress(struct roster *r, struct roster_member *m, const struct report_item *it,
                          uint64_t now)
{
    if (it->batches != m->batches)
        m->moved = now;
    /* Does not count a joiner's first number: it begins at the members' count. */
    if (it->batches > m->batches && m->batches > 0)
        r->work.batches += it->batches - m->batches;
    if (it->bytes > m->bytes)
        r->work.bytes += it->bytes - m->bytes;
    m->batches = it->batches;
    m->bytes = it->bytes;
    member_take_sets(m, &it->sets);
}

/* Replaces the first "old" in dst; text that does not fit is cut. */
static void replace_text(char *dst, size_t size, const char *old, const char *fresh)
{
    char rest[512], *at = old[0] ? strstr(dst, old) : NULL;
    if (!at)
        return;
    snprintf(rest, sizeof(rest), "%s", at + strlen(old));
    snprintf(at, size - (size_t)(at - dst), "%s%s", fresh, rest);
}

/* The member was known to be dead and its exit code arrives now. If it is 0, the member has
 * finished normally and was taken for lost too early: its replacement is cancelled. */
static void learn_code(struct roster *r, const struct report_item *it)
{
    char before[512], after[512];
    struct roster_member *m = &r->members.list[it->member];
    roster_describe_end(r, it->member, before, sizeof(before));
    m->reaped = true;
    m->code = it->code;
    if (m->code == 0 && !m->text && !m->leaving && r->is_elastic) {
        m->state = RANK_FINISHED;
        m->end = roster_is_part(r, m) && !m->left_at ? END_EARLY : END_FINISHED;
        r->ends.finished += roster_is_part(r, m);
        roster_forget_start(r);
    }
    roster_describe_end(r, it->member, after, sizeof(after));
    replace_text(r->next.cause, sizeof(r->next.cause), before, after);
    replace_text(r->last.cause, sizeof(r->last.cause), before, after);
}

/* Handles the end of a member: reported by REPORT_DEAD, by REPORT_EXITED when its process was
 * reaped, or by both in this order. */
static int take_end(struct roster *r, const struct report_item *it, uint64_t now, struct err *err)
{
    struct roster_member *m = &r->members.list[it->member];
    bool dead = it->type == REPORT_DEAD, was_over = rank_has_ended(m->state);
    enum rank_event event = dead || it->code != 0 ? RANK_EXIT_BAD : RANK_EXIT_OK;
    if (was_over && (dead || m->reaped))
        return dead ? 0 : err_set(err, EPROTO, "rank %d has ended", it->member);
    int rc = was_over ? 0 : roster_check_step(r, it->member, event, err);
    if (rc < 0)
        return rc;
    member_take_tail(m, it->tail);
    char before[512], after[512];
    /* The text before the exit code is known, such as "called hvd_shutdown()". */
    roster_describe_end(r, it->member, before, sizeof(before));
    if (was_over) {
        learn_code(r, it);
        return 0;
    }
    m->reaped = !dead;
    m->code = it->code;
    words_set(&m->text, it->text); /* no text when out of memory */
    rc = roster_step(r, it->member, event, now, err);
    roster_describe_end(r, it->member, after, sizeof(after));
    replace_text(r->last.cause, sizeof(r->last.cause), before, after);
    return rc;
}

/* Handles a member's BYE that says that it cannot go on. */
static int take_out(struct roster *r, const struct report_item *it, uint64_t now, struct err *err)
{
    struct roster_member *m = &r->members.list[it->member];
    int rc = roster_check_step(r, it->member, RANK_UNABLE, err);
    if (rc < 0)
        return rc;
    m->code = it->code;
    words_set(&m->text, it->text); /* no text when out of memory */
    return roster_step(r, it->member, RANK_UNABLE, now, err);
}

static int report_one(struct roster *r, const struct report_item *it, uint64_t now, struct err *err)
{
    struct roster_member *m = &r->members.list[it->member];
    if (it->pid > 0)
        m->pid = it->pid;
    switch (it->type) {
    case REPORT_STARTED:
        m->started = now;
        return roster_step(r, it->member, RANK_START, now, err);
    case REPORT_BYE:
        roster_note_done(r, it->done);
        m->disturbed |= !r->is_elastic && it->code < 0;
        if (!r->is_elastic && it->code == -ESHUTDOWN) /* it goes on: see CTL_BYE */
            return 0;
        member_take_sets(m, NULL);
        if (!r->is_elastic || it->code >= 0)
            return roster_step(r, it->member, RANK_BYE, now, err);
        return take_out(r, it, now, err);
    case REPORT_PROGRESS:
        take_progress(r, m, it, now);
        return 0;
    case REPORT_REPAIRED:
        roster_work_repaired(&r->work, it->epoch, it->ns);
        return 0;
    case REPORT_EXITED:
    case REPORT_DEAD:
        return take_end(r, it, now, err);
    case REPORT_TYPES:
        break;
    }
    return err_set(err, EPROTO, "rank %d: no such report", it->member);
}

int roster_report(struct roster *r, const struct report_body *body, uint64_t now, struct err *err)
{
    bool old = false;
    int index = sender(r, body->agent, body->seq, now, &old, err), rc = 0;
    if (index < 0 || old)
        return index < 0 ? index : 0;
    if (r->rebuilding)
        return check_gathering(r, index, body, err);
    for (int i = 0; i < body->n && rc == 0; i++) {
        rc = check_owner(r, index, body->items[i].member, err);
        if (rc == 0)
            rc = report_one(r, &body->items[i], now, err);
    }
    roster_consider(r, now);
    return rc;
}

int roster_findings(struct roster *r, const struct findings_body *body, uint64_t now,
                    struct err *err)
{
    bool old = false;
    int index = sender(r, body->agent, body->seq, now, &old, err), rc = 0;
    if (index < 0 || old)
        return index < 0 ? index : 0;
    for (int i = 0; i < body->findings.n && rc == 0; i++)
        rc = findings_apply(&r->agents.list[index].findings, &body->findings.list[i]);
    if (rc == -ENOMEM)
        return not_taken(&r->agents.list[index], body->seq, err);
    return rc < 0 ? err_set(err, -rc, "no room for findings") : 0;
}

void roster_agent_lost(struct roster *r, int agent, const char *text, uint64_t now)
{
    if (r->agents.list[agent].lost)
        return;
    roster_lose_agent(r, agent, text, now);
    roster_consider(r, now);
}
