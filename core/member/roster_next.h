/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_next: which losses and announcements the next epoch answers, and since when the job has
 * waited for that epoch. roster_epoch.c decides from it when to publish. It includes no other part
 * of the roster. Used by one thread.
 *
 * Times are clock_ns() values; 0: not set.
 */
#ifndef HVD_MEMBER_ROSTER_NEXT_H
#define HVD_MEMBER_ROSTER_NEXT_H

#include <stdbool.h>
#include <stdint.h>

struct roster_next {
    uint64_t cause_at; /* time of the first loss or announcement that the next epoch answers */
    char cause[512];   /* the causes as text; cut to the size of the array */
    uint64_t answering_since; /* since when survivors wait for other survivors' cards */
    uint64_t waiting_since;   /* since when the job is below min, or without a world */
    uint64_t joiner_ready;    /* since when a joiner waits */
    uint32_t judged;          /* the last epoch that has lost all of its members */
    int erred_worlds; /* consecutive epochs in which every rank ended with an error of its own */
};

/* Sets *since to now if it is 0 (not set). */
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
