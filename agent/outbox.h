/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox: an agent's queue of requests to the coordinator, sent one at a time, in order, and
 * repeated until the coordinator accepts them. Reports that wait are sent in one request. On the
 * agent's loop, one thread.
 */
#ifndef HVD_AGENT_OUTBOX_H
#define HVD_AGENT_OUTBOX_H

#include <stdbool.h>

#include "core/base/list.h"
#include "core/base/loop.h"
#include "core/member/client.h"
#include "core/member/findings.h"
#include "core/member/protocol.h"

struct outbox {
    struct loop *loop;
    struct client *client;
    const char *agent;
    uint64_t seq;
    struct report_body pending; /* reports that are not in a letter yet */
    int cap;
    struct findings_body found; /* findings that are not in a letter yet */
    struct list letters;
    bool in_flight;
    bool stale; /* ignore the answer to the request in flight */
    bool held;  /* send nothing now */
    struct loop_timer timer;
    /* The coordinator answered. refused: it rejected the letter, text has the reason. */
    void (*answered)(void *arg, bool refused, const char *text);
    /* The coordinator does not know this agent. Returns true to keep the letter (the owner calls
     * outbox_forget()). NULL: treated as a refusal. */
    bool (*unknown)(void *arg, const struct client_answer *answer);
    void *arg;
};

void outbox_init(struct outbox *o, struct loop *loop, struct client *client, const char *agent,
                 void (*answered)(void *arg, bool refused, const char *text), void *arg);
void outbox_fini(struct outbox *o);

void outbox_report(struct outbox *o, const struct report_item *item);

/* finding is copied. */
void outbox_finding(struct outbox *o, const struct finding *finding);

/* Fills cards->agent and cards->seq. */
void outbox_cards(struct outbox *o, struct cards_body *cards);

/* Drops everything queued. Until outbox_release(), later requests wait. */
void outbox_forget(struct outbox *o);
void outbox_release(struct outbox *o);

/* Returns whether nothing is queued or in flight. */
bool outbox_empty(const struct outbox *o);

#endif
