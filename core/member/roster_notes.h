/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_notes: the growing list of notes, numbered from 1, that a coordinator publishes to the
 * agents. A part of the roster that does not depend on it: the roster adds, service.c and
 * coordinators read. Used by one thread.
 */
#ifndef HVD_MEMBER_ROSTER_NOTES_H
#define HVD_MEMBER_ROSTER_NOTES_H

#include <stdbool.h>

#include "core/member/protocol.h"

struct roster_notes {
    int n, cap; /* cap: capacity of list */
    struct note *list;
};

/* Preallocates room for that many notes. -ENOMEM. */
int roster_notes_init(struct roster_notes *notes, int room);

void roster_notes_fini(struct roster_notes *notes);

/* Appends a note. Returns false, and drops it, when the list is full and memory is exhausted. */
bool roster_notes_add(struct roster_notes *notes, const struct note *note);

#endif
