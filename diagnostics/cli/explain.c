/* SPDX-License-Identifier: Apache-2.0
 *
 * explain: hvd-doctor explain ID...: all that is known about a check, or about a finding of match.
 */
#include <string.h>

#include "diagnostics/cli/output.h"
#include "diagnostics/cli/words.h"
#include "core/base/nearest.h"
#include "diagnostics/patterns.h"
#include "diagnostics/registry.h"
#include "diagnostics/report/json.h"

#define INDENT 10

struct explainer {
    const struct cli *cli;
    struct text_style style;
    struct patterns *patterns;
    struct buf out;
    json_t *list;
    size_t n;
};

/* ---- text ----------------------------------------------------------------------------------- */

static void put_head(struct explainer *e, const char *id, const char *code, const char *title)
{
    text_put(&e->out, e->style.color ? "%s\033[1m%s\033[0m (%s): %s\n" : "%s%s (%s): %s\n",
             e->n ? "\n" : "", id, code, title);
}

static void put(struct explainer *e, const char *label, const char *text)
{
    if (!text || !*text)
        return;
    text_put(&e->out, "  %-*s", INDENT - 2, label);
    text_wrap(&e->out, text, INDENT, e->style.width);
    text_put(&e->out, "\n");
}

/* Writes the commands to type, unwrapped. */
static void put_fixes(struct explainer *e, const char *const *fix)
{
    bool same = fix[0] && fix[1] && fix[2] && !strcmp(fix[0], fix[1]) && !strcmp(fix[1], fix[2]);
    for (int place = 0; place < (same ? 1 : FIX_PLACES); place++) {
        const char *text = fix[place];
        if (!text)
            continue;
        text_put(&e->out, "  %-*s", INDENT - 2,
                 same ? "do" : fix_place_name((enum fix_place)place));
        do {
            size_t n = strcspn(text, "\n");
            text_put(&e->out, "%.*s\n", (int)n, text);
            text += n + (text[n] == '\n');
            if (*text)
                text_put(&e->out, "%*s", INDENT, "");
        } while (*text);
    }
}

static void put_refs(struct explainer *e, const char *const *refs, size_t max)
{
    for (size_t i = 0; i < max && refs[i]; i++)
        text_put(&e->out, "  %-*s%s\n", INDENT - 2, i ? "" : "see", refs[i]);
}

static void check_text(struct explainer *e, const struct check *c)
{
    char profiles[64], line[160];
    put_head(e, c->id, c->code, c->title);
    words_profiles(c->profiles, profiles, sizeof(profiles));
    snprintf(line, sizeof(line), "group %s, level %d%s%s", check_group_name(c->group), c->level,
             *profiles ? ", only with --profile " : "", profiles);
    put(e, "is", line);
    put(e, "needs", c->needs);
    put(e, "why", c->why);
    put(e, "how", c->explain);
    put_fixes(e, c->fix);
    put(e, "action", check_action_name(c->action));
    put_refs(e, c->refs, CHECK_REFS);
}

static void pattern_text(struct explainer *e, const struct pattern *p)
{
    char line[128];
    put_head(e, p->id, p->code, p->say);
    snprintf(line, sizeof(line), "a finding of hvd-doctor match: %s", pattern_kind_name(p->kind));
    put(e, "is", line);
    put(e, "why", p->why);
    for (int i = 0; i < p->nregex; i++)
        text_put(&e->out, "  %-*s%s\n", INDENT - 2, i ? "" : "matches", p->regex[i].text);
    put_fixes(e, p->fix);
    put_refs(e, p->refs, PATTERN_REFS);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static json_t *fixes_json(const char *const *fix)
{
    json_t *list = json_array();
    for (int place = 0; place < FIX_PLACES; place++) {
        if (fix[place])
            json_array_append_new(list, json_pack("{s:s, s:s}", "place",
                                                  fix_place_name((enum fix_place)place), "text",
                                                  fix[place]));
    }
    return list;
}

static json_t *refs_json(const char *const *refs, size_t max)
{
    json_t *list = json_array();
    for (size_t i = 0; i < max && refs[i]; i++)
        json_array_append_new(list, json_string(refs[i]));
    return list;
}

static json_t *check_json(const struct check *c)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:o, s:s?, s:s, s:s?, s:s?, s:o, s:s, s:o}", /**/
                     "kind", "check", "id", c->id, "code", c->code, "group",
                     check_group_name(c->group), "level", c->level, "profiles",
                     words_profiles_json(c->profiles), "needs", c->needs, "title", c->title, "why",
                     c->why, "explain", c->explain, "fix", fixes_json(c->fix), "action",
                     check_action_name(c->action), "refs", refs_json(c->refs, CHECK_REFS));
}

static json_t *pattern_json(const struct pattern *p)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s?, s:o, s:o}", "kind", pattern_kind_name(p->kind),
                     "id", p->id, "code", p->code, "title", p->say, "why", p->why, "fix",
                     fixes_json(p->fix), "refs", refs_json(p->refs, PATTERN_REFS));
}

/* ---- looking up ----------------------------------------------------------------------------- */

static bool explain_checks(struct explainer *e, const char *name)
{
    const struct check *c;
    bool found = false;
    for (size_t i = 0; (c = registry_at(i)); i++) {
        if (!registry_matches(c, name))
            continue;
        found = true;
        if (e->cli->format == CLI_JSON)
            json_array_append_new(e->list, check_json(c));
        else
            check_text(e, c);
        e->n++;
    }
    return found;
}

static bool explain_pattern(struct explainer *e, const char *name)
{
    const struct pattern *p = e->patterns ? patterns_find(e->patterns, name) : NULL;
    if (!p)
        return false;
    if (e->cli->format == CLI_JSON)
        json_array_append_new(e->list, pattern_json(p));
    else
        pattern_text(e, p);
    e->n++;
    return true;
}

/* Fails with the most similar id of all checks and findings. */
static int unknown(const struct explainer *e, const char *name, struct err *err)
{
    const struct check *c;
    struct nearest near;
    nearest_init(&near, name);
    for (size_t i = 0; (c = registry_at(i)); i++)
        nearest_try(&near, c->id);
    for (size_t i = 0; e->patterns && i < e->patterns->n; i++)
        nearest_try(&near, e->patterns->v[i].id);
    if (nearest_best(&near))
        return err_set(err, ENOENT, "no check \"%s\"; did you mean \"%s\"?", name,
                       nearest_best(&near));
    return err_set(err, ENOENT, "no check \"%s\"; `hvd-doctor list` has them all", name);
}

int cli_explain(const struct cli *cli, struct err *err)
{
    struct explainer e = {.cli = cli, .style = output_style(cli), .list = json_array()};
    int rc = patterns_create(&e.patterns, err);
    for (size_t i = 0; rc == 0 && i < cli->args.n; i++) {
        if (!explain_checks(&e, cli->args.v[i]) && !explain_pattern(&e, cli->args.v[i]))
            rc = unknown(&e, cli->args.v[i], err);
    }
    if (cli->format == CLI_JSON)
        json_into(json_pack("{s:s, s:O}", "schema", "hvd-doctor-explain/1", "explained", e.list),
                  JSON_INDENT(2), &e.out);
    if (rc == 0)
        rc = output_write(&e.out, err);
    json_decref(e.list);
    patterns_destroy(e.patterns);
    buf_fini(&e.out);
    return rc;
}
