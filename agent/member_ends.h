/* SPDX-License-Identifier: Apache-2.0
 *
 * member_ends: which members of the job have ended or were lost, as far as an agent knows. Pure;
 * one owner, one thread.
 */
#ifndef HVD_AGENT_MEMBER_ENDS_H
#define HVD_AGENT_MEMBER_ENDS_H

#include <stdbool.h>
#include <stdint.h>

#define END_FINAL UINT32_MAX /* as an epoch: the process has ended */

struct member_end {
    bool known, lost; /* lost: ranks that work with the member must be told */
    uint32_t epoch;   /* the end holds for rosters up to this one; a later may list the member */
    int code;
    char text[512];
};

/* Zero-initialized: no member has ended. */
struct member_ends {
    struct member_end *list; /* [n], indexed by member */
    int n;
};

void member_ends_fini(struct member_ends *ends);

/* The end of the member; NULL: it is not known. */
const struct member_end *member_ends_get(const struct member_ends *ends, int member);

/* The first known end; NULL: there is none. *ret_member: the member that ended. */
const struct member_end *member_ends_first(const struct member_ends *ends, int *ret_member);

/* The member's entry, to be filled; NULL: no memory, or no such member. */
struct member_end *member_ends_entry(struct member_ends *ends, int member);

/* Forgets the end of a member that has said HELLO again. */
void member_ends_forget(struct member_ends *ends, int member);

/* Returns the highest member number with a known end, plus 1; 0: no end is known. */
int member_ends_count(const struct member_ends *ends);

#endif
