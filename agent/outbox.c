/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox: see outbox.h.
 */
#include "agent/outbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"

#define RETRY_MS   200
#define TIMEOUT_MS 4000

struct letter {
    const char *path;
    char *body;
    struct list node;
};

static void send_next(struct outbox *o);

static void on_timer(void *arg)
{
    send_next(arg);
}

static void soon(struct outbox *o, uint64_t ms)
{
    if (!o->timer.on)
        loop_timer_start(o->loop, &o->timer, ms, on_timer, o);
}

void outbox_init(struct outbox *o, struct loop *loop, struct client *client, const char *agent,
                 void (*answered)(void *arg, bool refused, const char *text), void *arg)
{
    *o = (struct outbox){
        .loop = loop, .client = client, .agent = agent, .answered = answered, .arg = arg};
    list_init(&o->letters);
}

static void letter_destroy(struct letter *letter)
{
    list_remove(&letter->node);
    free(letter->body);
    free(letter);
}

void outbox_fini(struct outbox *o)
{
    if (!o->loop)
        return;
    loop_timer_stop(o->loop, &o->timer);
    list_for_each(pos, tmp, &o->letters)
    {
        letter_destroy(list_entry(pos, struct letter, node));
    }
    free(o->pending.items);
    findings_body_fini(&o->found);
    *o = (struct outbox){0};
}

/* body NULL: an allocation failed. */
static void add_letter(struct outbox *o, const char *path, char *body)
{
    struct letter *letter = body ? calloc(1, sizeof(*letter)) : NULL;
    if (!letter) {
        log_error("out of memory: %s was not sent", path);
        free(body);
        return;
    }
    letter->path = path;
    letter->body = body;
    list_append(&o->letters, &letter->node);
}

static void close_report(struct outbox *o)
{
    if (o->pending.n == 0)
        return;
    snprintf(o->pending.agent, sizeof(o->pending.agent), "%s", o->agent);
    o->pending.seq = ++o->seq;
    add_letter(o, "/v1/report", report_write(&o->pending));
    o->pending.n = 0;
}

static void close_findings(struct outbox *o)
{
    if (o->found.findings.n == 0)
        return;
    snprintf(o->found.agent, sizeof(o->found.agent), "%s", o->agent);
    o->found.seq = ++o->seq;
    add_letter(o, "/v1/findings", findings_write(&o->found));
    findings_body_fini(&o->found);
}

void outbox_finding(struct outbox *o, const struct finding *finding)
{
    if (o->found.findings.n == FINDINGS_MAX)
        close_findings(o);
    if (findings_add(&o->found.findings, finding) < 0)
        log_error("out of memory: finding %s was not sent", finding->id);
    soon(o, 0);
}

void outbox_report(struct outbox *o, const struct report_item *item)
{
    if (o->pending.n == o->cap) {
        int cap = o->cap ? o->cap * 2 : 8;
        struct report_item *grown = realloc(o->pending.items, (size_t)cap * sizeof(*grown));
        if (!grown) {
            log_error("out of memory: a report about rank %d was not sent", item->member);
            return;
        }
        o->pending.items = grown;
        o->cap = cap;
    }
    o->pending.items[o->pending.n++] = *item;
    soon(o, 0);
}

void outbox_cards(struct outbox *o, struct cards_body *cards)
{
    close_report(o);
    close_findings(o);
    snprintf(cards->agent, sizeof(cards->agent), "%s", o->agent);
    cards->seq = ++o->seq;
    add_letter(o, "/v1/cards", cards_write(cards));
    soon(o, 0);
}

void outbox_forget(struct outbox *o)
{
    list_for_each(pos, tmp, &o->letters)
    {
        letter_destroy(list_entry(pos, struct letter, node));
    }
    o->pending.n = 0;
    findings_body_fini(&o->found);
    o->stale = o->in_flight;
    o->held = true;
}

void outbox_release(struct outbox *o)
{
    o->held = false;
    soon(o, 0);
}

bool outbox_empty(const struct outbox *o)
{
    return o->pending.n == 0 && o->found.findings.n == 0 && list_empty(&o->letters);
}

static void on_answer(void *arg, const struct client_answer *answer)
{
    struct outbox *o = arg;
    o->in_flight = false;
    if (o->stale) {
        o->stale = false;
        soon(o, 0);
        return;
    }
    if (answer->status == 404 && o->unknown && o->unknown(o->arg, answer))
        return;
    if (answer->status == 0 || answer->status == 503) {
        soon(o, RETRY_MS);
        return;
    }
    letter_destroy(list_first(&o->letters, struct letter, node));
    bool refused = answer->status >= 300;
    soon(o, 0);
    o->answered(o->arg, refused, refused ? answer->body : "");
}

static void send_next(struct outbox *o)
{
    if (o->in_flight || o->held)
        return;
    if (list_empty(&o->letters))
        close_report(o);
    if (list_empty(&o->letters))
        close_findings(o);
    if (list_empty(&o->letters))
        return;
    struct letter *letter = list_first(&o->letters, struct letter, node);
    struct err err;
    if (client_send(o->client, letter->path, letter->body, TIMEOUT_MS, on_answer, o, &err) < 0) {
        log_warn("%s", err_text(&err));
        soon(o, RETRY_MS);
        return;
    }
    o->in_flight = true;
}
