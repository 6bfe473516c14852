/* SPDX-License-Identifier: Apache-2.0
 *
 * podspec_requests: the requests of a pod, added up as kube-scheduler does: containers run
 * together, init containers one after the other, sidecars (restartPolicy: Always) beside all that
 * follow. Pod-level requests replace the sum; overhead is added.
 */
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/parts.h"
#include "operator/objects/podspec.h"

/* What one pod is computed from. */
struct ledger {
    json_t *spec, *status;
    struct buf *names; /* NULL: not needed */
    bool infeasible;   /* the pod's resize is refused: the spec does not count */
};

#define AUTO_RESOURCES CLEANUP(resources_fini) struct resources

/* The requests in the spec: a missing one defaults to the limit. */
static int spec_requests(const struct ledger *l, json_t *container, struct resources *ret,
                         struct err *err)
{
    json_t *resources = json_object_get(container, "resources");
    if (resources && !json_is_null(resources) && !json_is_object(resources))
        return err_set(err, EINVAL, "resources: want a mapping");
    int rc = resources_parse(json_object_get(resources, "limits"), l->names, ret, err);
    rc = rc < 0 ? rc : resources_parse(json_object_get(resources, "requests"), l->names, ret, err);
    if (rc < 0)
        err_prefix(err, "resources");
    return rc;
}

/* The larger of the requests in the spec and in the container's status: while a container is
 * resized in place, it may still have what it had. */
static int container_requests(const struct ledger *l, json_t *container, json_t *statuses,
                              struct resources *ret, struct err *err)
{
    AUTO_RESOURCES most = {.n = 0};
    AUTO_RESOURCES allocated = {.n = 0};
    if (!json_is_object(container))
        return err_set(err, EINVAL, "want a mapping");
    json_t *status = parts_find(statuses, "name", parts_text(container, "name"));
    json_t *actual = json_object_get(status, "resources");
    if (!json_is_object(actual))
        return spec_requests(l, container, ret, err);
    int rc = resources_parse(json_object_get(actual, "requests"), NULL, &most, err);
    rc = rc < 0 ? rc
                : resources_parse(json_object_get(status, "allocatedResources"), NULL, &allocated,
                                  err);
    rc = rc < 0 ? rc : resources_max(&most, &allocated, err);
    if (rc == 0 && !l->infeasible) {
        AUTO_RESOURCES said = {.n = 0};
        rc = spec_requests(l, container, &said, err);
        rc = rc < 0 ? rc : resources_max(&most, &said, err);
    }
    if (rc < 0)
        return rc;
    *ret = most;
    most = (struct resources){.n = 0};
    return 0;
}

static int sum_containers(const struct ledger *l, struct resources *sum, struct err *err)
{
    size_t i;
    json_t *container, *statuses = json_object_get(l->status, "containerStatuses");
    json_array_foreach(json_object_get(l->spec, "containers"), i, container)
    {
        AUTO_RESOURCES r = {.n = 0};
        int rc = container_requests(l, container, statuses, &r, err);
        rc = rc < 0 ? rc : resources_add(sum, &r, err);
        if (rc < 0) {
            err_prefix(err, "containers[%zu]", i);
            return rc;
        }
    }
    return 0;
}

/* Adds the sidecars' requests to *sum. *most: the highest need while one of the other init
 * containers runs. */
static int init_containers(const struct ledger *l, struct resources *sum, struct resources *most,
                           struct err *err)
{
    size_t i;
    json_t *container, *statuses = json_object_get(l->status, "initContainerStatuses");
    AUTO_RESOURCES beside = {.n = 0};
    json_array_foreach(json_object_get(l->spec, "initContainers"), i, container)
    {
        AUTO_RESOURCES r = {.n = 0};
        bool sidecar = strcmp(parts_text(container, "restartPolicy"), "Always") == 0;
        int rc = container_requests(l, container, sidecar ? statuses : NULL, &r, err);
        if (rc == 0 && sidecar) {
            rc = resources_add(sum, &r, err);
            rc = rc < 0 ? rc : resources_add(&beside, &r, err);
            rc = rc < 0 ? rc : resources_max(most, &beside, err);
        } else if (rc == 0) {
            rc = resources_add(&r, &beside, err);
            rc = rc < 0 ? rc : resources_max(most, &r, err);
        }
        if (rc < 0) {
            err_prefix(err, "initContainers[%zu]", i);
            return rc;
        }
    }
    return 0;
}

static int all_containers(const struct ledger *l, struct resources *sum, struct err *err)
{
    AUTO_RESOURCES most = {.n = 0};
    int rc = sum_containers(l, sum, err);
    rc = rc < 0 ? rc : init_containers(l, sum, &most, err);
    return rc < 0 ? rc : resources_max(sum, &most, err);
}

/* ---- pod-level resources --------------------------------------------------------------------- */

/* The kinds for which a pod may have requests of its own; all other names there have no effect. */
static bool pod_level(const char *name)
{
    return strcmp(name, "cpu") == 0 || strcmp(name, "memory") == 0 ||
           strncmp(name, "hugepages-", 10) == 0;
}

/* The part of a mapping that has pod-level kinds. A new reference; NULL: no memory. */
static json_t *pod_level_of(json_t *map)
{
    const char *name;
    json_t *value, *ret = json_object();
    bool failed = false;
    json_object_foreach(map, name, value)
    {
        failed |= pod_level(name) && json_object_set(ret, name, value) < 0;
    }
    if (failed)
        json_decref(TAKE(ret));
    return ret;
}

/* What the API server fills in for a pod that has limits: the containers' sum of cpu and memory
 * where they request anything, else the limit. */
static int fill_from_limits(const struct ledger *l, json_t *requests, struct resources *sum,
                            struct err *err)
{
    resources_sum cpu = sum->amount[RESOURCES_CPU], memory = sum->amount[RESOURCES_MEMORY];
    json_t *map = json_object_get(json_object_get(l->spec, "resources"), "limits");
    AUTO_RESOURCES limits = {.n = 0};
    const char *name;
    json_t *value;
    if (json_object_size(map) == 0)
        return 0;
    auto_json json_t *known = pod_level_of(map);
    int rc = known ? resources_parse(known, l->names, &limits, err) : -ENOMEM;
    json_object_foreach(known, name, value)
    {
        if (rc == 0 && !json_object_get(requests, name))
            rc = resources_set(sum, name, resources_get(&limits, name), err);
    }
    if (rc == 0 && cpu > 0 && !json_object_get(requests, "cpu"))
        sum->amount[RESOURCES_CPU] = cpu;
    if (rc == 0 && memory > 0 && !json_object_get(requests, "memory"))
        sum->amount[RESOURCES_MEMORY] = memory;
    return rc;
}

/* Replaces the containers' sum by the pod's own requests, where it has any. */
static int pod_requests(const struct ledger *l, struct resources *sum, struct err *err)
{
    json_t *resources = json_object_get(l->spec, "resources"), *value;
    json_t *actual = json_object_get(l->status, "resources");
    AUTO_RESOURCES said = {.n = 0}, now = {.n = 0}, allocated = {.n = 0};
    const char *name;
    if (json_object_size(resources) == 0)
        return resources && !json_is_null(resources) && !json_is_object(resources)
                   ? err_set(err, EINVAL, "want a mapping")
                   : 0;
    auto_json json_t *requests = pod_level_of(json_object_get(resources, "requests"));
    auto_json json_t *held = pod_level_of(json_object_get(l->status, "allocatedResources"));
    auto_json json_t *held_now = pod_level_of(json_object_get(actual, "requests"));
    if (!requests || !held || !held_now)
        return err_set(err, ENOMEM, "no memory");
    int rc = resources_parse(requests, l->names, &said, err);
    rc = rc < 0 ? rc : resources_parse(held_now, NULL, &now, err);
    rc = rc < 0 ? rc : resources_parse(held, NULL, &allocated, err);
    rc = rc < 0 ? rc : resources_max(&now, &allocated, err);
    rc = rc < 0 ? rc : fill_from_limits(l, requests, sum, err);
    json_object_foreach(requests, name, value)
    {
        resources_sum have = json_is_object(actual) ? resources_get(&now, name) : 0;
        resources_sum want =
            json_is_object(actual) && l->infeasible ? 0 : resources_get(&said, name);
        if (rc == 0)
            rc = resources_set(sum, name, want > have ? want : have, err);
    }
    return rc;
}

/* ---- the sum --------------------------------------------------------------------------------- */

static bool resize_is_infeasible(json_t *status)
{
    json_t *pending = parts_find(json_object_get(status, "conditions"), "type", "PodResizePending");
    return strcmp(parts_text(pending, "reason"), "Infeasible") == 0;
}

static int add_overhead(json_t *spec, struct buf *names, struct resources *sum, struct err *err)
{
    AUTO_RESOURCES overhead = {.n = 0};
    int rc = resources_parse(json_object_get(spec, "overhead"), names, &overhead, err);
    if (rc < 0) {
        err_prefix(err, "overhead");
        return rc;
    }
    return resources_add(sum, &overhead, err);
}

int podspec_requests(json_t *spec, json_t *status, struct buf *names, struct resources *ret,
                     struct err *err)
{
    struct ledger l = {
        .spec = spec, .status = status, .names = names, .infeasible = resize_is_infeasible(status)};
    AUTO_RESOURCES sum = {.n = 0};
    int rc = all_containers(&l, &sum, err);
    if (rc < 0)
        return rc;
    rc = pod_requests(&l, &sum, err);
    if (rc < 0) {
        err_prefix(err, "resources");
        return rc;
    }
    rc = add_overhead(spec, names, &sum, err);
    if (rc == 0 && names && names->failed)
        rc = err_set(err, ENOMEM, "no memory");
    if (rc < 0)
        return rc;
    sum.amount[RESOURCES_PODS] = 1;
    *ret = sum;
    sum = (struct resources){.n = 0};
    return 0;
}
