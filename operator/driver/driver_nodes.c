/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_nodes: the caches of nodes and of pods that belong to no job: which gangs fit. Not opened
 * in one-namespace mode.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "operator/driver/driver_private.h"

static void queue_changed(struct driver *d)
{
    d->queue_dirty = true;
    driver_wake(d);
}

static int parse_node(void *arg, json_t *object, void **ret, struct err *err)
{
    struct node_item *node;
    (void)arg;
    int rc = items_node(object, &node, err);
    if (rc == 0)
        *ret = node;
    return rc;
}

static void destroy_node(void *item)
{
    items_node_unref(item);
}

static void on_node(void *arg, const char *key, const void *before, const void *after)
{
    struct driver *d = arg;
    const struct node *was = before ? &((const struct node_item *)before)->node : NULL;
    const struct node *is = after ? &((const struct node_item *)after)->node : NULL;
    driver_note_node(d, was, is);
    if (usage_set_node(&d->usage, key, is ? &is->allocatable : NULL) < 0)
        log_warn("no memory for node %s: no gang is admitted to it before its next change", key);
    queue_changed(d);
}

static int parse_other(void *arg, json_t *object, void **ret, struct err *err)
{
    struct usage_pod *item;
    (void)arg;
    int rc = items_foreign(object, &item, err);
    if (rc == 0)
        *ret = item;
    return rc;
}

static void destroy_other(void *item)
{
    usage_pod_destroy(item);
}

static void on_other(void *arg, const char *key, const void *before, const void *after)
{
    struct driver *d = arg;
    struct usage_pod *was = (struct usage_pod *)before, *is = (struct usage_pod *)after;
    bool same =
        was && is && usage_pod_counts(was) == usage_pod_counts(is) && usage_pod_same(was, is);
    usage_remove(&d->usage, was);
    if (is && usage_add(&d->usage, is, key) < 0)
        log_warn("no memory: the requests of pod %s are not counted, gangs may be admitted that do "
                 "not fit",
                 key);
    if (!same)
        queue_changed(d);
}

int driver_nodes_open(struct driver *d, struct err *err)
{
    struct informer_config base = {.api = d->config.api, .synced = driver_on_synced, .arg = d};
    struct informer_config nodes = base, others = base;
    if (d->config.namespace)
        return 0;
    nodes.resource = (struct resource){"", "v1", "nodes"};
    nodes.parse = parse_node, nodes.destroy = destroy_node, nodes.changed = on_node;
    others.resource = (struct resource){"", "v1", "pods"};
    others.labels = "!" POD_LABEL_JOB;
    others.fields = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
    others.parse = parse_other, others.destroy = destroy_other, others.changed = on_other;
    int rc = informer_open(&d->nodes, &nodes, err);
    return rc < 0 ? rc : informer_open(&d->others, &others, err);
}

void driver_nodes_close(struct driver *d)
{
    informer_close(d->others);
    informer_close(d->nodes);
}
