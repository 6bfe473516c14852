/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_caches: opens the informers of jobs, their pods, budgets and PodGroups, and handles their
 * events: enqueues jobs, counts what pods use on each node, and marks the queue dirty.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/utf8.h"
#include "core/base/words.h"
#include "operator/driver/driver_private.h"
#include "operator/objects/moment.h"

void driver_on_synced(void *arg)
{
    struct driver *d = arg;
    d->queue_dirty = true;
    driver_enqueue_all(d);
}

/* "namespace/name", split. */
struct key {
    char namespace[64];
    const char *name;
};

static struct key split(const char *key)
{
    struct key p = {.name = key};
    const char *slash = strchr(key, '/');
    if (slash) {
        snprintf(p.namespace, sizeof(p.namespace), "%.*s", (int)(slash - key), key);
        p.name = slash + 1;
    }
    return p;
}

/* An operator that does not lead has no ticks, which free entries without a job. */
static void changed(struct driver *d, struct entry *e)
{
    driver_enqueue(d, e);
    if (!d->leading)
        entries_drop(&d->entries, e);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static int parse_job(void *arg, json_t *object, void **ret, struct err *err)
{
    struct job_item *item;
    (void)arg;
    int rc = items_job(object, &item, err);
    if (rc == 0)
        *ret = item;
    return rc;
}

static void destroy_job(void *item)
{
    items_job_unref(item);
}

#define LOGGED 200 /* bytes of a job's message in the log */

/* The beginning of a message without control characters: tenants write parts of it. */
static void cut(const char *text, char dst[LOGGED + 1])
{
    size_t n = strlen(text);
    for (n = n < LOGGED ? n : LOGGED; n > 0 && utf8_inside((unsigned char)text[n]); n--)
        ;
    for (size_t i = 0; i < n; i++)
        dst[i] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? ' ' : text[i];
    dst[n] = '\0';
}

static void log_change(const char *key, const struct hvdjob_status *was,
                       const struct hvdjob_status *is)
{
    const struct condition *valid = &is->conditions[CONDITION_VALID];
    const struct condition *before = &was->conditions[CONDITION_VALID];
    char text[LOGGED + 1];
    cut(words(is->message), text);
    if (is->phase != was->phase)
        log_info("job %s: %s -> %s: %s", key, job_phase_name(was->phase), job_phase_name(is->phase),
                 text);
    cut(words(valid->message), text);
    if (valid->status == CONDITION_FALSE &&
        (before->status != CONDITION_FALSE || strcmp(before->reason, valid->reason) != 0))
        log_info("job %s: %s: %s", key, valid->reason, text);
}

static bool is_starting(const struct job_item *job)
{
    return job && job->job.status.phase == JOB_STARTING;
}

static void on_job(void *arg, const char *key, const void *before, const void *after)
{
    struct driver *d = arg;
    struct job_item *was = (struct job_item *)before, *is = (struct job_item *)after;
    struct key at = split(key);
    struct entry *e = entries_make(&d->entries, at.namespace, at.name);
    d->starting += is_starting(is) - is_starting(was);
    if (!e) {
        log_warn("no memory for job %s: it is not reconciled before its next change", key);
        return;
    }
    if (!is || !was) { /* the job is new or was deleted: forget what belongs to an older job of this
                          name */
        expectations_fini(&e->expectations);
        e->admitted = false;
        e->stale = true;
        e->status_written = e->texts_since = e->claimed = MOMENT_NONE;
        entry_forget_admission(e);
        entry_forget_budget(e);
    }
    if (e->stale) { /* this is the newer version that the failed write met */
        e->stale = false;
        e->failures = 0;
        e->not_before = 0;
    }
    e->job = is;
    if (is && is->job.status.admitted != MOMENT_NONE)
        driver_note_served(d, is->job.namespace_, is->job.status.admitted);
    entry_forget_gang(e);
    if (is && was && d->leading) {
        driver_note_change(d, &was->job.status, &is->job.status);
        log_change(key, &was->job.status, &is->job.status);
    }
    if (is && is->job.status.phase != e->phase) {
        /* When a job comes back to the queue its dry run is repeated: what the API server admits
         * may have changed. */
        if (is->job.status.phase == JOB_QUEUED && e->phase != JOB_NEW)
            driver_forget_dry_run(d, e);
        e->phase = is->job.status.phase;
        if (!job_phase_unplaced(e->phase))
            e->claimed = MOMENT_NONE;
        entry_forget_admission(e);
    }
    d->queue_dirty = true;
    driver_notify_job(d, e, was);
    changed(d, e);
}

/* ---- pods of jobs ---------------------------------------------------------------------------- */

static int parse_pod(void *arg, json_t *object, void **ret, struct err *err)
{
    struct pod_item *item;
    (void)arg;
    int rc = items_pod(object, &item, err);
    if (rc == 0)
        *ret = item;
    return rc;
}

static void destroy_pod(void *item)
{
    items_pod_destroy(item);
}

/* Counts what the pod takes from its node. key: its name for messages. */
static void count_usage(struct driver *d, const char *key, const struct pod_item *was,
                        const struct pod_item *is)
{
    bool same = was && is && usage_pod_counts(was->use) == usage_pod_counts(is->use) &&
                usage_pod_same(was->use, is->use);
    usage_remove(&d->usage, was ? was->use : NULL);
    if (is && usage_add(&d->usage, is->use, key) < 0)
        log_warn("no memory: the requests of pod %s are not counted, gangs may be admitted that do "
                 "not fit",
                 key);
    /* Free resources have changed, or a gate was removed. */
    if (!same || was->pod.leaves_by != is->pod.leaves_by || was->pod.gated != is->pod.gated ||
        was->pod.phase != is->pod.phase)
        d->queue_dirty = true;
}

static void remove_pod(struct driver *d, const char *namespace, const struct pod_item *p)
{
    struct entry *e = entries_find(&d->entries, namespace, p->pod.job);
    if (!e)
        return;
    entry_remove_pod(e, p);
    driver_notify_pod(d, e, p, true);
    changed(d, e);
}

void driver_note_pod(struct driver *d, const char *key, const struct pod_item *was,
                     struct pod_item *is)
{
    struct key at = split(key);
    struct entry *had = was ? entries_find(&d->entries, at.namespace, was->pod.job) : NULL;
    if (had)
        driver_note_move(d, had, &was->pod, is ? &is->pod : NULL);
    if (was && (!is || strcmp(was->pod.job, is->pod.job) != 0)) {
        remove_pod(d, at.namespace, was);
        was = NULL;
    }
    if (!is)
        return;
    struct entry *e = entries_make(&d->entries, at.namespace, is->pod.job);
    if (!e) {
        log_warn("no memory for pod %s: this event of the pod does not start a reconciliation of "
                 "its job",
                 key);
        return;
    }
    if (was)
        entry_replace_pod(e, was, is);
    else if (entry_add_pod(e, is) < 0)
        log_warn("no memory for pod %s: its job is reconciled without it", key);
    driver_notify_pod(d, e, is, false);
    driver_enqueue(d, e);
}

static void on_pod(void *arg, const char *key, const void *before, const void *after)
{
    count_usage(arg, key, before, after);
    driver_note_pod(arg, key, before, (struct pod_item *)after);
}

const struct pod_item *driver_pod(const struct driver *d, const struct entry *e, const char *name)
{
    char key[512];
    snprintf(key, sizeof(key), "%.*s/%s", (int)strcspn(e->key, "/"), e->key, name);
    const struct pod_item *p = informer_get(d->pods, key);
    const struct other_item *other = p || !d->others ? NULL : informer_get(d->others, key);
    return other ? other->worker : p;
}

/* ---- ResourceQuotas -------------------------------------------------------------------------- */

static int parse_quota(void *arg, json_t *object, void **ret, struct err *err)
{
    struct quota *quota = calloc(1, sizeof(*quota));
    (void)arg;
    if (!quota)
        return err_set(err, ENOMEM, "no memory for a quota");
    int rc = quota_parse(object, quota, err);
    if (rc < 0)
        free(quota);
    else
        *ret = quota;
    return rc;
}

static void destroy_quota(void *item)
{
    quota_fini(item);
    free(item);
}

static void on_quota(void *arg, const char *key, const void *before, const void *after)
{
    struct driver *d = arg;
    (void)key;
    if (before && quota_gives(before, after))
        driver_note_quota(d, ((const struct quota *)before)->namespace);
    d->queue_dirty = true;
    driver_wake(d);
}

/* ---- PodDisruptionBudgets -------------------------------------------------------------------- */

static int parse_budget(void *arg, json_t *object, void **ret, struct err *err)
{
    struct budget_item *item;
    (void)arg;
    int rc = items_budget(object, &item, err);
    if (rc == 0)
        *ret = item;
    return rc;
}

static void destroy_budget(void *item)
{
    items_budget_destroy(item);
}

static void on_budget(void *arg, const char *key, const void *before, const void *after)
{
    struct driver *d = arg;
    struct key at = split(key);
    struct entry *e = entries_find(&d->entries, at.namespace, at.name);
    (void)before;
    if (!e)
        return;
    if (!after)
        e->budget_at = 0; /* the budget was deleted: create it again at once */
    driver_enqueue(d, e);
}

/* ---- PodGroups ------------------------------------------------------------------------------- */

static int parse_group(void *arg, json_t *object, void **ret, struct err *err)
{
    struct group_cache *g = arg;
    struct group_item *item;
    int rc = items_group(g->ops, object, &item, err);
    if (rc == 0)
        *ret = item;
    return rc;
}

static void destroy_group(void *item)
{
    items_group_destroy(item);
}

static void on_group(void *arg, const char *key, const void *before, const void *after)
{
    struct group_cache *g = arg;
    struct key at = split(key);
    struct entry *e = entries_find(&g->d->entries, at.namespace, at.name);
    (void)before;
    if (!e)
        return;
    if (!after)
        e->group_made[0] = '\0';
    driver_enqueue(g->d, e);
}

static void on_groups_synced(void *arg)
{
    struct group_cache *g = arg;
    driver_on_synced(g->d);
}

struct group_cache *driver_groups(struct driver *d, struct entry *e)
{
    char group[64];
    struct group_cache *g = d->groups, *end = d->groups + GROUP_CACHES;
    if (!e->gang || !e->gang->group)
        return NULL;
    while (g < end && g->ops && (g->ops != e->gang || strcmp(g->api, e->gang_api) != 0))
        g++;
    if (g == end || g->ops)
        return g == end ? NULL : g;
    snprintf(group, sizeof(group), "%s", e->gang_api);
    char *slash = strchr(group, '/');
    if (slash)
        *slash++ = '\0';
    struct err err = {0};
    struct informer_config config = {.api = d->config.api,
                                     .resource = {group, slash ? slash : "", "podgroups"},
                                     .namespace = d->config.namespace,
                                     .labels = POD_LABEL_JOB,
                                     .parse = parse_group,
                                     .destroy = destroy_group,
                                     .changed = on_group,
                                     .synced = on_groups_synced,
                                     .arg = g};
    g->d = d;
    g->ops = e->gang;
    memcpy(g->api, e->gang_api, sizeof(g->api));
    if (informer_open(&g->informer, &config, &err) < 0) {
        log_warn("the cache of PodGroups did not open, jobs with this back end wait: %s",
                 err_text(&err));
        g->ops = NULL;
        return NULL;
    }
    return g;
}

/* ---- life ------------------------------------------------------------------------------------ */

int driver_caches_open(struct driver *d, struct err *err)
{
    struct informer_config base = {.api = d->config.api,
                                   .namespace = d->config.namespace,
                                   .synced = driver_on_synced,
                                   .arg = d};
    struct informer_config jobs = base, pods = base, budgets = base, quotas = base;
    jobs.resource = (struct resource){"hvd.dev", "v1alpha1", "hvdjobs"};
    jobs.parse = parse_job, jobs.destroy = destroy_job, jobs.changed = on_job;
    pods.resource = (struct resource){"", "v1", "pods"};
    pods.labels = POD_LABEL_JOB;
    pods.parse = parse_pod, pods.destroy = destroy_pod, pods.changed = on_pod;
    budgets.resource = (struct resource){"policy", "v1", "poddisruptionbudgets"};
    budgets.labels = POD_LABEL_JOB;
    budgets.parse = parse_budget, budgets.destroy = destroy_budget, budgets.changed = on_budget;
    quotas.resource = (struct resource){"", "v1", "resourcequotas"};
    quotas.parse = parse_quota, quotas.destroy = destroy_quota, quotas.changed = on_quota;
    int rc = informer_open(&d->jobs, &jobs, err);
    rc = rc < 0 ? rc : informer_open(&d->pods, &pods, err);
    rc = rc < 0 ? rc : informer_open(&d->budgets, &budgets, err);
    rc = rc < 0 ? rc : informer_open(&d->quotas, &quotas, err);
    return rc < 0 ? rc : driver_nodes_open(d, err);
}

void driver_caches_close(struct driver *d)
{
    for (int i = 0; i < GROUP_CACHES; i++)
        informer_close(d->groups[i].informer);
    driver_nodes_close(d);
    informer_close(d->quotas);
    informer_close(d->budgets);
    informer_close(d->pods);
    informer_close(d->jobs);
}
