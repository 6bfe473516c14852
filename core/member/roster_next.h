/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_next: what the next epoch answers, and since when it has been waited for. A part of the
 * roster that does not depend on it. roster_epoch.c decides by it. One thread.
 *
 * Times are of the clock; 0: not.
 */
#ifndef HVD_MEMBER_ROSTER_NEXT_H
#define HVD_MEMBER_ROSTER_NEXT_H

#include <stdbool.h>
#include <stdint.h>

struct roster_next {
    uint64_t cause_at;        /* the first loss or announcement that the next epoch answers */
    char cause[512];          /* as text; cut where it does not fit */
    uint64_t answering_since; /* some survivors wait for the others */
    uint64_t waiting_since;   /* the job is below min, or without a world */
    uint64_t joiner_ready;    /* a joiner waits */
    uint32_t judged;          /* the last epoch that has lost all of its members */
    int erred_worlds;         /* such epochs in a row in which every rank ended with an error */
};

/* Sets a time unless it is set. */
static inline void roster_next_since(uint64_t *since, uint64_t now)
{
    if (!*since)
        *since = now ? now : 1;
}

/* Adds a cause, such as a loss. */
void roster_next_add_cause(struct roster_next *next, uint64_t now, const char *text);

/* The next epoch was published: nothing is waited for. */
void roster_next_published(struct roster_next *next);

#endif
