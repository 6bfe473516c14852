/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_world: publishes an epoch: builds its roster and installs it. roster_epoch.c decides which
 * members are in it. See roster.h.
 */
#ifndef HVD_MEMBER_ROSTER_WORLD_H
#define HVD_MEMBER_ROSTER_WORLD_H

#include "core/member/roster_places.h"
#include "core/member/roster_private.h"

/* Publishes the next epoch with the n members in list: index is the new rank, with its place.
 * new_world: no member has the training state. When memory is exhausted, nothing is published; the
 * next tick tries again. */
void roster_publish(struct roster *r, const struct roster_placed *list, int n, bool new_world,
                    uint64_t now);

#endif
