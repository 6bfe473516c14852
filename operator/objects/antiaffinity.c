/* SPDX-License-Identifier: Apache-2.0
 *
 * antiaffinity: see antiaffinity.h.
 */
#include "operator/objects/antiaffinity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/json/json.h"
#include "operator/objects/parts.h"
#include "operator/objects/pod.h"

#define NAMESPACE_NAME "kubernetes.io/metadata.name"

int antiaffinity_text(json_t *pod, char **ret)
{
    json_t *affinity = json_object_get(json_object_get(pod, "spec"), "affinity");
    json_t *terms = json_object_get(json_object_get(affinity, "podAntiAffinity"),
                                    "requiredDuringSchedulingIgnoredDuringExecution");
    const char *namespace = parts_text(json_object_get(pod, "metadata"), "namespace");
    *ret = NULL;
    if (json_array_size(terms) == 0)
        return 0;
    auto_json json_t *all = json_pack("{s:s, s:O}", "namespace", namespace, "terms", terms);
    char *text = all ? json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (!text)
        return -ENOMEM;
    if (strlen(text) > ANTIAFFINITY_MAX) {
        free(text);
        return -E2BIG;
    }
    *ret = text;
    return 0;
}

void antiaffinity_fini(struct antiaffinity *a)
{
    for (int i = 0; i < a->n; i++) {
        free(a->all[i].topology);
        free(a->all[i].namespaces);
        selector_fini(&a->all[i].pods);
        selector_fini(&a->all[i].namespace_selector);
    }
    free(a->all);
    *a = (struct antiaffinity){.n = 0};
}

static int parse_term(json_t *j, const char *namespace, struct anti_term *t)
{
    json_t *list = json_object_get(j, "namespaces"), *item;
    json_t *selector = json_object_get(j, "namespaceSelector");
    struct buf names = {0};
    size_t i;
    json_array_foreach(list, i, item)
    {
        const char *name = json_string_value(item);
        if (name && *name)
            buf_put(&names, name, strlen(name) + 1);
    }
    /* Without both the term is about pods of the pod's own namespace. */
    if (json_array_size(list) == 0 && (!selector || json_is_null(selector)))
        buf_put(&names, namespace, strlen(namespace) + 1);
    buf_put(&names, "", 1);
    t->namespaces = (char *)names.data;
    t->topology = strdup(parts_text(j, "topologyKey"));
    if (names.failed || !t->topology ||
        selector_parse(json_object_get(j, "labelSelector"), &t->pods) < 0 ||
        selector_parse(selector, &t->namespace_selector) < 0)
        return -ENOMEM;
    return 0;
}

int antiaffinity_parse(const char *text, struct antiaffinity *ret)
{
    auto_json json_t *j = NULL;
    struct antiaffinity a = {.n = 0};
    int rc = json_read(text, strlen(text), "anti-affinity", &j, NULL);
    json_t *terms = json_object_get(j, "terms"), *item;
    size_t i;
    if (rc < 0)
        return rc;
    a.all = calloc(json_array_size(terms) + 1, sizeof(*a.all));
    if (!a.all)
        return -ENOMEM;
    json_array_foreach(terms, i, item)
    {
        if (rc == 0)
            rc = parse_term(item, parts_text(j, "namespace"), &a.all[a.n++]);
    }
    if (rc < 0) {
        antiaffinity_fini(&a);
        return rc;
    }
    *ret = a;
    return 0;
}

static bool known_of_namespace(const char *key)
{
    return strcmp(key, NAMESPACE_NAME) == 0;
}

static bool known_of_worker(const char *key)
{
    return strcmp(key, POD_LABEL_WORKER) != 0 && strcmp(key, POD_LABEL_ATTEMPT) != 0;
}

static bool about_namespace(const struct anti_term *t, const char *namespace,
                            const struct labels *known)
{
    char text[128];
    for (const char *p = t->namespaces; *p; p += strlen(p) + 1)
        if (strcmp(p, namespace) == 0)
            return true;
    if (known)
        return selector_matches(&t->namespace_selector, known, NULL);
    /* One label: name NUL value NUL NUL. */
    int n = snprintf(text, sizeof(text) - 1, "%s%c%.63s", NAMESPACE_NAME, '\0', namespace);
    text[n + 1] = '\0';
    return selector_matches(&t->namespace_selector, &(struct labels){text}, known_of_namespace);
}

bool anti_term_selects(const struct anti_term *t, const char *namespace,
                       const struct labels *namespace_labels, const struct labels *labels)
{
    return about_namespace(t, namespace, namespace_labels) &&
           selector_matches(&t->pods, labels, known_of_worker);
}
