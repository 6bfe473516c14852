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
    struct workers w; /* the job's pods by the attempts in st; made again when st changes */
    /* st->rule, if it matched a pod that failed since the last status; else NULL. */
    const struct job_failure_rule *ruled;
    bool held; /* creates no worker: the existing ones have another template */
    struct {
        const struct pod *first; /* the first worker on a node with SIGNAL_REPLACE; NULL: none */
        bool restart;            /* all workers start again */
        bool say;                /* text becomes an Event, too */
        char text[512];          /* what happens to workers on such nodes; "": there are none */
    } drain;
    struct err *err;
};

/* reconcile_losses.c: counts pods that failed since the last status. */
int reconcile_losses(struct reconciling *r);
/* The moment before which no lost worker is replaced; MOMENT_NONE: no pause. */
int64_t reconcile_pause(const struct reconciling *r);

/* drain.c. drain_look: sets r->drain and status.drains; -ENOMEM. drain_moves: does the operator
 * move this worker now? drain_move: deletes the pods of these workers; *ret_n: how many. */
int drain_look(struct reconciling *r);
bool drain_moves(const struct reconciling *r, const struct pod *p);
int drain_move(struct reconciling *r, int *ret_n);

/* reconcile_phase.c: follows the table of phases until no event applies. */
int reconcile_phase(struct reconciling *r);

/* spec.gang.timeoutSeconds, within the administrator's limit. */
int reconcile_gang_timeout(const struct reconciling *r);

/* reconcile_pods.c: which pods to create, ungate and delete in this phase; raises attempts. */
int reconcile_pods(struct reconciling *r);

/* reconcile_status.c: counts, conditions and messages. */
int reconcile_status(struct reconciling *r);

#endif
