/* SPDX-License-Identifier: Apache-2.0
 *
 * hvdjob_status: the status of an HvdJob: what users read, and all state that the operator keeps
 * about a job. The operator writes it with the resourceVersion at which it read the job, so that a
 * failure is never counted twice, neither by two operators nor after a kill.
 *
 * Other programs may keep conditions of other types and other fields in the status. They are
 * written back as they were read; the resourceVersion ensures that these are their latest values.
 */
#ifndef HVD_OPERATOR_OBJECTS_HVDJOB_STATUS_H
#define HVD_OPERATOR_OBJECTS_HVDJOB_STATUS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "operator/objects/conditions.h"
#include "operator/objects/job_drains.h"
#include "operator/objects/job_findings.h"

/* Numbers of workers and of attempts are smaller: what a status can store. */
#define STATUS_WORKERS_MAX  65536
#define STATUS_ATTEMPTS_MAX (INT32_MAX / 2)

enum job_phase {
    JOB_NEW,        /* not reconciled yet, or its spec is invalid */
    JOB_SUSPENDED,  /* by spec.runPolicy.suspend: it has no workers */
    JOB_QUEUED,     /* waits until a whole gang fits */
    JOB_STARTING,   /* admitted: its workers are being scheduled and started */
    JOB_RUNNING,    /* at least minWorkers run */
    JOB_WAITING,    /* fewer than minWorkers run; they wait with their state in memory */
    JOB_RESTARTING, /* all workers are deleted, then it is queued again */
    JOB_COMPLETING, /* a worker succeeded; no further workers are created */
    JOB_SUCCEEDED,
    JOB_FAILED,
    JOB_PHASES,
};

/* The attempt of a worker, the last number in its pod's name. */
struct job_retry {
    int worker, attempt;
};

struct job_first_failure {
    int worker, exit_code;
    int rank; /* -1: not known */
    char pod[256], node[256], reason[32], message[512];
    int64_t at;
};

/* What a rule of spec.runPolicy.failurePolicy does, the weakest first. */
enum job_failure_action {
    FAILURE_IGNORE,       /* the worker is replaced; no attempt is used up */
    FAILURE_COUNT,        /* the worker is replaced; one attempt is used up */
    FAILURE_RESTART_GANG, /* all workers are deleted and queued again; one attempt is used up */
    FAILURE_FAIL_JOB,     /* the job fails at once */
    FAILURE_ACTIONS,
};

/* The rule that decided last. */
struct job_failure_rule {
    char name[64], pod[256]; /* pod: the failed one */
    char cause[160];         /* what of the pod has matched, for people; "": not known */
    enum job_failure_action action;
    int64_t at;
};

struct hvdjob_status {
    enum job_phase phase;
    int64_t generation;     /* observedGeneration */
    char template_hash[17]; /* hvdjob.template_hash when the workers were created, "": no workers */

    /* Attempts: a worker's is in retries, or else it is attempt. retries is sorted by worker. */
    int attempt, nretries;
    struct job_retry *retries; /* owned */

    int failures; /* events that count against backoffLimit */
    int losses;   /* events in which pods were lost; sets the pause before the next replacement */
    int restarts; /* workers replaced since the job was created, each for itself */
    int gang_restarts; /* times that the whole gang was admitted again */
    int rollbacks;     /* admissions in a row after which the gang did not fit */
    int refusals;      /* admissions in a row after which the API server refused a worker's pod */
    int64_t last_loss; /* when the last of these events began */
    int64_t last_rollback, last_refusal;
    int64_t last_preemption; /* when the job last gave way to one of a higher priority */
    /* minWorkers for which the queue has admitted the gang, or has granted room since: a raised one
     * is no reason to exceed the namespace's share. 0: not admitted, or by an earlier version. */
    int min_granted;
    /* When workers of others were last preempted for this gang, which has not started since. */
    int64_t claimed;
    bool failed_late;                /* a worker failed after another had succeeded */
    struct job_first_failure *first; /* owned, NULL: no failure */
    struct job_failure_rule *rule;   /* owned, NULL: no rule has decided */

    int64_t queued, admitted; /* when it was last queued; when its gang was last admitted */
    int64_t started, completed;
    struct job_drains drains; /* of nodes with workers of the job */
    /* When the first of them began; MOMENT_NONE: there is none. A version of the operator that does
     * not know the list goes by this. */
    int64_t drain_since;

    /* For people. */
    int workers, ready, pending, epoch, attempts_left;
    struct job_findings findings; /* the doctor's worst findings */
    char *message;                /* owned, NULL: none */
    char *refusal;                /* the API server's words at last_refusal; owned, NULL: none */
    char *preempted_by;           /* "namespace/name" of the job; owned, NULL: none */
    struct condition conditions[CONDITIONS];
    json_t *others; /* fields of other programs; "conditions" are those of other types. Owned, never
                     * changed, NULL: none */
};

const char *job_phase_name(enum job_phase phase);

/* "FailJob" and so on. _find(): false: no action has that name. */
const char *job_failure_action_name(enum job_failure_action action);
bool job_failure_action_find(const char *name, enum job_failure_action *ret);

static inline bool job_phase_finished(enum job_phase phase)
{
    return phase == JOB_SUCCEEDED || phase == JOB_FAILED;
}

/* A job whose gang is to get its nodes. */
static inline bool job_phase_unplaced(enum job_phase phase)
{
    return phase == JOB_NEW || phase == JOB_QUEUED || phase == JOB_STARTING;
}

/* j NULL: an empty status. Invalid fields are ignored: somebody may have edited the status by hand.
 * -ENOMEM; *ret is untouched then. The caller calls _fini() on *ret. */
int hvdjob_status_parse(json_t *j, struct hvdjob_status *ret, struct err *err);
void hvdjob_status_fini(struct hvdjob_status *s);
int hvdjob_status_copy(const struct hvdjob_status *s, struct hvdjob_status *ret, struct err *err);

/* The status as JSON. selector: label selector of the pods, for the scale subresource. NULL: no
 * memory. */
json_t *hvdjob_status_write(const struct hvdjob_status *s, const char *selector);

/* hvdjob_status_attempt() returns the worker's attempt. hvdjob_status_raise() raises it to attempt,
 * if that is higher; -ENOMEM. */
int hvdjob_status_attempt(const struct hvdjob_status *s, int worker);
int hvdjob_status_raise(struct hvdjob_status *s, int worker, int attempt, struct err *err);

/* Raises the attempt of all workers above every attempt used so far and above attempt_seen (the
 * highest among existing pods): all pods get new names. */
void hvdjob_status_new_round(struct hvdjob_status *s, int attempt_seen);

#endif
