/* SPDX-License-Identifier: Apache-2.0
 *
 * list: hvd-doctor list: prints all checks, or the chosen ones.
 */
#include "diagnostics/cli/output.h"
#include "diagnostics/cli/words.h"
#include "diagnostics/registry.h"
#include "diagnostics/report/json.h"

static bool any(const struct check *c, const struct cli_words *patterns)
{
    for (size_t i = 0; i < patterns->n; i++) {
        if (registry_matches(c, patterns->v[i]))
            return true;
    }
    return false;
}

static bool chosen(const struct cli *cli, const struct check *c)
{
    return (!cli->job.level || c->level <= cli->job.level) &&
           (!cli->only.n || any(c, &cli->only)) && !any(c, &cli->skip);
}

static int known(const struct cli_words *patterns, struct err *err)
{
    const struct check *c;
    for (size_t i = 0; i < patterns->n; i++) {
        bool found = false;
        for (size_t k = 0; !found && (c = registry_at(k)); k++)
            found = registry_matches(c, patterns->v[i]);
        int rc = found ? 0 : registry_find(patterns->v[i], &c, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static json_t *row(const struct check *c)
{
    return json_pack("{s:s, s:s, s:s, s:i, s:o, s:s?, s:s}", "id", c->id, "code", c->code, "group",
                     check_group_name(c->group), "level", c->level, "profiles",
                     words_profiles_json(c->profiles), "needs", c->needs, "title", c->title);
}

int cli_list(const struct cli *cli, struct err *err)
{
    const struct check *c;
    struct buf out = {0};
    json_t *rows = json_array();
    int rc = known(&cli->only, err);
    if (rc == 0)
        rc = known(&cli->skip, err);
    for (size_t i = 0; rc == 0 && (c = registry_at(i)); i++) {
        if (!chosen(cli, c))
            continue;
        if (cli->format == CLI_JSON)
            json_array_append_new(rows, row(c));
        else
            text_put(&out, "%-8s %-22s %-11s %d  %s\n", c->code, c->id, check_group_name(c->group),
                     c->level, c->title);
    }
    if (cli->format == CLI_JSON)
        json_into(json_pack("{s:s, s:O}", "schema", "hvd-doctor-list/1", "checks", rows),
                  JSON_INDENT(2), &out);
    json_decref(rows);
    if (rc == 0)
        rc = output_write(&out, err);
    buf_fini(&out);
    return rc;
}
