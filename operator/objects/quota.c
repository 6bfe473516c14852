/* SPDX-License-Identifier: Apache-2.0
 *
 * quota: see quota.h. The rules are those of the API server's quota evaluator for pods.
 */
#include "operator/objects/quota.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/parts.h"

void quota_fini(struct quota *q)
{
    free(q->lines);
    json_decref(q->scopes);
    *q = (struct quota){0};
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* The key in its long form: "cpu" is "requests.cpu". False: it does not concern pods. */
static bool normalize(const char *key, char *dst, size_t size)
{
    static const char *const bare[] = {"cpu", "memory", "ephemeral-storage"};
    if (strcmp(key, "pods") == 0 || strcmp(key, "count/pods") == 0)
        return (size_t)snprintf(dst, size, "pods") < size;
    for (int i = 0; i < 3; i++)
        if (strcmp(key, bare[i]) == 0)
            return (size_t)snprintf(dst, size, "requests.%s", key) < size;
    bool known = strncmp(key, "requests.", 9) == 0 || strncmp(key, "limits.", 7) == 0;
    return known && strcmp(key, "requests.storage") != 0 &&
           (size_t)snprintf(dst, size, "%s", key) < size;
}

/* "nvidia.com/gpu" of "requests.nvidia.com/gpu". */
static const char *resource_of(const char *key)
{
    return strcmp(key, "pods") == 0 ? key : strchr(key, '.') + 1;
}

static enum quantity_unit unit_of(const char *key)
{
    const char *name = resource_of(key);
    if (strcmp(name, "cpu") == 0)
        return QUANTITY_MILLI;
    return strcmp(name, "memory") == 0 || strcmp(name, "ephemeral-storage") == 0 ||
                   strncmp(name, "hugepages-", 10) == 0
               ? QUANTITY_BYTES
               : QUANTITY_COUNT;
}

static int take_lines(struct quota *q, json_t *hard, json_t *used)
{
    const char *key;
    json_t *value;
    q->lines = calloc(json_object_size(hard) + 1, sizeof(*q->lines));
    if (!q->lines)
        return -ENOMEM;
    json_object_foreach(hard, key, value)
    {
        struct quota_line line = {0};
        int64_t limit, in_use;
        const char *text = json_string_value(value);
        if (!text || !normalize(key, line.key, sizeof(line.key)) ||
            quantity_parse(text, unit_of(line.key), &limit) < 0)
            continue;
        line.hard = limit;
        if (quantity_parse(parts_text(used, key), unit_of(line.key), &in_use) == 0)
            line.used = in_use;
        q->lines[q->n++] = line;
    }
    return 0;
}

/* spec.scopes as expressions beside spec.scopeSelector. -ENOMEM. */
static int take_scopes(struct quota *q, json_t *spec)
{
    json_t *list = json_object_get(json_object_get(spec, "scopeSelector"), "matchExpressions");
    json_t *scope, *all = json_is_array(list) ? json_copy(list) : json_array();
    size_t i;
    json_array_foreach(json_object_get(spec, "scopes"), i, scope) json_array_append_new(
        all, json_pack("{s:O, s:s}", "scopeName", scope, "operator", "Exists"));
    if (!all)
        return -ENOMEM;
    if (json_array_size(all) > 0)
        q->scopes = all;
    else
        json_decref(all);
    return 0;
}

int quota_parse(json_t *j, struct quota *ret, struct err *err)
{
    struct quota q = {0};
    json_t *meta = json_object_get(j, "metadata"), *spec = json_object_get(j, "spec");
    json_t *status = json_object_get(j, "status");
    json_t *hard = json_object_get(status, "hard");
    parts_copy(meta, "namespace", q.namespace, sizeof(q.namespace));
    parts_copy(meta, "name", q.name, sizeof(q.name));
    if (!*q.name)
        return err_set(err, EINVAL, "ResourceQuota: without a name");
    int rc = take_lines(&q, hard ? hard : json_object_get(spec, "hard"),
                        json_object_get(status, "used"));
    rc = rc < 0 ? rc : take_scopes(&q, spec);
    if (rc < 0) {
        quota_fini(&q);
        return err_set(err, ENOMEM, "no memory");
    }
    *ret = q;
    return 0;
}

/* ---- admitting ------------------------------------------------------------------------------- */

static bool has_class(json_t *values, const char *name)
{
    json_t *value;
    size_t i;
    json_array_foreach(values, i,
                       value) if (json_is_string(value) &&
                                  strcmp(json_string_value(value), name) == 0) return true;
    return false;
}

static bool scope_selects(json_t *scope, const struct demand *d)
{
    const char *name = parts_text(scope, "scopeName"), *operator= parts_text(scope, "operator");
    if (strcmp(name, "BestEffort") == 0)
        return d->best_effort;
    if (strcmp(name, "NotBestEffort") == 0)
        return !d->best_effort;
    if (strcmp(name, "Terminating") == 0)
        return d->terminating;
    if (strcmp(name, "NotTerminating") == 0)
        return !d->terminating;
    if (strcmp(name, "PriorityClass") != 0)
        return false; /* CrossNamespacePodAffinity and later ones: the API server decides */
    if (strcmp(operator, "Exists") == 0)
        return *d->priority_class;
    if (strcmp(operator, "DoesNotExist") == 0)
        return !*d->priority_class;
    return has_class(json_object_get(scope, "values"), d->priority_class) ==
           (strcmp(operator, "In") == 0);
}

static bool selects(const struct quota *q, const struct demand *d)
{
    json_t *scope;
    size_t i;
    json_array_foreach(q->scopes, i, scope) if (!scope_selects(scope, d)) return false;
    return true;
}

/* What one worker adds to the line. */
static resources_sum amount(const struct quota_line *line, const struct demand *d)
{
    bool limits = strncmp(line->key, "limits.", 7) == 0;
    return resources_get(limits ? &d->limits : &d->spec.requests, resource_of(line->key));
}

int quota_admits(const struct quota *q, const struct demand *d, int limit,
                 const struct quota_line **ret_line)
{
    for (int i = 0; i < q->n && selects(q, d); i++) {
        const struct quota_line *line = &q->lines[i];
        resources_sum each = amount(line, d), left = line->hard - line->used;
        resources_sum n = each <= 0 ? limit : left <= 0 ? 0 : left / each;
        if (n >= limit)
            continue;
        limit = (int)n;
        *ret_line = line;
    }
    return limit;
}

void quota_take(struct quota *q, const struct demand *d, int n)
{
    for (int i = 0; i < q->n && selects(q, d); i++)
        q->lines[i].used += n * amount(&q->lines[i], d);
}

const struct quota_line *quota_never(const struct quota *q, const struct demand *d, int n)
{
    for (int i = 0; i < q->n && selects(q, d); i++)
        if (n * amount(&q->lines[i], d) > q->lines[i].hard)
            return &q->lines[i];
    return NULL;
}

/* ---- changes --------------------------------------------------------------------------------- */

static const struct quota_line *line_of(const struct quota *q, const char *key)
{
    for (int i = 0; i < q->n; i++)
        if (strcmp(q->lines[i].key, key) == 0)
            return &q->lines[i];
    return NULL;
}

bool quota_gives(const struct quota *before, const struct quota *after)
{
    if (!after || (before->scopes != after->scopes && !json_equal(before->scopes, after->scopes)))
        return true;
    for (int i = 0; i < before->n; i++) {
        const struct quota_line *was = &before->lines[i], *is = line_of(after, was->key);
        if (!is || is->hard > was->hard || is->used < was->used)
            return true;
    }
    return false;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* For quantity_write(), which takes 64 bits. */
static int64_t shown(resources_sum amount)
{
    return amount < 0 ? 0 : amount > QUANTITY_MAX ? QUANTITY_MAX : (int64_t)amount;
}

void quota_explain(const struct quota *q, const struct quota_line *line, const struct demand *d,
                   int want, int min, char *dst, size_t size)
{
    char asked[32], left[32], hard[32], least[32];
    enum quantity_unit unit = unit_of(line->key);
    quantity_write(shown(want * amount(line, d)), unit, asked, sizeof(asked));
    quantity_write(shown(line->hard - line->used), unit, left, sizeof(left));
    quantity_write(shown(line->hard), unit, hard, sizeof(hard));
    quantity_write(shown(min * amount(line, d)), unit, least, sizeof(least));
    bool never = min * amount(line, d) > line->hard;
    snprintf(dst, size, "quota %.80s: %.80s %s asked, %s of %s left%s%s%s%s", q->name, line->key,
             asked, left, hard, never ? "; the job can never start: its minWorkers ask for " : "",
             never ? least : "", never ? ", and the quota allows at most " : "", never ? hard : "");
}
