/* SPDX-License-Identifier: Apache-2.0
 *
 * phases: the state machine of an HvdJob as a const table {phase, event, next, action}. Pure.
 * reconcile_phase.c goes through the rows of the current phase in order and takes the first whose
 * event has happened.
 */
#ifndef HVD_OPERATOR_RECONCILE_PHASES_H
#define HVD_OPERATOR_RECONCILE_PHASES_H

#include <stddef.h>

#include "operator/objects/hvdjob_status.h"

enum job_event {
    EVENT_ACCEPT,        /* the spec is valid and the job is not suspended */
    EVENT_SUSPEND,       /* spec.runPolicy.suspend is true */
    EVENT_DEADLINE,      /* activeDeadlineSeconds have passed */
    EVENT_LIMIT,         /* more failures than backoffLimit */
    EVENT_RULE_FAILS,    /* a rule of failurePolicy fails the job */
    EVENT_RULE_RESTARTS, /* a rule of failurePolicy restarts the gang */
    EVENT_ADMIT,         /* the queue admits the gang */
    EVENT_REFUSED, /* the API server refuses pods of an admitted gang, and fewer than minWorkers are
                      there */
    EVENT_PREEMPTED,   /* the queue gives the job's resources to one of a higher priority */
    EVENT_TIMEOUT,     /* fewer than minWorkers have a node after gang.timeoutSeconds */
    EVENT_READY,       /* at least minWorkers run */
    EVENT_BELOW,       /* fewer than minWorkers run */
    EVENT_EMPTY,       /* no worker runs: the state in memory is lost */
    EVENT_DRAIN,       /* a node is drained, and the job's drain policy restarts the job */
    EVENT_WORKER_LOST, /* the job is not elastic and lacks a worker */
    EVENT_ENDED,       /* a worker succeeded */
    EVENT_RETRY,       /* no worker is alive and the pause after a loss is over */
    EVENT_DONE,        /* all workers have finished */
    EVENT_FAILED_LATE, /* all have finished, and one failed after another had succeeded */
    JOB_EVENTS,
};

enum job_action {
    DO_NOTHING,
    DO_QUEUE,    /* set the queue time; the next pods get new names */
    DO_ADMIT,    /* set the admission time; the first one starts the deadline */
    DO_ROLLBACK, /* count a gang that was admitted and did not fit */
    DO_REFUSE,   /* count a gang whose pods were refused, and keep the reason */
    DO_PREEMPT,  /* note which job preempted this one */
    DO_SUSPEND,  /* reset the deadline and the counts of failures */
    DO_SETTLE,   /* the gang runs: reset the count of rollbacks */
    DO_FINISH,   /* set the completion time */
    JOB_ACTIONS,
};

struct phase_row {
    enum job_phase phase;
    enum job_event event;
    enum job_phase next;
    enum job_action action;
};

/* All rows, in the order in which they are tried. */
const struct phase_row *phase_rows(size_t *ret_n);

const char *job_event_name(enum job_event event);
const char *job_event_text(enum job_event event);
const char *job_action_name(enum job_action action);

#endif
