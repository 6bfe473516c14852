/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_epoch: decides when the next epoch is published and which members are in it. See roster.h;
 * README.md has the rules, roster_members.h says what survivors and joiners are.
 */
#ifndef HVD_MEMBER_ROSTER_EPOCH_H
#define HVD_MEMBER_ROSTER_EPOCH_H

#include "core/member/roster_private.h"

/* Publishes the next epoch if its conditions hold, and announces changes that wait for a boundary.
 * Called after every event. */
void roster_consider(struct roster *r, uint64_t now);

#endif
