/* SPDX-License-Identifier: Apache-2.0
 *
 * job_coordinator_history: the last epochs of a job's roster, for people and for metrics. Owned by
 * its crew. What took how long after a loss is known a moment after the epoch: ranks report it.
 */
#ifndef HVD_OPERATOR_COORDINATOR_EPOCH_HISTORY_H
#define HVD_OPERATOR_COORDINATOR_EPOCH_HISTORY_H

#include "core/member/roster.h"

#define EPOCH_HISTORY_MAX 32 /* kept */

struct epoch_record {
    uint32_t epoch;
    uint64_t at; /* clock */
    int size;
    bool first;    /* nothing was before it, so nothing recovered */
    bool lost;     /* somebody of the one before it was lost */
    bool settled;  /* it was counted */
    double ms;     /* from the loss or announcement to it */
    double repair; /* ms from hearing of it until work went on, on the slowest rank; 0: unknown */
    char *cause;   /* owned; NULL: no memory for it */
};

/* Zero-initialized: none. */
struct epoch_history {
    int n, cap;
    struct epoch_record *list; /* the newest last */
    uint64_t planned, lost;    /* that followed another one */
};

/* To be called whenever the roster may have changed, and a few times a second. True: there is a new
 * one. */
bool epoch_history_update(struct epoch_history *all, const struct roster *r);

/* What it took the job, in ms. After a loss the longer of ms and repair; before a planned change
 * ranks train on until the boundary, so it is repair alone where that is known. */
double epoch_record_cost(const struct epoch_record *e);

/* The next one whose time has not been counted and will not change any more; false: none. */
bool epoch_history_next_final(struct epoch_history *all, uint64_t now, bool *ret_lost,
                              double *ret_ms);

void epoch_history_fini(struct epoch_history *all);

#endif
