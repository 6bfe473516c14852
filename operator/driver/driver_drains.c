/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_drains: keeps the list of nodes that are drained, and enqueues the jobs with workers on a
 * node when that begins, changes or ends.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "operator/driver/driver_private.h"

static bool has_pod_on(const struct entry *e, const char *node)
{
    for (int i = 0; i < e->npods; i++)
        if (e->pods[i]->pod.node && strcmp(e->pods[i]->pod.node, node) == 0)
            return true;
    return false;
}

void driver_note_node(struct driver *d, const struct node *before, const struct node *after)
{
    struct node_drain was, is;
    signals_look(d->config.signals, before, &was);
    signals_look(d->config.signals, after, &is);
    if (was.action == is.action && strcmp(was.what, is.what) == 0)
        return;
    d->drains_stale = true;
    const char *name = after ? after->name : before->name;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        if (has_pod_on(e, name))
            driver_enqueue(d, e);
}

static void forget(struct drains *all)
{
    for (int i = 0; i < all->n; i++)
        free(all->all[i].name);
    free(all->all);
    all->all = NULL;
    all->n = 0;
}

struct building {
    struct driver *d;
    bool failed;
};

static void add(void *arg, const char *key, const void *item)
{
    struct building *b = arg;
    struct drains *all = &b->d->drains;
    struct drain_node one = {0};
    (void)key;
    const struct node *node = &((const struct node_item *)item)->node;
    signals_look(b->d->config.signals, node, &one.drain);
    if (one.drain.action == SIGNAL_NONE || b->failed)
        return;
    struct drain_node *grown = realloc(all->all, ((size_t)all->n + 1) * sizeof(*grown));
    if (grown)
        all->all = grown;
    one.name = strdup(node->name);
    b->failed = !grown || !one.name;
    if (b->failed)
        free(one.name);
    else
        all->all[all->n++] = one;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct drain_node *)a)->name, ((const struct drain_node *)b)->name);
}

const struct drains *driver_drains(struct driver *d)
{
    struct building b = {d, false};
    if (!d->nodes || !informer_synced(d->nodes))
        return NULL;
    if (!d->drains_stale)
        return &d->drains;
    forget(&d->drains);
    informer_each(d->nodes, add, &b);
    if (d->drains.n > 1)
        qsort(d->drains.all, (size_t)d->drains.n, sizeof(*d->drains.all), by_name);
    d->drains_stale = b.failed;
    if (b.failed)
        log_warn("no memory for the list of drained nodes; it is tried again");
    return b.failed ? NULL : &d->drains;
}

/* ---- metrics --------------------------------------------------------------------------------- */

static bool is_on_drained(struct driver *d, const struct entry *e, const struct pod *p)
{
    const struct drain_node *node = drains_find(driver_drains(d), p->node);
    return node && node->drain.action >= SIGNAL_EVICT && e->job && !p->deleting &&
           !pod_finished(p) && p->worker >= 0 && strcmp(p->owner, e->job->job.uid) == 0;
}

void driver_note_move(struct driver *d, const struct entry *e, const struct pod *before,
                      const struct pod *after)
{
    bool left = !after || after->deleting || (pod_finished(after) && after->disrupted);
    if (!d->leading || !left || !is_on_drained(d, e, before))
        return;
    const struct hvdjob *job = &e->job->job;
    enum job_phase phase = job->status.phase;
    /* Without a drain such a job would keep this worker. */
    d->stats.drain_moves += !job->deleting && !job->suspend && phase >= JOB_STARTING &&
                            phase <= JOB_RESTARTING && before->worker < job->workers;
}

int driver_drained_workers(struct driver *d)
{
    int n = 0;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        for (int i = 0; i < e->npods; i++)
            n += is_on_drained(d, e, &e->pods[i]->pod);
    return n;
}

void driver_drains_fini(struct driver *d)
{
    forget(&d->drains);
}
