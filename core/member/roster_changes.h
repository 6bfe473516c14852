/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_changes: the numbers of an elastic job's planned changes, and the text of those that are
 * not announced yet. A part of the roster that does not depend on it. applied <= announced <=
 * requested. Used by one thread.
 */
#ifndef HVD_MEMBER_ROSTER_CHANGES_H
#define HVD_MEMBER_ROSTER_CHANGES_H

#include <stdbool.h>
#include <stdint.h>

struct roster_changes {
    uint32_t requested; /* the last planned change */
    uint32_t announced; /* the last change that was announced to ranks: it waits for a boundary */
    uint32_t applied;   /* the last change that the roster contains */
    /* text of the changes that were requested and not announced; cut to the array */
    char plan[256];
};

/* Appends a description of a requested change to plan. */
void roster_changes_add_plan(struct roster_changes *c, const char *text);

/* Announces what was requested, or a change that nobody requested (joiners), and forgets its text.
 * Returns the number. */
uint32_t roster_changes_announce(struct roster_changes *c);

/* Marks all requested changes as applied: the roster contains them, or they have become void. */
void roster_changes_apply_all(struct roster_changes *c);

/* True while a change waits for a boundary. */
static inline bool roster_changes_pending(const struct roster_changes *c)
{
    return c->announced > c->applied;
}

#endif
