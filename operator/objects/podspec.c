/* SPDX-License-Identifier: Apache-2.0
 *
 * podspec: see podspec.h. Requests are added up as the scheduler does: containers run together,
 * init containers one after the other, sidecars (restartPolicy: Always) beside all that follow.
 */
#include "operator/objects/podspec.h"

#include <stdio.h>
#include <string.h>

#include "core/json/json.h"

void podspec_fini(struct podspec *s)
{
    labels_fini(&s->selector);
    taints_fini(&s->tolerated);
    *s = (struct podspec){0};
}

/* The requests of one container; a missing request defaults to the limit. */
static int container_requests(json_t *container, bool loose, struct resource_kinds *kinds,
                              struct resources *ret, struct err *err)
{
    struct resources r = {0};
    json_t *resources = json_object_get(container, "resources");
    if (!json_is_object(container))
        return err_set(err, EINVAL, "want a mapping");
    if (resources && !json_is_null(resources) && !json_is_object(resources))
        return err_set(err, EINVAL, "resources: want a mapping");
    int rc = resources_parse(json_object_get(resources, "limits"), loose, kinds, &r, err);
    if (rc == 0)
        rc = resources_parse(json_object_get(resources, "requests"), loose, kinds, &r, err);
    *ret = r;
    if (rc < 0)
        err_prefix(err, "resources");
    return rc;
}

static int sum_containers(json_t *list, bool loose, struct resource_kinds *kinds,
                          struct resources *sum, struct err *err)
{
    size_t i;
    json_t *container;
    json_array_foreach(list, i, container)
    {
        struct resources r;
        int rc = container_requests(container, loose, kinds, &r, err);
        if (rc < 0) {
            err_prefix(err, "containers[%zu]", i);
            return rc;
        }
        resources_add(sum, &r);
    }
    return 0;
}

/* Adds the sidecars' requests to *sum. *most: the highest need while one of the other init
 * containers runs. */
static int init_containers(json_t *list, bool loose, struct resource_kinds *kinds,
                           struct resources *sum, struct resources *most, struct err *err)
{
    size_t i;
    json_t *container;
    struct resources beside = {0};
    json_array_foreach(list, i, container)
    {
        struct resources r;
        const char *policy = json_string_value(json_object_get(container, "restartPolicy"));
        int rc = container_requests(container, loose, kinds, &r, err);
        if (rc < 0) {
            err_prefix(err, "initContainers[%zu]", i);
            return rc;
        }
        if (policy && strcmp(policy, "Always") == 0) {
            resources_add(sum, &r);
            resources_add(&beside, &r);
            resources_max(most, &beside);
        } else {
            resources_add(&r, &beside);
            resources_max(most, &r);
        }
    }
    return 0;
}

int podspec_requests(json_t *spec, bool loose, struct resource_kinds *kinds, struct resources *ret,
                     struct err *err)
{
    struct resources sum = {0}, most = {0}, overhead = {0};
    int rc = sum_containers(json_object_get(spec, "containers"), loose, kinds, &sum, err);
    if (rc == 0)
        rc = init_containers(json_object_get(spec, "initContainers"), loose, kinds, &sum, &most,
                             err);
    if (rc < 0)
        return rc;
    rc = resources_parse(json_object_get(spec, "overhead"), loose, kinds, &overhead, err);
    if (rc < 0) {
        err_prefix(err, "overhead");
        return rc;
    }
    resources_max(&sum, &most);
    resources_add(&sum, &overhead);
    sum.amount[RESOURCES_PODS] = 1;
    *ret = sum;
    return 0;
}

/* Returns the name of a field that the scheduler considers and fit.h does not; NULL: none is set. A
 * gang with such a field may not fit although fit_count() says that it does. */
static const char *unjudged(json_t *spec)
{
    static const char *const fields[] = {"affinity", "topologySpreadConstraints", "resourceClaims",
                                         "nodeName", "schedulingGates"};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        json_t *j = json_object_get(spec, fields[i]);
        if (j && !json_is_null(j) && !(json_is_array(j) && json_array_size(j) == 0))
            return fields[i];
    }
    size_t i;
    json_t *volume;
    json_array_foreach(json_object_get(spec, "volumes"), i,
                       volume) if (json_object_get(volume, "persistentVolumeClaim") ||
                                   json_object_get(volume, "ephemeral")) return "volumes";
    return NULL;
}

int podspec_parse(json_t *spec, struct resource_kinds *kinds, struct podspec *ret, struct err *err)
{
    struct podspec s = {.unjudged = unjudged(spec)};
    const char *scheduler = json_string_value(json_object_get(spec, "schedulerName"));
    int rc = podspec_requests(spec, false, kinds, &s.requests, err);
    if (rc < 0)
        return rc;
    snprintf(s.scheduler, sizeof(s.scheduler), "%s", scheduler ? scheduler : "");
    rc = labels_parse(json_object_get(spec, "nodeSelector"), &s.selector, err);
    if (rc < 0)
        return err_prefix(err, "nodeSelector");
    rc = tolerations_parse(json_object_get(spec, "tolerations"), &s.tolerated, err);
    if (rc < 0) {
        podspec_fini(&s);
        return rc;
    }
    *ret = s;
    return 0;
}
