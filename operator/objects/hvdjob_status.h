/* SPDX-License-Identifier: Apache-2.0
 *
 * hvdjob_status: the status of an HvdJob: what users read, and all that the operator remembers of a
 * job. It is written by the operator alone, with the resourceVersion it was read at, so that two
 * operators, or one that was killed in between, never count a failure twice.
 */
#ifndef HVD_OPERATOR_OBJECTS_HVDJOB_STATUS_H
#define HVD_OPERATOR_OBJECTS_HVDJOB_STATUS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "operator/objects/conditions.h"
#include "operator/objects/job_findings.h"

enum job_phase {
    JOB_NEW,        /* not looked at yet, or its spec cannot be run */
    JOB_SUSPENDED,  /* asked to have no workers */
    JOB_QUEUED,     /* waits until a whole gang fits */
    JOB_STARTING,   /* admitted: its workers are being scheduled and started */
    JOB_RUNNING,    /* at least minWorkers run */
    JOB_WAITING,    /* fewer do; those that are left wait with their state in memory */
    JOB_RESTARTING, /* its workers are ended, then it queues again */
    JOB_COMPLETING, /* a worker ended well; no new ones come */
    JOB_SUCCEEDED,
    JOB_FAILED,
    JOB_PHASES,
};

/* A worker whose name was used up: the pod that comes next has another number at its end. */
struct job_retry {
    int worker, attempt;
};

struct job_first_failure {
    int worker, exit_code;
    int rank; /* of the job, -1: not known */
    char pod[256], node[256], reason[32], message[512];
    int64_t at;
};

struct hvdjob_status {
    enum job_phase phase;
    int64_t generation; /* of the spec that this answers */
    char shape[17];     /* of the template with which the present workers were made, "": none */

    /* Names that are used up: attempt for every worker, and more for some. Sorted by worker. */
    int attempt, nretries;
    struct job_retry *retries; /* owned */

    int failures;  /* that count against backoffLimit */
    int losses;    /* pods lost for any reason, for the pause before the next */
    int restarts;  /* workers replaced since the job was made */
    int rollbacks; /* gangs in a row that were admitted and did not fit */
    int64_t last_loss, last_rollback;
    bool spoilt;                     /* a worker failed after another had ended well */
    struct job_first_failure *first; /* owned, NULL: there was none */

    int64_t queued, admitted; /* since when it waits; when its gang was let go */
    int64_t started, completed;

    /* For people. */
    int workers, ready, pending, epoch, attempts_left;
    struct job_findings findings; /* of the doctor, the worst */
    char *message;                /* owned, NULL: none */
    struct condition conditions[CONDITIONS];
};

const char *job_phase_name(enum job_phase phase);

static inline bool job_phase_over(enum job_phase phase)
{
    return phase == JOB_SUCCEEDED || phase == JOB_FAILED;
}

/* NULL: a status of nothing. What cannot be read is as if it were not there: whoever writes a
 * status by hand gets no crash for it. -ENOMEM; *ret is untouched then. Whoever has it calls
 * _fini(). */
int hvdjob_status_parse(json_t *j, struct hvdjob_status *ret, struct err *err);
void hvdjob_status_fini(struct hvdjob_status *s);
int hvdjob_status_copy(const struct hvdjob_status *s, struct hvdjob_status *ret, struct err *err);

/* The status as an object; selector is for the scale subresource. NULL: no memory. */
json_t *hvdjob_status_write(const struct hvdjob_status *s, const char *selector);

/* The attempt at which worker is; raises it. -ENOMEM. */
int hvdjob_status_attempt(const struct hvdjob_status *s, int worker);
int hvdjob_status_raise(struct hvdjob_status *s, int worker, int attempt, struct err *err);

/* All workers get new names: none that is in use, nor attempt_seen (the highest among their pods).
 */
void hvdjob_status_new_round(struct hvdjob_status *s, int attempt_seen);

#endif
