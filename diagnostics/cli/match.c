/* SPDX-License-Identifier: Apache-2.0
 *
 * match: hvd-doctor match FILE...: why did the run fail? The matcher is diagnostics/match.h.
 */
#include "diagnostics/match.h"

#include "diagnostics/cli/logs.h"
#include "diagnostics/cli/output.h"
#include "diagnostics/cli/session.h"
#include "diagnostics/match_json.h"

static int show(const struct cli *cli, const struct match_result *result, struct err *err)
{
    struct buf out = {0};
    struct machine machine;
    struct redact *redact = NULL;
    char line[1024];
    int rc = machine_open_live(&machine, err);
    if (rc < 0)
        return rc;
    if (redact_create(&redact, &machine) < 0) {
        machine_close(&machine);
        return err_set(err, ENOMEM, "no memory");
    }
    if (cli->format == CLI_JSON) {
        auto_json json_t *j = match_json(result);
        json_into(redact_json(redact, j), JSON_INDENT(2), &out);
    } else {
        if (cli->quiet)
            text_put(&out, "%s\n", match_verdict_text(result, line, sizeof(line)));
        else
            logs_print(result, &out);
        redact_buf(redact, &out, 0);
    }
    rc = output_write(&out, err);
    buf_fini(&out);
    redact_destroy(redact);
    machine_close(&machine);
    return rc < 0 ? rc : match_exit_code(result);
}

int cli_match(const struct cli *cli, struct err *err)
{
    struct match *match = NULL;
    struct match_result *result = NULL;
    struct match_opts opts = {
        .as_cause = cli->as_cause, .as_noise = cli->as_noise, .failed = cli->failed};
    int rc = match_create(&opts, &match, err);
    if (rc == 0)
        rc = logs_read(&cli->args, match, err);
    if (rc == 0)
        rc = match_finish(match, &result, err);
    if (rc == 0)
        rc = show(cli, result, err);
    match_result_destroy(result);
    match_destroy(match);
    return rc;
}
