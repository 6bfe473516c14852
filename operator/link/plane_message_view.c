/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_message_view: one job in detail as a message. See plane_message.h.
 */
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/link/plane_message.h"

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *write_finding(const struct plane_finding *one)
{
    const struct finding *f = &one->finding;
    json_t *j = json_pack("{s:s}", "status", finding_status_name(f->status));
    json_put(&j, "pod", json_lossy_text(one->pod));
    json_put(&j, "source", json_lossy_text(f->source));
    json_put(&j, "id", json_lossy_text(f->id));
    json_put(&j, "code", json_lossy_text(f->code));
    json_put(&j, "summary", json_lossy_text(f->summary));
    json_put(&j, "fix", json_lossy_text(f->fix));
    return j;
}

static void write_sets(const struct plane_worker *w, json_t **j)
{
    json_put(j, "descriptors", json_integer((json_int_t)w->descriptors));
    json_put(j, "descriptorsMax", json_integer((json_int_t)w->descriptors_max));
    json_put(j, "segments", json_integer((json_int_t)w->segments));
    json_put(j, "memoryLeft", json_integer((json_int_t)w->memory_left));
    json_put(j, "memoryLimit", json_integer((json_int_t)w->memory_limit));
    json_put(j, "communicators", json_integer((json_int_t)w->communicators));
    json_put(j, "gpuMemoryLeft", json_integer((json_int_t)w->gpu_memory_left));
    json_put(j, "gpuMemory", json_integer((json_int_t)w->gpu_memory));
    json_put(j, "broken", json_integer((json_int_t)w->broken));
    json_put(j, "brokenSince", json_integer(w->broken_since));
    json_put(j, "brokenSet", json_lossy_text(w->broken_set));
}

json_t *plane_write_view(const struct plane_view *v)
{
    json_t *workers = json_array(), *epochs = json_array(), *findings = json_array();
    for (int i = 0; i < v->nworkers; i++) {
        const struct plane_worker *w = &v->workers[i];
        json_t *j = json_pack("{s:s, s:b, s:s, s:s, s:I, s:I, s:I}", "pod", w->pod_uid, "connected",
                              w->connected, "state", w->state, "ranks", w->ranks, "batches",
                              (json_int_t)w->batches, "idleMs", (json_int_t)w->idle_ms, "sets",
                              (json_int_t)w->sets);
        if (w->sets > 0)
            write_sets(w, &j);
        json_append(&workers, j);
    }
    for (int i = 0; i < v->nepochs; i++) {
        const struct plane_epoch *e = &v->epochs[i];
        json_append(&epochs, json_pack("{s:i, s:I, s:i, s:b, s:b, s:f, s:f, s:o}", "number",
                                       (int)e->number, "at", (json_int_t)e->unix_ms, "size",
                                       e->size, "first", e->first, "lost", e->lost, "ms", e->ms,
                                       "cost", e->cost, "cause", json_lossy_text(e->cause)));
    }
    for (int i = 0; i < v->nfindings; i++)
        json_append(&findings, write_finding(&v->findings[i]));
    json_t *facts = plane_write_facts(v->uid, &v->facts, &(const struct job_findings){0});
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "type", "view", "job", v->uid, "facts",
                     facts, "workers", workers, "epochs", epochs, "findings", findings);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_worker(json_t *j, struct plane_worker *ret, struct err *err)
{
    const char *pod, *state, *ranks, *set = "";
    json_int_t batches, idle, sets = 0, open = 0, most = 0;
    json_int_t segments = 0, left = 0, limit = 0, broken = 0, since = 0;
    json_int_t communicators = 0, gpu_left = 0, gpu = 0;
    int connected;
    int rc = json_expect(j, "a worker of a view", err,
                         "{s:s, s:b, s:s, s:s, s:I, s:I, s?I, s?I, s?I, s?I, s?I, s?I, s?I, s?I, "
                         "s?I, s?I, s?I, s?s !}",
                         "pod", &pod, "connected", &connected, "state", &state, "ranks", &ranks,
                         "batches", &batches, "idleMs", &idle, "sets", &sets, "descriptors", &open,
                         "descriptorsMax", &most, "segments", &segments, "memoryLeft", &left,
                         "memoryLimit", &limit, "communicators", &communicators, "gpuMemoryLeft",
                         &gpu_left, "gpuMemory", &gpu, "broken", &broken, "brokenSince", &since,
                         "brokenSet", &set);
    rc = rc < 0 ? rc : plane_copy_text("pod", pod, ret->pod_uid, sizeof(ret->pod_uid), err);
    rc = rc < 0 ? rc : plane_copy_text("state", state, ret->state, sizeof(ret->state), err);
    rc = rc < 0 ? rc : plane_copy_text("ranks", ranks, ret->ranks, sizeof(ret->ranks), err);
    rc = rc < 0 ? rc
                : plane_copy_text("brokenSet", set, ret->broken_set, sizeof(ret->broken_set), err);
    if (rc < 0)
        return rc;
    ret->connected = connected;
    ret->batches = (uint64_t)batches;
    ret->idle_ms = idle;
    ret->sets = (uint64_t)sets;
    ret->descriptors = (uint64_t)open;
    ret->descriptors_max = (uint64_t)most;
    ret->segments = (uint64_t)segments;
    ret->memory_left = (uint64_t)left;
    ret->memory_limit = (uint64_t)limit;
    ret->communicators = (uint64_t)communicators;
    ret->gpu_memory_left = (uint64_t)gpu_left;
    ret->gpu_memory = (uint64_t)gpu;
    ret->broken = (uint64_t)broken;
    ret->broken_since = since;
    return 0;
}

static int read_epoch(json_t *j, struct plane_epoch *ret, struct err *err)
{
    const char *cause;
    json_int_t at;
    int number, first, lost;
    int rc = json_expect(j, "an epoch of a view", err, "{s:i, s:I, s:i, s:b, s:b, s:F, s:F, s:s !}",
                         "number", &number, "at", &at, "size", &ret->size, "first", &first, "lost",
                         &lost, "ms", &ret->ms, "cost", &ret->cost, "cause", &cause);
    rc = rc < 0 ? rc : plane_copy_text("cause", cause, ret->cause, sizeof(ret->cause), err);
    if (rc < 0)
        return rc;
    ret->number = (uint32_t)number;
    ret->unix_ms = at;
    ret->first = first;
    ret->lost = lost;
    return 0;
}

static int read_finding(json_t *j, struct plane_finding *ret, struct err *err)
{
    const char *status, *texts[6];
    struct finding *f = &ret->finding;
    const struct {
        char *to;
        size_t size;
    } copies[] = {{ret->pod, sizeof(ret->pod)},     {f->source, sizeof(f->source)},
                  {f->id, sizeof(f->id)},           {f->code, sizeof(f->code)},
                  {f->summary, sizeof(f->summary)}, {f->fix, sizeof(f->fix)}};
    int rc = json_expect(j, "a finding of a view", err, "{s:s, s:s, s:s, s:s, s:s, s:s, s:s !}",
                         "status", &status, "pod", &texts[0], "source", &texts[1], "id", &texts[2],
                         "code", &texts[3], "summary", &texts[4], "fix", &texts[5]);
    for (size_t i = 0; rc == 0 && i < sizeof(copies) / sizeof(copies[0]); i++)
        rc = plane_copy_text("a finding", texts[i], copies[i].to, copies[i].size, err);
    if (rc == 0)
        f->status =
            strcmp(status, finding_status_name(FINDING_FAIL)) == 0 ? FINDING_FAIL : FINDING_WARN;
    return rc;
}

/* Returns the number of entries; -EINVAL. */
static int count(json_t *list, const char *what, size_t max, struct err *err)
{
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > max)
        return err_set(err, EINVAL, "view: %zu %s, at most %zu", n, what, max);
    return (int)n;
}

static int read_lists(json_t *workers, json_t *epochs, json_t *findings, struct plane_view *v,
                      struct err *err)
{
    int rc = 0;
    v->workers = calloc((size_t)v->nworkers + 1, sizeof(*v->workers));
    v->epochs = calloc((size_t)v->nepochs + 1, sizeof(*v->epochs));
    v->findings = calloc((size_t)v->nfindings + 1, sizeof(*v->findings));
    if (!v->workers || !v->epochs || !v->findings)
        return err_set(err, ENOMEM, "no memory for a view");
    for (int i = 0; rc == 0 && i < v->nworkers; i++)
        rc = read_worker(json_array_get(workers, (size_t)i), &v->workers[i], err);
    for (int i = 0; rc == 0 && i < v->nepochs; i++)
        rc = read_epoch(json_array_get(epochs, (size_t)i), &v->epochs[i], err);
    for (int i = 0; rc == 0 && i < v->nfindings; i++)
        rc = read_finding(json_array_get(findings, (size_t)i), &v->findings[i], err);
    return rc;
}

int plane_read_view(json_t *message, struct plane_view *ret, struct err *err)
{
    struct plane_view v = {0};
    json_t *facts = NULL, *workers = NULL, *epochs = NULL, *findings = NULL;
    const char *type, *job;
    int rc = json_expect(message, "view", err, "{s:s, s:s, s:o, s:o, s:o, s:o !}", "type", &type,
                         "job", &job, "facts", &facts, "workers", &workers, "epochs", &epochs,
                         "findings", &findings);
    rc = rc < 0 ? rc : plane_read_facts(facts, &v.facts, NULL, err);
    rc = rc < 0 ? rc : plane_copy_text("view", job, v.uid, sizeof(v.uid), err);
    rc = rc < 0 ? rc : (v.nworkers = count(workers, "workers", PLANE_WORKERS_MAX, err));
    rc = rc < 0 ? rc : (v.nepochs = count(epochs, "epochs", PLANE_EPOCHS_MAX, err));
    rc = rc < 0 ? rc : (v.nfindings = count(findings, "findings", PLANE_FINDINGS_MAX, err));
    rc = rc < 0 ? rc : read_lists(workers, epochs, findings, &v, err);
    if (rc < 0) {
        plane_view_fini(&v);
        return rc;
    }
    *ret = v;
    return 0;
}

void plane_view_fini(struct plane_view *v)
{
    free(v->workers);
    free(v->epochs);
    free(v->findings);
    *v = (struct plane_view){0};
}
