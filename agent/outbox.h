/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox: what an agent has to tell the coordinator, one request at a time, in order, until it is
 * taken. Reports that wait are sent together. On the agent's loop, one thread.
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
    struct report_body pending; /* not yet a letter */
    int cap;
    struct findings_body found; /* not yet a letter */
    struct list letters;
    bool under_way;
    bool stale; /* the answer to what is under way does not count any more */
    bool held;  /* nothing is sent now */
    struct loop_timer timer;
    /* An answer came: the coordinator lives. refused: it did not want the letter, text says why. */
    void (*answered)(void *arg, bool refused, const char *text);
    /* It does not know this agent: true, and the letter stays (somebody will forget it). NULL: that
     * is a refusal too. */
    bool (*unknown)(void *arg);
    void *arg;
};

void outbox_init(struct outbox *o, struct loop *loop, struct client *client, const char *agent,
                 void (*answered)(void *arg, bool refused, const char *text), void *arg);
void outbox_fini(struct outbox *o);

void outbox_report(struct outbox *o, const struct report_item *item);

/* Copied. */
void outbox_finding(struct outbox *o, const struct finding *finding);

/* cards->agent and ->seq are filled here. */
void outbox_cards(struct outbox *o, struct cards_body *cards);

/* Forgets all that was to be said, until outbox_release() also keeps back what comes after. */
void outbox_forget(struct outbox *o);
void outbox_release(struct outbox *o);

/* Nothing waits and nothing is under way. */
bool outbox_empty(const struct outbox *o);

#endif
