/* SPDX-License-Identifier: Apache-2.0
 *
 * driver: see driver.h. A tick looks at who is due; whatever changes makes somebody due and winds
 * the timer.
 */
#include "operator/driver/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "operator/driver/driver_private.h"

#define QUEUE_EVERY (20 * CLOCK_MS) /* the queue looks at all jobs and nodes */
#define READY_EVERY (200 * CLOCK_MS)
#define TURN        (5 * CLOCK_MS)  /* then others have the loop: the lease above all */
#define POD_PACE    50000           /* ns: a job is looked at once in so long a pod ... */
#define PACE_MAX    (50 * CLOCK_MS) /* ... but at least so often, when it changes */
#define UNDER_WAY   32              /* writes of all jobs at a time */

static void on_tick(void *arg);

static void wind(struct driver *d, uint64_t at)
{
    if (d->tick.on && d->tick.due <= at)
        return;
    uint64_t now = clock_ns(), ms = at > now ? (at - now + CLOCK_MS - 1) / CLOCK_MS : 0;
    loop_timer_start(d->loop, &d->tick, ms, on_tick, d);
}

void driver_wake(struct driver *d)
{
    wind(d, clock_ns());
}

void driver_due(struct driver *d, struct entry *e, uint64_t at)
{
    entries_due(&d->entries, e, at);
    wind(d, at);
}

void driver_touch(struct driver *d, struct entry *e)
{
    uint64_t pace = (uint64_t)e->npods * POD_PACE, at = clock_ns();
    uint64_t next = e->looked + (pace < PACE_MAX ? pace : PACE_MAX);
    at = next > at ? next : at;
    driver_due(d, e, e->not_before > at ? e->not_before : at);
}

void driver_touch_all(struct driver *d)
{
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        driver_touch(d, e);
}

/* ---- a tick ---------------------------------------------------------------------------------- */

/* The first due of all, and whether the queue has to be asked for one of them. */
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

static void ask_for_those_in_time(struct driver *d)
{
    int64_t now = driver_now();
    list_for_each(pos, tmp, &d->entries.due)
    {
        const struct entry *e = list_entry(pos, struct entry, node);
        if (e->admission && e->admission->again <= now)
            d->ask_queue = true;
    }
}

static void look_at_due(struct driver *d)
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
        driver_look(d, e);
        entries_drop(&d->entries, e);
    }
}

static void on_tick(void *arg)
{
    struct driver *d = arg;
    if (!d->leading)
        return;
    if (!driver_ready(d, NULL)) { /* a cache that is refused tells nobody */
        wind(d, clock_ns() + READY_EVERY);
        return;
    }
    ask_for_those_in_time(d);
    if (d->ask_queue && clock_ns() - d->queue_asked >= QUEUE_EVERY)
        driver_queue(d);
    look_at_due(d);
    uint64_t next = first_due(d);
    if (d->ask_queue && d->queue_asked + QUEUE_EVERY < next)
        next = d->queue_asked + QUEUE_EVERY;
    if (next != ENTRY_NEVER)
        wind(d, next);
}

/* ---- life ------------------------------------------------------------------------------------ */

void driver_lead(struct driver *d)
{
    d->leading = true;
    d->ask_queue = true;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e)) {
        e->failures = 0;
        e->not_before = 0;
    }
    driver_touch_all(d);
    driver_wake(d);
}

/* What was known of requests that are dropped is worth nothing: another one leads then. */
void driver_rest(struct driver *d)
{
    d->leading = false;
    loop_timer_stop(d->loop, &d->tick);
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e)) {
        apply_cancel(e->apply);
        api_cancel(e->keying);
        e->keying = NULL;
        entry_forget_budget(e);
        waits_fini(&e->waits);
        entry_forget_admission(e);
        e->let_go = false;
        e->group_made[0] = '\0';
    }
    said_stop(d->said);
}

static bool is_there(const struct informer *inf, const char *what, const char **ret_why,
                     struct driver *d)
{
    if (informer_synced(inf))
        return true;
    snprintf(d->why, sizeof(d->why), "%s: not listed yet%s%.200s", what,
             *informer_problem(inf) ? ": " : "", informer_problem(inf));
    if (ret_why)
        *ret_why = d->why;
    return false;
}

/* Whoever may not see nodes does without. */
static bool is_there_or_hidden(const struct informer *inf, const char *what, const char **ret_why,
                               struct driver *d)
{
    return !inf || informer_refused(inf) || is_there(inf, what, ret_why, d);
}

bool driver_ready(const struct driver *cd, const char **ret_why)
{
    struct driver *d = (struct driver *)cd; /* only why changes */
    if (!served_text(d->served)) {
        if (ret_why)
            *ret_why = "the API groups: not asked for yet";
        return false;
    }
    return is_there(d->jobs, "hvdjobs", ret_why, d) && is_there(d->pods, "pods", ret_why, d) &&
           is_there_or_hidden(d->nodes, "nodes", ret_why, d) &&
           is_there_or_hidden(d->others, "pods of others", ret_why, d);
}

static void on_served(void *arg)
{
    struct driver *d = arg;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        entry_forget_gang(e);
    d->ask_queue = true;
    driver_touch_all(d);
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
    entries_init(&d->entries, d);
    turnstile_init(&d->turnstile, UNDER_WAY);
    if (config->namespace && !(d->config.namespace = strdup(config->namespace)))
        rc = err_set(err, ENOMEM, "no memory for the driver");
    rc = rc < 0 ? rc : said_open(&d->said, config->api, config->instance, err);
    rc = rc < 0 ? rc : served_open(&d->served, config->api, on_served, d, err);
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
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        apply_cancel(e->apply);
    said_close(d->said);
    served_close(d->served);
    entries_fini(&d->entries);
    driver_caches_close(d);
    usage_fini(&d->usage);
    free((char *)d->config.namespace);
    free(d);
}
