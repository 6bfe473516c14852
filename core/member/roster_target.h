/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_target: brings the number of ranks of an elastic job to its target, and decides the next
 * epoch after that. See roster.h.
 */
#ifndef HVD_MEMBER_ROSTER_TARGET_H
#define HVD_MEMBER_ROSTER_TARGET_H

#include "core/member/roster_private.h"

/* Starts the members that are due and for which there is a slot. */
void roster_start_due(struct roster *r, uint64_t now);

/* Called after the target, or the set of wanted members, has changed: gives the planned change a
 * number, starts or removes members, and returns the number. */
uint32_t roster_apply_change(struct roster *r, uint64_t now);

/* Called after a rebuild: starts missing members and asks surplus ones to leave. */
void roster_fill(struct roster *r, uint64_t now);

#endif
