/* SPDX-License-Identifier: Apache-2.0
 *
 * items: what the driver's caches keep of each object: a projection of the few fields that it
 * needs. Informers call the functions here: one that parses a JSON object into an item, and one
 * that destroys the item.
 */
#ifndef HVD_OPERATOR_DRIVER_ITEMS_H
#define HVD_OPERATOR_DRIVER_ITEMS_H

#include "operator/objects/budget.h"
#include "operator/objects/daemonset.h"
#include "operator/objects/hvdjob.h"
#include "operator/objects/node.h"
#include "operator/objects/pod.h"
#include "operator/driver/usage.h"
#include "operator/reconcile/gang.h"

/* A job. Reference-counted: an apply in flight may outlive the cache's reference. */
struct job_item {
    struct hvdjob job;
    uint64_t version; /* resourceVersion as a number, see items_version() */
    int refs;
};

struct pod_item {
    struct pod pod;
    uint64_t version;
    struct usage_pod *use;
    int place; /* index in its entry's pods */
};

/* A node. Reference-counted: a run of the queue may outlive the cache's reference. */
struct node_item {
    struct node node;
    int refs;
};

struct budget_item {
    struct budget budget;
    uint64_t version;
};

struct group_item {
    char owner[POD_UID_MAX];
    char *pending; /* returned by gang_pending(): why it waits, NULL: it does not */
};

/* A resourceVersion as a number, so that two of the same kind can be compared: Kubernetes allows
 * that since 1.35, and all servers before it had such versions. 0: it is not a number. */
uint64_t items_version(const char *resource_version);

/* The caller gets one reference in *ret. -EINVAL, -ENOMEM. */
int items_job(json_t *object, struct job_item **ret, struct err *err);
struct job_item *items_job_ref(struct job_item *item);
/* NULL is fine. */
void items_job_unref(struct job_item *item);

int items_node(json_t *object, struct node_item **ret, struct err *err);
struct node_item *items_node_ref(struct node_item *item);
void items_node_unref(struct node_item *item);

int items_pod(json_t *object, struct pod_item **ret, struct err *err);
/* As items_pod(), for the body of a response. */
int items_pod_read(const char *text, size_t len, struct pod_item **ret, struct err *err);
void items_pod_destroy(struct pod_item *item);

/* A pod without a job's label: what it takes from its node, which usage_pod_destroy() frees, and if
 * it is a worker's pod that has lost the label, that pod, without what it takes; else NULL.
 * ret_worker NULL: the caller does not want to know. */
int items_foreign(json_t *object, struct usage_pod **ret, struct pod_item **ret_worker,
                  struct err *err);

/* items_daemonset_destroy() and items_namespace_destroy() free them. */
int items_daemonset(json_t *object, struct daemonset **ret, struct err *err);
void items_daemonset_destroy(struct daemonset *item);

/* Of a namespace only its labels are kept. */
int items_namespace(json_t *object, struct labels **ret, struct err *err);
void items_namespace_destroy(struct labels *item);

int items_group(const struct gang_ops *ops, json_t *object, struct group_item **ret,
                struct err *err);
void items_group_destroy(struct group_item *item);

int items_budget(json_t *object, struct budget_item **ret, struct err *err);
void items_budget_destroy(struct budget_item *item);

#endif
