/* SPDX-License-Identifier: Apache-2.0
 *
 * template: see template.h.
 */
#include "operator/objects/template.h"

#include <stdio.h>
#include <string.h>

#include "operator/objects/parts.h"
#include "operator/objects/pod.h"
#include "operator/objects/resources.h"

#define FIRST "spec.template.spec.containers[0]"

static json_t *first_container(json_t *template)
{
    return json_array_get(json_object_get(json_object_get(template, "spec"), "containers"), 0);
}

const char *template_annotation(json_t *template, const char *name)
{
    json_t *all = json_object_get(json_object_get(template, "metadata"), "annotations");
    return json_string_value(json_object_get(all, name));
}

static int check_first(json_t *spec, struct err *err)
{
    json_t *containers = json_object_get(spec, "containers"), *first;
    const char *restart = parts_text(spec, "restartPolicy");
    if (!json_is_array(containers) || json_array_size(containers) == 0)
        return err_set(err, EINVAL, "spec.template.spec.containers: want a list with a container");
    first = json_array_get(containers, 0);
    if (!json_is_object(first))
        return err_set(err, EINVAL, FIRST ": want a mapping");
    if (json_array_size(json_object_get(first, "command")) == 0)
        return err_set(err, EINVAL,
                       FIRST
                       ".command: missing (the operator cannot read the image's own command)");
    if (*restart && strcmp(restart, "Never") != 0)
        return err_set(err, EINVAL,
                       "spec.template.spec.restartPolicy: want Never: a worker that ended is "
                       "replaced by a new pod");
    return 0;
}

/* The queue and the scheduler place workers: a pod with a node would pass both by. */
static int check_node(json_t *spec, struct err *err)
{
    const char *node = parts_text(spec, "nodeName");
    if (!*node)
        return 0;
    return err_set(err, EINVAL,
                   "spec.template.spec.nodeName: remove it: such pods start on node %.80s without "
                   "a check that they fit. To choose nodes, use nodeSelector or nodeAffinity on "
                   "the label kubernetes.io/hostname",
                   node);
}

/* Fields to which injection adds something: a value of the wrong type would be silently lost. */
static const struct place {
    enum { IN_TEMPLATE, IN_METADATA, IN_SPEC, IN_FIRST } in;
    const char *key;
    bool list; /* else a mapping */
} places[] = {
    {IN_TEMPLATE, "metadata", false},
    {IN_METADATA, "labels", false},
    {IN_METADATA, "annotations", false},
    {IN_SPEC, "volumes", true},
    {IN_SPEC, "initContainers", true},
    {IN_SPEC, "tolerations", true},
    {IN_SPEC, "schedulingGates", true},
    {IN_SPEC, "securityContext", false},
    {IN_FIRST, "args", true},
    {IN_FIRST, "env", true},
    {IN_FIRST, "volumeMounts", true},
    {IN_FIRST, "resources", false},
    {IN_FIRST, "securityContext", false},
    {IN_FIRST, "readinessProbe", false},
};

static int check_types(json_t *template, struct err *err)
{
    static const char *const names[] = {"spec.template.", "spec.template.metadata.",
                                        "spec.template.spec.", FIRST "."};
    json_t *const maps[] = {template, json_object_get(template, "metadata"),
                            json_object_get(template, "spec"), first_container(template)};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const struct place *p = &places[i];
        json_t *j = json_object_get(maps[p->in], p->key);
        if (!j || json_is_null(j) || (p->list ? json_is_array(j) : json_is_object(j)))
            continue;
        return err_set(err, EINVAL, "%s%s: want a %s", names[p->in], p->key,
                       p->list ? "list" : "mapping");
    }
    return 0;
}

/* Refuses names of volumes and mount paths that injection uses. */
static int check_places(json_t *spec, struct err *err)
{
    size_t i, n = strlen(TEMPLATE_PLACE);
    json_t *item, *first = json_array_get(json_object_get(spec, "containers"), 0);
    json_array_foreach(json_object_get(spec, "volumes"), i, item)
    {
        if (strncmp(parts_text(item, "name"), TEMPLATE_VOLUMES, strlen(TEMPLATE_VOLUMES)) == 0)
            return err_set(err, EINVAL,
                           "spec.template.spec.volumes[%zu].name: names that begin with "
                           "\"" TEMPLATE_VOLUMES "\" are reserved for the operator",
                           i);
    }
    json_array_foreach(json_object_get(first, "volumeMounts"), i, item)
    {
        const char *path = parts_text(item, "mountPath");
        if (strncmp(path, TEMPLATE_PLACE, n) == 0 && (path[n] == '\0' || path[n] == '/'))
            return err_set(err, EINVAL,
                           FIRST ".volumeMounts[%zu].mountPath: " TEMPLATE_PLACE
                                 " is reserved for hvd's agent and library",
                           i);
    }
    return 0;
}

/* Returns the training container's memory limit in bytes; 0: no limit. */
static int64_t memory_limit(json_t *template)
{
    struct resources limits = {.n = 0};
    int64_t ret = 0;
    json_t *resources = json_object_get(first_container(template), "resources");
    json_t *map = json_object_get(resources, "limits");
    if (json_is_object(map) && resources_parse(map, NULL, &limits, NULL) == 0)
        ret = (int64_t)limits.amount[RESOURCES_MEMORY];
    resources_fini(&limits);
    return ret;
}

static int check_shm(json_t *template, struct err *err)
{
    const char *said = template_annotation(template, TEMPLATE_SHM_SIZE);
    int64_t bytes, limit = memory_limit(template);
    if (!said)
        return 0;
    if (quantity_parse(said, QUANTITY_BYTES, &bytes) < 0 || bytes == 0)
        return err_set(err, EINVAL,
                       "spec.template.metadata.annotations: " TEMPLATE_SHM_SIZE
                       ": want an amount such as 2Gi, got \"%.40s\"",
                       said);
    if (limit > 0 && bytes > limit)
        return err_set(err, EINVAL,
                       "spec.template.metadata.annotations: " TEMPLATE_SHM_SIZE
                       ": %.40s is more than the container's memory limit, in which it counts",
                       said);
    return 0;
}

int template_check(json_t *template, struct err *err)
{
    json_t *spec = json_object_get(template, "spec");
    int rc = check_first(spec, err);
    rc = rc < 0 ? rc : check_types(template, err);
    rc = rc < 0 ? rc : check_places(spec, err);
    return rc < 0 ? rc : check_shm(template, err);
}

int template_check_new(json_t *template, struct err *err)
{
    return check_node(json_object_get(template, "spec"), err);
}

int64_t template_shm(json_t *template)
{
    json_t *mounts = json_object_get(first_container(template), "volumeMounts");
    const char *said = template_annotation(template, TEMPLATE_SHM_SIZE);
    int64_t bytes = 0, limit = memory_limit(template);
    if (parts_find(mounts, "mountPath", "/dev/shm"))
        return 0;
    if (said && quantity_parse(said, QUANTITY_BYTES, &bytes) == 0 && bytes > 0)
        return bytes;
    return limit > 1 ? limit / 2 : TEMPLATE_SHM_DEFAULT;
}

bool template_add_labels(json_t *labels, const char *job)
{
    return json_object_set_new(labels, POD_LABEL_JOB, json_string(job)) == 0 &&
           json_object_set_new(labels, "app.kubernetes.io/managed-by",
                               json_string("hvd-operator")) == 0 &&
           parts_fill(labels, "app.kubernetes.io/name", json_string("hvdjob")) &&
           parts_fill(labels, "app.kubernetes.io/instance", json_string(job));
}
