/* SPDX-License-Identifier: Apache-2.0
 *
 * budget: see budget.h.
 */
#include "operator/objects/budget.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/parts.h"

static int number(json_t *spec, const char *key)
{
    json_t *j = json_object_get(spec, key);
    json_int_t n = json_integer_value(j);
    return json_is_integer(j) && n >= 0 && n <= INT32_MAX ? (int)n : -1;
}

int budget_parse(json_t *j, struct budget *ret, struct err *err)
{
    const char *uid;
    json_t *meta = NULL;
    int rc = json_expect(j, "PodDisruptionBudget", err, "{s:o, s:{s:s}}", "metadata", &meta,
                         "metadata", "uid", &uid);
    if (rc < 0)
        return rc;
    json_t *spec = json_object_get(j, "spec"), *selector = json_object_get(spec, "selector");
    json_t *labels = json_object_get(selector, "matchLabels");
    struct budget b = {.min_available = number(spec, "minAvailable"),
                       .max_unavailable = number(spec, "maxUnavailable")};
    snprintf(b.uid, sizeof(b.uid), "%s", uid);
    snprintf(b.owner, sizeof(b.owner), "%s", parts_controller(meta));
    b.always = strcmp(parts_text(spec, "unhealthyPodEvictionPolicy"), "AlwaysAllow") == 0;
    if (json_object_size(selector) == 1 && json_object_size(labels) == 1)
        snprintf(b.selector, sizeof(b.selector), "%s", parts_text(labels, POD_LABEL_JOB));
    *ret = b;
    return 0;
}
