/* SPDX-License-Identifier: Apache-2.0
 *
 * report: see report.h.
 */
#include "diagnostics/cli/report.h"

#include "diagnostics/cli/output.h"
#include "diagnostics/report/junit.h"
#include "diagnostics/report/npd.h"

/* Writes the report to out in the format that the command line asks for. Returns the exit code. */
static int render(const struct cli *cli, const struct session *s, const struct report *report,
                  struct buf *out)
{
    struct json_origin origin = session_origin(s);
    struct text_style style = output_style(cli);
    switch (cli->format) {
    case CLI_JSON:
        report_json(report, &origin, out);
        break;
    case CLI_JUNIT:
        report_junit(report, cli->strict, out);
        break;
    case CLI_NPD:
        return report_npd(report, out);
    default:
        report_text(report, &style, out);
    }
    return report_exit_code(report, &s->choice);
}

int report_whole(const struct cli *cli, struct session *s, struct err *err)
{
    struct report report = {0};
    struct buf out = {0};
    int rc = session_run(s, NULL, NULL, &report, err);
    if (rc < 0)
        return rc;
    int code = render(cli, s, &report, &out);
    rc = output_write(&out, err);
    buf_fini(&out);
    report_fini(&report);
    return rc < 0 ? rc : code;
}
