/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_view: read access to the caches, for the page and for certificates. See driver.h.
 */
#include <string.h>

#include "operator/driver/driver_private.h"

bool driver_leads(const struct driver *d)
{
    return d->leading;
}

void driver_jobs(const struct driver *d, void (*each)(void *arg, const struct hvdjob *job),
                 void *arg)
{
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        if (e->job && e->job->job.ours)
            each(arg, &e->job->job);
}

static const struct entry *find(const struct driver *d, const char *namespace, const char *name)
{
    const struct entry *e = entries_find(&d->entries, namespace, name);
    return e && e->job && e->job->job.ours ? e : NULL;
}

const struct hvdjob *driver_job(const struct driver *d, const char *namespace, const char *name)
{
    const struct entry *e = find(d, namespace, name);
    return e ? &e->job->job : NULL;
}

void driver_pods(const struct driver *d, const struct hvdjob *job,
                 void (*each)(void *arg, const struct pod *pod), void *arg)
{
    const struct entry *e = find(d, job->namespace_, job->name);
    for (int i = 0; e && i < e->npods; i++)
        each(arg, &e->pods[i]->pod);
}

/* Has it an agent? Others can have the label of a job, too. */
static bool is_worker(const struct entry *e, const struct pod *p)
{
    return e->job && e->job->job.ours && p->worker >= 0 && !pod_finished(p) &&
           strcmp(p->owner, e->job->job.uid) == 0;
}

int64_t driver_oldest_pod(const struct driver *d)
{
    int64_t oldest = INT64_MAX;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        for (int i = 0; i < e->npods; i++)
            if (is_worker(e, &e->pods[i]->pod) && e->pods[i]->pod.created < oldest)
                oldest = e->pods[i]->pod.created;
    return oldest;
}
