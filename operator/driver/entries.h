/* SPDX-License-Identifier: Apache-2.0
 *
 * entries: the jobs that the driver knows, each with its pods and what the driver remembers of it
 * between two looks. A pod may be there before its job, and after it. Nothing of this survives a
 * restart, and nothing has to.
 */
#ifndef HVD_OPERATOR_DRIVER_ENTRIES_H
#define HVD_OPERATOR_DRIVER_ENTRIES_H

#include "core/base/list.h"
#include "operator/api/api.h"
#include "operator/api/store.h"
#include "operator/driver/items.h"
#include "operator/driver/waits.h"
#include "operator/reconcile/queue.h"

struct apply;

#define ENTRY_NEVER UINT64_MAX

struct entry {
    char *key;            /* "namespace/name" */
    struct job_item *job; /* of the cache; NULL: only its pods are there */
    struct pod_item **pods;
    int npods, cap;

    /* Its gang back end, looked up when the job or what is served has changed. */
    bool gang_known;
    const struct gang_ops *gang; /* NULL: not served, gang_missing says what */
    char gang_api[64];
    char *gang_missing;
    char group_made[POD_UID_MAX]; /* uid of the job for which its PodGroup was made */

    struct admission *admission; /* what the queue said; NULL: it was not asked */
    bool let_go;                 /* its gang is let go; the cache may not know it yet */
    struct waits waits;
    struct apply *apply;        /* actions under way */
    struct pod_item *stranger;  /* a pod under a name of ours that no cache has */
    uint64_t stranger_at;       /* when to look after it again */
    struct api_call *asking;    /* about it; its argument is the entry */
    struct api_call *keying;    /* makes the Secret with its key; the same */
    char key_made[POD_UID_MAX]; /* uid of the job for which it was made */
    struct api_call *budgeting; /* writes its PodDisruptionBudget; the same */
    uint64_t budget_version;    /* that was written last, 0: that went wrong */
    uint64_t budget_at;         /* not before, unless the cache has that version; clock_ns() */
    char *budget_problem;       /* what the API server says to it, NULL: nothing */
    void *owner;                /* the driver */
    char *problem;              /* what the API server says to a new pod, NULL: nothing */
    enum job_phase phase;       /* in which it was seen last */
    int64_t told;               /* when its status was written last, MOMENT_NONE: not by us */

    uint64_t due;        /* when to look at it, clock_ns(); ENTRY_NEVER */
    uint64_t looked;     /* when it was looked at last */
    uint64_t not_before; /* the pause after a failure */
    unsigned failures;   /* in a row */
    bool stale;          /* the last one: a write met a newer object than the cache had */
    struct list node;    /* of those with a due */
};

struct entries {
    void *owner;
    struct store table;
    struct list due;
};

void entries_init(struct entries *all, void *owner);

/* NULL: none; of _make: no memory. */
struct entry *entries_find(const struct entries *all, const char *namespace, const char *name);
struct entry *entries_make(struct entries *all, const char *namespace, const char *name);

/* NULL for the first. The current one may be dropped when the next has been fetched. */
struct entry *entries_next(const struct entries *all, const struct entry *e);

/* Frees it if neither a job nor a pod nor actions are left. */
void entries_drop(struct entries *all, struct entry *e);

/* To be looked at then, or earlier if that was said before. */
void entries_due(struct entries *all, struct entry *e, uint64_t at);
void entries_not_due(struct entry *e);

/* -ENOMEM. A pod has one entry at a time. */
int entry_add_pod(struct entry *e, struct pod_item *pod);
void entry_remove_pod(struct entry *e, const struct pod_item *pod);
void entry_replace_pod(struct entry *e, const struct pod_item *before, struct pod_item *after);

/* What was found out about the job is to be found out anew. */
void entry_forget_gang(struct entry *e);
void entry_forget_admission(struct entry *e);
void entry_forget_budget(struct entry *e);

void entries_fini(struct entries *all);

#endif
