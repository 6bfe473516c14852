/* SPDX-License-Identifier: Apache-2.0
 *
 * job_findings: see job_findings.h.
 */
#include "operator/objects/job_findings.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/parts.h"

/* ---- the list -------------------------------------------------------------------------------- */

void job_findings_fini(struct job_findings *f)
{
    free(f->list);
    *f = (struct job_findings){0};
}

int job_findings_copy(const struct job_findings *f, struct job_findings *ret, struct err *err)
{
    struct job_findings copy = {.n = f->n, .cap = f->n, .more = f->more};
    if (f->n > 0) {
        copy.list = malloc((size_t)f->n * sizeof(*copy.list));
        if (!copy.list)
            return err_set(err, ENOMEM, "no memory for findings");
        memcpy(copy.list, f->list, (size_t)f->n * sizeof(*copy.list));
    }
    *ret = copy;
    return 0;
}

static struct job_finding *find(const struct job_findings *f, const struct job_finding *one)
{
    for (int i = 0; i < f->n; i++)
        if (f->list[i].failure == one->failure && strcmp(f->list[i].id, one->id) == 0 &&
            strcmp(f->list[i].source, one->source) == 0)
            return &f->list[i];
    return NULL;
}

static struct job_finding *append(struct job_findings *f, const struct job_finding *one)
{
    if (f->n == f->cap) {
        int cap = f->cap ? 2 * f->cap : JOB_FINDINGS_MAX;
        struct job_finding *grown = realloc(f->list, (size_t)cap * sizeof(*grown));
        if (!grown)
            return NULL;
        f->list = grown;
        f->cap = cap;
    }
    f->list[f->n] = *one;
    return &f->list[f->n++];
}

int job_findings_add(struct job_findings *f, const struct job_finding *one)
{
    struct job_finding *at = find(f, one);
    if (!at) {
        at = append(f, one);
        if (!at)
            return -ENOMEM;
        at->npods = 1;
        return 0;
    }
    if (at->npods < JOB_FINDINGS_PODS)
        memcpy(at->pods[at->npods], one->pods[0], sizeof(one->pods[0]));
    at->npods++;
    return 0;
}

static int by_weight(const void *a, const void *b)
{
    const struct job_finding *x = a, *y = b;
    if (x->failure != y->failure)
        return y->failure - x->failure;
    if (x->npods != y->npods)
        return y->npods - x->npods;
    return strcmp(x->id, y->id);
}

void job_findings_keep_worst(struct job_findings *f)
{
    if (f->n > 1)
        qsort(f->list, (size_t)f->n, sizeof(*f->list), by_weight);
    f->more = f->n > JOB_FINDINGS_MAX ? f->n - JOB_FINDINGS_MAX : 0;
    f->n -= f->more;
}

const struct job_finding *job_findings_failure(const struct job_findings *f)
{
    for (int i = 0; i < f->n; i++)
        if (f->list[i].failure && strcmp(f->list[i].source, "preflight") == 0)
            return &f->list[i];
    return NULL;
}

void job_finding_say(const struct job_finding *f, char *dst, size_t size)
{
    snprintf(dst, size, "%s (%s)%s%s", f->summary, f->id, f->fix[0] ? "; fix: " : "", f->fix);
}

/* ---- in a status ----------------------------------------------------------------------------- */

static void read_one(json_t *j, struct job_finding *ret)
{
    json_t *pods = json_object_get(j, "pods");
    json_int_t n = json_integer_value(json_object_get(j, "podCount"));
    char status[8];
    *ret = (struct job_finding){.npods = n < 1 ? 1 : n > INT32_MAX ? INT32_MAX : (int)n};
    parts_copy(j, "status", status, sizeof(status));
    ret->failure = strcmp(status, "fail") == 0;
    parts_copy(j, "id", ret->id, sizeof(ret->id));
    parts_copy(j, "code", ret->code, sizeof(ret->code));
    parts_copy(j, "source", ret->source, sizeof(ret->source));
    parts_copy(j, "summary", ret->summary, sizeof(ret->summary));
    parts_copy(j, "fix", ret->fix, sizeof(ret->fix));
    for (size_t i = 0; i < JOB_FINDINGS_PODS; i++) {
        const char *pod = json_string_value(json_array_get(pods, i));
        snprintf(ret->pods[i], sizeof(ret->pods[i]), "%s", pod ? pod : "");
    }
}

int job_findings_parse(json_t *list, struct job_findings *ret, struct err *err)
{
    struct job_findings f = {0};
    for (size_t i = 0; i < json_array_size(list) && i < JOB_FINDINGS_MAX; i++) {
        struct job_finding one;
        json_t *j = json_array_get(list, i);
        if (!json_is_object(j))
            continue;
        read_one(j, &one);
        if (!append(&f, &one)) {
            job_findings_fini(&f);
            return err_set(err, ENOMEM, "no memory for findings");
        }
    }
    *ret = f;
    return 0;
}

static json_t *write_one(const struct job_finding *f)
{
    json_t *pods = json_array();
    for (int i = 0; i < f->npods && i < JOB_FINDINGS_PODS && f->pods[i][0]; i++)
        json_append(&pods, json_lossy_text(f->pods[i]));
    json_t *j = json_pack("{s:s, s:o, s:o, s:o, s:o, s:i, s:o}", "status",
                          f->failure ? "fail" : "warn", "id", json_lossy_text(f->id), "code",
                          json_lossy_text(f->code), "source", json_lossy_text(f->source), "summary",
                          json_lossy_text(f->summary), "podCount", f->npods, "pods", pods);
    if (f->fix[0])
        json_put(&j, "fix", json_lossy_text(f->fix));
    return j;
}

json_t *job_findings_write(const struct job_findings *f)
{
    json_t *list = json_array();
    for (int i = 0; i < f->n; i++)
        json_append(&list, write_one(&f->list[i]));
    return list;
}
