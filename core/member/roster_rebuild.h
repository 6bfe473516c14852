/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_rebuild: rebuilds the roster of a running elastic job from what its agents know. See
 * roster.h; core/engine/REPAIR.md ("Another coordinator") has the rules.
 */
#ifndef HVD_MEMBER_ROSTER_REBUILD_H
#define HVD_MEMBER_ROSTER_REBUILD_H

#include "core/member/roster_private.h"

/* Stores what an agent of the job knows, in place of what it has told before. When it was the last
 * agent, rebuilds the roster. -EINVAL: the data is inconsistent. -ENOENT: the agent must send its
 * roster, too. */
int roster_gather(struct roster *r, int agent, struct join_body *body, uint64_t now,
                  struct err *err);

/* Rebuilds the roster from what the agents have said so far. */
void roster_rebuild(struct roster *r, uint64_t now);

/* ---- for roster_late.c ----------------------------------------------------------------------- */

/* The first number that no member may have. */
int roster_members_end(const struct roster *r);

/* Adds members that ended before this coordinator knew them, up to number n. -ENOMEM. */
int roster_add_ended(struct roster *r, int n);

/* True for a member that roster_add_ended() made, and that no agent has reported. */
bool roster_is_unreported(const struct roster_member *m);

/* Takes over what an agent says of one of its members, without its end. */
void roster_take_member(struct roster *r, int agent, struct rejoin_member *t, uint64_t now);

/* Applies the end of that member, if it has ended, as if it were reported now. */
void roster_take_end(struct roster *r, const struct rejoin_member *t, uint64_t now);

/* Ends the members of the world that this agent, which has joined, does not report. */
void roster_take_missing(struct roster *r, int agent, const struct rejoin *told, uint64_t now);

#endif
