/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_ear: what the caches tell the coordinator.
 */
#include <string.h>

#include "operator/driver/driver_private.h"

void driver_tell_pod(struct driver *d, const struct entry *e, const struct pod_item *pod, bool gone)
{
    if (d->ear.pod && e->job && e->job->job.ours && pod->pod.worker >= 0 &&
        strcmp(pod->pod.owner, e->job->job.uid) == 0)
        d->ear.pod(d->ear.arg, &pod->pod, gone);
}

static void tell_all(struct driver *d, const struct entry *e)
{
    d->ear.job(d->ear.arg, &e->job->job);
    for (int i = 0; i < e->npods; i++)
        driver_tell_pod(d, e, e->pods[i], false);
}

void driver_tell_job(struct driver *d, const struct entry *e, const struct job_item *before)
{
    if (!d->ear.job)
        return;
    if (before && before->job.ours && (!e->job || strcmp(e->job->job.uid, before->job.uid) != 0))
        d->ear.job_gone(d->ear.arg, before->job.uid);
    bool known = before && e->job && strcmp(e->job->job.uid, before->job.uid) == 0;
    if (e->job && e->job->job.ours && known)
        d->ear.job(d->ear.arg, &e->job->job);
    else if (e->job && e->job->job.ours)
        tell_all(d, e);
}

void driver_listen(struct driver *d, const struct driver_ear *ear)
{
    d->ear = ear ? *ear : (struct driver_ear){0};
    if (!ear)
        return;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        if (e->job && e->job->job.ours)
            tell_all(d, e);
}

void driver_equip(struct driver *d, const struct equipment *equipment)
{
    d->equipped = equipment != NULL;
    if (equipment)
        d->equipment = *equipment;
}

void driver_changed(struct driver *d, const char *job_uid)
{
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        if (e->job && strcmp(e->job->job.uid, job_uid) == 0)
            driver_touch(d, e);
}
