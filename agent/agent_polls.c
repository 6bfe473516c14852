/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_polls: the two long polls: events (always one in flight, as heartbeat in both directions)
 * and the roster (while ranks wait for one). See agent.h.
 */
#include <stdio.h>

#include "agent/agent.h"
#include "core/base/log.h"

#define WAIT_S     2
#define TIMEOUT_MS 4500
#define RETRY_MS   200

static void on_note(struct agent *a, const struct note *n)
{
    switch (n->type) {
    case NOTE_LOST:
    case NOTE_ENDED:
        agent_record_end(a, n->member, n->epoch, n->type == NOTE_LOST, n->code, n->text);
        break;
    case NOTE_SIGNAL:
        agent_signal_ranks(a, n->code);
        break;
    case NOTE_STOP:
        log_info("ending the ranks: %s", n->text);
        agent_stop_ranks(a, n->code);
        break;
    case NOTE_CHANGE:
        agent_announce(a, (uint32_t)n->code);
        break;
    case NOTE_START:
        agent_start_member(a, n->member, n->code);
        break;
    case NOTE_LEAVE:
        agent_send_leave(a, n->member, n->text);
        break;
    case NOTE_EVICT:
        agent_evict(a, n->member, n->text);
        break;
    case NOTE_NUMBERS:
        agent_send_numbers(a, n->member, &n->numbers);
        break;
    case NOTE_TYPES:
        break;
    }
}

/* True if the answer has a body to read; false on 204, 503 or no answer. Any other answer ends the
 * agent. */
static bool usable(struct agent *a, const struct client_answer *answer)
{
    struct err err;
    if (answer->status == 0 || answer->status == 503) {
        agent_unanswered(a, answer);
        return false;
    }
    agent_answered(a);
    if (answer->status == 200)
        return true;
    if (answer->status == 404 && agent_rejoin(a))
        return false;
    if (answer->status != 204) {
        err_set(&err, EPROTO, "the coordinator refused this agent: HTTP %ld %.300s", answer->status,
                answer->body);
        agent_fail(a, &err);
    }
    return false;
}

static void on_events(void *arg, const struct client_answer *answer)
{
    struct agent *a = arg;
    struct notes_body notes;
    struct err err;
    a->polling_events = false;
    if (a->events_term != a->terms)
        return;
    if (usable(a, answer)) {
        if (notes_read(answer->body, answer->len, &notes, &err) < 0) {
            agent_fail(a, &err);
            return;
        }
        a->notes_seq = notes.seq;
        for (int i = 0; i < notes.n; i++)
            on_note(a, &notes.notes[i]);
        notes_fini(&notes);
    }
    if (answer->status == 200 || answer->status == 204)
        agent_poll_events(a);
    /* else on_tick() polls again */
}

void agent_poll_events(struct agent *a)
{
    char path[MEMBER_NAME_MAX + 96];
    if (a->polling_events || a->abandoned || !a->joined || a->rejoin_text)
        return;
    a->events_term = a->terms;
    snprintf(path, sizeof(path), "/v1/events?agent=%s&after=%llu&wait_ms=%d", a->config.agent,
             (unsigned long long)a->notes_seq,
             a->config.beat_ms ? a->config.beat_ms : 1000 * WAIT_S);
    a->polling_events = client_send(a->client, path, NULL, TIMEOUT_MS, on_events, a, NULL) == 0;
}

static void on_roster(void *arg, const struct client_answer *answer)
{
    struct agent *a = arg;
    struct roster_body roster;
    struct err err;
    a->polling_roster = false;
    if (a->roster_term != a->terms)
        return;
    if (usable(a, answer)) {
        if (roster_read(answer->body, answer->len, &roster, &err) < 0) {
            agent_fail(a, &err);
            return;
        }
        agent_install_roster(a, &roster);
        if (roster.epoch > a->roster.epoch) {
            struct roster_body old = a->roster;
            a->roster = roster;
            roster = old;
        }
        roster_body_fini(&roster);
    }
    if (answer->status == 200 || answer->status == 204)
        agent_poll_roster(a);
}

void agent_poll_roster(struct agent *a)
{
    char path[MEMBER_NAME_MAX + 96];
    bool wanted = false;
    for (int i = 0; i < a->nranks; i++)
        wanted |= a->ranks[i]->waiting && !a->ranks[i]->reaped;
    if (!wanted || a->polling_roster || a->abandoned || a->rejoin_text)
        return;
    a->roster_term = a->terms;
    snprintf(path, sizeof(path), "/v1/roster?agent=%s&after=%u&wait=%d", a->config.agent, a->epoch,
             WAIT_S);
    a->polling_roster = client_send(a->client, path, NULL, TIMEOUT_MS, on_roster, a, NULL) == 0;
}
