/* SPDX-License-Identifier: Apache-2.0
 *
 * gather: hvd-doctor gather DIR: records this machine, so that `hvd-doctor --root DIR` has the same
 * findings on another machine. DIR/expected.json holds the findings; the replay test's fixtures are
 * made with this command.
 */
#include <unistd.h>

#include "diagnostics/cli/capture.h"
#include "diagnostics/cli/expected.h"
#include "diagnostics/cli/output.h"
#include "diagnostics/cli/save.h"
#include "diagnostics/cli/session.h"
#include "diagnostics/report/verdict.h"

/* Checks the recorded machine as --root DIR would. */
static int replay(const struct cli *cli, const char *dir, struct buf *out, struct err *err)
{
    struct cli again = {.command = CLI_CHECK, .root = dir, .rules = cli->rules};
    struct session s;
    struct report report = {0};
    again.only = cli->only;
    again.skip = cli->skip;
    again.job.gpus = -1;
    int rc = session_open(&s, &again, err);
    if (rc == 0)
        rc = session_run(&s, NULL, NULL, &report, err);
    if (rc == 0)
        expected_put(&report, out);
    report_fini(&report);
    session_close(&s);
    return rc;
}

static int record(struct session *s, struct capture *c, struct report *report, struct err *err)
{
    capture_start(c, &s->machine, s->redact);
    int rc = session_run(s, NULL, NULL, report, err);
    return rc < 0 ? rc : capture_files(c, &s->setting, err);
}

static int finish(const struct cli *cli, const struct report *report, const struct capture *c,
                  struct err *err)
{
    const char *dir = cli->args.v[0];
    char path[4096], line[RESULT_TEXT];
    struct buf expected = {0}, out = {0};
    int rc = save_folder(dir, c, err);
    if (rc == 0)
        rc = replay(cli, dir, &expected, err);
    snprintf(path, sizeof(path), "%s/expected.json", dir);
    if (rc == 0)
        rc = save_file(path, &expected, err);
    text_put(&out, "%s: %zu files, %zu KiB\n%s\n", dir, c->n, c->bytes >> 10,
             verdict_line(report, line, sizeof(line)));
    if (rc == 0)
        rc = output_write(&out, err);
    buf_fini(&expected);
    buf_fini(&out);
    return rc;
}

int cli_gather(const struct cli *cli, struct err *err)
{
    struct session s;
    struct capture c = {0};
    struct report report = {0};
    if (cli->args.n != 1)
        return err_set(err, EINVAL, "gather needs one DIR");
    int rc = session_open(&s, cli, err);
    if (rc == 0)
        rc = record(&s, &c, &report, err);
    if (rc == 0)
        rc = finish(cli, &report, &c, err);
    report_fini(&report);
    capture_fini(&c);
    session_close(&s);
    return rc;
}
