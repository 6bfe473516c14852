/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_private: functions of roster.c for the roster's other files. See roster.h.
 */
#ifndef HVD_MEMBER_ROSTER_PRIVATE_H
#define HVD_MEMBER_ROSTER_PRIVATE_H

#include "core/member/roster.h"

/* Like roster_init(), but with a given size; hosts may have no ranks. */
int roster_make(struct roster *r, const char *job, const uint8_t key[MEMBER_KEY_SIZE],
                const struct roster_host *hosts, int nhosts, int size, struct err *err);

void roster_note(struct roster *r, enum note_type type, int member, int code, const char *text);

/* Creates a member in a slot of an agent, not yet started. Returns its number, or -ENOMEM. */
int roster_add_member(struct roster *r, int agent, int slot);

/* A member has said BYE and had finished so many operations: survivors must reach that number. */
static inline void roster_note_done(struct roster *r, uint64_t done)
{
    r->departed_done = done > r->departed_done ? done : r->departed_done;
}

/* The least size of the world now: min, less the members whose program has ended well. */
int roster_min_now(const struct roster *r);

/* True when the program has finished on some rank that was in the world. */
bool roster_is_finished(const struct roster *r);

#endif
