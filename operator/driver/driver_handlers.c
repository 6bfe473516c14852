/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_handlers: passes changes of the caches on to the coordinator's event handlers.
 */
#include <string.h>

#include "operator/driver/driver_private.h"

void driver_notify_pod(struct driver *d, const struct entry *e, const struct pod_item *pod,
                       bool gone)
{
    bool strayed = pod->pod.strayed && !pod_finished(&pod->pod); /* it is replaced */
    if (d->handlers.pod && e->job && e->job->job.ours && pod->pod.worker >= 0 &&
        strcmp(pod->pod.owner, e->job->job.uid) == 0)
        d->handlers.pod(d->handlers.arg, &pod->pod, gone || strayed);
}

void driver_notify_pods(struct driver *d, const struct entry *e)
{
    for (int i = 0; i < e->npods; i++)
        driver_notify_pod(d, e, e->pods[i], false);
}

void driver_notify_leaving(struct driver *d, const struct entry *e, const char *name,
                           const char *uid)
{
    const struct pod_item *p = driver_pod(d, e, name);
    if (!p || strcmp(p->pod.uid, uid) != 0)
        return;
    struct pod_item leaving = *p;
    leaving.pod.deleting = true;
    driver_notify_pod(d, e, &leaving, false);
}

static void notify_all(struct driver *d, const struct entry *e)
{
    d->handlers.job(d->handlers.arg, &e->job->job);
    driver_notify_pods(d, e);
}

void driver_notify_job(struct driver *d, const struct entry *e, const struct job_item *before)
{
    if (!d->handlers.job)
        return;
    if (before && before->job.ours && (!e->job || strcmp(e->job->job.uid, before->job.uid) != 0))
        d->handlers.job_gone(d->handlers.arg, before->job.uid);
    bool known = before && e->job && strcmp(e->job->job.uid, before->job.uid) == 0;
    if (e->job && e->job->job.ours && known)
        d->handlers.job(d->handlers.arg, &e->job->job);
    else if (e->job && e->job->job.ours)
        notify_all(d, e);
}

void driver_set_handlers(struct driver *d, const struct driver_handlers *handlers)
{
    d->handlers = handlers ? *handlers : (struct driver_handlers){0};
    if (!handlers)
        return;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        if (e->job && e->job->job.ours)
            notify_all(d, e);
}

void driver_set_injection(struct driver *d, const struct injection *injection)
{
    d->injects = injection != NULL;
    if (injection)
        d->injection = *injection;
}

void driver_changed(struct driver *d, const char *job_uid)
{
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        if (e->job && strcmp(e->job->job.uid, job_uid) == 0)
            driver_enqueue(d, e);
}
