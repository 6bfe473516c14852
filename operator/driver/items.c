/* SPDX-License-Identifier: Apache-2.0
 *
 * items: see items.h.
 */
#include "operator/driver/items.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/api/object.h"
#include "operator/objects/parts.h"

#define DIGITS_MAX 18 /* any number of 18 digits fits into 64 bits */

uint64_t items_version(const char *resource_version)
{
    size_t n = strspn(resource_version, "0123456789");
    if (n == 0 || n > DIGITS_MAX || resource_version[n])
        return 0;
    return strtoull(resource_version, NULL, 10);
}

static uint64_t version_of(json_t *object)
{
    json_t *meta = json_object_get(object, "metadata");
    const char *text = json_string_value(json_object_get(meta, "resourceVersion"));
    return text ? items_version(text) : 0;
}

static int no_memory(struct err *err)
{
    return err_set(err, ENOMEM, "no memory for an object");
}

/* ---- jobs ------------------------------------------------------------------------------------ */

int items_job(json_t *object, struct job_item **ret, struct err *err)
{
    struct job_item *item = calloc(1, sizeof(*item));
    if (!item)
        return no_memory(err);
    int rc = hvdjob_parse(object, &item->job, err);
    if (rc < 0) {
        free(item);
        return rc;
    }
    item->version = version_of(object);
    item->refs = 1;
    *ret = item;
    return 0;
}

struct job_item *items_job_ref(struct job_item *item)
{
    item->refs++;
    return item;
}

void items_job_unref(struct job_item *item)
{
    if (!item || --item->refs > 0)
        return;
    hvdjob_fini(&item->job);
    free(item);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

int items_node(json_t *object, struct node_item **ret, struct err *err)
{
    struct node_item *item = calloc(1, sizeof(*item));
    if (!item)
        return no_memory(err);
    int rc = node_parse(object, &item->node, err);
    if (rc < 0) {
        free(item);
        return rc;
    }
    item->refs = 1;
    *ret = item;
    return 0;
}

struct node_item *items_node_ref(struct node_item *item)
{
    item->refs++;
    return item;
}

void items_node_unref(struct node_item *item)
{
    if (--item->refs > 0)
        return;
    node_fini(&item->node);
    free(item);
}

/* ---- pods ------------------------------------------------------------------------------------ */

int items_pod(json_t *object, struct pod_item **ret, struct err *err)
{
    struct pod_item *item = calloc(1, sizeof(*item));
    if (!item)
        return no_memory(err);
    int rc = pod_parse(object, &item->pod, err);
    if (rc < 0) {
        free(item);
        return rc;
    }
    item->use = usage_pod_make(&item->pod);
    if (!item->use) {
        items_pod_destroy(item);
        return no_memory(err);
    }
    item->version = version_of(object);
    *ret = item;
    return 0;
}

int items_pod_read(const char *text, size_t len, struct pod_item **ret, struct err *err)
{
    auto_json json_t *j = NULL;
    const char *replaced;
    int rc = object_read(text, len, "a pod", &j, &replaced, err);
    return rc < 0 ? rc : items_pod(j, ret, err);
}

void items_pod_destroy(struct pod_item *item)
{
    if (!item)
        return;
    pod_fini(&item->pod);
    usage_pod_destroy(item->use);
    free(item);
}

int items_foreign(json_t *object, struct usage_pod **ret, struct pod_item **ret_worker,
                  struct err *err)
{
    struct pod p;
    int rc = pod_parse(object, &p, err);
    if (rc < 0)
        return rc;
    struct usage_pod *use = usage_pod_make(&p);
    bool strayed = ret_worker && p.strayed;
    struct pod_item *worker = strayed ? calloc(1, sizeof(*worker)) : NULL;
    bool ok = use && (!strayed || worker);
    if (worker)
        *worker = (struct pod_item){.pod = p, .version = version_of(object)};
    else
        pod_fini(&p);
    if (ok) {
        *ret = use;
        if (ret_worker)
            *ret_worker = worker;
        return 0;
    }
    usage_pod_destroy(use);
    items_pod_destroy(worker);
    return no_memory(err);
}

/* ---- DaemonSets and namespaces --------------------------------------------------------------- */

int items_daemonset(json_t *object, struct daemonset **ret, struct err *err)
{
    struct daemonset *item = calloc(1, sizeof(*item));
    if (!item)
        return no_memory(err);
    int rc = daemonset_parse(object, item, err);
    if (rc < 0)
        free(item);
    else
        *ret = item;
    return rc;
}

void items_daemonset_destroy(struct daemonset *item)
{
    daemonset_fini(item);
    free(item);
}

int items_namespace(json_t *object, struct labels **ret, struct err *err)
{
    json_t *labels = json_object_get(json_object_get(object, "metadata"), "labels");
    struct labels *item = calloc(1, sizeof(*item));
    if (!item)
        return no_memory(err);
    int rc = labels_parse(labels, item, err);
    if (rc < 0)
        free(item);
    else
        *ret = item;
    return rc;
}

void items_namespace_destroy(struct labels *item)
{
    labels_fini(item);
    free(item);
}

/* ---- groups ---------------------------------------------------------------------------------- */

int items_group(const struct gang_ops *ops, json_t *object, struct group_item **ret,
                struct err *err)
{
    const char *pending = gang_pending(ops, object);
    struct group_item *item = calloc(1, sizeof(*item));
    if (!item)
        return no_memory(err);
    snprintf(item->owner, sizeof(item->owner), "%s",
             parts_controller(json_object_get(object, "metadata")));
    item->pending = pending ? strdup(pending) : NULL;
    if (pending && !item->pending) {
        free(item);
        return no_memory(err);
    }
    *ret = item;
    return 0;
}

void items_group_destroy(struct group_item *item)
{
    if (!item)
        return;
    free(item->pending);
    free(item);
}

/* ---- budgets --------------------------------------------------------------------------------- */

int items_budget(json_t *object, struct budget_item **ret, struct err *err)
{
    struct budget budget;
    int rc = budget_parse(object, &budget, err);
    struct budget_item *item = rc == 0 ? malloc(sizeof(*item)) : NULL;
    if (rc < 0)
        return rc;
    if (!item)
        return no_memory(err);
    *item = (struct budget_item){.budget = budget, .version = version_of(object)};
    *ret = item;
    return 0;
}

void items_budget_destroy(struct budget_item *item)
{
    free(item);
}
