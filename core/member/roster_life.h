/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_life: applies events to the states of members (rank_state.h) and records their ends
 * (rank_end.h). Decides no epoch. See roster.h.
 */
#ifndef HVD_MEMBER_ROSTER_LIFE_H
#define HVD_MEMBER_ROSTER_LIFE_H

#include "core/member/roster_private.h"

/* Applies one event to one member. -EPROTO: the event is not legal in its state. */
int roster_step(struct roster *r, int member, enum rank_event event, uint64_t now, struct err *err);

/* 0: the event is legal for the member now. -EPROTO: it is not, with the reason in err. */
int roster_check_step(const struct roster *r, int member, enum rank_event event, struct err *err);

/* True when this member's end counts as an end of the program: it was in a world, or there never
 * was one. A joiner that ends before admission does not count. */
bool roster_is_part(const struct roster *r, const struct roster_member *m);

/* An agent is lost, and its members with it. */
void roster_lose_agent(struct roster *r, int agent, const char *text, uint64_t now);

#endif
