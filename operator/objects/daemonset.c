/* SPDX-License-Identifier: Apache-2.0
 *
 * daemonset: see daemonset.h.
 */
#include "operator/objects/daemonset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/parts.h"

void daemonset_fini(struct daemonset *d)
{
    labels_fini(&d->selector);
    nodeaffinity_fini(&d->affinity);
    taints_fini(&d->tolerated);
    pod_fini(&d->pod);
    *d = (struct daemonset){.generation = 0};
}

/* The template as a pod, whose name, for messages, is the DaemonSet's with its namespace. */
static int parse_pod(json_t *meta, json_t *template, struct pod *ret, struct err *err)
{
    const char *namespace = parts_text(meta, "namespace");
    char name[320];
    snprintf(name, sizeof(name), "%.63s/%.253s", namespace, parts_text(meta, "name"));
    auto_json json_t *pod =
        json_pack("{s:{s:s, s:s, s:s}, s:O?}", "metadata", "name", name, "namespace", namespace,
                  "uid", parts_text(meta, "uid"), "spec", json_object_get(template, "spec"));
    int rc = pod ? pod_parse(pod, ret, err) : err_set(err, ENOMEM, "no memory");
    if (rc == 0 && ret->requests.amount[RESOURCES_PODS] == QUANTITY_MAX)
        ret->requests.amount[RESOURCES_PODS] = 0;
    return rc;
}

/* Adds what the DaemonSet controller adds, so that its pods stay on nodes with trouble. */
static int parse_tolerations(json_t *spec, struct taints *ret, struct err *err)
{
    static const struct {
        const char *key, *effect;
    } added[] = {{"not-ready", "NoExecute"},           {"unreachable", "NoExecute"},
                 {"disk-pressure", "NoSchedule"},      {"memory-pressure", "NoSchedule"},
                 {"pid-pressure", "NoSchedule"},       {"unschedulable", "NoSchedule"},
                 {"network-unavailable", "NoSchedule"}}; /* the last with hostNetwork only */
    size_t n = sizeof(added) / sizeof(added[0]) -
               (json_is_true(json_object_get(spec, "hostNetwork")) ? 0 : 1);
    json_t *own = json_object_get(spec, "tolerations");
    auto_json json_t *all = json_is_array(own) ? json_copy(own) : json_array();
    int rc = all ? 0 : -1;
    for (size_t i = 0; i < n && rc == 0; i++) {
        char key[64];
        snprintf(key, sizeof(key), "node.kubernetes.io/%s", added[i].key);
        rc = json_array_append_new(all, json_pack("{s:s, s:s, s:s}", "key", key, "operator",
                                                  "Exists", "effect", added[i].effect));
    }
    return rc < 0 ? err_set(err, ENOMEM, "no memory") : tolerations_parse(all, ret, err);
}

int daemonset_parse(json_t *j, struct daemonset *ret, struct err *err)
{
    json_t *meta = json_object_get(j, "metadata");
    json_t *template = json_object_get(json_object_get(j, "spec"), "template");
    json_t *spec = json_object_get(template, "spec");
    struct daemonset d = {.generation = json_integer_value(json_object_get(meta, "generation"))};
    parts_copy(meta, "uid", d.uid, sizeof(d.uid));
    d.deleting = *parts_text(meta, "deletionTimestamp");
    int rc = parse_pod(meta, template, &d.pod, err);
    rc = rc < 0 ? rc : labels_parse(json_object_get(spec, "nodeSelector"), &d.selector, err);
    rc = rc < 0 ? rc : parse_tolerations(spec, &d.tolerated, err);
    if (rc == 0 && nodeaffinity_parse(spec, &d.affinity) < 0)
        rc = err_set(err, ENOMEM, "no memory");
    if (rc < 0) {
        err_prefix(err, "DaemonSet %.100s", parts_text(meta, "name"));
        daemonset_fini(&d);
        return rc;
    }
    *ret = d;
    return 0;
}

bool daemonset_runs_on(const struct daemonset *d, const struct node *node)
{
    static const struct resources nothing;
    const char *missing;
    return !d->deleting && resources_fit(&node->allocatable, &nothing, &d->pod.requests, 1) > 0 &&
           (!d->pod.node || strcmp(d->pod.node, node->name) == 0) &&
           labels_match(&node->labels, &d->selector, &missing) &&
           nodeaffinity_matches(&d->affinity, node) && !taints_refuse(&node->taints, &d->tolerated);
}
