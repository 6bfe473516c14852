/* SPDX-License-Identifier: Apache-2.0
 *
 * json: see json.h.
 */
#include "diagnostics/report/json.h"

#include <string.h>
#include <time.h>

#include "core/include/hvd.h"
#include "diagnostics/report/verdict.h"

static json_t *fixes(const struct result *r)
{
    json_t *list = json_array();
    for (int place = 0; place < FIX_PLACES; place++) {
        const char *fix = result_fix_text(r, (enum fix_place)place);
        if (fix)
            json_array_append_new(list, json_pack("{s:s, s:o}", "place",
                                                  fix_place_name((enum fix_place)place), "text",
                                                  json_lossy_text(fix)));
    }
    return list;
}

static json_t *references(const struct check *c)
{
    json_t *list = json_array();
    for (int i = 0; i < CHECK_REFS && c->refs[i]; i++)
        json_array_append_new(list, json_lossy_text(c->refs[i]));
    return list;
}

json_t *report_json_result(const struct result *r)
{
    const struct check *c = r->check;
    /* a check that passed needs no why and fix */
    bool bad = r->status == CHECK_WARN || r->status == CHECK_FAIL || r->status == CHECK_ERROR;
    return json_pack(
        "{s:s, s:s, s:s, s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:f}", /**/
        "id", c->id, "code", c->code, "group", check_group_name(c->group), "level", c->level,
        "title", c->title, "status", check_status_name(r->status), "summary",
        json_lossy_text(r->summary), "observed", json_lossy_text(r->observed), "expected",
        json_lossy_text(r->expected), "why", json_lossy_text(bad ? result_why_text(r) : ""), "fix",
        bad ? fixes(r) : json_array(), "action", check_action_name(bad ? r->action : ACTION_NONE),
        "refs", bad ? references(c) : json_array(), "silenced",
        r->silenced ? json_lossy_text(r->silence_reason) : json_null(), "duration_ms",
        (double)r->us / 1000);
}

static json_t *counts(const struct report *report)
{
    json_t *j = json_object();
    int silenced = 0, n[CHECK_ERROR + 1] = {0};
    for (size_t i = 0; i < report->n; i++) {
        if (report->results[i].silenced)
            silenced++;
        else
            n[report->results[i].status]++;
    }
    for (int s = CHECK_PASS; s <= CHECK_ERROR; s++)
        json_object_set_new(j, check_status_name((enum check_status)s), json_integer(n[s]));
    json_object_set_new(j, "silenced", json_integer(silenced));
    return j;
}

static json_t *profiles(unsigned set)
{
    static const struct {
        unsigned bit;
        const char *name;
    } all[] = {{PROFILE_CPU, "cpu"},
               {PROFILE_GPU, "gpu"},
               {PROFILE_K8S, "k8s"},
               {PROFILE_LAUNCHER, "launcher"}};
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (set & all[i].bit)
            json_array_append_new(list, json_string(all[i].name));
    return list;
}

json_t *report_json_head(const struct report *report, const struct json_origin *origin)
{
    char when[32] = "", line[RESULT_TEXT];
    time_t t = (time_t)origin->time;
    struct tm tm;
    if (gmtime_r(&t, &tm))
        strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
    const struct setting *s = &report->setting;
    return json_pack("{s:s, s:s, s:s, s:o, s:s, s:o, s:i, s:{s:o, s:i, s:i, s:i, s:i}, s:o}",
                     "schema", REPORT_SCHEMA, "version", HVD_VERSION, "time", when, "host",
                     json_lossy_text(origin->host), "verdict", verdict_name(report->verdict),
                     "summary", json_lossy_text(verdict_line(report, line, sizeof(line))),
                     "duration_ms", (int)report->ms, "setting", "profiles", profiles(s->profiles),
                     "ranks", s->ranks, "local_ranks", s->local_ranks, "gpus", s->gpus, "level",
                     s->level, "counts", counts(report));
}

static int append(const char *bytes, size_t n, void *arg)
{
    struct buf *out = arg;
    buf_put(out, bytes, n);
    return out->failed ? -1 : 0;
}

void json_into(json_t *j, size_t flags, struct buf *out)
{
    if (!j || json_dump_callback(j, append, out, flags | JSON_REAL_PRECISION(6)) < 0)
        out->failed = true;
    buf_put(out, "\n", 1);
    json_decref(j);
}

void report_json(const struct report *report, const struct json_origin *origin, struct buf *out)
{
    json_t *j = report_json_head(report, origin), *checks = json_array();
    for (size_t i = 0; i < report->n; i++)
        json_array_append_new(checks, report_json_result(&report->results[i]));
    json_object_set_new(j, "checks", checks);
    json_into(j, JSON_INDENT(2), out);
}
