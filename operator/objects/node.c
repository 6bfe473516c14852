/* SPDX-License-Identifier: Apache-2.0
 *
 * node: see node.h.
 */
#include "operator/objects/node.h"

#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/conditions.h"
#include "operator/objects/moment.h"
#include "operator/objects/parts.h"

void node_fini(struct node *n)
{
    free(n->name);
    labels_fini(&n->labels);
    taints_fini(&n->taints);
    resources_fini(&n->allocatable);
    *n = (struct node){0};
}

int node_parse(json_t *j, struct node *ret, struct err *err)
{
    struct node n = {0};
    const char *name;
    json_t *labels = NULL, *taints = NULL, *allocatable = NULL, *conditions = NULL;
    int cordoned = 0;
    int rc =
        json_expect(j, "node", err, "{s:{s:s, s?o}, s?{s?b, s?o}, s?{s?o, s?o}}", "metadata",
                    "name", &name, "labels", &labels, "spec", "unschedulable", &cordoned, "taints",
                    &taints, "status", "allocatable", &allocatable, "conditions", &conditions);
    if (rc < 0)
        return rc;
    n.cordoned = cordoned;
    n.ready = conditions_true(conditions, "Ready");
    n.created = MOMENT_NONE;
    moment_parse(parts_text(json_object_get(j, "metadata"), "creationTimestamp"), &n.created);
    n.name = strdup(name);
    rc = n.name ? 0 : err_set(err, ENOMEM, "no memory");
    rc = rc < 0 ? rc : labels_parse(labels, &n.labels, err);
    rc = rc < 0 ? rc : taints_parse(taints, &n.taints, err);
    rc = rc < 0 ? rc : resources_parse(allocatable, NULL, &n.allocatable, err);
    if (rc < 0) {
        err_prefix(err, "node %.100s", name);
        node_fini(&n);
        return rc;
    }
    *ret = n;
    return 0;
}
