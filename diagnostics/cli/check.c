/* SPDX-License-Identifier: Apache-2.0
 *
 * check: hvd-doctor check: runs the chosen checks and writes the report in the requested format.
 */
#include "diagnostics/cli/output.h"
#include "diagnostics/cli/report.h"
#include "diagnostics/cli/session.h"
#include "diagnostics/report/jsonl.h"

/* --jsonl: writes each result as soon as it is known. */
struct stream {
    int rc; /* result for the first line that could not be written */
    struct err err;
};

static void stream_put(struct stream *s, struct buf *line)
{
    if (s->rc == 0)
        s->rc = output_write(line, &s->err);
    buf_fini(line);
}

static void on_result(void *arg, struct result *r)
{
    struct buf line = {0};
    report_jsonl_result(r, &line);
    stream_put(arg, &line);
}

static int check_stream(struct session *s, struct err *err)
{
    struct report report = {0};
    struct stream stream = {0};
    struct json_origin origin = session_origin(s);
    struct buf line = {0};
    int rc = session_run(s, on_result, &stream, &report, err);
    if (rc < 0)
        return rc;
    report_jsonl_end(&report, &origin, &line);
    stream_put(&stream, &line);
    if (stream.rc < 0 && err)
        *err = stream.err;
    rc = stream.rc < 0 ? stream.rc : report_exit_code(&report, &s->choice);
    report_fini(&report);
    return rc;
}

int cli_check(const struct cli *cli, struct err *err)
{
    struct session s;
    int rc = session_open(&s, cli, err);
    if (rc == 0)
        rc = cli->format == CLI_JSONL ? check_stream(&s, err) : report_whole(cli, &s, err);
    session_close(&s);
    return rc;
}
