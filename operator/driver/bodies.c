/* SPDX-License-Identifier: Apache-2.0
 *
 * bodies: see bodies.h.
 */
#include "operator/driver/bodies.h"

#include <stdio.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/driver/driver.h"
#include "operator/objects/parts.h"
#include "operator/objects/pod.h"
#include "operator/objects/template.h"
#include "operator/reconcile/names.h"
#include "operator/reconcile/newpod.h"

char *bodies_status(const struct hvdjob *job, const struct hvdjob_status *status)
{
    char selector[NAMES_MAX];
    names_selector(job, selector);
    auto_json json_t *j = json_pack(
        "{s:s, s:s, s:{s:s, s:s, s:s, s:s}, s:o}", "apiVersion", HVDJOB_API, "kind", HVDJOB_KIND,
        "metadata", "name", job->name, "namespace", job->namespace_, "uid", job->uid,
        "resourceVersion", job->version, "status", hvdjob_status_write(status, selector));
    return json_write(j);
}

static void key_name(const struct hvdjob *job, char dst[NAMES_MAX])
{
    snprintf(dst, NAMES_MAX, "hvd-key-%.200s", job->uid);
}

/* Replaces the projected service account token by the Secret. */
static int use_key(const struct hvdjob *job, json_t *pod)
{
    char name[NAMES_MAX];
    json_t *volumes = json_object_get(json_object_get(pod, "spec"), "volumes");
    json_t *volume = parts_find(volumes, "name", TEMPLATE_VOLUMES "token");
    key_name(job, name);
    json_object_del(volume, "projected");
    return json_object_set_new(volume, "secret", json_pack("{s:s}", "secretName", name)) < 0
               ? -ENOMEM
               : 0;
}

char *bodies_key(const struct hvdjob *job, const char *key)
{
    char name[NAMES_MAX];
    key_name(job, name);
    auto_json json_t *j = json_pack(
        "{s:s, s:s, s:s, s:b, s:{s:s, s:s, s:{s:s, s:s}, s:[o]}, s:{s:s}}", "apiVersion", "v1",
        "kind", "Secret", "type", "Opaque", "immutable", 1, "metadata", "name", name, "namespace",
        job->namespace_, "labels", POD_LABEL_JOB, job->name, "app.kubernetes.io/managed-by",
        "hvd-operator", "ownerReferences", newpod_owner(job), "stringData", "token", key);
    return json_write(j);
}

char *bodies_pod(const struct hvdjob *job, const struct gang_ops *gang,
                 const struct injection *injection, const struct drains *drains, bool by_key,
                 int worker, int attempt)
{
    auto_json json_t *j = newpod(job, gang, worker, attempt);
    if (j && injection && injection_add(injection, job, j) < 0)
        return NULL;
    if (j && injection && by_key && use_key(job, j) < 0)
        return NULL;
    if (j && newpod_avoid(j, drains) < 0)
        return NULL;
    return json_write(j);
}

char *bodies_group(const struct hvdjob *job, const struct gang_ops *gang, const char *api)
{
    auto_json json_t *j = gang_group(gang, job, api);
    return json_write(j);
}

char *bodies_delete(const char *uid)
{
    auto_json json_t *j =
        json_pack("{s:s, s:s, s:s, s:{s:s}}", "apiVersion", "v1", "kind", "DeleteOptions",
                  "propagationPolicy", "Background", "preconditions", "uid", uid);
    return json_write(j);
}

char *bodies_leader(bool leads, const char *version)
{
    auto_json json_t *j = json_pack("{s:{s:s*, s:{s:s?}}}", "metadata", "resourceVersion", version,
                                    "labels", DRIVER_LEADER_LABEL, leads ? "true" : NULL);
    return json_write(j);
}
