/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_leave: which members of an elastic job are asked to leave. See roster.h.
 */
#ifndef HVD_MEMBER_ROSTER_LEAVE_H
#define HVD_MEMBER_ROSTER_LEAVE_H

#include "core/member/roster_private.h"

/* Marks a member as leaving. A member in no world is told at once; one in the world leaves at the
 * next boundary. */
void roster_ask_to_leave(struct roster *r, int member, const char *text);

/* Makes the job n ranks smaller; n <= 0: does nothing. Pending starts are cancelled before any rank
 * is asked to leave. Where places are kept, what is left has the lowest places, with those that
 * joiners and pending starts will take: so a member with a higher place leaves before them. */
void roster_shrink(struct roster *r, int n, const char *text);

/* A rank that had left has called hvd_init() again. Another rank may have been started in its
 * place, or the job was made smaller: then surplus ranks are asked to leave. */
void roster_came_back(struct roster *r);

/* The job ends: starts no further member and asks joiners to leave. */
void roster_wind_down(struct roster *r, uint64_t now);

#endif
