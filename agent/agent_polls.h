/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_polls: the two long polls of an agent: events (always one in flight, as heartbeat in both
 * directions) and the roster (while ranks wait for one). On the agent's loop, one thread.
 */
#ifndef HVD_AGENT_AGENT_POLLS_H
#define HVD_AGENT_AGENT_POLLS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/agent_link.h"
#include "core/base/agent_end.h"
#include "core/member/protocol.h"

struct agent_polls_ops {
    void (*note)(void *arg, const struct note *note);
    /* The callee owns the roster's contents. */
    void (*roster)(void *arg, struct roster_body *roster);
    /* Do ranks wait for a roster? *ret_after: the epoch that these ranks have. */
    bool (*wants_roster)(void *arg, uint32_t *ret_after);
    /* The coordinator does not know this agent. True: the agent rejoins. */
    bool (*unknown)(void *arg, const struct client_answer *answer);
    /* The coordinator refused this agent (AGENT_END_REFUSED), or its answer cannot be read. */
    void (*failed)(void *arg, enum agent_end end, const struct err *err);
};

struct agent_polls {
    struct agent_link *link;
    const struct agent_polls_ops *ops;
    void *arg;
    bool polling_roster, polling_events;
    int roster_term, events_term; /* link->terms when sent: an older answer is ignored */
    uint64_t notes_seq;           /* number of the last note from this coordinator */
};

/* link and ops must outlive p. */
void agent_polls_init(struct agent_polls *p, struct agent_link *link,
                      const struct agent_polls_ops *ops, void *arg);

/* Each starts a poll, unless one of its kind is in flight or the link is not ready; the roster is
 * polled only while ranks wait for one. An answer 200 or 204 starts the next poll. */
void agent_polls_events(struct agent_polls *p);
void agent_polls_roster(struct agent_polls *p);

#endif
