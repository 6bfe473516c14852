/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_nodes: the caches of nodes, of pods without a job's label, of DaemonSets and of
 * namespaces: which gangs fit. Not opened in one-namespace mode.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "operator/driver/driver_private.h"
#include "operator/objects/moment.h"

static void queue_changed(struct driver *d)
{
    d->queue_dirty = true;
    driver_wake(d);
}

static void check_daemons(const char *key, int rc)
{
    if (rc < 0)
        log_warn("no memory: pods of DaemonSets that are about to come (%s) are not counted, gangs "
                 "may be admitted that do not fit",
                 key);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

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

/* How long the pods of DaemonSets are awaited on it. Clocks may differ: at most DAEMONS_WAIT_MS. */
static uint64_t daemons_until(const struct node *n)
{
    int64_t age = driver_now() - n->created;
    int64_t rest = n->created == MOMENT_NONE || age < 0 ? DAEMONS_WAIT_MS : DAEMONS_WAIT_MS - age;
    return clock_ns() + (rest > 0 ? (uint64_t)rest * CLOCK_MS : 0);
}

static void on_node(void *arg, const char *key, const void *before, const void *after)
{
    struct driver *d = arg;
    const struct node *was = before ? &((const struct node_item *)before)->node : NULL;
    const struct node *is = after ? &((const struct node_item *)after)->node : NULL;
    driver_note_node(d, was, is);
    if (usage_set_node(&d->usage, key, is ? &is->allocatable : NULL) < 0)
        log_warn("no memory for node %s: no gang is admitted to it before its next change", key);
    if (was && is && was->created != is->created) /* another node of that name */
        daemons_note_node(&d->daemons, key, NULL, 0, clock_ns());
    check_daemons(key,
                  daemons_note_node(&d->daemons, key, is, is ? daemons_until(is) : 0, clock_ns()));
    queue_changed(d);
}

/* ---- pods without a job's label
 * -------------------------------------------------------------------------- */

static int parse_other(void *arg, json_t *object, void **ret, struct err *err)
{
    struct other_item *item = calloc(1, sizeof(*item));
    (void)arg;
    int rc = item ? items_foreign(object, &item->use, &item->worker, err)
                  : err_set(err, ENOMEM, "no memory for a pod");
    if (rc == 0)
        *ret = item;
    else
        free(item);
    return rc;
}

static void destroy_other(void *arg)
{
    struct other_item *item = arg;
    usage_pod_destroy(item->use);
    items_pod_destroy(item->worker);
    free(item);
}

static void count_other(struct driver *d, const char *key, struct usage_pod *was,
                        struct usage_pod *is)
{
    bool same =
        was && is && usage_pod_counts(was) == usage_pod_counts(is) && usage_pod_same(was, is);
    char left[256] = ""; /* the node of was, whose name is not there any more once it is removed */
    if (was && usage_pod_counts(was))
        snprintf(left, sizeof(left), "%s", usage_pod_node(was));
    usage_remove(&d->usage, was);
    if (is && usage_add(&d->usage, is, key) < 0)
        log_warn("no memory: the requests of pod %s are not counted, gangs may be admitted that do "
                 "not fit",
                 key);
    if (was && *left)
        check_daemons(key, daemons_note_pod(&d->daemons, left, was->owner, clock_ns()));
    if (is && usage_pod_counts(is))
        check_daemons(key,
                      daemons_note_pod(&d->daemons, usage_pod_node(is), is->owner, clock_ns()));
    if (!same)
        queue_changed(d);
}

/* A worker's pod that has lost the job's label goes to its job, which replaces it. */
static void on_other(void *arg, const char *key, const void *before, const void *after)
{
    const struct other_item *was = before, *is = after;
    count_other(arg, key, was ? was->use : NULL, is ? is->use : NULL);
    if ((was && was->worker) || (is && is->worker))
        driver_note_pod(arg, key, was ? was->worker : NULL, is ? is->worker : NULL);
}

/* ---- DaemonSets ------------------------------------------------------------------------------ */

static int parse_daemonset(void *arg, json_t *object, void **ret, struct err *err)
{
    struct daemonset *item;
    (void)arg;
    int rc = items_daemonset(object, &item, err);
    if (rc == 0)
        *ret = item;
    return rc;
}

static void destroy_daemonset(void *item)
{
    items_daemonset_destroy(item);
}

static void on_daemonset(void *arg, const char *key, const void *before, const void *after)
{
    struct driver *d = arg;
    bool changed;
    check_daemons(key, daemons_note_set(&d->daemons, before, after, clock_ns(), &changed));
    if (changed)
        queue_changed(d);
}

/* ---- namespaces ------------------------------------------------------------------------------ */

static int parse_namespace(void *arg, json_t *object, void **ret, struct err *err)
{
    struct labels *item;
    (void)arg;
    int rc = items_namespace(object, &item, err);
    if (rc == 0)
        *ret = item;
    return rc;
}

static void destroy_namespace(void *item)
{
    items_namespace_destroy(item);
}

static void on_namespace(void *arg, const char *key, const void *before, const void *after)
{
    (void)key, (void)before, (void)after;
    queue_changed(arg);
}

/* ---- life ------------------------------------------------------------------------------------ */

int driver_nodes_open(struct driver *d, struct err *err)
{
    struct informer_config base = {.api = d->config.api, .synced = driver_on_synced, .arg = d};
    struct informer_config nodes = base, others = base, daemonsets = base, namespaces = base;
    if (d->config.namespace)
        return 0;
    nodes.resource = (struct resource){"", "v1", "nodes"};
    nodes.parse = parse_node, nodes.destroy = destroy_node, nodes.changed = on_node;
    others.resource = (struct resource){"", "v1", "pods"};
    others.labels = "!" POD_LABEL_JOB;
    others.fields = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
    others.parse = parse_other, others.destroy = destroy_other, others.changed = on_other;
    daemonsets.resource = (struct resource){"apps", "v1", "daemonsets"};
    daemonsets.parse = parse_daemonset, daemonsets.destroy = destroy_daemonset;
    daemonsets.changed = on_daemonset;
    namespaces.resource = (struct resource){"", "v1", "namespaces"};
    namespaces.parse = parse_namespace, namespaces.destroy = destroy_namespace;
    namespaces.changed = on_namespace;
    int rc = informer_open(&d->nodes, &nodes, err);
    rc = rc < 0 ? rc : informer_open(&d->others, &others, err);
    rc = rc < 0 ? rc : informer_open(&d->daemonsets, &daemonsets, err);
    return rc < 0 ? rc : informer_open(&d->namespaces, &namespaces, err);
}

void driver_nodes_close(struct driver *d)
{
    daemons_fini(&d->daemons); /* before the pods in the usage are destroyed */
    informer_close(d->namespaces);
    informer_close(d->daemonsets);
    informer_close(d->others);
    informer_close(d->nodes);
}
