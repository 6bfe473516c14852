/* SPDX-License-Identifier: Apache-2.0
 *
 * hvdjob: see hvdjob.h. The CRD's schema refuses most of what is refused here, but the API server
 * does not apply it to objects that are older than the schema.
 */
#include "operator/objects/hvdjob.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/words.h"
#include "core/json/json.h"
#include "operator/objects/failure_policy.h"
#include "operator/objects/moment.h"
#include "operator/objects/parts.h"
#include "operator/objects/sanitize.h"
#include "operator/objects/template.h"

#define SECONDS_MAX 31536000 /* a year */

void hvdjob_fini(struct hvdjob *job)
{
    free(job->namespace_);
    free(job->name);
    free(job->version);
    free(job->template_text);
    free(job->refused);
    json_decref(job->failure_rules);
    podspec_fini(&job->podspec);
    hvdjob_status_fini(&job->status);
    *job = (struct hvdjob){0};
}

/* ---- fields ---------------------------------------------------------------------------------
 * The first invalid field sets err; the functions do nothing once err is set. */

static bool absent(json_t *j)
{
    return !j || json_is_null(j);
}

static void take_int(json_t *map, const char *field, const char *key, int least, int most, int *ret,
                     struct err *err)
{
    json_t *j = json_object_get(map, key);
    if (err->code || absent(j))
        return;
    json_int_t n = json_integer_value(j);
    if (!json_is_integer(j) || n < least || n > most)
        err_set(err, EINVAL, "%s%s: want an integer from %d to %d", field, key, least, most);
    else
        *ret = (int)n;
}

static void take_bool(json_t *map, const char *field, const char *key, bool *ret, struct err *err)
{
    json_t *j = json_object_get(map, key);
    if (err->code || absent(j))
        return;
    if (!json_is_boolean(j))
        err_set(err, EINVAL, "%s%s: want true or false", field, key);
    else
        *ret = json_is_true(j);
}

/* Sets *ret to the index of the field's value in words, which ends with NULL. */
static void take_word(json_t *map, const char *field, const char *key, const char *const *words,
                      int *ret, struct err *err)
{
    json_t *j = json_object_get(map, key);
    char all[128] = "";
    size_t n = 0;
    if (err->code || absent(j))
        return;
    for (int i = 0; words[i]; i++) {
        if (json_is_string(j) && strcmp(json_string_value(j), words[i]) == 0) {
            *ret = i;
            return;
        }
        n += (size_t)snprintf(all + n, sizeof(all) - n, " %s", words[i]);
    }
    err_set(err, EINVAL, "%s%s: want one of%s", field, key, all);
}

static json_t *take_map(json_t *map, const char *key, struct err *err)
{
    json_t *j = json_object_get(map, key);
    if (!err->code && !absent(j) && !json_is_object(j))
        err_set(err, EINVAL, "spec.%s: want a mapping", key);
    return j;
}

/* Takes one size, also if another one is invalid; *all keeps the first error. */
static void take_size(json_t *spec, const char *key, int most, int *ret, struct err *all)
{
    struct err err = {0};
    take_int(spec, "spec.", key, 1, most, ret, &err);
    if (!all->code)
        *all = err;
}

static void take_sizes(struct hvdjob *job, json_t *spec, struct err *err)
{
    int workers = 0, min = 0, max = 0;
    job->slots = 1;
    take_size(spec, "workers", HVDJOB_WORKERS_MAX, &workers, err);
    take_size(spec, "minWorkers", HVDJOB_WORKERS_MAX, &min, err);
    take_size(spec, "maxWorkers", HVDJOB_WORKERS_MAX, &max, err);
    take_size(spec, "slotsPerWorker", 1024, &job->slots, err);
    job->elastic = !absent(json_object_get(spec, "minWorkers")) ||
                   !absent(json_object_get(spec, "maxWorkers"));
    job->says_workers = workers > 0;
    job->workers = workers ? workers : min ? min : 1;
    job->min = min ? min : job->workers;
    job->max = max ? max : job->workers;
    if (!err->code && job->workers < job->min)
        err_set(err, EINVAL, "spec.workers: %d is less than minWorkers %d", job->workers, job->min);
    else if (!err->code && job->workers > job->max)
        err_set(err, EINVAL, "spec.workers: %d is more than maxWorkers %d", job->workers, job->max);
    job->sized = !err->code;
    take_bool(spec, "spec.", "keepPlaces", &job->keep_places, err);
    if (!err->code && job->keep_places && !job->elastic)
        err_set(err, EINVAL, "spec.keepPlaces: it needs minWorkers or maxWorkers");
}

/* For a job whose sizes are invalid: as many workers as it has, so that those stay as they are. */
static void keep_sizes(struct hvdjob *job)
{
    job->workers = job->max = job->status.workers > 0 ? job->status.workers : 1;
    job->min = job->elastic ? 1 : job->workers;
}

/* Rules that are invalid are not kept. Called after the template, whose containers they name, was
 * checked. */
static void take_failure_policy(struct hvdjob *job, json_t *spec, bool accepted, struct err *err)
{
    json_t *policy = json_object_get(json_object_get(spec, "runPolicy"), "failurePolicy");
    json_t *pod = accepted ? NULL : json_object_get(json_object_get(spec, "template"), "spec");
    if (!err->code && !absent(policy) && failure_policy_check(policy, pod, err) == 0)
        job->failure_rules = json_incref(json_object_get(policy, "rules"));
}

static void take_policies(struct hvdjob *job, json_t *spec, struct err *err)
{
    static const char *const backends[] = {"auto",         "gates",   "native",
                                           "coscheduling", "volcano", NULL};
    static const char *const cleans[] = {"Running", "All", "None", NULL};
    static const char *const policies[] = {"warn", "fail", "off", NULL};
    json_t *gang = take_map(spec, "gang", err), *run = take_map(spec, "runPolicy", err);
    json_t *doctor = take_map(spec, "doctor", err);
    int backend = GANG_AUTO, clean = CLEAN_RUNNING, policy = 0, level = 1;
    job->gang_timeout = 300;
    job->probe = 600;
    job->ttl = job->deadline = -1;
    job->backoff_limit = 6;
    take_word(gang, "spec.gang.", "backend", backends, &backend, err);
    take_int(gang, "spec.gang.", "timeoutSeconds", 1, SECONDS_MAX, &job->gang_timeout, err);
    take_int(gang, "spec.gang.", "probeSeconds", 0, SECONDS_MAX, &job->probe, err);
    take_word(run, "spec.runPolicy.", "cleanPodPolicy", cleans, &clean, err);
    take_int(run, "spec.runPolicy.", "ttlSecondsAfterFinished", 0, SECONDS_MAX, &job->ttl, err);
    take_int(run, "spec.runPolicy.", "activeDeadlineSeconds", 1, SECONDS_MAX, &job->deadline, err);
    take_int(run, "spec.runPolicy.", "backoffLimit", 0, 1000000, &job->backoff_limit, err);
    take_bool(run, "spec.runPolicy.", "suspend", &job->suspend, err);
    take_word(doctor, "spec.doctor.", "policy", policies, &policy, err);
    take_int(doctor, "spec.doctor.", "level", 0, 2, &level, err);
    job->doctor = level == 0 ? "off" : policies[policy];
    job->doctor_level = level;
    job->backend = (enum gang_backend)backend;
    job->clean = (enum clean_policy)clean;
    const char *manager = json_string_value(json_object_get(run, "managedBy"));
    job->ours = !manager || !*manager || strcmp(manager, HVDJOB_MANAGER) == 0;
}

static void take_drain(struct hvdjob *job, json_t *spec, struct err *err)
{
    static const char *const policies[] = {"Wait", "Shrink", "Restart", "Block", NULL};
    int policy = DRAIN_WAIT;
    take_word(json_object_get(spec, "runPolicy"), "spec.runPolicy.", "drainPolicy", policies,
              &policy, err);
    job->drain = (enum drain_policy)policy;
}

/* ---- the template --------------------------------------------------------------------------- */

/* Pod names are made of the job's name, and are host names. */
static void check_name(const char *name, struct err *err)
{
    size_t n = strlen(name);
    if (!err->code && n > HVDJOB_NAME_MAX)
        err_set(
            err, EINVAL,
            "metadata.name: it has %zu characters, at most %d leave room for the workers' numbers "
            "in pod names",
            n, HVDJOB_NAME_MAX);
    if (!err->code && strchr(name, '.'))
        err_set(err, EINVAL, "metadata.name: it contains a dot, which a worker's host name cannot");
}

/* Namespace and labels of the job's pods: those that all of them have. */
static int take_labels(const struct hvdjob *job, json_t *template, struct podspec *spec)
{
    json_t *meta = json_object_get(template, "metadata");
    auto_json json_t *labels = json_deep_copy(json_object_get(meta, "labels"));
    if (!json_is_object(labels)) {
        json_decref(labels);
        labels = json_object();
    }
    spec->namespace_ = strdup(job->namespace_);
    bool ok = spec->namespace_ && labels && template_add_labels(labels, job->name);
    /* The API server refuses a pod with invalid labels: then they select nothing. */
    return !ok || labels_parse(labels, &spec->labels, NULL) == -ENOMEM ? -ENOMEM : 0;
}

static int parse_podspec(const struct hvdjob *job, json_t *template, struct podspec *ret,
                         struct err *err)
{
    struct podspec spec;
    int rc = podspec_parse(json_object_get(template, "spec"), &spec, err);
    if (rc < 0) {
        err_prefix(err, "spec.template.spec");
        return rc;
    }
    if (take_labels(job, template, &spec) < 0) {
        podspec_fini(&spec);
        return err_set(err, ENOMEM, "no memory");
    }
    *ret = spec;
    return 0;
}

static int take_template(struct hvdjob *job, json_t *spec, bool accepted, struct err *bad,
                         struct err *err)
{
    json_t *template = take_map(spec, "template", bad);
    if (!bad->code)
        template_check(template, bad);
    if (!bad->code && !accepted)
        template_check_new(template, bad);
    if (!bad->code)
        parse_podspec(job, template, &job->podspec, bad);
    if (bad->code == -ENOMEM)
        return err_set(err, ENOMEM, "no memory");
    auto_json json_t *shape = json_pack("[O?, i, i]", template, job->slots, (int)job->backend);
    /* Sorted, because the API server does not keep the order of keys. */
    auto_free char *text = shape ? json_dumps(shape, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    job->template_text = json_is_object(template) ? json_write(template) : strdup("{}");
    if (!text || !job->template_text)
        return err_set(err, ENOMEM, "no memory");
    snprintf(job->template_hash, sizeof(job->template_hash), "%016" PRIx64, hash_str(text));
    return 0;
}

/* Has an operator accepted this spec before? A later version may refuse more, but not the specs of
 * jobs that run. */
static bool is_accepted(json_t *object, json_int_t generation)
{
    json_t *conditions = json_object_get(json_object_get(object, "status"), "conditions");
    json_t *valid = parts_find(conditions, "type", condition_name(CONDITION_VALID));
    return conditions_true(conditions, condition_name(CONDITION_VALID)) &&
           json_integer_value(json_object_get(valid, "observedGeneration")) == generation;
}

static int take_spec(struct hvdjob *job, json_t *object, struct err *err)
{
    struct err bad = {0}, sizes = {0};
    bool accepted = is_accepted(object, job->generation);
    json_t *spec = json_object_get(object, "spec");
    if (sanitize_reason(object)) /* a value was replaced: pods would differ from the template */
        err_set(&bad, EINVAL, "the object contains %s, which this operator cannot read; remove it",
                sanitize_reason(object));
    check_name(job->name, &bad);
    if (!bad.code && !json_is_object(spec))
        err_set(&bad, EINVAL, "spec: missing");
    take_sizes(job, spec, &sizes);
    if (!bad.code)
        bad = sizes;
    take_policies(job, spec, &bad);
    take_drain(job, spec, &bad);
    int rc = take_template(job, spec, accepted, &bad, err);
    take_failure_policy(job, spec, accepted, &bad);
    if (rc == 0 && bad.code && words_set(&job->refused, err_text(&bad)) < 0)
        rc = err_set(err, ENOMEM, "no memory");
    return rc;
}

int hvdjob_parse(json_t *j, struct hvdjob *ret, struct err *err)
{
    struct hvdjob job = {0};
    const char *name, *uid, *namespace = "", *version = "", *created = "";
    json_t *deleted = NULL;
    json_int_t generation = 0;
    int rc = json_expect(j, "HvdJob", err, "{s:{s:s, s:s, s?s, s?s, s?s, s?o, s?I}}", "metadata",
                         "name", &name, "uid", &uid, "namespace", &namespace, "resourceVersion",
                         &version, "creationTimestamp", &created, "deletionTimestamp", &deleted,
                         "generation", &generation);
    if (rc < 0)
        return rc;
    if (!*name || !*uid)
        return err_set(err, EINVAL, "HvdJob: without a name or a uid");
    job.name = strdup(name);
    job.namespace_ = strdup(namespace);
    job.version = strdup(version);
    snprintf(job.uid, sizeof(job.uid), "%s", uid);
    moment_parse(created, &job.created);
    job.generation = generation;
    job.deleting = !absent(deleted);
    rc = job.name && job.namespace_ && job.version ? 0 : err_set(err, ENOMEM, "no memory");
    rc = rc < 0 ? rc : take_spec(&job, j, err);
    rc = rc < 0 ? rc : hvdjob_status_parse(json_object_get(j, "status"), &job.status, err);
    if (!job.sized)
        keep_sizes(&job);
    if (rc < 0) {
        hvdjob_fini(&job);
        return rc;
    }
    *ret = job;
    return 0;
}

bool hvdjob_template_changed(const struct hvdjob *job, const struct hvdjob_status *status)
{
    return status->template_hash[0] && strcmp(status->template_hash, job->template_hash) != 0;
}
