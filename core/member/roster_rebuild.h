/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_rebuild: rebuilds the roster of a running elastic job from what its agents know. See
 * roster.h; core/engine/REPAIR.md ("Another coordinator") has the rules.
 */
#ifndef HVD_MEMBER_ROSTER_REBUILD_H
#define HVD_MEMBER_ROSTER_REBUILD_H

#include "core/member/roster_private.h"

/* Stores what an agent of the job knows. Returns 0 when it was the last agent and the roster is
 * complete again; -EAGAIN: other agents are missing; -EINVAL: the data is inconsistent. */
int roster_gather(struct roster *r, int agent, struct join_body *body, uint64_t now,
                  struct err *err);

/* Rebuilds the roster from what the agents have said so far. */
void roster_rebuild(struct roster *r, uint64_t now);

#endif
