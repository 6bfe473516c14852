/* SPDX-License-Identifier: Apache-2.0
 *
 * entries: the driver's work queue. An entry is one job with its pods and what the driver
 * remembers of it between two reconciliations; `due` says when the next one is. An entry exists
 * while its job, a pod of it, an apply or a dry run exists: pods may be cached before their job and
 * after it.
 * State that must survive a restart is in the job's status.
 */
#ifndef HVD_OPERATOR_DRIVER_ENTRIES_H
#define HVD_OPERATOR_DRIVER_ENTRIES_H

#include "core/base/list.h"
#include "operator/api/api.h"
#include "operator/api/store.h"
#include "operator/driver/dry_run.h"
#include "operator/driver/items.h"
#include "operator/driver/expectations.h"
#include "operator/reconcile/queue.h"

struct apply;

#define ENTRY_NEVER UINT64_MAX

struct entry {
    char *key;            /* "namespace/name" */
    struct job_item *job; /* borrowed from the cache; NULL: only pods are cached */
    struct pod_item **pods;
    int npods, cap;

    /* The gang back end, chosen again when the job or the cluster's API groups have changed. */
    bool gang_known;
    const struct gang_ops *gang; /* NULL: the cluster does not serve it, see gang_missing */
    char gang_api[64];
    char *gang_missing;
    char group_made[POD_UID_MAX]; /* uid of the job for which the PodGroup was created */

    struct dry_run dry_run;
    struct admission *admission; /* the queue's last decision; NULL: none yet */
    int64_t claimed; /* when the queue last preempted others for it; see hvdjob_status */
    bool admitted;   /* this operator wrote that the gang is admitted; the cache may lag behind */
    struct expectations expectations;
    struct apply *apply; /* actions in flight, NULL: none */
    int asked;           /* workers that the job has once these are done and the caches show them */

    /* A pod that has the name of one of the job's pods and is not this job's, or has lost its
     * labels. No informer may report it: it is read again at conflict_at. */
    struct pod_item *conflict;
    uint64_t conflict_at;           /* clock_ns() */
    struct api_call *conflict_call; /* reads that pod; the call's argument is the entry */

    struct api_call *key_call;  /* creates the Secret with the job's key; argument: the entry */
    char key_made[POD_UID_MAX]; /* uid of the job for which the Secret exists */

    struct api_call *budget_call; /* writes the PodDisruptionBudget; argument: the entry */
    uint64_t budget_version;      /* resourceVersion of the last write, 0: it failed */
    uint64_t budget_since; /* clock_ns() at which it was first found missing, 0: it was not */
    uint64_t budget_at;    /* clock_ns(): no write before, unless the cache has budget_version */
    char *budget_problem;  /* the API server's refusal of the budget, NULL: none */

    void *owner;      /* the driver */
    char *problem;    /* the API server's refusal of a pod, key or PodGroup, NULL: none */
    bool group_taken; /* problem says that a PodGroup of this name exists that is not this job's */
    enum job_phase phase;   /* the job's phase in the cache */
    int64_t status_written; /* when this operator last wrote the status; MOMENT_NONE: never */
    int64_t texts_since;    /* since when texts of the status wait to be written; MOMENT_NONE */

    uint64_t due;           /* clock_ns() of the next reconciliation; ENTRY_NEVER: none */
    uint64_t reconciled_at; /* clock_ns() of the last reconciliation */
    uint64_t not_before;    /* clock_ns(): the end of the pause after a failure */
    unsigned failures;      /* failed applies in a row */
    bool stale;             /* the last failure was a conflict with a newer version than cached */
    struct list node;       /* in entries.due while due is set */
};

struct entries {
    void *owner;
    struct store table;
    struct list due;
};

void entries_init(struct entries *all, void *owner);

/* entries_find: NULL: no such job. entries_make: finds or adds it; NULL: no memory. */
struct entry *entries_find(const struct entries *all, const char *namespace, const char *name);
struct entry *entries_make(struct entries *all, const char *namespace, const char *name);

/* e NULL: the first. The caller may drop e once it has fetched the next. */
struct entry *entries_next(const struct entries *all, const struct entry *e);

/* Frees e unless it has a job, a pod, an apply or a dry run in flight. */
void entries_drop(struct entries *all, struct entry *e);

/* Sets when e is due; an earlier time that is set already stays. */
void entries_due(struct entries *all, struct entry *e, uint64_t at);
void entries_not_due(struct entry *e);

/* A pod belongs to one entry at a time. -ENOMEM. */
int entry_add_pod(struct entry *e, struct pod_item *pod);
void entry_remove_pod(struct entry *e, const struct pod_item *pod);
void entry_replace_pod(struct entry *e, const struct pod_item *before, struct pod_item *after);

/* Replaces problem and group_taken; text NULL: there is none. */
void entry_note_problem(struct entry *e, const char *text, bool group_taken);

/* Drop what is cached about the job, so that it is determined again. */
void entry_forget_gang(struct entry *e);
void entry_forget_admission(struct entry *e);
void entry_forget_budget(struct entry *e);

void entries_fini(struct entries *all);

#endif
