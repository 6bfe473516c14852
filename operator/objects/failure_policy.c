/* SPDX-License-Identifier: Apache-2.0
 *
 * failure_policy: see failure_policy.h.
 */
#include "operator/objects/failure_policy.h"

#include <stdio.h>
#include <string.h>

#include "operator/objects/parts.h"

/* ---- checking -------------------------------------------------------------------------------- */

/* The list under key has 1 to most elements. */
static bool has_list(json_t *j, const char *key, size_t most)
{
    size_t n = json_array_size(json_object_get(j, key));
    return n > 0 && n <= most;
}

static bool has_container(json_t *pod, const char *name)
{
    return parts_find(json_object_get(pod, "containers"), "name", name) ||
           parts_find(json_object_get(pod, "initContainers"), "name", name);
}

static int check_codes(json_t *on, json_t *pod, const char *where, struct err *err)
{
    const char *container = parts_text(on, "containerName");
    const char *operator= parts_text(on, "operator");
    bool in = strcmp(operator, "In") == 0;
    json_t *value;
    size_t i;
    if (!in && strcmp(operator, "NotIn") != 0)
        return err_set(err, EINVAL, "%s.onExitCodes.operator: want In or NotIn", where);
    if (*container && pod && !has_container(pod, container))
        return err_set(err, EINVAL,
                       "%s.onExitCodes.containerName: no container or init container of "
                       "spec.template has the name \"%.63s\"",
                       where, container);
    if (!has_list(on, "values", FAILURE_CODES_MAX))
        return err_set(err, EINVAL, "%s.onExitCodes.values: want a list of 1 to %d integers", where,
                       FAILURE_CODES_MAX);
    json_array_foreach(json_object_get(on, "values"), i, value)
    {
        json_int_t code = json_integer_value(value);
        if (!json_is_integer(value) || code < (in ? 1 : 0) || code > 255)
            return err_set(err, EINVAL,
                           "%s.onExitCodes.values[%zu]: want an integer from %d to 255", where, i,
                           in ? 1 : 0);
    }
    return 0;
}

static int check_conditions(json_t *on, const char *where, struct err *err)
{
    json_t *condition;
    size_t i;
    json_array_foreach(on, i, condition)
    {
        if (!*parts_text(condition, "type"))
            return err_set(err, EINVAL, "%s.onPodConditions[%zu].type: missing", where, i);
    }
    return 0;
}

static int check_rule(json_t *rule, json_t *pod, size_t number, struct err *err)
{
    char where[64];
    enum job_failure_action action;
    json_t *codes = json_object_get(rule, "onExitCodes");
    json_t *conditions = json_object_get(rule, "onPodConditions");
    snprintf(where, sizeof(where), "spec.runPolicy.failurePolicy.rules[%zu]", number);
    if (!job_failure_action_find(parts_text(rule, "action"), &action))
        return err_set(err, EINVAL, "%s.action: want Ignore, Count, FailJob or RestartGang", where);
    if (json_is_object(codes) == json_is_array(conditions))
        return err_set(err, EINVAL, "%s: want either onExitCodes or onPodConditions", where);
    if (codes)
        return check_codes(codes, pod, where, err);
    if (!has_list(rule, "onPodConditions", FAILURE_CONDITIONS_MAX))
        return err_set(err, EINVAL, "%s.onPodConditions: want 1 to %d conditions", where,
                       FAILURE_CONDITIONS_MAX);
    return check_conditions(conditions, where, err);
}

int failure_policy_check(json_t *policy, json_t *pod, struct err *err)
{
    json_t *rule;
    size_t i;
    if (!json_is_object(policy) || !has_list(policy, "rules", FAILURE_RULES_MAX))
        return err_set(err, EINVAL, "spec.runPolicy.failurePolicy.rules: want 1 to %d rules",
                       FAILURE_RULES_MAX);
    json_array_foreach(json_object_get(policy, "rules"), i, rule)
    {
        int rc = check_rule(rule, pod, i, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- matching -------------------------------------------------------------------------------- */

static bool has_value(json_t *values, int code)
{
    json_t *value;
    size_t i;
    json_array_foreach(values, i, value) if (json_integer_value(value) == code) return true;
    return false;
}

/* One failed container decides, as in podFailurePolicy; a container that succeeded never does.
 * NULL: none matches. */
static const struct pod_exit *find_exit(json_t *on, const struct pod *p)
{
    const char *container = parts_text(on, "containerName");
    bool in = strcmp(parts_text(on, "operator"), "In") == 0;
    for (int i = 0; i < p->nexits; i++) {
        const struct pod_exit *e = &p->exits[i];
        if ((!*container || strcmp(container, e->container) == 0) &&
            has_value(json_object_get(on, "values"), e->code) == in)
            return e;
    }
    return NULL;
}

static json_t *find_condition(json_t *on, const struct pod *p)
{
    json_t *want;
    size_t i;
    json_array_foreach(on, i, want)
    {
        const char *status = parts_text(want, "status");
        json_t *have = parts_find(p->conditions, "type", parts_text(want, "type"));
        if (have && strcmp(parts_text(have, "status"), *status ? status : "True") == 0)
            return have;
    }
    return NULL;
}

/* Writes what of the pod the rule matches. False: nothing. */
static bool find_cause(json_t *rule, const struct pod *p, char *dst, size_t size)
{
    json_t *codes = json_object_get(rule, "onExitCodes");
    const struct pod_exit *e = codes && p->agent_end == AGENT_END_NONE ? find_exit(codes, p) : NULL;
    json_t *condition = codes ? NULL : find_condition(json_object_get(rule, "onPodConditions"), p);
    if (e)
        snprintf(dst, size, "exit code %d of container %.63s", e->code, e->container);
    else if (condition)
        snprintf(dst, size, "condition %.60s is %.10s (%.60s)", parts_text(condition, "type"),
                 parts_text(condition, "status"), parts_text(condition, "reason"));
    return e || condition;
}

bool failure_policy_match(json_t *rules, const struct pod *p, struct job_failure_rule *ret)
{
    json_t *rule;
    size_t i;
    json_array_foreach(rules, i, rule)
    {
        char cause[sizeof(ret->cause)];
        if (!find_cause(rule, p, cause, sizeof(cause)) ||
            !job_failure_action_find(parts_text(rule, "action"), &ret->action))
            continue;
        memcpy(ret->cause, cause, sizeof(cause));
        snprintf(ret->name, sizeof(ret->name), "rules[%zu]", i);
        if (*parts_text(rule, "name"))
            parts_copy(rule, "name", ret->name, sizeof(ret->name));
        snprintf(ret->pod, sizeof(ret->pod), "%s", p->name);
        return true;
    }
    return false;
}
