/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch_history: the last epochs of a job's roster, for the page and for metrics. Owned by the
 * job_coordinator. How long recovery took is known only some time after an epoch began, when its
 * ranks have reported it.
 */
#ifndef HVD_OPERATOR_COORDINATOR_EPOCH_HISTORY_H
#define HVD_OPERATOR_COORDINATOR_EPOCH_HISTORY_H

#include "core/member/roster.h"

#define EPOCH_HISTORY_MAX 32 /* epochs that are kept */

struct epoch_record {
    uint32_t epoch;
    uint64_t at;  /* clock_ns() */
    int size;     /* ranks */
    bool first;   /* the first epoch that this operator saw: there was no recovery */
    bool lost;    /* caused by a loss; else by a planned change */
    bool settled; /* epoch_history_next_final() has returned it */
    double ms;    /* from the loss or the announcement to this epoch */
    double
        repair;  /* ms until the slowest rank continued after it heard of the change; 0: unknown */
    char *cause; /* for people; owned; NULL: no memory */
};

/* Zero-initialized: empty. */
struct epoch_history {
    int n, cap;
    struct epoch_record *list; /* the newest last */
    uint64_t planned, lost;    /* epochs by cause, without the first */
};

/* Call it whenever the roster may have changed, and a few times a second. True: a new epoch was
 * added. */
bool epoch_history_update(struct epoch_history *all, const struct roster *r);

/* How long training stood still, in ms. After a loss: the longer of ms and repair. For a planned
 * change: repair, if known, because ranks train on until the boundary. */
double epoch_record_cost(const struct epoch_record *e);

/* True: *ret_lost and *ret_ms are cause and cost of an epoch whose cost is final now. Each epoch
 * but the first is reported once. False: no further epoch. */
bool epoch_history_next_final(struct epoch_history *all, uint64_t now, bool *ret_lost,
                              double *ret_ms);

void epoch_history_fini(struct epoch_history *all);

#endif
