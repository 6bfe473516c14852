/* SPDX-License-Identifier: Apache-2.0
 *
 * findings: see findings.h.
 */
#include "core/member/findings.h"

#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"

static const char *const status_names[FINDING_STATUSES] = {
    [FINDING_WARN] = "warn",
    [FINDING_FAIL] = "fail",
};

const char *finding_status_name(enum finding_status status)
{
    return status_names[status];
}

/* ---- the list ------------------------------------------------------------------------------ */

int findings_add(struct findings *f, const struct finding *one)
{
    if (f->n >= FINDINGS_MAX)
        return -E2BIG;
    if (f->n == f->cap) {
        int cap = f->cap ? f->cap * 2 : 8;
        struct finding *grown = realloc(f->list, (size_t)cap * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        f->list = grown;
        f->cap = cap;
    }
    f->list[f->n++] = *one;
    return 0;
}

static int find(const struct findings *f, const struct finding *one)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->list[i].id, one->id) == 0 && strcmp(f->list[i].source, one->source) == 0)
            return i;
    return -1;
}

int findings_apply(struct findings *f, const struct finding *one)
{
    int at = find(f, one);
    if (one->cleared) {
        if (at >= 0)
            memmove(&f->list[at], &f->list[at + 1], (size_t)(--f->n - at) * sizeof(*f->list));
        return 0;
    }
    if (at < 0)
        return findings_add(f, one);
    /* The user sees a lasting condition once, and again when it got worse. */
    bool told = f->list[at].told && f->list[at].status >= one->status;
    f->list[at] = *one;
    f->list[at].told = told;
    return 0;
}

void findings_fini(struct findings *f)
{
    free(f->list);
    *f = (struct findings){0};
}

/* ---- the body ------------------------------------------------------------------------------ */

char *findings_write(const struct findings_body *body)
{
    auto_json json_t *list = json_array();
    for (int i = 0; i < body->findings.n; i++) {
        const struct finding *f = &body->findings.list[i];
        json_append(&list, json_pack("{s:s, s:s, s:s, s:s, s:b, s:o, s:o}", "source", f->source,
                                     "id", f->id, "code", f->code, "status",
                                     status_names[f->status], "cleared", f->cleared, "summary",
                                     json_lossy_text(f->summary), "fix", json_lossy_text(f->fix)));
    }
    auto_json json_t *j = json_pack("{s:s, s:I, s:O}", "agent", body->agent, "seq",
                                    (json_int_t)body->seq, "findings", list);
    return json_write(j);
}

static int finding_read(json_t *j, struct finding *ret, struct err *err)
{
    const char *source = "", *id = "", *code = "", *status = "", *summary = "", *fix = "";
    int cleared = 0;
    *ret = (struct finding){0};
    int rc = json_expect(j, "finding", err, "{s:s, s:s, s?s, s:s, s?b, s?s, s?s}", "source",
                         &source, "id", &id, "code", &code, "status", &status, "cleared", &cleared,
                         "summary", &summary, "fix", &fix);
    if (rc == 0)
        rc = member_copy_text(ret->source, sizeof(ret->source), source, "findings: source", err);
    if (rc == 0)
        rc = member_copy_text(ret->id, sizeof(ret->id), id, "findings: id", err);
    if (rc == 0)
        rc = member_copy_text(ret->code, sizeof(ret->code), code, "findings: code", err);
    if (rc == 0)
        rc =
            member_copy_text(ret->summary, sizeof(ret->summary), summary, "findings: summary", err);
    if (rc == 0)
        rc = member_copy_text(ret->fix, sizeof(ret->fix), fix, "findings: fix", err);
    if (rc < 0)
        return rc;
    ret->cleared = cleared;
    for (int i = 0; i < FINDING_STATUSES; i++) {
        if (strcmp(status_names[i], status) == 0) {
            ret->status = (enum finding_status)i;
            return 0;
        }
    }
    return err_set(err, EINVAL, "findings: unknown status \"%.40s\"", status);
}

int findings_read(const char *bytes, size_t len, struct findings_body *ret, struct err *err)
{
    struct findings_body body = {0};
    const char *agent = "";
    json_int_t seq = 0;
    json_t *list = NULL;
    auto_json json_t *j = NULL;
    int rc = json_read(bytes, len, "findings", &j, err);
    if (rc == 0)
        rc = json_expect(j, "findings", err, "{s:s, s:I, s:o}", "agent", &agent, "seq", &seq,
                         "findings", &list);
    if (rc == 0)
        rc = member_copy_text(body.agent, sizeof(body.agent), agent, "findings: agent", err);
    if (rc == 0 && (!json_is_array(list) || json_array_size(list) > FINDINGS_MAX))
        rc = err_set(err, EINVAL, "findings: want a list of at most %d", FINDINGS_MAX);
    body.seq = (uint64_t)seq;
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        struct finding one;
        rc = finding_read(json_array_get(list, i), &one, err);
        if (rc == 0 && (rc = findings_add(&body.findings, &one)) < 0)
            err_set(err, -rc, "no memory for findings");
    }
    if (rc < 0)
        findings_body_fini(&body);
    else
        *ret = body;
    return rc;
}

void findings_body_fini(struct findings_body *body)
{
    findings_fini(&body->findings);
    *body = (struct findings_body){0};
}
