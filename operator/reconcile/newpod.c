/* SPDX-License-Identifier: Apache-2.0
 *
 * newpod: see newpod.h.
 */
#include "operator/reconcile/newpod.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/reconcile/names.h"
#include "operator/objects/parts.h"
#include "operator/objects/template.h"

/* A pod is evicted so long after its node was lost. Kubernetes' default of 5 minutes is too long
 * for the job's other workers, which may be waiting. */
#define LOST_NODE_SECONDS 30
/* Long enough for two training steps, so that a worker can leave at a step boundary. */
#define GRACE_SECONDS 60

json_t *newpod_owner(const struct hvdjob *job)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:b}", "apiVersion", HVDJOB_API, "kind",
                     HVDJOB_KIND, "name", job->name, "uid", job->uid, "controller", 1,
                     "blockOwnerDeletion", 1);
}

static bool set_label(json_t *labels, const char *key, const char *value)
{
    return json_object_set_new(labels, key, json_string(value)) == 0;
}

static bool add_labels(json_t *meta, const struct hvdjob *job, int worker, int attempt)
{
    char worker_text[16], attempt_text[16];
    json_t *labels = parts_map(meta, "labels");
    snprintf(worker_text, sizeof(worker_text), "%d", worker);
    snprintf(attempt_text, sizeof(attempt_text), "%d", attempt);
    return labels && template_add_labels(labels, job->name) &&
           set_label(labels, POD_LABEL_WORKER, worker_text) &&
           set_label(labels, POD_LABEL_ATTEMPT, attempt_text);
}

/* Tolerates a lost node for LOST_NODE_SECONDS, unless the template has a toleration for it. */
static bool add_toleration(json_t *tolerations, const char *key)
{
    if (parts_find(tolerations, "key", key))
        return true;
    return json_array_append_new(tolerations, json_pack("{s:s, s:s, s:s, s:i}", "key", key,
                                                        "operator", "Exists", "effect", "NoExecute",
                                                        "tolerationSeconds", LOST_NODE_SECONDS)) ==
           0;
}

/* A job whose drain policy is Block asks autoscalers not to choose its nodes. */
static bool ask_to_stay(json_t *meta, const struct hvdjob *job)
{
    if (job->drain != DRAIN_BLOCK)
        return true;
    json_t *annotations = parts_map(meta, "annotations");
    return annotations &&
           parts_fill(annotations, "cluster-autoscaler.kubernetes.io/safe-to-evict",
                      json_string("false")) &&
           parts_fill(annotations, "karpenter.sh/do-not-disrupt", json_string("true"));
}

static bool fill_spec(json_t *spec)
{
    json_t *tolerations = parts_list(spec, "tolerations");
    if (!tolerations || !add_toleration(tolerations, "node.kubernetes.io/not-ready") ||
        !add_toleration(tolerations, "node.kubernetes.io/unreachable"))
        return false;
    return json_object_set_new(spec, "restartPolicy", json_string("Never")) == 0 &&
           parts_fill(spec, "enableServiceLinks", json_false()) &&
           parts_fill(spec, "automountServiceAccountToken", json_false()) &&
           parts_fill(spec, "terminationGracePeriodSeconds", json_integer(GRACE_SECONDS));
}

json_t *newpod(const struct hvdjob *job, const struct gang_ops *gang, int worker, int attempt)
{
    char name[NAMES_MAX];
    auto_json json_t *pod = NULL;
    if (json_read(job->template_text, strlen(job->template_text), "template", &pod, NULL) < 0)
        return NULL;
    names_pod(job, worker, attempt, name);
    json_t *meta = parts_map(pod, "metadata"), *spec = parts_map(pod, "spec");
    bool ok =
        meta && spec && json_object_set_new(pod, "apiVersion", json_string("v1")) == 0 &&
        json_object_set_new(pod, "kind", json_string("Pod")) == 0 &&
        json_object_set_new(meta, "name", json_string(name)) == 0 &&
        json_object_set_new(meta, "namespace", json_string(job->namespace_)) == 0 &&
        json_object_set_new(meta, "ownerReferences", json_pack("[o]", newpod_owner(job))) == 0 &&
        add_labels(meta, job, worker, attempt) && ask_to_stay(meta, job) && fill_spec(spec) &&
        (!gang->join || gang->join(job, pod) == 0);
    return ok ? TAKE(pod) : NULL;
}

/* A term selects the nodes for which all its conditions hold. An empty term selects none. */
static bool avoid_in_term(json_t *term, const struct drains *drains)
{
    json_t *fields = parts_list(term, "matchFields");
    bool ok = fields != NULL;
    int n = 0;
    for (int i = 0; i < drains->n && n < NEWPOD_AVOID && ok; i++) {
        if (!drain_closes(&drains->all[i]))
            continue;
        n++;
        ok = json_array_append_new(fields, json_pack("{s:s, s:s, s:[s]}", "key", "metadata.name",
                                                     "operator", "NotIn", "values",
                                                     drains->all[i].name)) == 0;
    }
    return ok;
}

static bool avoids_any(const struct drains *drains)
{
    for (int i = 0; drains && i < drains->n; i++)
        if (drain_closes(&drains->all[i]))
            return true;
    return false;
}

int newpod_avoid(json_t *pod, const struct drains *drains)
{
    if (!avoids_any(drains))
        return 0;
    json_t *spec = parts_map(pod, "spec"), *affinity = spec ? parts_map(spec, "affinity") : NULL;
    json_t *node = affinity ? parts_map(affinity, "nodeAffinity") : NULL;
    json_t *must = node ? parts_map(node, "requiredDuringSchedulingIgnoredDuringExecution") : NULL;
    json_t *term, *terms = must ? parts_list(must, "nodeSelectorTerms") : NULL;
    size_t i;
    if (!terms)
        return -ENOMEM;
    if (json_array_size(terms) == 0)
        return json_array_append_new(terms, json_object()) == 0 &&
                       avoid_in_term(json_array_get(terms, 0), drains)
                   ? 0
                   : -ENOMEM;
    json_array_foreach(terms, i, term) if (json_object_size(term) > 0 &&
                                           !avoid_in_term(term, drains)) return -ENOMEM;
    return 0;
}
