/* SPDX-License-Identifier: Apache-2.0
 *
 * match_json: see match_json.h.
 */
#include "diagnostics/match_json.h"

#include <string.h>

static json_t *ranks(const struct match_finding *f)
{
    json_t *list = json_array();
    for (int i = 0; i < f->nranks; i++)
        json_array_append_new(list, json_integer(f->ranks[i]));
    return list;
}

static json_t *time_of(const struct match_finding *f)
{
    char dst[64];
    return *match_time_text(f->time, dst, sizeof(dst)) ? json_lossy_text(dst) : json_null();
}

static json_t *fixes(const struct pattern *p)
{
    json_t *j = json_object();
    for (int i = 0; i < FIX_PLACES; i++)
        if (p->fix[i])
            json_object_set_new(j, fix_place_name((enum fix_place)i), json_lossy_text(p->fix[i]));
    return j;
}

static json_t *refs(const struct pattern *p)
{
    json_t *list = json_array();
    for (int i = 0; i < PATTERN_REFS && p->refs[i]; i++)
        json_array_append_new(list, json_lossy_text(p->refs[i]));
    return list;
}

static const char *kind_name(const struct match_finding *f)
{
    static const char *const names[] = {"cause", "effect", "info", "failure"};
    return names[f->as];
}

static json_t *finding(const struct match_finding *f, bool full)
{
    json_t *j = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:I, s:o, s:b}", "id",
                          f->pattern->id, "code", f->pattern->code, "kind", kind_name(f), "cause",
                          json_lossy_text(f->say), "source", json_lossy_text(f->source), "rank",
                          f->rank >= 0 ? json_integer(f->rank) : json_null(), "line",
                          (json_int_t)f->line, "offset", (json_int_t)f->offset, "time", time_of(f),
                          "text", json_lossy_text(f->text), "count", (json_int_t)f->count, "ranks",
                          ranks(f), "more_ranks", (int)f->more_ranks);
    if (!j || !full)
        return j;
    json_object_set_new(j, "why", json_lossy_text(f->pattern->why));
    json_object_set_new(j, "fix", fixes(f->pattern));
    json_object_set_new(j, "action", json_lossy_text(check_action_name(f->pattern->action)));
    json_object_set_new(j, "refs", refs(f->pattern));
    json_object_set_new(j, "detail", json_lossy_text(f->detail));
    return j;
}

static json_t *findings(const struct match_finding *v, size_t n, bool full)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, finding(&v[i], full));
    return list;
}

json_t *match_json(const struct match_result *r)
{
    static const char *const verdicts[] = {"nothing", "found", "effects", "unexplained"};
    char summary[1024];
    match_verdict_text(r, summary, sizeof(summary));
    return json_pack(
        "{s:s, s:s, s:i, s:o, s:I, s:I, s:I, s:o, s:o, s:o}", "schema", "hvd-match/1", "verdict",
        verdicts[r->verdict], "exit", match_exit_code(r), "summary", json_lossy_text(summary),
        "sources", (json_int_t)r->sources, "lines", (json_int_t)r->lines, "bytes",
        (json_int_t)r->bytes, "findings", findings(r->findings, r->n, true), "effects",
        findings(r->effects, r->neffects, false), "notes", findings(r->notes, r->nnotes, false));
}
