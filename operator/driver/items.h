/* SPDX-License-Identifier: Apache-2.0
 *
 * items: what the driver's caches keep of each object. The functions of informers: parse makes an
 * item of one JSON object, destroy ends it.
 */
#ifndef HVD_OPERATOR_DRIVER_ITEMS_H
#define HVD_OPERATOR_DRIVER_ITEMS_H

#include "operator/objects/budget.h"
#include "operator/objects/hvdjob.h"
#include "operator/objects/node.h"
#include "operator/objects/pod.h"
#include "operator/reconcile/gang.h"

struct entry;

/* A job. It is counted: actions that are under way outlive the cache's copy. */
struct job_item {
    struct hvdjob job;
    uint64_t version;    /* of its resourceVersion, see items_version() */
    struct entry *entry; /* of entries.h, NULL: in no cache */
    int refs;
};

struct pod_item {
    struct pod pod;
    uint64_t version;
    int place; /* among its job's pods */
};

/* A pod of somebody else that uses up a node: as little as can be. */
struct foreign_item {
    char *node;
    uint16_t kinds; /* bit i: amount of kind i follows */
    int64_t amount[];
};

struct budget_item {
    struct budget budget;
    uint64_t version;
};

struct group_item {
    char owner[POD_UID_MAX];
    char *waits; /* what gang_waits() says, NULL: it does not */
};

/* Versions of one kind of object rise: they are compared as numbers, as the API allows since 1.35
 * and as all servers before that had them. 0: it is no number. */
uint64_t items_version(const char *resource_version);

/* *ret is one reference. -EINVAL, -ENOMEM. */
int items_job(struct resource_kinds *kinds, json_t *object, struct job_item **ret, struct err *err);
struct job_item *items_job_ref(struct job_item *item);
/* NULL is fine. */
void items_job_unref(struct job_item *item);

int items_pod(struct resource_kinds *kinds, json_t *object, struct pod_item **ret, struct err *err);
/* Of an answer's text. */
int items_pod_read(struct resource_kinds *kinds, const char *text, size_t len,
                   struct pod_item **ret, struct err *err);
void items_pod_destroy(struct pod_item *item);

int items_foreign(struct resource_kinds *kinds, json_t *object, struct foreign_item **ret,
                  struct err *err);
void items_foreign_amounts(const struct foreign_item *item, struct resources *ret);
void items_foreign_destroy(struct foreign_item *item);

int items_group(const struct gang_ops *ops, json_t *object, struct group_item **ret,
                struct err *err);
void items_group_destroy(struct group_item *item);

int items_budget(json_t *object, struct budget_item **ret, struct err *err);
void items_budget_destroy(struct budget_item *item);

#endif
