/* SPDX-License-Identifier: Apache-2.0
 *
 * driver: see driver.h. A tick reconciles the jobs that are due. Each event enqueues jobs and sets
 * the timer of the next tick.
 */
#include "operator/driver/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "operator/driver/driver_private.h"

#define READY_EVERY (200 * CLOCK_MS)
/* Longest time of reconciling in one tick. Then the loop serves others, above all the lease. */
#define TURN (5 * CLOCK_MS)
/* Least time between two reconciliations of a job that keeps changing: 50 us a pod, at most
 * PACE_MAX. */
#define POD_PACE  50000 /* ns */
#define PACE_MAX  (50 * CLOCK_MS)
#define IN_FLIGHT 32 /* requests of all jobs together */

static void on_tick(void *arg);

static void set_timer(struct driver *d, uint64_t at)
{
    if (d->tick.on && d->tick.due <= at)
        return;
    uint64_t now = clock_ns(), ms = at > now ? (at - now + CLOCK_MS - 1) / CLOCK_MS : 0;
    loop_timer_start(d->loop, &d->tick, ms, on_tick, d);
}

void driver_wake(struct driver *d)
{
    set_timer(d, clock_ns());
}

void driver_queue_at(struct driver *d, uint64_t at)
{
    if (at < d->queue_next)
        d->queue_next = at;
    set_timer(d, at);
}

void driver_enqueue_at(struct driver *d, struct entry *e, uint64_t at)
{
    entries_due(&d->entries, e, at);
    set_timer(d, at);
}

void driver_enqueue(struct driver *d, struct entry *e)
{
    uint64_t pace = (uint64_t)e->npods * POD_PACE, at = clock_ns();
    uint64_t next = e->reconciled_at + (pace < PACE_MAX ? pace : PACE_MAX);
    at = next > at ? next : at;
    driver_enqueue_at(d, e, e->not_before > at ? e->not_before : at);
}

void driver_enqueue_all(struct driver *d)
{
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        driver_enqueue(d, e);
}

/* ---- a tick ---------------------------------------------------------------------------------- */

/* When the next job is due. */
static uint64_t first_due(struct driver *d)
{
    uint64_t first = ENTRY_NEVER;
    list_for_each(pos, tmp, &d->entries.due)
    {
        const struct entry *e = list_entry(pos, struct entry, node);
        if (e->due < first)
            first = e->due;
    }
    return first;
}

static void reconcile_due(struct driver *d)
{
    uint64_t began = clock_ns();
    list_for_each(pos, tmp, &d->entries.due)
    {
        struct entry *e = list_entry(pos, struct entry, node);
        uint64_t now = clock_ns();
        if (e->due > now)
            continue;
        if (now - began > TURN)
            return;
        entries_not_due(e);
        driver_reconcile(d, e);
        entries_drop(&d->entries, e);
    }
}

static void on_tick(void *arg)
{
    struct driver *d = arg;
    if (!d->leading)
        return;
    if (!driver_ready(d)) { /* an informer that gets 403 calls nothing, so poll */
        set_timer(d, clock_ns() + READY_EVERY);
        return;
    }
    if (clock_ns() >= d->queue_next) {
        d->queue_next = ENTRY_NEVER;
        d->queue_dirty = true;
    }
    uint64_t again = driver_queue(d);
    reconcile_due(d);
    uint64_t next = first_due(d);
    next = again < next ? again : next;
    next = d->queue_next < next ? d->queue_next : next;
    if (next != ENTRY_NEVER)
        set_timer(d, next);
}

/* ---- life ------------------------------------------------------------------------------------ */

void driver_lead(struct driver *d)
{
    d->leading = true;
    d->queue_dirty = true;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e)) {
        e->failures = 0;
        e->not_before = 0;
    }
    driver_enqueue_all(d);
    driver_wake(d);
}

/* Forgets what dropped requests might have written: another operator may write from now on. */
void driver_stop_leading(struct driver *d)
{
    d->leading = false;
    loop_timer_stop(d->loop, &d->tick);
    driver_queue_stop(d);
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e)) {
        apply_cancel(e->apply);
        api_cancel(e->key_call);
        e->key_call = NULL;
        entry_forget_budget(e);
        driver_forget_dry_run(d, e);
        expectations_fini(&e->expectations);
        entry_forget_admission(e);
        e->claimed = e->texts_since = MOMENT_NONE;
        e->admitted = false;
        e->group_made[0] = '\0';
    }
    recorder_stop(d->recorder);
}

static void on_served(void *arg)
{
    struct driver *d = arg;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        entry_forget_gang(e);
    d->queue_dirty = true;
    driver_enqueue_all(d);
    driver_wake(d);
}

int driver_open(struct driver **ret, const struct driver_config *config, struct err *err)
{
    struct driver *d = calloc(1, sizeof(*d));
    int rc = 0;
    if (!d)
        return err_set(err, ENOMEM, "no memory for the driver");
    d->config = *config;
    d->loop = api_loop(config->api);
    d->drains.limit = config->drain_ms;
    d->drains_stale = true;
    d->queue_next = ENTRY_NEVER;
    list_init(&d->turns);
    entries_init(&d->entries, d);
    daemons_init(&d->daemons, &d->usage);
    inflight_init(&d->inflight, IN_FLIGHT);
    if (config->namespace && !(d->config.namespace = strdup(config->namespace)))
        rc = err_set(err, ENOMEM, "no memory for the driver");
    rc =
        rc < 0 ? rc : recorder_open(&d->recorder, config->api, &d->inflight, config->instance, err);
    rc = rc < 0 ? rc : discovery_open(&d->discovery, config->api, on_served, d, err);
    rc = rc < 0 ? rc : driver_caches_open(d, err);
    if (rc < 0) {
        driver_close(d);
        return rc;
    }
    api_observe(config->api, driver_observe, d);
    *ret = d;
    return 0;
}

void driver_close(struct driver *d)
{
    if (!d)
        return;
    api_observe(d->config.api, NULL, NULL);
    loop_timer_stop(d->loop, &d->tick);
    driver_queue_stop(d);
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        apply_cancel(e->apply);
    recorder_close(d->recorder);
    discovery_close(d->discovery);
    entries_fini(&d->entries);
    driver_caches_close(d);
    driver_drains_fini(d);
    usage_fini(&d->usage);
    driver_tenants_fini(d);
    free((char *)d->config.namespace);
    free(d);
}
