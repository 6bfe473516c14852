/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile_private: shared by the files of reconcile. The struct lives for one call.
 */
#ifndef HVD_OPERATOR_RECONCILE_PRIVATE_H
#define HVD_OPERATOR_RECONCILE_PRIVATE_H

#include "operator/reconcile/phases.h"
#include "operator/reconcile/reconcile.h"
#include "operator/reconcile/workers.h"

struct reconciling {
    const struct reconcile_input *in;
    const struct hvdjob *job;
    struct hvdjob_status *st; /* the desired status, inside ret */
    struct actions *ret;
    struct workers w;  /* the job's pods by the attempts in st; made again when st changes */
    bool ruled;        /* st->rule matched a pod that failed since the last status */
    bool held;         /* creates no worker: the existing ones have another template */
    char blocked[320]; /* which foreign pod has the name of a worker's pod; "": none */
    struct err *err;
};

/* reconcile_losses.c: counts pods that failed since the last status. */
int reconcile_losses(struct reconciling *r);
/* The moment before which no lost worker is replaced; MOMENT_NONE: no pause. */
int64_t reconcile_pause(const struct reconciling *r);

/* reconcile_phase.c: follows the table of phases until no event applies. */
int reconcile_phase(struct reconciling *r);

/* spec.gang.timeoutSeconds, within the administrator's limit. */
int reconcile_gang_timeout(const struct reconciling *r);

/* reconcile_pods.c: which pods to create, ungate and delete in this phase; raises attempts. */
int reconcile_pods(struct reconciling *r);

/* reconcile_status.c: counts, conditions and messages. */
int reconcile_status(struct reconciling *r);

#endif
