/* SPDX-License-Identifier: Apache-2.0
 *
 * taints: see taints.h.
 */
#include "operator/objects/taints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"

#define TAINTS_MAX 1000

void taints_fini(struct taints *t)
{
    for (int i = 0; i < t->n; i++) {
        free(t->all[i].key);
        free(t->all[i].value);
    }
    free(t->all);
    *t = (struct taints){0};
}

static int take(json_t *j, bool toleration, struct taint *t, struct err *err)
{
    const char *key = "", *value = "", *effect = "", *op = "Equal";
    int rc = json_expect(j, toleration ? "toleration" : "taint", err, "{s?s, s?s, s?s, s?s}", "key",
                         &key, "value", &value, "effect", &effect, "operator", &op);
    if (rc < 0)
        return rc;
    if (toleration && strcmp(op, "Exists") != 0 && strcmp(op, "Equal") != 0)
        return err_set(err, EINVAL, "toleration: operator %.20s is not known", op);
    t->key = strdup(key);
    if (!toleration || strcmp(op, "Exists") != 0)
        t->value = strdup(value);
    snprintf(t->effect, sizeof(t->effect), "%s", effect);
    if (!t->key || (!t->value && (!toleration || strcmp(op, "Exists") != 0)))
        return err_set(err, ENOMEM, "no memory");
    return 0;
}

static int parse(json_t *list, bool toleration, struct taints *ret, struct err *err)
{
    struct taints t = {0};
    size_t n = json_array_size(list);
    if (list && !json_is_null(list) && !json_is_array(list))
        return err_set(err, EINVAL, "%s: want a list", toleration ? "tolerations" : "taints");
    if (n > TAINTS_MAX)
        return err_set(err, EINVAL, "%s: more than %d", toleration ? "tolerations" : "taints",
                       TAINTS_MAX);
    t.all = n ? calloc(n, sizeof(*t.all)) : NULL;
    if (n && !t.all)
        return err_set(err, ENOMEM, "no memory");
    for (size_t i = 0; i < n; i++) {
        t.n++;
        int rc = take(json_array_get(list, i), toleration, &t.all[i], err);
        if (rc < 0) {
            taints_fini(&t);
            return rc;
        }
    }
    *ret = t;
    return 0;
}

int taints_parse(json_t *list, struct taints *ret, struct err *err)
{
    return parse(list, false, ret, err);
}

int tolerations_parse(json_t *list, struct taints *ret, struct err *err)
{
    return parse(list, true, ret, err);
}

static bool copy(const struct taint *t, struct taint *ret)
{
    *ret = *t;
    ret->key = strdup(t->key);
    ret->value = t->value ? strdup(t->value) : NULL;
    return ret->key && (!t->value || ret->value);
}

int taints_append(struct taints *t, const struct taints *more)
{
    struct taint *all = realloc(t->all, (size_t)(t->n + more->n + 1) * sizeof(*all));
    if (!all)
        return -ENOMEM;
    t->all = all;
    for (int i = 0; i < more->n; i++) {
        if (copy(&more->all[i], &all[t->n + i]))
            continue;
        for (; i >= 0; i--) {
            free(all[t->n + i].key);
            free(all[t->n + i].value);
        }
        return -ENOMEM;
    }
    t->n += more->n;
    return 0;
}

static bool tolerates(const struct taint *toleration, const struct taint *taint)
{
    if (toleration->effect[0] && strcmp(toleration->effect, taint->effect) != 0)
        return false;
    if (!toleration->key[0])
        return !toleration->value; /* only the operator Exists allows an empty key */
    return strcmp(toleration->key, taint->key) == 0 &&
           (!toleration->value || strcmp(toleration->value, taint->value) == 0);
}

const struct taint *taints_refuse(const struct taints *taints, const struct taints *tolerated)
{
    for (int i = 0; i < taints->n; i++) {
        bool fine = strcmp(taints->all[i].effect, "NoSchedule") != 0 &&
                    strcmp(taints->all[i].effect, "NoExecute") != 0;
        for (int k = 0; k < tolerated->n && !fine; k++)
            fine = tolerates(&tolerated->all[k], &taints->all[i]);
        if (!fine)
            return &taints->all[i];
    }
    return NULL;
}
