/* SPDX-License-Identifier: Apache-2.0
 *
 * demand: see demand.h.
 */
#include "operator/objects/demand.h"

#include <stdio.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/parts.h"

void demand_fini(struct demand *d)
{
    podspec_fini(&d->spec);
    resources_fini(&d->limits);
    *d = (struct demand){0};
}

/* Makes the limits of a container, or of the pod, its requests. -ENOMEM. */
static int use_limits(json_t *owner)
{
    json_t *resources = json_object_get(owner, "resources");
    json_t *limits = json_object_get(resources, "limits");
    json_object_del(resources, "requests");
    return limits && json_object_set(resources, "requests", limits) < 0 ? -ENOMEM : 0;
}

/* The sum of limits is computed as that of requests, from a copy of the spec in which the limits
 * are the requests. */
static int sum_limits(json_t *spec, struct resources *ret, struct err *err)
{
    static const char *const lists[] = {"containers", "initContainers"};
    auto_json json_t *copy = json_deep_copy(spec);
    int rc = copy ? use_limits(copy) : -ENOMEM;
    for (int l = 0; l < 2; l++) {
        size_t i;
        json_t *container;
        json_array_foreach(json_object_get(copy, lists[l]), i, container) rc =
            rc < 0 ? rc : use_limits(container);
    }
    return rc < 0 ? err_set(err, ENOMEM, "no memory")
                  : podspec_requests(copy, NULL, NULL, ret, err);
}

static int take_labels(struct podspec *spec, const struct podspec *like, struct err *err)
{
    if (!like || !like->namespace_)
        return 0;
    spec->namespace_ = strdup(like->namespace_);
    return spec->namespace_ && labels_copy(&like->labels, &spec->labels) == 0
               ? 0
               : err_set(err, ENOMEM, "no memory");
}

int demand_parse(json_t *spec, const struct podspec *like, struct demand *ret, struct err *err)
{
    struct demand d = {0};
    json_int_t priority = json_integer_value(json_object_get(spec, "priority"));
    int rc = podspec_parse(spec, &d.spec, err);
    rc = rc < 0 ? rc : take_labels(&d.spec, like, err);
    rc = rc < 0 ? rc : sum_limits(spec, &d.limits, err);
    if (rc < 0) {
        demand_fini(&d);
        return rc;
    }
    d.priority = priority < INT32_MIN   ? INT32_MIN
                 : priority > INT32_MAX ? INT32_MAX
                                        : (int)priority;
    d.preempts = strcmp(parts_text(spec, "preemptionPolicy"), "Never") != 0;
    parts_copy(spec, "priorityClassName", d.priority_class, sizeof(d.priority_class));
    const struct resources *r = &d.spec.requests, *l = &d.limits;
    d.best_effort = r->amount[RESOURCES_CPU] == 0 && r->amount[RESOURCES_MEMORY] == 0 &&
                    l->amount[RESOURCES_CPU] == 0 && l->amount[RESOURCES_MEMORY] == 0;
    d.terminating = json_is_integer(json_object_get(spec, "activeDeadlineSeconds"));
    *ret = d;
    return 0;
}
