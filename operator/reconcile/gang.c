/* SPDX-License-Identifier: Apache-2.0
 *
 * gang: see gang.h.
 */
#include "operator/reconcile/gang.h"

#include <stdio.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/pod.h"
#include "operator/reconcile/newpod.h"

/* Sets j[outer][inner] = text, and creates the mapping j[outer] if it is missing. */
static int set_text(json_t *j, const char *outer, const char *inner, const char *text)
{
    json_t *map = json_object_get(j, outer);
    if (!json_is_object(map)) {
        map = json_object();
        if (json_object_set_new(j, outer, map) < 0)
            return -ENOMEM;
    }
    return json_object_set_new(map, inner, json_string(text)) < 0 ? -ENOMEM : 0;
}

static json_t *native_spec(const struct hvdjob *job)
{
    return json_pack("{s:{s:{s:i}}}", "schedulingPolicy", "gang", "minCount", job->min);
}

static int native_join(const struct hvdjob *job, json_t *pod)
{
    json_t *group = json_pack("{s:s}", "podGroupName", job->name);
    return json_object_set_new(json_object_get(pod, "spec"), "schedulingGroup", group) < 0 ? -ENOMEM
                                                                                           : 0;
}

static json_t *coscheduling_spec(const struct hvdjob *job)
{
    return json_pack("{s:i, s:i}", "minMember", job->min, "scheduleTimeoutSeconds",
                     job->gang_timeout);
}

static int coscheduling_join(const struct hvdjob *job, json_t *pod)
{
    return set_text(json_object_get(pod, "metadata"), "labels", "scheduling.x-k8s.io/pod-group",
                    job->name);
}

static json_t *volcano_spec(const struct hvdjob *job)
{
    return json_pack("{s:i}", "minMember", job->min);
}

static int volcano_join(const struct hvdjob *job, json_t *pod)
{
    json_t *spec = json_object_get(pod, "spec");
    if (!json_object_get(spec, "schedulerName") &&
        json_object_set_new(spec, "schedulerName", json_string("volcano")) < 0)
        return -ENOMEM;
    return set_text(json_object_get(pod, "metadata"), "annotations", "scheduling.k8s.io/group-name",
                    job->name);
}

static const struct gang_ops backends[] = {
    {GANG_GATES, "gates", NULL, NULL, NULL, NULL, NULL},
    {GANG_NATIVE, "native", "scheduling.k8s.io", "v1alpha2", "PodGroupScheduled", native_spec,
     native_join},
    {GANG_COSCHEDULING, "coscheduling", "scheduling.x-k8s.io", "v1alpha1", NULL, coscheduling_spec,
     coscheduling_join},
    {GANG_VOLCANO, "volcano", "scheduling.volcano.sh", "v1beta1", "Unschedulable", volcano_spec,
     volcano_join},
};

#define NBACKENDS (sizeof(backends) / sizeof(backends[0]))

static bool is_served(const char *served, const char *api)
{
    size_t n = strlen(api);
    for (const char *p = served; (p = strstr(p, api)); p += n)
        if ((p == served || p[-1] == ' ') && (p[n] == '\0' || p[n] == ' '))
            return true;
    return false;
}

/* Writes the best version of the PodGroup that the cluster serves, as "group/version"; "" if ops
 * has no PodGroup. False: the cluster serves none. */
static bool find_api(const struct gang_ops *ops, const char *served, char *dst, size_t size)
{
    const char *p = ops->versions;
    if (!ops->group) {
        snprintf(dst, size, "%s", "");
        return true;
    }
    while (*p) {
        size_t n = strcspn(p, " ");
        snprintf(dst, size, "%s/%.*s", ops->group, (int)n, p);
        if (is_served(served, dst))
            return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

static enum gang_backend detect(const struct hvdjob *job, const char *served)
{
    char api[128];
    if (strcmp(job->podspec.scheduler, "volcano") == 0)
        return GANG_VOLCANO;
    return find_api(&backends[1], served, api, sizeof(api)) ? GANG_NATIVE : GANG_GATES;
}

const struct gang_ops *gang_choose(const struct hvdjob *job, const char *served, char *ret_api,
                                   size_t size, struct err *err)
{
    enum gang_backend want = job->backend == GANG_AUTO ? detect(job, served) : job->backend;
    for (size_t i = 0; i < NBACKENDS; i++) {
        if (backends[i].backend != want)
            continue;
        if (find_api(&backends[i], served, ret_api, size))
            return &backends[i];
        err_set(err, ENOENT, "gang backend %s: this cluster does not serve %s (%s)",
                backends[i].name, backends[i].group, backends[i].versions);
        return NULL;
    }
    err_set(err, ENOENT, "gang backend %d is not known", (int)want);
    return NULL;
}

json_t *gang_group(const struct gang_ops *ops, const struct hvdjob *job, const char *api)
{
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:{s:s, s:s}, s:[o]}, s:o}", "apiVersion", api,
                     "kind", "PodGroup", "metadata", "name", job->name, "namespace",
                     job->namespace_, "labels", POD_LABEL_JOB, job->name,
                     "app.kubernetes.io/managed-by", "hvd-operator", "ownerReferences",
                     newpod_owner(job), "spec", ops->spec(job));
}

const char *gang_pending(const struct gang_ops *ops, json_t *group)
{
    if (!ops->condition)
        return NULL;
    /* Volcano's condition Unschedulable is True while the gang waits. The native PodGroupScheduled
     * is True once it does not. */
    json_t *list = json_object_get(json_object_get(group, "status"), "conditions");
    bool is_true = conditions_true(list, ops->condition);
    return is_true == (ops->backend == GANG_VOLCANO) ? conditions_message(list, ops->condition)
                                                     : NULL;
}
