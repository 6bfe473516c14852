/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_starts: list of the members of an elastic job that are to be started, in order of the
 * decision. A part of the roster that does not depend on it; roster_replace.c decides. Used by one
 * thread.
 */
#ifndef HVD_MEMBER_ROSTER_STARTS_H
#define HVD_MEMBER_ROSTER_STARTS_H

#include <stdbool.h>
#include <stdint.h>

struct roster_start {
    int agent;    /* preferred agent, -1: any */
    uint64_t due; /* clock */
    bool replaces;
};

struct roster_starts {
    int n, room; /* room: capacity of list */
    struct roster_start *list;
};

/* Grows the capacity to room if it is less. -ENOMEM. */
int roster_starts_reserve(struct roster_starts *s, int room);

void roster_starts_fini(struct roster_starts *s);

/* Adds a start. Does nothing when the list is full. */
void roster_starts_add(struct roster_starts *s, struct roster_start start);

void roster_starts_remove(struct roster_starts *s, int i);

/* Removes the last start if it replaces a member. Returns true when it did. */
bool roster_starts_forget(struct roster_starts *s);

/* The earliest due time; UINT64_MAX: the list is empty. */
uint64_t roster_starts_due(const struct roster_starts *s);

#endif
