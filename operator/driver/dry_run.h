/* SPDX-License-Identifier: Apache-2.0
 *
 * dry_run: asks the API server, before a job's gang is admitted, whether it would accept a worker's
 * pod: one create with dryRun=All, which runs quota, pod security and webhooks, and returns the pod
 * with all defaults. On the api's loop, one thread.
 */
#ifndef HVD_OPERATOR_DRIVER_DRY_RUN_H
#define HVD_OPERATOR_DRIVER_DRY_RUN_H

#include "core/base/clock.h"
#include "core/base/list.h"
#include "operator/api/api.h"
#include "operator/objects/demand.h"
#include "operator/objects/moment.h"
#include "operator/reconcile/queue.h"

#define DRY_RUNS 16 /* in flight at a time, of all jobs; namespaces take turns */
#define DRY_RUN_PATIENCE                                                                           \
    8 /* failures in a row, in about a second; then the job's message says so */
/* After a quota's change a job that a quota refuses is asked about anew, also a second time within
 * this time: the API server may learn of the change after this operator. */
#define DRY_RUN_SETTLES (2 * MOMENT_S)
/* After one of these jobs is refused again, the next of its namespace is asked about later. */
#define DRY_RUN_PAUSE CLOCK_S

/* The answer. Reference-counted: a run of the queue may outlive the entry's reference. */
struct verdict {
    int refs;
    char *refused;  /* why the job waits, with the API server's words; NULL: it accepts the pod */
    enum wait wait; /* refused: WAIT_REFUSED, WAIT_QUOTA or WAIT_UNANSWERED */
    int64_t at, again; /* refused: the answer; when it is asked again */
    bool known;        /* demand is set. Else: a webhook does not support dry runs */
    struct demand demand;
};

struct verdict *verdict_ref(struct verdict *v);
void verdict_unref(struct verdict *v); /* NULL is fine */

struct dry_run {
    struct api_call *call;           /* in flight; its argument is the entry */
    struct list turn;                /* in driver_tenant.waiting while it waits to be sent */
    char uid[64], template_hash[17]; /* of the job that it was made for */
    struct verdict *verdict;         /* stays while it is asked again; NULL: not answered yet */
    uint64_t sent;                   /* clock_ns() of call */
    bool early;                      /* call was made because a quota has changed */
    int refusals;                    /* in a row */
    unsigned failures;               /* calls in a row without an answer */
    uint64_t not_before;             /* clock_ns(): no call before, after a failure */
};

#endif
