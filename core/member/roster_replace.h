/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_replace: which members of an elastic job are to be started, and when. See roster.h;
 * roster_target.c starts them.
 *
 * target is the wanted number of ranks. These count towards it: live members that were not asked to
 * leave, members that are to be started, and members whose program has ended well.
 */
#ifndef HVD_MEMBER_ROSTER_REPLACE_H
#define HVD_MEMBER_ROSTER_REPLACE_H

#include "core/member/roster_private.h"

/* Members that count towards the target. */
int roster_have(const struct roster *r);

/* Adds a member that is to be started at the time due. agent: preferred, -1: any. */
void roster_add_start(struct roster *r, int agent, uint64_t due, bool replaces);

/* A member has failed: schedules a replacement if the target needs one. */
void roster_replace(struct roster *r, int member, uint64_t now);

/* Cancels the newest scheduled replacement. */
void roster_forget_start(struct roster *r);

#endif
