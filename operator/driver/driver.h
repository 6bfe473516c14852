/* SPDX-License-Identifier: Apache-2.0
 *
 * driver: from the API server to reconcile() and back: caches of jobs, pods, nodes and what else
 * decides; for each job of which something has changed the pure part is asked, and its actions are
 * applied. On the api's loop, one thread.
 *
 * Its caches are kept up whether it leads or not; it writes between driver_lead() and
 * driver_rest() alone.
 */
#ifndef HVD_OPERATOR_DRIVER_DRIVER_H
#define HVD_OPERATOR_DRIVER_DRIVER_H

#include "core/base/buf.h"
#include "operator/api/api.h"
#include "operator/objects/hvdjob.h"
#include "operator/objects/job_facts.h"
#include "operator/objects/pod.h"
#include "operator/reconcile/equipment.h"

#define DRIVER_LEADER_LABEL "hvd.dev/leader"

struct driver;

/* Who else wants to know what there is: the coordinator. All may be NULL. Jobs are those that are
 * ours; a pod is told after its job. */
struct driver_ear {
    void (*job)(void *arg, const struct hvdjob *job);
    void (*job_gone)(void *arg, const char *uid);
    void (*pod)(void *arg, const struct pod *pod, bool gone);
    /* What its agents have told, for the job's status; goes to job_facts_fini(). */
    void (*facts)(void *arg, const char *uid, struct job_facts *ret);
    /* The key that agents of the job show, valid until the next call. NULL: they show a token of
     * their service account. With it each job has a Secret, made before its pods. */
    const char *(*key)(void *arg, const char *uid);
    void *arg;
};

struct driver_config {
    struct api *api;
    const char *namespace; /* jobs of this one alone, and no nodes are seen; NULL: all */
    const char *instance;  /* who we are, in Events */
    /* Asked before each write, whatever was said before. */
    bool (*may_write)(void *arg);
    void *arg;
};

/* Texts are copied. */
int driver_open(struct driver **ret, const struct driver_config *config, struct err *err);

/* From now on, or not any more: requests under way are dropped. */
void driver_lead(struct driver *d);
void driver_rest(struct driver *d);

/* From now on ear is told, of all there is at once; NULL: nobody. Copied. */
void driver_listen(struct driver *d, const struct driver_ear *ear);

/* What new pods get besides their template; borrowed until the next call. NULL: nothing. */
void driver_equip(struct driver *d, const struct equipment *equipment);

/* The job's facts() are others. Unknown is fine. */
void driver_changed(struct driver *d, const char *job_uid);

/* Every cache has been whole once. *ret_why: what is not, and why; valid until the next call. */
bool driver_ready(const struct driver *d, const char **ret_why);

/* driver_sight.c, for the page: what the caches have, valid until this returns; jobs that are ours,
 * in no order. */
bool driver_leads(const struct driver *d);
void driver_jobs(const struct driver *d, void (*each)(void *arg, const struct hvdjob *job),
                 void *arg);
/* NULL: there is none. */
const struct hvdjob *driver_job(const struct driver *d, const char *namespace, const char *name);
void driver_pods(const struct driver *d, const struct hvdjob *job,
                 void (*each)(void *arg, const struct pod *pod), void *arg);

/* For Prometheus. */
void driver_metrics(const struct driver *d, struct buf *dst);

/* NULL is fine. */
void driver_close(struct driver *d);

#endif
