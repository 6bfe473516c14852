/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_starts: the members of an elastic job that are to be started, in the order in which that
 * was decided. Part of a roster, knows nothing of it; roster_change.c decides. One thread.
 */
#ifndef HVD_MEMBER_ROSTER_STARTS_H
#define HVD_MEMBER_ROSTER_STARTS_H

#include <stdbool.h>
#include <stdint.h>

struct roster_start {
    int agent;    /* there if possible, -1: anywhere */
    uint64_t due; /* clock */
    bool replaces;
};

struct roster_starts {
    int n, room; /* room: the most there may be */
    struct roster_start *list;
};

/* Room for so many, if there is less. -ENOMEM */
int roster_starts_reserve(struct roster_starts *s, int room);

void roster_starts_fini(struct roster_starts *s);

/* Where there is no room for one more it is left out. */
void roster_starts_add(struct roster_starts *s, struct roster_start start);

void roster_starts_remove(struct roster_starts *s, int i);

/* The last one, if it replaces a member: true, it is gone. */
bool roster_starts_forget(struct roster_starts *s);

/* The earliest time at which one is due; UINT64_MAX: there is none. */
uint64_t roster_starts_due(const struct roster_starts *s);

#endif
