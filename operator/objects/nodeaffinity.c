/* SPDX-License-Identifier: Apache-2.0
 *
 * nodeaffinity: see nodeaffinity.h.
 */
#include "operator/objects/nodeaffinity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/json/json.h"

#define FIELD_NAME "metadata.name" /* the only field that the API server accepts */

void nodeaffinity_fini(struct nodeaffinity *a)
{
    for (int i = 0; i < a->n; i++) {
        selector_fini(&a->any[i].labels);
        selector_fini(&a->any[i].fields);
    }
    free(a->any);
    *a = (struct nodeaffinity){.n = 0};
}

static int parse_list(json_t *list, struct selector *ret)
{
    auto_json json_t *selector = json_pack("{s:O?}", "matchExpressions", list);
    return selector ? selector_parse(selector, ret) : -ENOMEM;
}

int nodeaffinity_parse(json_t *spec, struct nodeaffinity *ret)
{
    json_t *affinity = json_object_get(json_object_get(spec, "affinity"), "nodeAffinity");
    json_t *required = json_object_get(affinity, "requiredDuringSchedulingIgnoredDuringExecution");
    json_t *terms = json_object_get(required, "nodeSelectorTerms"), *term;
    struct nodeaffinity a = {.required = json_is_object(required)};
    size_t i;
    a.any = calloc(json_array_size(terms) + 1, sizeof(*a.any));
    int rc = a.any ? 0 : -ENOMEM;
    json_array_foreach(terms, i, term)
    {
        json_t *labels = json_object_get(term, "matchExpressions");
        json_t *fields = json_object_get(term, "matchFields");
        if (rc < 0 || (json_array_size(labels) == 0 && json_array_size(fields) == 0))
            continue; /* an empty term matches no node */
        struct node_term *to = &a.any[a.n++];
        rc = parse_list(labels, &to->labels);
        rc = rc < 0 ? rc : parse_list(fields, &to->fields);
    }
    if (rc < 0) {
        nodeaffinity_fini(&a);
        return rc;
    }
    *ret = a;
    return 0;
}

bool nodeaffinity_matches(const struct nodeaffinity *a, const struct node *node)
{
    char field[sizeof(FIELD_NAME) + 256]; /* one label: name NUL value NUL NUL */
    int n = snprintf(field, sizeof(field) - 1, "%s%c%.253s", FIELD_NAME, '\0', node->name);
    field[n + 1] = '\0';
    for (int i = 0; i < a->n; i++)
        if (selector_matches(&a->any[i].labels, &node->labels, NULL) &&
            selector_matches(&a->any[i].fields, &(struct labels){field}, NULL))
            return true;
    return !a->required;
}
