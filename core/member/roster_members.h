/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_members: the members of a job: what is known of each, and what that makes it (survivor,
 * joiner ...). A part of the roster that does not depend on it. Their states change in
 * roster_life.c only. Used by one thread.
 *
 * - A survivor is a member of the current world that has its training state: it is active, or it
 *   waits for the next epoch with a card that says "revoked" or "boundary".
 * - A joiner has said "enter"; or it has said "join" when no rank trained, or after it was in a
 * world. */
#ifndef HVD_MEMBER_ROSTER_MEMBERS_H
#define HVD_MEMBER_ROSTER_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/member/protocol.h"
#include "core/member/rank_end.h"
#include "core/member/rank_state.h"

struct roster_member {
    enum rank_state state;
    int agent; /* index */
    struct assignment assignment;
    int rank;     /* rank in the current world, -1: the member is not in it */
    int was_rank; /* the last rank that the member had, -1: none */
    int place;    /* place in the current world (roster_places.h), -1: the member is not in it */
    int pid;
    int code;          /* how the process ended: exit code, -signal; unable: -errno */
    enum rank_end end; /* what its end means for the job */
    bool disturbed;    /* fixed: it said that another rank's end made its operations fail */
    uint64_t left_at;  /* clock: when it called hvd_shutdown() in a world; 0: it did not */
    bool reaped;       /* its process has ended and was reaped; its death may be known earlier */
    bool leaving;      /* it was asked to leave: its end is no failure */
    bool unable;       /* it reported that it cannot go on */
    bool was_in;       /* the member was in some epoch */
    bool is_new;       /* new in the current epoch: it has no training state */
    enum card_why why; /* reason of the member's last card */
    uint64_t started;  /* clock, 0: not yet */
    uint64_t waits;    /* clock: since when it has been ready */
    uint64_t ended_at; /* clock, 0: not yet */
    char *text;        /* why it could not start, or how its agent was lost; owned, NULL: no text */
    char *tail;        /* last lines of its stderr; owned, NULL: none */
    uint64_t batches, bytes;
    struct set_report *sets; /* owned; NULL: it is in none */
    uint64_t moved; /* clock: when batches last grew, or when it joined the world; 0: never */
    struct buf card;
};

struct roster_members {
    int n, cap;                 /* cap: capacity of list */
    struct roster_member *list; /* indexed by member number */
    int ready;                  /* members in RANK_READY */
    uint64_t first_ready;       /* clock: when the first of them became ready */
};

/* Reserves memory for n members in total. -ENOMEM. */
int roster_members_reserve(struct roster_members *ms, int n);

void roster_members_fini(struct roster_members *ms);

/* Adds a member in a slot of an agent, not yet started. agents: number of agents so far. Returns
 * the member's number, or -ENOMEM. */
int roster_members_add(struct roster_members *ms, int agent, int slot, int agents);

/* Stores what the member reports of its sets; without memory it is dropped. NULL: it is in none. */
void member_take_sets(struct roster_member *m, const struct set_report *sets);

/* Stores the last lines of the member's stderr; without memory they are dropped. */
void member_take_tail(struct roster_member *m, const char *tail);

/* True for a survivor. */
bool member_survives(const struct roster_member *m);

/* True for a joiner: it is ready and waits for admission. */
bool member_is_joiner(const struct roster_member *m);

/* True for a joiner that waits for admission at a boundary (it has said "enter"). It may have been
 * in the roster of an epoch that failed. */
bool member_awaits_boundary(const struct roster_member *m);

/* True when the member's last card says "join" or "enter": it has no training state for the next
 * epoch. */
bool member_says_join(const struct roster_member *m);

/* True for a member that is to go on: it has not ended, can go on, and was not asked to leave. */
bool member_is_wanted(const struct roster_member *m);

/* True for a wanted member that has called hvd_shutdown(): it may call hvd_init() again. */
bool member_may_return(const struct roster_member *m);

int roster_members_count(const struct roster_members *ms,
                         bool (*is)(const struct roster_member *m));

#endif
