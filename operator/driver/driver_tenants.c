/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_tenants: what the driver remembers of each namespace. See driver_private.h.
 */
#include <stdlib.h>

#include "operator/driver/driver_private.h"
#include "operator/objects/moment.h"

/* A namespace without a job keeps its record so long after its last admission. Otherwise a tenant
 * that deletes each job before it creates the next would be the first of its turn each time. */
#define MEMORY (3600 * MOMENT_S)

/* Records are dropped when there are twice as many as were needed the last time, and at least so
 * many. */
#define LEAST 64

static void mark_used(struct driver *d)
{
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e)) {
        struct store_entry *of = e->job ? store_find(&d->tenants, e->job->job.namespace_) : NULL;
        if (of)
            ((struct driver_tenant *)of->item)->used = true;
    }
}

static void drop(struct driver *d, struct store_entry *e)
{
    struct driver_tenant *t = e->item;
    list_remove(&t->turn);
    free(t);
    store_remove(&d->tenants, e);
}

static void drop_unused(struct driver *d)
{
    int64_t since = driver_now() - MEMORY;
    mark_used(d);
    for (struct store_entry *e = store_next(&d->tenants, NULL), *next; e; e = next) {
        struct driver_tenant *t = e->item;
        next = store_next(&d->tenants, e);
        if (!t->used && list_empty(&t->waiting) && t->served < since)
            drop(d, e);
        else
            t->used = false;
    }
}

struct driver_tenant *driver_tenant(struct driver *d, const char *namespace)
{
    struct store_entry *e = store_find(&d->tenants, namespace);
    if (e)
        return e->item;
    if (d->tenants.n >= d->tenants_full) {
        drop_unused(d);
        d->tenants_full = 2 * d->tenants.n > LEAST ? 2 * d->tenants.n : LEAST;
    }
    struct driver_tenant *fresh = calloc(1, sizeof(*fresh));
    e = fresh ? store_add(&d->tenants, namespace) : NULL;
    if (!e) {
        free(fresh);
        return NULL;
    }
    fresh->served = fresh->quota_gave = MOMENT_NONE;
    list_init(&fresh->waiting);
    list_init(&fresh->turn);
    e->item = fresh;
    return fresh;
}

/* Without memory the order of namespaces with equal shares is by age. */
void driver_note_served(struct driver *d, const char *namespace, int64_t at)
{
    struct driver_tenant *t = driver_tenant(d, namespace);
    if (t && at > t->served)
        t->served = at;
}

int64_t driver_served(const struct driver *d, const char *namespace)
{
    const struct store_entry *e = store_find(&d->tenants, namespace);
    return e ? ((const struct driver_tenant *)e->item)->served : MOMENT_NONE;
}

/* A namespace without a record has no job that was refused. */
void driver_note_quota(struct driver *d, const char *namespace)
{
    struct store_entry *e = store_find(&d->tenants, namespace);
    if (e)
        ((struct driver_tenant *)e->item)->quota_gave = driver_now();
}

bool driver_may_ask(const struct driver *d, const char *namespace, const struct verdict *v)
{
    const struct store_entry *e = store_find(&d->tenants, namespace);
    int64_t gave = e ? ((const struct driver_tenant *)e->item)->quota_gave : MOMENT_NONE;
    return gave != MOMENT_NONE && v->wait == WAIT_QUOTA && v->at < gave + DRY_RUN_SETTLES;
}

void driver_tenants_fini(struct driver *d)
{
    for (struct store_entry *e = store_next(&d->tenants, NULL), *next; e; e = next) {
        next = store_next(&d->tenants, e);
        drop(d, e);
    }
    store_fini(&d->tenants);
}
