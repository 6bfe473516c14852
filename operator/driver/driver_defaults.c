/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_defaults: the caches of LimitRanges and RuntimeClasses. The API server adds what they say
 * to a new pod, so a job's podspec is computed with them. Where RBAC forbids to list them they are
 * ignored; a job with a runtimeClassName is then tried like other jobs that cannot be judged.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "operator/driver/driver_private.h"

/* The LimitRanges of one namespace. */
struct sum {
    const char *namespace;
    struct limitrange limits;
    int n;
    int rc; /* of the first failure */
};

static void add_limits(void *arg, const char *key, const void *item)
{
    struct sum *s = arg;
    size_t len = strlen(s->namespace);
    if (strncmp(key, s->namespace, len) != 0 || key[len] != '/')
        return;
    s->n++;
    if (s->rc == 0)
        s->rc = limitrange_merge(&s->limits, item, NULL);
}

static void compute(struct driver *d, struct job_item *item)
{
    struct hvdjob *job = &item->job;
    struct sum s = {.namespace = job->namespace_};
    struct podspec_defaults defaults = {.limits = NULL};
    struct err err = {0};
    if (d->limits)
        informer_each(d->limits, add_limits, &s);
    if (d->classes && job->podspec.runtime_class)
        defaults.runtime = informer_get(d->classes, job->podspec.runtime_class);
    if (s.n > 0)
        defaults.limits = &s.limits;
    int rc = s.rc;
    if (rc == 0 && (item->defaults || s.n > 0 || defaults.runtime))
        rc = hvdjob_set_defaults(job, &defaults, &err);
    item->defaults = s.n > 0 || defaults.runtime;
    limitrange_fini(&s.limits);
    if (rc == 0)
        return;
    log_warn("job %s/%s: what LimitRanges and the RuntimeClass add to its pods is not known: %s",
             job->namespace_, job->name, rc == -ENOMEM ? "no memory" : err_text(&err));
    if (!job->podspec.unjudged)
        job->podspec.unjudged = "LimitRange";
}

void driver_set_defaults(struct driver *d, struct job_item *item)
{
    if (!item->job.refused)
        compute(d, item);
}

/* Computes all jobs of the namespace again; NULL: of all namespaces. */
static void compute_jobs(struct driver *d, const char *namespace)
{
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        if (e->job && (!namespace || strcmp(e->job->job.namespace_, namespace) == 0))
            driver_set_defaults(d, e->job);
    d->queue_dirty = true;
    driver_wake(d);
}

/* ---- the caches ------------------------------------------------------------------------------ */

static int parse_range(void *arg, json_t *object, void **ret, struct err *err)
{
    struct limitrange *limits = calloc(1, sizeof(*limits));
    (void)arg;
    if (!limits)
        return err_set(err, ENOMEM, "no memory for a LimitRange");
    int rc = limitrange_parse(object, limits, err);
    if (rc < 0)
        free(limits);
    else
        *ret = limits;
    return rc;
}

static void destroy_limits(void *item)
{
    limitrange_fini(item);
    free(item);
}

static int parse_class(void *arg, json_t *object, void **ret, struct err *err)
{
    struct runtime *runtime = calloc(1, sizeof(*runtime));
    (void)arg;
    if (!runtime)
        return err_set(err, ENOMEM, "no memory for a RuntimeClass");
    int rc = runtime_parse(object, runtime, err);
    if (rc < 0)
        free(runtime);
    else
        *ret = runtime;
    return rc;
}

static void destroy_class(void *item)
{
    runtime_fini(item);
    free(item);
}

static void on_limits(void *arg, const char *key, const void *before, const void *after)
{
    char namespace[64];
    (void)before, (void)after;
    snprintf(namespace, sizeof(namespace), "%.*s", (int)strcspn(key, "/"), key);
    compute_jobs(arg, namespace);
}

static void on_class(void *arg, const char *key, const void *before, const void *after)
{
    (void)key, (void)before, (void)after;
    compute_jobs(arg, NULL);
}

int driver_defaults_open(struct driver *d, struct err *err)
{
    struct informer_config base = {.api = d->config.api,
                                   .namespace = d->config.namespace,
                                   .synced = driver_on_synced,
                                   .arg = d};
    struct informer_config limits = base, classes = base;
    limits.resource = (struct resource){"", "v1", "limitranges"};
    limits.parse = parse_range, limits.destroy = destroy_limits, limits.changed = on_limits;
    classes.resource = (struct resource){"node.k8s.io", "v1", "runtimeclasses"};
    classes.parse = parse_class, classes.destroy = destroy_class, classes.changed = on_class;
    int rc = informer_open(&d->limits, &limits, err);
    return rc < 0 || d->config.namespace ? rc : informer_open(&d->classes, &classes, err);
}

void driver_defaults_close(struct driver *d)
{
    informer_close(d->classes);
    informer_close(d->limits);
}
