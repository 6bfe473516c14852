/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_polls: see agent_polls.h.
 */
#include "agent/agent_polls.h"

#include <stdio.h>

#define WAIT_S     2
#define TIMEOUT_MS 4500

void agent_polls_init(struct agent_polls *p, struct agent_link *link,
                      const struct agent_polls_ops *ops, void *arg)
{
    *p = (struct agent_polls){.link = link, .ops = ops, .arg = arg};
}

/* True if the answer has a body to read; false on 204, 503 or no answer. Any other answer ends the
 * agent. */
static bool usable(struct agent_polls *p, const struct client_answer *answer)
{
    struct err err;
    if (answer->status == 0 || answer->status == 503) {
        agent_link_unanswered(p->link, answer);
        return false;
    }
    agent_link_answered(p->link);
    if (answer->status == 200)
        return true;
    if (answer->status == 404 && p->ops->unknown(p->arg, answer))
        return false;
    if (answer->status != 204) {
        err_set(&err, EPROTO, "%s refused this agent: HTTP %ld %.300s", agent_link_peer(p->link),
                answer->status, answer->body);
        p->ops->failed(p->arg, AGENT_END_REFUSED, &err);
    }
    return false;
}

static void on_events(void *arg, const struct client_answer *answer)
{
    struct agent_polls *p = arg;
    struct notes_body notes;
    struct err err;
    p->polling_events = false;
    if (p->events_term != p->link->terms)
        return;
    if (usable(p, answer)) {
        if (notes_read(answer->body, answer->len, &notes, &err) < 0) {
            p->ops->failed(p->arg, AGENT_END_INTERNAL, &err);
            return;
        }
        p->notes_seq = notes.seq;
        for (int i = 0; i < notes.n; i++)
            p->ops->note(p->arg, &notes.notes[i]);
        notes_fini(&notes);
    }
    if (answer->status == 200 || answer->status == 204)
        agent_polls_events(p);
    /* else the owner's tick polls again */
}

void agent_polls_events(struct agent_polls *p)
{
    char path[MEMBER_NAME_MAX + 96];
    if (p->polling_events || !agent_link_ready(p->link))
        return;
    if (p->events_term != p->link->terms) /* a new coordinator numbers its notes from 1 */
        p->notes_seq = 0;
    p->events_term = p->link->terms;
    snprintf(path, sizeof(path), "/v1/events?agent=%s&after=%llu&wait_ms=%d",
             p->link->config->agent, (unsigned long long)p->notes_seq,
             p->link->config->beat_ms ? p->link->config->beat_ms : 1000 * WAIT_S);
    p->polling_events =
        client_send(p->link->client, path, NULL, TIMEOUT_MS, on_events, p, NULL) == 0;
}

static void on_roster(void *arg, const struct client_answer *answer)
{
    struct agent_polls *p = arg;
    struct roster_body roster;
    struct err err;
    p->polling_roster = false;
    if (p->roster_term != p->link->terms)
        return;
    if (usable(p, answer)) {
        if (roster_read(answer->body, answer->len, &roster, &err) < 0) {
            p->ops->failed(p->arg, AGENT_END_INTERNAL, &err);
            return;
        }
        p->ops->roster(p->arg, &roster);
    }
    if (answer->status == 200 || answer->status == 204)
        agent_polls_roster(p);
}

void agent_polls_roster(struct agent_polls *p)
{
    char path[MEMBER_NAME_MAX + 96];
    uint32_t after;
    if (p->polling_roster || !agent_link_ready(p->link) || !p->ops->wants_roster(p->arg, &after))
        return;
    p->roster_term = p->link->terms;
    snprintf(path, sizeof(path), "/v1/roster?agent=%s&after=%u&wait=%d", p->link->config->agent,
             after, WAIT_S);
    p->polling_roster =
        client_send(p->link->client, path, NULL, TIMEOUT_MS, on_roster, p, NULL) == 0;
}
