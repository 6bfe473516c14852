/* SPDX-License-Identifier: Apache-2.0
 *
 * phases: see phases.h.
 */
#include "operator/reconcile/phases.h"

static const struct phase_row rows[] = {
    {JOB_NEW, EVENT_SUSPEND, JOB_SUSPENDED, DO_SUSPEND},
    {JOB_NEW, EVENT_ACCEPT, JOB_QUEUED, DO_QUEUE},

    {JOB_SUSPENDED, EVENT_ACCEPT, JOB_QUEUED, DO_QUEUE},

    {JOB_QUEUED, EVENT_SUSPEND, JOB_SUSPENDED, DO_SUSPEND},
    {JOB_QUEUED, EVENT_DEADLINE, JOB_FAILED, DO_FINISH},
    {JOB_QUEUED, EVENT_ADMIT, JOB_STARTING, DO_ADMIT},

    {JOB_STARTING, EVENT_RULE_FAILS, JOB_FAILED, DO_FINISH},
    {JOB_STARTING, EVENT_SUSPEND, JOB_SUSPENDED, DO_SUSPEND},
    {JOB_STARTING, EVENT_DEADLINE, JOB_FAILED, DO_FINISH},
    {JOB_STARTING, EVENT_ENDED, JOB_COMPLETING, DO_NOTHING},
    {JOB_STARTING, EVENT_LIMIT, JOB_FAILED, DO_FINISH},
    {JOB_STARTING, EVENT_RULE_RESTARTS, JOB_RESTARTING, DO_NOTHING},
    {JOB_STARTING, EVENT_READY, JOB_RUNNING, DO_SETTLE},
    {JOB_STARTING, EVENT_REFUSED, JOB_RESTARTING, DO_REFUSE},
    {JOB_STARTING, EVENT_PREEMPTED, JOB_RESTARTING, DO_PREEMPT},
    {JOB_STARTING, EVENT_TIMEOUT, JOB_RESTARTING, DO_ROLLBACK},

    {JOB_RUNNING, EVENT_RULE_FAILS, JOB_FAILED, DO_FINISH},
    {JOB_RUNNING, EVENT_SUSPEND, JOB_SUSPENDED, DO_SUSPEND},
    {JOB_RUNNING, EVENT_DEADLINE, JOB_FAILED, DO_FINISH},
    {JOB_RUNNING, EVENT_ENDED, JOB_COMPLETING, DO_NOTHING},
    {JOB_RUNNING, EVENT_LIMIT, JOB_FAILED, DO_FINISH},
    {JOB_RUNNING, EVENT_RULE_RESTARTS, JOB_RESTARTING, DO_NOTHING},
    {JOB_RUNNING, EVENT_PREEMPTED, JOB_RESTARTING, DO_PREEMPT},
    {JOB_RUNNING, EVENT_DRAIN, JOB_RESTARTING, DO_NOTHING},
    {JOB_RUNNING, EVENT_WORKER_LOST, JOB_RESTARTING, DO_NOTHING},
    {JOB_RUNNING, EVENT_EMPTY, JOB_RESTARTING, DO_NOTHING},
    {JOB_RUNNING, EVENT_BELOW, JOB_WAITING, DO_NOTHING},

    {JOB_WAITING, EVENT_RULE_FAILS, JOB_FAILED, DO_FINISH},
    {JOB_WAITING, EVENT_SUSPEND, JOB_SUSPENDED, DO_SUSPEND},
    {JOB_WAITING, EVENT_DEADLINE, JOB_FAILED, DO_FINISH},
    {JOB_WAITING, EVENT_ENDED, JOB_COMPLETING, DO_NOTHING},
    {JOB_WAITING, EVENT_LIMIT, JOB_FAILED, DO_FINISH},
    {JOB_WAITING, EVENT_RULE_RESTARTS, JOB_RESTARTING, DO_NOTHING},
    {JOB_WAITING, EVENT_PREEMPTED, JOB_RESTARTING, DO_PREEMPT},
    {JOB_WAITING, EVENT_DRAIN, JOB_RESTARTING, DO_NOTHING},
    {JOB_WAITING, EVENT_WORKER_LOST, JOB_RESTARTING, DO_NOTHING},
    {JOB_WAITING, EVENT_EMPTY, JOB_RESTARTING, DO_NOTHING},
    {JOB_WAITING, EVENT_READY, JOB_RUNNING, DO_NOTHING},

    {JOB_RESTARTING, EVENT_RULE_FAILS, JOB_FAILED, DO_FINISH},
    {JOB_RESTARTING, EVENT_SUSPEND, JOB_SUSPENDED, DO_SUSPEND},
    {JOB_RESTARTING, EVENT_DEADLINE, JOB_FAILED, DO_FINISH},
    {JOB_RESTARTING, EVENT_LIMIT, JOB_FAILED, DO_FINISH},
    {JOB_RESTARTING, EVENT_RETRY, JOB_QUEUED, DO_QUEUE},

    {JOB_COMPLETING, EVENT_RULE_FAILS, JOB_FAILED, DO_FINISH},
    {JOB_COMPLETING, EVENT_DEADLINE, JOB_FAILED, DO_FINISH},
    {JOB_COMPLETING, EVENT_FAILED_LATE, JOB_FAILED, DO_FINISH},
    {JOB_COMPLETING, EVENT_DONE, JOB_SUCCEEDED, DO_FINISH},
};

static const struct {
    const char *name, *text;
} events[JOB_EVENTS] = {
    [EVENT_ACCEPT] = {"accept", "the spec is valid and the job is not suspended"},
    [EVENT_SUSPEND] = {"suspend", "spec.runPolicy.suspend is true"},
    [EVENT_DEADLINE] = {"deadline", "activeDeadlineSeconds have passed"},
    [EVENT_LIMIT] = {"limit", "workers failed more often than backoffLimit allows"},
    [EVENT_RULE_FAILS] = {"rule-fails", "a rule of runPolicy.failurePolicy fails the job"},
    [EVENT_RULE_RESTARTS] = {"rule-restarts",
                             "a rule of runPolicy.failurePolicy restarts the gang"},
    [EVENT_ADMIT] = {"admit", "the whole gang fits, or it is the one gang that is tried"},
    [EVENT_REFUSED] = {"refused",
                       "the API server refuses workers' pods, and fewer than minWorkers exist"},
    [EVENT_PREEMPTED] = {"preempted", "a job of a higher priority gets its resources"},
    [EVENT_TIMEOUT] = {"timeout", "fewer than minWorkers had a node in gang.timeoutSeconds"},
    [EVENT_READY] = {"ready", "at least minWorkers run"},
    [EVENT_BELOW] = {"below", "fewer than minWorkers run; the others wait with their state"},
    [EVENT_EMPTY] = {"empty", "no worker runs: the state in memory is lost"},
    [EVENT_DRAIN] = {"drain", "a node is drained, and drainPolicy restarts the job"},
    [EVENT_WORKER_LOST] = {"worker-lost", "a worker of a job that is not elastic was lost"},
    [EVENT_ENDED] = {"ended", "a worker succeeded; no further workers are created"},
    [EVENT_RETRY] = {"retry", "no worker is alive and the pause after a loss is over"},
    [EVENT_DONE] = {"done", "all workers have finished"},
    [EVENT_FAILED_LATE] = {"failed-late", "a worker failed after another had succeeded"},
};

static const char *const actions[JOB_ACTIONS] = {
    "", "queue", "admit", "roll-back", "refuse", "preempt", "suspend", "settle", "finish"};

const struct phase_row *phase_rows(size_t *ret_n)
{
    *ret_n = sizeof(rows) / sizeof(rows[0]);
    return rows;
}

const char *job_event_name(enum job_event event)
{
    return events[event].name;
}

const char *job_event_text(enum job_event event)
{
    return events[event].text;
}

const char *job_action_name(enum job_action action)
{
    return actions[action];
}
