/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_link: an agent's connection to its coordinator: the HTTP client, whether the agent has
 * joined, and how long the coordinator has been silent. Owned by the agent; its parts send their
 * requests through it. On the agent's loop, one thread.
 */
#ifndef HVD_AGENT_AGENT_LINK_H
#define HVD_AGENT_AGENT_LINK_H

#include <stdbool.h>

#include "agent/config.h"
#include "agent/peer_silence.h"
#include "core/base/loop.h"
#include "core/member/client.h"

struct agent_link {
    struct loop *loop;
    struct client *client;
    const struct agent_config *config;
    bool joined;
    bool rejoining;               /* a rejoin is in flight: nothing else is sent */
    bool abandoned;               /* the coordinator counts as lost: nothing is sent any more */
    int terms;                    /* how many coordinators this agent has rejoined */
    struct peer_silence silence;  /* no answer at all */
    struct peer_silence unserved; /* no answer but 503: it may be gathering its agents */
    uint64_t away_told;           /* ns of unserved that ranks were told of */
    char unanswered[256];         /* why the last request got no answer */
    bool silence_reported;
};

/* config must outlive the link. */
int agent_link_open(struct agent_link *link, struct loop *loop, const struct agent_config *config,
                    struct err *err);
void agent_link_close(struct agent_link *link);

/* "hvdrun" or "the operator". */
const char *agent_link_peer(const struct agent_link *link);

/* Returns whether the agent may send requests other than a join: it has joined, no rejoin is in
 * flight, and the coordinator does not count as lost. */
bool agent_link_ready(const struct agent_link *link);

/* Call when the coordinator has answered: ends its silence. */
void agent_link_answered(struct agent_link *link);

/* Call when the coordinator did not answer a request, or answered 503, which ends its silence only:
 * keeps the reason for messages. */
void agent_link_unanswered(struct agent_link *link, const struct client_answer *answer);

/* Call in each tick. Logs a long silence. Returns -ETIMEDOUT if the coordinator has been silent for
 * the configured limit (config.lost_seconds), else 0. */
int agent_link_check(struct agent_link *link, struct err *err);

/* Call in each tick. Returns how many ms of the coordinator's absence no former call has returned,
 * once it has not served this agent for 2.5 s: 1000 or more, else 0. */
uint32_t agent_link_away(struct agent_link *link);

#endif
