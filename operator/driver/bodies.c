/* SPDX-License-Identifier: Apache-2.0
 *
 * bodies: see bodies.h.
 */
#include "operator/driver/bodies.h"

#include "core/json/json.h"
#include "operator/driver/driver.h"
#include "operator/objects/pod.h"
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

char *bodies_pod(const struct hvdjob *job, const struct gang_ops *gang,
                 const struct equipment *equipment, int worker, int attempt, bool gated)
{
    auto_json json_t *j = newpod(job, gang, worker, attempt, gated);
    if (j && equipment && equipment_add(equipment, job, j) < 0)
        return NULL;
    return json_write(j);
}

char *bodies_group(const struct hvdjob *job, const struct gang_ops *gang, const char *api)
{
    auto_json json_t *j = gang_group(gang, job, api);
    return json_write(j);
}

char *bodies_lift(const char *uid)
{
    auto_json json_t *j = json_pack("{s:{s:s}, s:{s:[{s:s, s:s}]}}", "metadata", "uid", uid, "spec",
                                    "schedulingGates", "$patch", "delete", "name", POD_GATE);
    return json_write(j);
}

char *bodies_delete(const char *uid)
{
    auto_json json_t *j =
        json_pack("{s:s, s:s, s:s, s:{s:s}}", "apiVersion", "v1", "kind", "DeleteOptions",
                  "propagationPolicy", "Background", "preconditions", "uid", uid);
    return json_write(j);
}

char *bodies_leader(bool leads)
{
    auto_json json_t *j = json_pack("{s:{s:{s:s?}}}", "metadata", "labels", DRIVER_LEADER_LABEL,
                                    leads ? "true" : NULL);
    return json_write(j);
}
