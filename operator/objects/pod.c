/* SPDX-License-Identifier: Apache-2.0
 *
 * pod: see pod.h.
 */
#include "operator/objects/pod.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/json/json.h"
#include "operator/objects/antiaffinity.h"
#include "operator/objects/conditions.h"
#include "operator/objects/hvdjob_status.h"
#include "operator/objects/moment.h"
#include "operator/objects/parts.h"
#include "operator/objects/podspec.h"

#define MESSAGE_MAX 400 /* bytes of a message in pod.why */

void pod_fini(struct pod *p)
{
    free(p->name);
    free(p->job);
    free(p->node);
    free(p->why);
    free(p->exits);
    json_decref(p->conditions);
    resources_fini(&p->requests);
    hostports_fini(&p->ports);
    free(p->anti);
    *p = (struct pod){0};
}

/* The number at the beginning of text, smaller than max; -1: none. */
static int number_at(const char *text, int max, char **ret_end)
{
    errno = 0;
    long n = strtol(text, ret_end, 10);
    return *text < '0' || *text > '9' || errno || n >= max ? -1 : (int)n;
}

/* Takes worker and attempt from the name "JOB-WORKER-ATTEMPT": labels may be changed, a name not.
 */
static void take_numbers(struct pod *p)
{
    size_t n = strlen(p->job);
    char *end;
    p->worker = p->attempt = -1;
    if (n == 0 || strncmp(p->name, p->job, n) != 0 || p->name[n] != '-')
        return;
    int worker = number_at(p->name + n + 1, STATUS_WORKERS_MAX, &end);
    int attempt = worker >= 0 && *end == '-' ? number_at(end + 1, STATUS_ATTEMPTS_MAX, &end) : -1;
    if (attempt < 0 || *end)
        return;
    p->worker = worker;
    p->attempt = attempt;
}

static bool says(json_t *labels, const char *key, int number)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", number);
    return strcmp(parts_text(labels, key), text) == 0;
}

/* Which job, worker and attempt it is of, and whether its labels say the same. False: no memory. */
static bool take_place(struct pod *p, json_t *meta)
{
    json_t *labels = json_object_get(meta, "labels"), *owner = parts_owner(meta);
    const char *label = parts_text(labels, POD_LABEL_JOB);
    bool controlled = strcmp(parts_text(owner, "kind"), HVDJOB_KIND) == 0 &&
                      strncmp(parts_text(owner, "apiVersion"), "hvd.dev/", 8) == 0;
    snprintf(p->owner, sizeof(p->owner), "%s", parts_text(owner, "uid"));
    p->job = strdup(controlled ? parts_text(owner, "name") : label);
    if (!p->job)
        return false;
    take_numbers(p);
    p->strayed = controlled && p->worker >= 0 &&
                 (strcmp(label, p->job) != 0 || !says(labels, POD_LABEL_WORKER, p->worker) ||
                  !says(labels, POD_LABEL_ATTEMPT, p->attempt));
    return true;
}

/* Returns the last MESSAGE_MAX bytes of a container's termination message, from the beginning of a
 * line if one begins there. The message may be the end of the container's log (up to 80 lines and 2
 * KiB), and the reason of its end stands last. */
static const char *message_end(const char *message)
{
    size_t n = strlen(message);
    if (n <= MESSAGE_MAX)
        return message;
    const char *end = message + n - MESSAGE_MAX, *line = strchr(end, '\n');
    if (line && line[1])
        return line + 1;
    while (utf8_inside((unsigned char)*end))
        end++;
    return end;
}

/* Sets *dst to "reason: message". False: no memory. */
static bool say(char **dst, const char *reason, const char *message)
{
    char *text;
    free(*dst);
    *dst = NULL;
    int n = *message ? asprintf(&text, "%.60s: %.*s", reason, MESSAGE_MAX, message)
                     : asprintf(&text, "%.60s", reason);
    if (n < 0)
        return false;
    *dst = text;
    return true;
}

/* Takes how a container ended: the last end counts, and exit code and reason of the first container
 * that failed. False: no memory. */
static bool take_end(struct pod *p, json_t *terminated)
{
    int code = (int)json_integer_value(json_object_get(terminated, "exitCode"));
    int64_t ended = MOMENT_NONE;
    moment_parse(parts_text(terminated, "finishedAt"), &ended);
    if (ended > p->ended)
        p->ended = ended;
    if (code == 0 || p->exit_code != 0)
        return true;
    p->exit_code = code;
    p->agent_end = agent_end_read(parts_text(terminated, "message"));
    snprintf(p->reason, sizeof(p->reason), "%s", parts_text(terminated, "reason"));
    return say(&p->why, p->reason, message_end(parts_text(terminated, "message")));
}

/* False: no memory. */
static bool keep_exits(struct pod *p, json_t *list)
{
    size_t i;
    json_t *status;
    json_array_foreach(list, i, status)
    {
        json_t *state = json_object_get(json_object_get(status, "state"), "terminated");
        json_int_t code = json_integer_value(json_object_get(state, "exitCode"));
        if (code == 0)
            continue;
        struct pod_exit *more = realloc(p->exits, ((size_t)p->nexits + 1) * sizeof(*more));
        if (!more)
            return false;
        p->exits = more;
        p->exits[p->nexits].code = (int)code;
        parts_copy(status, "name", p->exits[p->nexits].container, sizeof(more->container));
        p->nexits++;
    }
    return true;
}

/* What rules of the job's failurePolicy look at. */
static bool keep_failure(struct pod *p, json_t *status)
{
    if (p->phase != POD_FAILED)
        return true;
    p->conditions = json_incref(json_object_get(status, "conditions"));
    return keep_exits(p, json_object_get(status, "initContainerStatuses")) &&
           keep_exits(p, json_object_get(status, "containerStatuses"));
}

static bool take_containers(struct pod *p, json_t *list)
{
    size_t i;
    json_t *status;
    json_array_foreach(list, i, status)
    {
        json_t *state = json_object_get(status, "state");
        json_t *waiting = json_object_get(state, "waiting");
        json_t *terminated = json_object_get(state, "terminated");
        const char *reason = parts_text(waiting, "reason");
        /* These two reasons are normal while a pod starts. */
        bool usual =
            strcmp(reason, "PodInitializing") == 0 || strcmp(reason, "ContainerCreating") == 0;
        if (*reason && !usual && !p->why && !say(&p->why, reason, parts_text(waiting, "message")))
            return false;
        if (terminated && !take_end(p, terminated))
            return false;
    }
    return true;
}

static int take_status(struct pod *p, json_t *status, struct err *err)
{
    static const char *const phases[] = {"Pending", "Running", "Succeeded", "Failed"};
    json_t *conditions = json_object_get(status, "conditions");
    const char *reason = parts_text(status, "reason");
    bool ok = true;
    for (int i = 0; i < 4; i++)
        if (strcmp(parts_text(status, "phase"), phases[i]) == 0)
            p->phase = (enum pod_phase)i;
    p->ready = conditions_true(conditions, "Ready");
    if (conditions_true(conditions, "DisruptionTarget"))
        parts_copy(parts_find(conditions, "type", "DisruptionTarget"), "reason", p->disruption,
                   sizeof(p->disruption));
    ok = take_containers(p, json_object_get(status, "initContainerStatuses")) &&
         take_containers(p, json_object_get(status, "containerStatuses")) &&
         keep_failure(p, status);
    /* A failed pod was disrupted if it has the condition DisruptionTarget, or a reason, or no
     * failed container (then its kubelet ended it), or if its agent says so. The reason
     * DeadlineExceeded rules out all four. */
    p->disrupted = p->phase == POD_FAILED && strcmp(reason, "DeadlineExceeded") != 0 &&
                   (conditions_true(conditions, "DisruptionTarget") || *reason ||
                    p->exit_code == 0 || agent_end_is_disruption(p->agent_end));
    if (ok && p->phase == POD_FAILED && *reason) {
        snprintf(p->reason, sizeof(p->reason), "%s", reason);
        ok = say(&p->why, reason, parts_text(status, "message"));
    }
    const char *unschedulable = conditions_message(conditions, "PodScheduled");
    if (ok && !p->why && !p->node && !p->gated && p->phase == POD_PENDING && unschedulable)
        ok = say(&p->why, "Unschedulable", unschedulable);
    return ok ? 0 : err_set(err, ENOMEM, "no memory");
}

/* What the pod takes from its node. */
static int take_needs(struct pod *p, json_t *j)
{
    json_t *spec = json_object_get(j, "spec");
    int rc = podspec_requests(spec, json_object_get(j, "status"), NULL, &p->requests, NULL);
    rc = rc < 0 ? rc : hostports_parse(spec, &p->ports, NULL);
    rc = rc < 0 ? rc : antiaffinity_text(j, &p->anti);
    if (rc == 0 || rc == -ENOMEM)
        return rc;
    resources_fini(&p->requests);
    hostports_fini(&p->ports);
    p->requests.amount[RESOURCES_PODS] = QUANTITY_MAX;
    return 0;
}

/* Nobody but its controller knows when a gate of another controller is removed. */
static bool take_gates(struct pod *p, json_t *gates)
{
    json_t *gate;
    size_t i;
    json_array_foreach(gates, i, gate)
    {
        const char *name = parts_text(gate, "name");
        if (strcmp(name, POD_GATE) == 0)
            p->gated = true;
        else if (!p->why &&
                 !say(&p->why, "another controller has not removed its scheduling gate", name))
            return false;
    }
    return true;
}

static int take_spec(struct pod *p, json_t *j, struct err *err)
{
    json_t *spec = json_object_get(j, "spec");
    const char *node = parts_text(spec, "nodeName");
    p->priority = (int)json_integer_value(json_object_get(spec, "priority"));
    if (!take_gates(p, json_object_get(spec, "schedulingGates")) ||
        (*node && !(p->node = strdup(node))) || take_needs(p, j) < 0)
        return err_set(err, ENOMEM, "no memory");
    return 0;
}

int pod_parse(json_t *j, struct pod *ret, struct err *err)
{
    struct pod p = {0};
    const char *name, *uid;
    json_t *meta = NULL;
    int rc = json_expect(j, "pod", err, "{s:o, s:{s:s, s:s}}", "metadata", &meta, "metadata",
                         "name", &name, "uid", &uid);
    if (rc < 0)
        return rc;
    if (!*name || !*uid)
        return err_set(err, EINVAL, "pod: without a name or a uid");
    p.name = strdup(name);
    snprintf(p.uid, sizeof(p.uid), "%s", uid);
    p.deleting = *parts_text(meta, "deletionTimestamp");
    moment_parse(parts_text(meta, "deletionTimestamp"), &p.leaves_by);
    moment_parse(parts_text(meta, "creationTimestamp"), &p.created);
    rc = p.name && take_place(&p, meta) ? 0 : err_set(err, ENOMEM, "no memory");
    rc = rc < 0 ? rc : take_spec(&p, j, err);
    rc = rc < 0 ? rc : take_status(&p, json_object_get(j, "status"), err);
    if (rc < 0) {
        pod_fini(&p);
        return rc;
    }
    *ret = p;
    return 0;
}
