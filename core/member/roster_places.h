/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_places: the order of the members of an epoch, and their places. A part of the roster that
 * does not depend on it. roster_epoch.c lists the members, roster_world.c publishes them. Pure.
 *
 * A member's *place* is a rank number that a replacement can take over. Ranks follow the order of
 * places, without gaps: rank <= place, and no two members have one place. A job whose places are
 * not kept renumbers them with the ranks: rank == place.
 */
#ifndef HVD_MEMBER_ROSTER_PLACES_H
#define HVD_MEMBER_ROSTER_PLACES_H

#include <stdbool.h>

/* A member of the next epoch. */
struct roster_placed {
    int member;
    int place;
    int order; /* of joiners that are admitted at a time, a lower one gets a lower place */
};

/* Gives the joiners places and sorts the list: index == rank. Takes n members: first `survivors`
 * members with their present places, in any order, then joiners. keep: survivors keep their places,
 * and each joiner takes the lowest free one. Otherwise survivors stay in the order of their places,
 * joiners follow in the order of the list, and places become equal to ranks. */
void roster_places_give(struct roster_placed *list, int survivors, int n, bool keep);

#endif
