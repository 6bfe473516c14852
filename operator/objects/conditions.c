/* SPDX-License-Identifier: Apache-2.0
 *
 * conditions: see conditions.h.
 */
#include "operator/objects/conditions.h"

#include <stdio.h>
#include <string.h>

#include "core/base/words.h"
#include "core/json/json.h"
#include "operator/objects/moment.h"
#include "operator/objects/parts.h"

static const char *const names[CONDITIONS] = {"Valid",     "Admitted", "Ready",
                                              "Suspended", "Complete", "Failed"};

const char *condition_name(enum condition_type type)
{
    return names[type];
}

bool conditions_own(json_t *condition)
{
    for (int i = 0; i < CONDITIONS; i++)
        if (strcmp(parts_text(condition, "type"), names[i]) == 0)
            return true;
    return false;
}

bool conditions_true(json_t *list, const char *type)
{
    return strcmp(parts_text(parts_find(list, "type", type), "status"), "True") == 0;
}

const char *conditions_message(json_t *list, const char *type)
{
    const char *text = parts_text(parts_find(list, "type", type), "message");
    return *text ? text : NULL;
}

int conditions_parse(json_t *list, struct condition ret[CONDITIONS])
{
    int rc = 0;
    memset(ret, 0, CONDITIONS * sizeof(*ret));
    for (int i = 0; i < CONDITIONS; i++) {
        struct condition *c = &ret[i];
        json_t *j = parts_find(list, "type", names[i]);
        const char *status = parts_text(j, "status");
        if (strcmp(status, "True") != 0 && strcmp(status, "False") != 0)
            continue;
        c->status = *status == 'T' ? CONDITION_TRUE : CONDITION_FALSE;
        c->generation = json_integer_value(json_object_get(j, "observedGeneration"));
        moment_parse(parts_text(j, "lastTransitionTime"), &c->since);
        snprintf(c->reason, sizeof(c->reason), "%s", parts_text(j, "reason"));
        rc = rc < 0 ? rc : words_set(&c->message, parts_text(j, "message"));
    }
    return rc;
}

int conditions_copy(const struct condition from[CONDITIONS], struct condition ret[CONDITIONS])
{
    int rc = 0;
    for (int i = 0; i < CONDITIONS; i++) {
        ret[i] = from[i];
        ret[i].message = NULL;
        rc = rc < 0 ? rc : words_set(&ret[i].message, from[i].message);
    }
    return rc;
}

void conditions_fini(struct condition all[CONDITIONS])
{
    for (int i = 0; i < CONDITIONS; i++)
        free(all[i].message);
    memset(all, 0, CONDITIONS * sizeof(*all));
}

json_t *conditions_write(const struct condition all[CONDITIONS])
{
    json_t *list = json_array();
    for (int i = 0; i < CONDITIONS; i++) {
        const struct condition *c = &all[i];
        char since[MOMENT_SIZE];
        if (c->status == CONDITION_ABSENT)
            continue;
        moment_write(c->since, since);
        json_append(&list,
                    json_pack("{s:s, s:s, s:s, s:o, s:s, s:I}", "type", names[i], "status",
                              c->status == CONDITION_TRUE ? "True" : "False", "reason", c->reason,
                              "message",
                              json_lossy_string(words(c->message), strlen(words(c->message))),
                              "lastTransitionTime", since, "observedGeneration",
                              (json_int_t)c->generation));
    }
    return list;
}

int condition_set(struct condition *c, bool status, const char *reason, const char *message,
                  int64_t generation, int64_t now)
{
    enum condition_status wanted = status ? CONDITION_TRUE : CONDITION_FALSE;
    if (c->status != wanted)
        c->since = moment_whole(now);
    c->status = wanted;
    c->generation = generation;
    snprintf(c->reason, sizeof(c->reason), "%s", reason);
    return words_set(&c->message, message);
}
