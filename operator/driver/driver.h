/* SPDX-License-Identifier: Apache-2.0
 *
 * driver: the controller's loop. Informers keep caches of jobs, pods, nodes, budgets and PodGroups.
 * A change of an object enqueues its job, and for each job that is due the driver calls
 * reconcile() and applies the actions that it returns. Runs on the api's loop, one thread.
 *
 * The caches are current whether this operator leads or not. The driver writes only between
 * driver_lead() and driver_stop_leading().
 */
#ifndef HVD_OPERATOR_DRIVER_DRIVER_H
#define HVD_OPERATOR_DRIVER_DRIVER_H

#include "core/base/buf.h"
#include "operator/api/api.h"
#include "operator/api/health.h"
#include "operator/objects/hvdjob.h"
#include "operator/objects/job_facts.h"
#include "operator/objects/pod.h"
#include "operator/objects/signals.h"
#include "operator/reconcile/injection.h"
#include "operator/reconcile/queue.h"

#define DRIVER_LEADER_LABEL "hvd.dev/leader"

struct driver;

/* Event handlers of the coordinator, and what the driver asks it. Each may be NULL. Only jobs that
 * this operator manages (runPolicy.managedBy) are reported, and a pod only after its job. */
struct driver_handlers {
    void (*job)(void *arg, const struct hvdjob *job);
    void (*job_gone)(void *arg, const char *uid);
    void (*pod)(void *arg, const struct pod *pod, bool gone);
    /* Pods of which pod() has told are about to be deleted. What it has told must be on its way
     * before that: an agent hears of its pod's end from its kubelet, and leaves by itself. */
    void (*push)(void *arg);
    /* What the job's agents have reported, for its status. The driver frees *ret with
     * job_facts_fini(). */
    void (*facts)(void *arg, const char *uid, struct job_facts *ret);
    /* Returns the key that agents of the job authenticate with, valid until the next call. The
     * driver puts it into a Secret before it creates the job's pods. Without this handler agents
     * authenticate with a token of their service account, and no Secret is made. */
    const char *(*key)(void *arg, const char *uid);
    void *arg;
};

struct driver_config {
    struct api *api;
    const char *namespace; /* jobs of this namespace only, and no nodes; NULL: all namespaces */
    const char *instance;  /* this operator's name in Events (reportingInstance) */
    struct queue_policy policy;    /* the administrator's limits */
    const struct signals *signals; /* which nodes are drained; borrowed */
    int64_t drain_ms;              /* how long a job may delay a drain */
    /* Called before each write: false as soon as the lease is lost. */
    bool (*may_write)(void *arg);
    void *arg;
};

/* Texts are copied. */
int driver_open(struct driver **ret, const struct driver_config *config, struct err *err);

/* Starts and stops writing. driver_stop_leading() drops requests in flight. */
void driver_lead(struct driver *d);
void driver_stop_leading(struct driver *d);

/* Sets the event handlers and reports every job and pod in the caches to them at once. Copied.
 * NULL: none. */
void driver_set_handlers(struct driver *d, const struct driver_handlers *handlers);

/* What is injected into new pods; borrowed until the next call. NULL: pods are as their template
 * says. */
void driver_set_injection(struct driver *d, const struct injection *injection);

/* To be called when facts() returns something new for this job: enqueues the job. An unknown uid is
 * ignored. */
void driver_changed(struct driver *d, const char *job_uid);

/* When the oldest pod of all jobs that has not finished was created, in ms since 1970; INT64_MAX:
 * there is none. Only right once driver_ready(). */
int64_t driver_oldest_pod(const struct driver *d);

/* True once the API groups are known and the caches of jobs, pods and (where RBAC permits) nodes
 * have synced. */
bool driver_ready(const struct driver *d);

/* What the driver reads from the API server, for health.c: writes at most max, returns how many.
 * Valid until the next call. */
int driver_sources(const struct driver *d, struct health_source *ret, int max);

/* driver_view.c: read access to the caches for the web page. Items are valid until the call
 * returns. Only jobs that this operator manages, in no order. */
bool driver_leads(const struct driver *d);
void driver_jobs(const struct driver *d, void (*each)(void *arg, const struct hvdjob *job),
                 void *arg);
/* NULL: no such job. */
const struct hvdjob *driver_job(const struct driver *d, const char *namespace, const char *name);
void driver_pods(const struct driver *d, const struct hvdjob *job,
                 void (*each)(void *arg, const struct pod *pod), void *arg);

/* Appends the driver's metrics in Prometheus' text format. */
void driver_metrics(struct driver *d, struct buf *dst);

/* NULL is fine. */
void driver_close(struct driver *d);

#endif
