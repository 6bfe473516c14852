/* SPDX-License-Identifier: Apache-2.0
 *
 * budget: see budget.h.
 */
#include "operator/objects/budget.h"

#include <stdio.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/hash.h"
#include "core/json/json.h"
#include "operator/objects/parts.h"

static int number(json_t *spec, const char *key)
{
    json_t *j = json_object_get(spec, key);
    json_int_t n = json_integer_value(j);
    return json_is_integer(j) && n >= 0 && n <= INT32_MAX ? (int)n : -1;
}

uint64_t budget_selector_hash(json_t *selector)
{
    auto_free char *text = json_dumps(selector, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    return text ? hash_str(text) : 0;
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
    struct budget b = {.min_available = number(spec, "minAvailable"),
                       .max_unavailable = number(spec, "maxUnavailable"),
                       .selector = budget_selector_hash(selector)};
    snprintf(b.uid, sizeof(b.uid), "%s", uid);
    snprintf(b.owner, sizeof(b.owner), "%s", parts_controller(meta));
    b.always = strcmp(parts_text(spec, "unhealthyPodEvictionPolicy"), "AlwaysAllow") == 0;
    *ret = b;
    return 0;
}
