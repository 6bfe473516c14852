/* SPDX-License-Identifier: Apache-2.0
 *
 * hvdjob_status: see hvdjob_status.h.
 */
#include "operator/objects/hvdjob_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/words.h"
#include "core/json/json.h"
#include "operator/objects/moment.h"
#include "operator/objects/parts.h"

static const char *const phase_names[JOB_PHASES] = {
    "New",     "Suspended",  "Queued",     "Starting",  "Running",
    "Waiting", "Restarting", "Completing", "Succeeded", "Failed",
};

/* The fields that hvdjob_status_write() writes; all others belong to other programs. */
static const char *const own_fields[] = {
    "phase",           "observedGeneration",
    "shape",           "message",
    "selector",        "failures",
    "losses",          "restarts",
    "rollbacks",       "workerFailedAtEnd",
    "queuedTime",      "lastLossTime",
    "admittedTime",    "lastRollbackTime",
    "startTime",       "workers",
    "completionTime",  "ready",
    "firstFailure",    "pending",
    "epoch",           "attemptsLeft",
    "findingsLeftOut", "attempt",
    "attempts",        "findings",
    "drainTime",       "failureRule",
    "refusals",        "refusal",
    "lastRefusalTime", "lastPreemptionTime",
    "preemptedBy",     "claimTime",
    "minGranted",      "drains",
    "gangRestarts",
};

const char *job_phase_name(enum job_phase phase)
{
    return phase_names[phase];
}

static const char *const action_names[FAILURE_ACTIONS] = {"Ignore", "Count", "RestartGang",
                                                          "FailJob"};

const char *job_failure_action_name(enum job_failure_action action)
{
    return action_names[action];
}

bool job_failure_action_find(const char *name, enum job_failure_action *ret)
{
    for (int i = 0; i < FAILURE_ACTIONS; i++)
        if (strcmp(name, action_names[i]) == 0) {
            *ret = (enum job_failure_action)i;
            return true;
        }
    return false;
}

void hvdjob_status_fini(struct hvdjob_status *s)
{
    free(s->retries);
    free(s->first);
    free(s->rule);
    free(s->message);
    free(s->refusal);
    free(s->preempted_by);
    conditions_fini(s->conditions);
    job_findings_fini(&s->findings);
    job_drains_fini(&s->drains);
    json_decref(s->others);
    *s = (struct hvdjob_status){0};
}

/* Returns a copy of size bytes; NULL if there is nothing to copy. Without memory it also returns
 * NULL, and clears *ok. */
static void *copy(const void *from, size_t size, bool *ok)
{
    void *to = from && size > 0 ? malloc(size) : NULL;
    if (to)
        memcpy(to, from, size);
    *ok &= to || !from || size == 0;
    return to;
}

int hvdjob_status_copy(const struct hvdjob_status *s, struct hvdjob_status *ret, struct err *err)
{
    struct hvdjob_status to = *s;
    bool ok = true;
    to.retries = copy(s->retries, (size_t)s->nretries * sizeof(*s->retries), &ok);
    to.first = copy(s->first, sizeof(*s->first), &ok);
    to.rule = copy(s->rule, sizeof(*s->rule), &ok);
    to.message = words_copy(s->message, &ok);
    to.refusal = words_copy(s->refusal, &ok);
    to.preempted_by = words_copy(s->preempted_by, &ok);
    to.findings = (struct job_findings){0};
    to.drains = (struct job_drains){0};
    json_incref(to.others);
    ok &= conditions_copy(s->conditions, to.conditions) == 0;
    ok &= job_findings_copy(&s->findings, &to.findings, NULL) == 0;
    ok &= job_drains_copy(&s->drains, &to.drains) == 0;
    if (!ok) {
        hvdjob_status_fini(&to);
        return err_set(err, ENOMEM, "no memory");
    }
    *ret = to;
    return 0;
}

/* ---- attempts ------------------------------------------------------------------------------- */

/* The index of worker in retries, or where to insert it. */
static int retry_place(const struct hvdjob_status *s, int worker)
{
    int low = 0, high = s->nretries;
    while (low < high) {
        int mid = low + (high - low) / 2;
        if (s->retries[mid].worker < worker)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

int hvdjob_status_attempt(const struct hvdjob_status *s, int worker)
{
    int i = retry_place(s, worker);
    bool found = i < s->nretries && s->retries[i].worker == worker;
    return found && s->retries[i].attempt > s->attempt ? s->retries[i].attempt : s->attempt;
}

int hvdjob_status_raise(struct hvdjob_status *s, int worker, int attempt, struct err *err)
{
    int i = retry_place(s, worker);
    if (attempt <= hvdjob_status_attempt(s, worker))
        return 0;
    if (i == s->nretries || s->retries[i].worker != worker) {
        struct job_retry *grown =
            s->nretries < STATUS_WORKERS_MAX
                ? realloc(s->retries, ((size_t)s->nretries + 1) * sizeof(*grown))
                : NULL;
        if (!grown)
            return err_set(err, ENOMEM, "no memory");
        s->retries = grown;
        memmove(grown + i + 1, grown + i, (size_t)(s->nretries - i) * sizeof(*grown));
        s->nretries++;
        grown[i].worker = worker;
    }
    s->retries[i].attempt = attempt;
    return 0;
}

void hvdjob_status_new_round(struct hvdjob_status *s, int attempt_seen)
{
    int most = attempt_seen > s->attempt ? attempt_seen : s->attempt;
    for (int i = 0; i < s->nretries; i++)
        if (s->retries[i].attempt > most)
            most = s->retries[i].attempt;
    free(s->retries);
    s->retries = NULL;
    s->nretries = 0;
    s->attempt = most + 1;
}

/* ---- reading -------------------------------------------------------------------------------- */

static int64_t get_moment(json_t *j, const char *key)
{
    int64_t at = MOMENT_NONE;
    moment_parse(json_string_value(json_object_get(j, key)), &at);
    return at;
}

/* A count; 0 if it is missing, negative, too large or no integer. */
static int get_count(json_t *j, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(j, key));
    return n < 0 || n > INT32_MAX / 2 ? 0 : (int)n;
}

static int get_first(json_t *j, struct job_first_failure **ret)
{
    if (!json_is_object(j))
        return 0;
    struct job_first_failure *f = *ret = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    f->worker = get_count(j, "worker");
    f->exit_code = get_count(j, "exitCode");
    f->rank = json_object_get(j, "rank") ? get_count(j, "rank") : -1;
    f->at = get_moment(j, "time");
    parts_copy(j, "pod", f->pod, sizeof(f->pod));
    parts_copy(j, "node", f->node, sizeof(f->node));
    parts_copy(j, "reason", f->reason, sizeof(f->reason));
    parts_copy(j, "message", f->message, sizeof(f->message));
    return 0;
}

static int get_rule(json_t *j, struct job_failure_rule **ret)
{
    enum job_failure_action action;
    if (!job_failure_action_find(parts_text(j, "action"), &action))
        return 0;
    struct job_failure_rule *rule = *ret = calloc(1, sizeof(*rule));
    if (!rule)
        return -ENOMEM;
    rule->action = action;
    rule->at = get_moment(j, "time");
    parts_copy(j, "name", rule->name, sizeof(rule->name));
    parts_copy(j, "pod", rule->pod, sizeof(rule->pod));
    parts_copy(j, "cause", rule->cause, sizeof(rule->cause));
    return 0;
}

/* {"3": 2}: worker 3 is at attempt 2. */
static int get_retries(json_t *j, struct hvdjob_status *s, struct err *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(j, name, value)
    {
        char *end;
        long worker = strtol(name, &end, 10);
        json_int_t attempt = json_integer_value(value);
        if (*name < '0' || *name > '9' || *end || worker >= STATUS_WORKERS_MAX || attempt <= 0 ||
            attempt > STATUS_ATTEMPTS_MAX)
            continue;
        int rc = hvdjob_status_raise(s, (int)worker, (int)attempt, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void get_memory(json_t *j, struct hvdjob_status *s)
{
    s->failures = get_count(j, "failures");
    s->losses = get_count(j, "losses");
    s->restarts = get_count(j, "restarts");
    s->gang_restarts = get_count(j, "gangRestarts");
    s->rollbacks = get_count(j, "rollbacks");
    s->refusals = get_count(j, "refusals");
    s->min_granted = get_count(j, "minGranted");
    s->failed_late = json_is_true(json_object_get(j, "workerFailedAtEnd"));
    s->last_loss = get_moment(j, "lastLossTime");
    s->last_rollback = get_moment(j, "lastRollbackTime");
    s->last_refusal = get_moment(j, "lastRefusalTime");
    s->last_preemption = get_moment(j, "lastPreemptionTime");
    s->claimed = get_moment(j, "claimTime");
    s->queued = get_moment(j, "queuedTime");
    s->admitted = get_moment(j, "admittedTime");
    s->started = get_moment(j, "startTime");
    s->completed = get_moment(j, "completionTime");
    s->drain_since = get_moment(j, "drainTime");
}

static int take_other_conditions(json_t *others, json_t *list)
{
    size_t i;
    json_t *condition;
    auto_json json_t *rest = json_array();
    json_array_foreach(list, i,
                       condition) if (!conditions_own(condition) &&
                                      json_array_append(rest, condition) < 0) return -ENOMEM;
    if (!rest)
        return -ENOMEM;
    return json_array_size(rest) > 0 ? json_object_set(others, "conditions", rest)
                                     : json_object_del(others, "conditions");
}

/* Sets s->others to what in the status j is not the operator's. */
static int get_others(json_t *j, struct hvdjob_status *s)
{
    auto_json json_t *others = json_is_object(j) ? json_copy(j) : json_object();
    json_t *list = json_object_get(j, "conditions");
    if (!others)
        return -ENOMEM;
    for (size_t i = 0; i < sizeof(own_fields) / sizeof(own_fields[0]); i++)
        json_object_del(others, own_fields[i]);
    if (list && take_other_conditions(others, list) < 0)
        return -ENOMEM;
    if (json_object_size(others) > 0)
        s->others = TAKE(others);
    return 0;
}

int hvdjob_status_parse(json_t *j, struct hvdjob_status *ret, struct err *err)
{
    struct hvdjob_status s = {0};
    char phase[32];
    parts_copy(j, "phase", phase, sizeof(phase));
    for (int i = 0; i < JOB_PHASES; i++)
        if (strcmp(phase, phase_names[i]) == 0)
            s.phase = (enum job_phase)i;
    s.generation = json_integer_value(json_object_get(j, "observedGeneration"));
    parts_copy(j, "shape", s.template_hash, sizeof(s.template_hash));
    get_memory(j, &s);
    s.workers = get_count(j, "workers");
    s.ready = get_count(j, "ready");
    s.pending = get_count(j, "pending");
    s.epoch = get_count(j, "epoch");
    s.attempts_left = get_count(j, "attemptsLeft");
    s.attempt = get_count(j, "attempt");
    bool ok =
        conditions_parse(json_object_get(j, "conditions"), s.conditions) == 0 &&
        words_set(&s.message, json_string_value(json_object_get(j, "message"))) == 0 &&
        words_set(&s.refusal, json_string_value(json_object_get(j, "refusal"))) == 0 &&
        words_set(&s.preempted_by, json_string_value(json_object_get(j, "preemptedBy"))) == 0 &&
        get_first(json_object_get(j, "firstFailure"), &s.first) == 0 &&
        get_rule(json_object_get(j, "failureRule"), &s.rule) == 0 &&
        get_retries(json_object_get(j, "attempts"), &s, NULL) == 0 &&
        job_findings_parse(json_object_get(j, "findings"), &s.findings, NULL) == 0 &&
        job_drains_parse(json_object_get(j, "drains"), &s.drains) == 0 && get_others(j, &s) == 0;
    s.findings.more = get_count(j, "findingsLeftOut");
    if (!ok) {
        hvdjob_status_fini(&s);
        return err_set(err, ENOMEM, "no memory");
    }
    *ret = s;
    return 0;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void put_text(json_t **j, const char *key, const char *text)
{
    if (*text)
        json_put(j, key, json_lossy_string(text, strlen(text)));
}

static void put_moment(json_t **j, const char *key, int64_t at)
{
    char text[MOMENT_SIZE];
    if (at == MOMENT_NONE)
        return;
    moment_write(at, text);
    json_put(j, key, json_string(text));
}

static void put_count(json_t **j, const char *key, int n)
{
    json_put(j, key, json_integer(n));
}

static json_t *first_object(const struct job_first_failure *f)
{
    json_t *j = json_object();
    put_count(&j, "worker", f->worker);
    if (f->rank >= 0)
        put_count(&j, "rank", f->rank);
    put_count(&j, "exitCode", f->exit_code);
    put_text(&j, "pod", f->pod);
    put_text(&j, "node", f->node);
    put_text(&j, "reason", f->reason);
    put_text(&j, "message", f->message);
    put_moment(&j, "time", f->at);
    return j;
}

static json_t *rule_object(const struct job_failure_rule *rule)
{
    json_t *j = json_object();
    put_text(&j, "name", rule->name);
    put_text(&j, "action", action_names[rule->action]);
    put_text(&j, "pod", rule->pod);
    put_text(&j, "cause", rule->cause);
    put_moment(&j, "time", rule->at);
    return j;
}

static json_t *retries_object(const struct hvdjob_status *s)
{
    json_t *j = json_object();
    for (int i = 0; i < s->nretries; i++) {
        char worker[16];
        snprintf(worker, sizeof(worker), "%d", s->retries[i].worker);
        put_count(&j, worker, s->retries[i].attempt);
    }
    return j;
}

static void put_memory(json_t **j, const struct hvdjob_status *s)
{
    put_count(j, "failures", s->failures);
    put_count(j, "losses", s->losses);
    put_count(j, "restarts", s->restarts);
    put_count(j, "gangRestarts", s->gang_restarts);
    put_count(j, "rollbacks", s->rollbacks);
    if (s->refusals > 0)
        put_count(j, "refusals", s->refusals);
    if (s->min_granted > 0)
        put_count(j, "minGranted", s->min_granted);
    if (s->failed_late)
        json_put(j, "workerFailedAtEnd", json_true());
    put_moment(j, "lastLossTime", s->last_loss);
    put_moment(j, "lastRollbackTime", s->last_rollback);
    put_moment(j, "lastRefusalTime", s->last_refusal);
    put_text(j, "refusal", words(s->refusal));
    put_moment(j, "lastPreemptionTime", s->last_preemption);
    put_text(j, "preemptedBy", words(s->preempted_by));
    put_moment(j, "claimTime", s->claimed);
    put_moment(j, "queuedTime", s->queued);
    put_moment(j, "admittedTime", s->admitted);
    put_moment(j, "startTime", s->started);
    put_moment(j, "completionTime", s->completed);
    put_moment(j, "drainTime", s->drain_since);
}

/* Copies of others', because the caller may change what it gets. */
static void put_others(json_t **j, json_t *others)
{
    const char *name;
    json_t *value;
    json_object_foreach(others, name, value) if (strcmp(name, "conditions") != 0)
        json_put(j, name, json_deep_copy(value));
}

static json_t *conditions_list(const struct hvdjob_status *s)
{
    json_t *condition, *list = conditions_write(s->conditions);
    size_t i;
    json_array_foreach(json_object_get(s->others, "conditions"), i, condition)
        json_append(&list, json_deep_copy(condition));
    return list;
}

json_t *hvdjob_status_write(const struct hvdjob_status *s, const char *selector)
{
    json_t *j = json_object();
    put_text(&j, "phase", phase_names[s->phase]);
    json_put(&j, "observedGeneration", json_integer(s->generation));
    put_text(&j, "shape", s->template_hash);
    put_text(&j, "message", words(s->message));
    put_text(&j, "selector", selector);
    put_memory(&j, s);
    if (s->first)
        json_put(&j, "firstFailure", first_object(s->first));
    if (s->rule)
        json_put(&j, "failureRule", rule_object(s->rule));
    put_count(&j, "workers", s->workers);
    put_count(&j, "ready", s->ready);
    put_count(&j, "pending", s->pending);
    put_count(&j, "epoch", s->epoch);
    put_count(&j, "attemptsLeft", s->attempts_left);
    put_count(&j, "attempt", s->attempt);
    if (s->nretries > 0)
        json_put(&j, "attempts", retries_object(s));
    if (s->findings.n > 0)
        json_put(&j, "findings", job_findings_write(&s->findings));
    if (s->findings.more > 0)
        put_count(&j, "findingsLeftOut", s->findings.more);
    if (s->drains.n > 0)
        json_put(&j, "drains", job_drains_write(&s->drains));
    json_put(&j, "conditions", conditions_list(s));
    put_others(&j, s->others);
    return j;
}
