/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_late: takes back an agent that rejoins after the roster was rebuilt without it. See
 * roster.h.
 */
#ifndef HVD_MEMBER_ROSTER_LATE_H
#define HVD_MEMBER_ROSTER_LATE_H

#include "core/member/roster_private.h"

/* The agent is away, or was just added and is not joined. Its members continue as what they were.
 * Takes the cards out of told. -ESTALE, -EINVAL: as roster_check_late(), nothing has changed.
 * -EEXIST: told is NULL. -ENOMEM. */
int roster_take_late(struct roster *r, int agent, struct rejoin *told, uint64_t now,
                     struct err *err);

#endif
