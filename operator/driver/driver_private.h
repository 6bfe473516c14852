/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_private: what the files of the driver share.
 */
#ifndef HVD_OPERATOR_DRIVER_PRIVATE_H
#define HVD_OPERATOR_DRIVER_PRIVATE_H

#include "core/base/clock.h"
#include "operator/api/informer.h"
#include "operator/driver/apply.h"
#include "operator/driver/driver.h"
#include "operator/driver/entries.h"
#include "operator/driver/said.h"
#include "operator/driver/served.h"
#include "operator/driver/usage.h"
#include "operator/metrics/metrics.h"

#define GROUP_CACHES 3 /* back ends with a PodGroup */

/* PodGroups of one back end, from when the first job wants it. */
struct group_cache {
    struct driver *d;
    const struct gang_ops *ops; /* NULL: none yet */
    char api[64];
    struct informer *informer;
};

#define STATS_VERBS 5
#define STATS_CODES 17

struct driver_stats {
    struct histogram gang_wait, start, reconcile;
    uint64_t looks, writes, stale, failures, gave_up;
    uint64_t requests[STATS_VERBS][STATS_CODES];
};

struct driver {
    struct driver_config config;
    struct loop *loop;
    struct resource_kinds kinds;
    struct informer *jobs, *pods, *nodes, *others; /* nodes, others: NULL without a sight of them */
    struct informer *budgets;
    struct group_cache groups[GROUP_CACHES];
    struct served *served;
    struct said *said;
    struct turnstile turnstile;
    struct entries entries;
    struct usage usage;
    bool leading;
    bool ask_queue; /* something changed that the queue looks at */
    uint64_t queue_asked;
    struct loop_timer tick;
    struct driver_ear ear;
    struct equipment equipment;
    bool equipped;
    struct driver_stats stats;
    char why[320]; /* of driver_ready() */
};

/* driver_caches.c */
int driver_caches_open(struct driver *d, struct err *err);
void driver_caches_close(struct driver *d);
/* The cache of PodGroups of the entry's back end, opened if need be; NULL: no memory, or no need.
 */
struct group_cache *driver_groups(struct driver *d, struct entry *e);
/* Its pods' cache has this one: NULL without. */
const struct pod_item *driver_pod(const struct driver *d, const struct entry *e, const char *name);

/* driver_ear.c: to whom it was told to listen. before and after as informers have them. */
void driver_tell_job(struct driver *d, const struct entry *e, const struct job_item *before);
void driver_tell_pod(struct driver *d, const struct entry *e, const struct pod_item *pod,
                     bool gone);

/* driver_key.c: is the Secret with the job's key there? If not it is being made, and the entry is
 * due when it is. */
bool driver_has_key(struct driver *d, struct entry *e);

/* driver_budget.c: writes its PodDisruptionBudget if it is not there, or not as it should be. */
void driver_keep_budget(struct driver *d, struct entry *e);

/* driver_queue.c: asks queue_decide() about all that wait; who has another answer than before is
 * due. */
void driver_queue(struct driver *d);
/* What is served and chosen for it; looks it up once. */
void driver_choose_gang(struct driver *d, struct entry *e);

/* driver_look.c: looks at a job: reconcile, then its actions. */
void driver_look(struct driver *d, struct entry *e);

/* driver.c */
void driver_wake(struct driver *d);
/* Something of it has changed: it is looked at soon, but no more often than its size allows. */
void driver_touch(struct driver *d, struct entry *e);
void driver_touch_all(struct driver *d);
void driver_due(struct driver *d, struct entry *e, uint64_t at);

/* driver_metrics.c: counts a request's end; for api_observe(). */
void driver_observe(void *arg, const char *method, long status);
/* What has become of a job, as the cache tells it: so each change is counted once, however often it
 * had to be written. */
void driver_note_change(struct driver *d, const struct hvdjob_status *before,
                        const struct hvdjob_status *after);

static inline int64_t driver_now(void)
{
    return (int64_t)(clock_wall_us() / 1000);
}

#endif
