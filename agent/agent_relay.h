/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_relay: what the ranks of one agent, and the coordinator, tell each other: control frames
 * of ranks become reports and cards in the outbox; rosters, ends and changes become frames. Watches
 * the lifelines of an elastic job. On the agent's loop, one thread.
 *
 * agent_relay.c has frames and rosters, agent_elastic.c ranks that leave or die while others train.
 */
#ifndef HVD_AGENT_AGENT_RELAY_H
#define HVD_AGENT_AGENT_RELAY_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/agent_ranks.h"
#include "agent/config.h"
#include "agent/lifelines.h"
#include "agent/member_ends.h"
#include "agent/outbox.h"
#include "core/member/roster.h"

struct agent_relay {
    struct loop *loop;
    const struct agent_config *config;
    struct agent_ranks *ranks;
    struct outbox *outbox;
    void (*cards_posted)(void *arg); /* cards were posted: ranks wait for a roster now */
    void *arg;
    struct member_ends ends;
    uint32_t epoch;            /* epoch of the last roster that ranks got */
    struct roster_body roster; /* the last roster, which a rejoin repeats */
    int *world;                /* members of the last roster [nworld] */
    int nworld;
    uint32_t change;            /* number of the last planned change announced to ranks */
    struct lifelines lifelines; /* used in an elastic job */
    struct loop_timer cards_timer;
};

/* Everything that the arguments point to must outlive the relay. */
void agent_relay_init(struct agent_relay *relay, struct loop *loop,
                      const struct agent_config *config, struct agent_ranks *ranks,
                      struct outbox *outbox, void (*cards_posted)(void *arg), void *arg);

/* Call after the ranks were dropped: their lifelines are stopped. */
void agent_relay_fini(struct agent_relay *relay);

/* Handles a frame of a rank and closes its descriptors. */
void agent_relay_frame(struct agent_relay *relay, struct rank *rank, struct ctl_frame *frame);

/* Call when the process that said HELLO has ended while the rank's own process still runs: tells
 * the other ranks. */
void agent_relay_hello_ended(struct agent_relay *relay, struct rank *rank);

/* Returns true if a rank waits for a roster. */
bool agent_relay_wants_roster(const struct agent_relay *relay);

/* Tells the ranks that wait for a roster that the coordinator has not answered for ms more
 * milliseconds. */
void agent_relay_tell_away(struct agent_relay *relay, uint32_t ms);

/* Sends a roster to the ranks that wait for it. Takes over its contents. */
void agent_relay_install(struct agent_relay *relay, struct roster_body *roster);

/* Records the end of a member and tells the ranks here that are concerned. epoch: as in struct
 * member_end. Does nothing if the end is already known for this or a later epoch. */
void agent_relay_record_end(struct agent_relay *relay, int member, uint32_t epoch, bool lost,
                            int code, const char *text);

/* Posts the cards that wait, unless another rank here is about to send its card. */
void agent_relay_consider_cards(struct agent_relay *relay);

/* ---- agent_elastic.c ------------------------------------------------------------------------- */

/* In an elastic job a rank gets a lifeline when it says HELLO without having one.
 * agent_relay_open_lifelines() prepares this; it returns -EINVAL if HVD_HEARTBEAT_MS is invalid. */
int agent_relay_open_lifelines(struct agent_relay *relay, struct err *err);
void agent_relay_give_lifeline(struct agent_relay *relay, struct rank *rank);

/* Tells a joiner which numbers it would get if it joined now. */
void agent_relay_send_numbers(struct agent_relay *relay, int member,
                              const struct rank_numbers *numbers);

/* Tells a member that the job continues without it. It has 10 s to exit, then it is ended. */
void agent_relay_send_leave(struct agent_relay *relay, int member, const char *text);

/* Tells the ranks that a planned change waits for the next step boundary. */
void agent_relay_announce(struct agent_relay *relay, uint32_t change);
void agent_relay_send_change(struct agent_relay *relay, struct rank *rank);

/* Kills a member that is stopped or silent, and tells the ranks here and the coordinator. */
void agent_relay_evict(struct agent_relay *relay, int member, const char *text);

/* The process of a rank is dead, or is stopped and must be killed (evict), and is not reaped yet.
 * Tells the ranks here and the coordinator at once. text says what happened, for evict. */
void agent_relay_declare_dead(struct agent_relay *relay, struct rank *rank, bool evict,
                              const char *text);

#endif
