/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_ends: counts the ends of a job's members and remembers which of them decide the job's exit
 * code. A part of the roster that does not depend on it. roster_life.c records each end once;
 * coordinators read. Used by one thread.
 */
#ifndef HVD_MEMBER_ROSTER_ENDS_H
#define HVD_MEMBER_ROSTER_ENDS_H

#include <stdbool.h>

#include "core/member/rank_end.h"

struct roster_ends {
    int ended;    /* members that have ended */
    int finished; /* of these, members of a world whose program has ended with 0 */
    /* Member numbers, -1: none. */
    int first;       /* the member that made the job fail (END_FAILS_JOB) */
    int early;       /* the first that finished early (END_EARLY) */
    int follower;    /* the first that failed because of another rank's end (END_FOLLOWS) */
    int at_end;      /* the first of END_FAILS_AT_END */
    int unreplaced;  /* the last of END_REPLACED_OR_FAILS that no new member has replaced yet */
    int last_failed; /* elastic: the last whose failure counts (rank_end_counts()) */
};

/* No member has ended. */
void roster_ends_init(struct roster_ends *e);

/* A member has ended. The caller updates ended and finished. */
void roster_ends_record(struct roster_ends *e, int member, enum rank_end end);

/* The member whose end decides the job's exit code; -1: none, the code is 0. survivors: members
 * that train on. */
int roster_ends_culprit(const struct roster_ends *e, bool elastic, int survivors);

#endif
