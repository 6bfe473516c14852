/* SPDX-License-Identifier: Apache-2.0
 *
 * parts: see parts.h.
 */
#include "operator/reconcile/parts.h"

json_t *parts_map(json_t *j, const char *key)
{
    json_t *map = json_object_get(j, key);
    if (json_is_object(map))
        return map;
    map = json_object();
    return json_object_set_new(j, key, map) < 0 ? NULL : map;
}

json_t *parts_list(json_t *j, const char *key)
{
    json_t *list = json_object_get(j, key);
    if (json_is_array(list))
        return list;
    list = json_array();
    return json_object_set_new(j, key, list) < 0 ? NULL : list;
}

bool parts_fill(json_t *j, const char *key, json_t *value)
{
    json_t *have = json_object_get(j, key);
    if (!have || json_is_null(have))
        return json_object_set_new(j, key, value) == 0;
    json_decref(value);
    return true;
}
