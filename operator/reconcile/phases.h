/* SPDX-License-Identifier: Apache-2.0
 *
 * phases: the life of an HvdJob as a const table {phase, event, next, action}: pure. reconcile.c
 * asks for each row of the present phase in turn whether its event is so, and takes the first.
 */
#ifndef HVD_OPERATOR_RECONCILE_PHASES_H
#define HVD_OPERATOR_RECONCILE_PHASES_H

#include <stddef.h>

#include "operator/objects/hvdjob_status.h"

enum job_event {
    EVENT_ACCEPT,   /* its spec can be run and it is not suspended */
    EVENT_SUSPEND,  /* spec.runPolicy.suspend */
    EVENT_DEADLINE, /* activeDeadlineSeconds are over */
    EVENT_LIMIT,    /* more failures than backoffLimit */
    EVENT_ADMIT,    /* the queue lets it go */
    EVENT_TIMEOUT,  /* fewer than minWorkers have a node after gang.timeoutSeconds */
    EVENT_READY,    /* minWorkers run */
    EVENT_BELOW,    /* fewer than minWorkers run */
    EVENT_EMPTY,    /* none runs: its state in memory is lost */
    EVENT_BROKEN,   /* not elastic, and not all workers are there */
    EVENT_ENDED,    /* a worker ended well */
    EVENT_RESTED,   /* its workers are gone or going, and the pause is over */
    EVENT_DONE,     /* no worker runs any more */
    EVENT_SPOILT,   /* the same, and one failed after another had ended well */
    JOB_EVENTS,
};

enum job_action {
    DO_NOTHING,
    DO_QUEUE,    /* waits from now on; its next workers get new names */
    DO_ADMIT,    /* note when; the deadline runs from the first time on */
    DO_ROLLBACK, /* note that the gang did not fit */
    DO_SUSPEND,  /* deadline and counts begin anew when it is resumed */
    DO_SETTLE,   /* it runs: forget that it once did not fit */
    DO_FINISH,   /* note when */
    JOB_ACTIONS,
};

struct phase_row {
    enum job_phase phase;
    enum job_event event;
    enum job_phase next;
    enum job_action action;
};

/* All rows, in the order in which they are asked. */
const struct phase_row *phase_rows(size_t *ret_n);

const char *job_event_name(enum job_event event);
const char *job_event_text(enum job_event event);
const char *job_action_name(enum job_action action);

#endif
