/* SPDX-License-Identifier: Apache-2.0
 *
 * diff: hvd-doctor diff A.json B.json: what differs between two machines, or has changed on one.
 */
#include <string.h>
#include <unistd.h>

#include "core/base/fd.h"
#include "diagnostics/cli/compare.h"
#include "diagnostics/cli/output.h"
#include "diagnostics/report/json.h"

#define REPORT_MAX (16u << 20)

static int read_report(const char *path, json_t **ret, struct err *err)
{
    auto_free char *text = NULL;
    size_t len = 0;
    bool in = strcmp(path, "-") == 0;
    const char *name = in ? "standard input" : path;
    int rc = fd_read_file(in ? "/dev/stdin" : path, REPORT_MAX, &text, &len);
    return rc < 0 ? err_sys(err, -rc, "%s", name) : compare_read(text, len, name, ret, err);
}

int cli_diff(const struct cli *cli, struct err *err)
{
    auto_json json_t *a = NULL, *b = NULL, *diff = NULL;
    struct buf out = {0};
    if (cli->args.n != 2)
        return err_set(err, EINVAL, "diff needs two reports, A.json B.json");
    int rc = read_report(cli->args.v[0], &a, err);
    if (rc == 0)
        rc = read_report(cli->args.v[1], &b, err);
    if (rc < 0)
        return rc;
    diff = compare_reports(a, b);
    if (!diff)
        return err_set(err, ENOMEM, "no memory");
    int code = json_is_true(json_object_get(diff, "equal")) ? CLI_GOOD : CLI_FINDING;
    if (cli->format == CLI_JSON)
        json_into(json_incref(diff), JSON_INDENT(2), &out);
    else
        compare_text(diff, output_style(cli).color, cli->quiet, &out);
    rc = output_write(&out, err);
    buf_fini(&out);
    return rc < 0 ? rc : code;
}
