/* SPDX-License-Identifier: Apache-2.0
 *
 * parts: see parts.h.
 */
#include "operator/objects/parts.h"

#include <stdio.h>
#include <string.h>

json_t *parts_find(json_t *list, const char *field, const char *text)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        const char *have = json_string_value(json_object_get(item, field));
        if (have && strcmp(have, text) == 0)
            return item;
    }
    return NULL;
}

json_t *parts_owner(json_t *meta)
{
    size_t i;
    json_t *owner;
    json_array_foreach(json_object_get(meta, "ownerReferences"), i, owner)
    {
        if (json_is_string(json_object_get(owner, "uid")) &&
            json_is_true(json_object_get(owner, "controller")))
            return owner;
    }
    return NULL;
}

const char *parts_controller(json_t *meta)
{
    return parts_text(parts_owner(meta), "uid");
}

const char *parts_text(json_t *j, const char *key)
{
    const char *text = json_string_value(json_object_get(j, key));
    return text ? text : "";
}

void parts_copy(json_t *j, const char *key, char *dst, size_t size)
{
    snprintf(dst, size, "%s", parts_text(j, key));
}

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
