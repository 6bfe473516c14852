/* SPDX-License-Identifier: Apache-2.0
 *
 * bundle: hvd-doctor bundle: a tar archive for the people who support the user: the report as text
 * and JSON, the files that the checks read, the probes' answers, the ends of logs and what match
 * finds in them; secrets are redacted. Unpacked it is a captured machine for --root.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "diagnostics/cli/capture.h"
#include "diagnostics/cli/logs.h"
#include "diagnostics/cli/output.h"
#include "diagnostics/cli/save.h"
#include "diagnostics/cli/session.h"
#include "diagnostics/cli/tar.h"
#include "diagnostics/report/verdict.h"

#define TAIL (1u << 20) /* bytes kept of the end of a log */

struct bundle {
    const struct cli *cli;
    struct session session;
    struct capture capture;
    struct report report;
    char name[320]; /* name of the folder in the archive: hvd-doctor-HOST-TIME */
};

static void put_reports(struct bundle *b)
{
    const struct text_style style = {.verbose = true, .width = 100};
    struct json_origin origin = session_origin(&b->session);
    struct buf text = {0}, json = {0};
    report_text(&b->report, &style, &text);
    capture_add(&b->capture, 'f', "report.txt", &text);
    report_json(&b->report, &origin, &json);
    capture_add(&b->capture, 'f', "report.json", &json);
}

/* Adds the last TAIL bytes of a log to the bundle. If the log is longer, leaves out the first line
 * of these bytes, which may be incomplete. */
static int put_tail(struct bundle *b, const char *log, size_t i, struct err *err)
{
    char path[320];
    const char *slash = strrchr(log, '/');
    struct stat st;
    auto_close int fd = open(log, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, errno, "--log: %s", log);
    if (!S_ISREG(st.st_mode))
        return err_set(err, EINVAL, "--log: %s: not a file", log);
    off_t from = st.st_size > TAIL ? st.st_size - TAIL : 0;
    auto_free char *text = malloc(TAIL);
    ssize_t n = text ? pread(fd, text, TAIL, from) : -1;
    if (n < 0)
        return err_sys(err, text ? errno : ENOMEM, "--log: %s", log);
    const char *newline = from ? memchr(text, '\n', (size_t)n) : NULL;
    size_t cut = newline ? (size_t)(newline + 1 - text) : 0;
    snprintf(path, sizeof(path), "logs/%zu-%.255s", i + 1, slash ? slash + 1 : log);
    capture_put(&b->capture, 'f', path, text + cut, (size_t)n - cut);
    return 0;
}

static int put_match(struct bundle *b, struct err *err)
{
    struct match *match = NULL;
    struct match_result *result = NULL;
    struct buf text = {0};
    int rc = match_create(NULL, &match, err);
    if (rc == 0)
        rc = logs_read(&b->cli->logs, match, err);
    if (rc == 0)
        rc = match_finish(match, &result, err);
    if (rc == 0) {
        logs_print(result, &text);
        redact_buf(b->session.redact, &text, 0);
        capture_add(&b->capture, 'f', "match.txt", &text);
    }
    match_result_destroy(result);
    match_destroy(match);
    return rc;
}

static int collect(struct bundle *b, struct err *err)
{
    int rc = 0;
    /* errors of the command line are reported before the checks run */
    for (size_t i = 0; rc == 0 && i < b->cli->logs.n; i++)
        rc = put_tail(b, b->cli->logs.v[i], i, err);
    if (rc == 0 && b->cli->logs.n)
        rc = put_match(b, err);
    if (rc == 0)
        rc = session_run(&b->session, NULL, NULL, &b->report, err);
    if (rc < 0)
        return rc;
    put_reports(b);
    return capture_files(&b->capture, &b->session.setting, err);
}

/* ---- the archive ---------------------------------------------------------------------------- */

static void name_it(struct bundle *b)
{
    char when[32] = "", host[64];
    time_t now = (time_t)(clock_wall_us() / 1000000);
    struct tm tm;
    if (gmtime_r(&now, &tm))
        strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &tm);
    snprintf(host, sizeof(host), "%.63s", b->session.host);
    for (char *p = host; *p; p++) {
        if (!strchr("-_.", *p) && !(*p >= '0' && *p <= '9') && !(*p >= 'a' && *p <= 'z') &&
            !(*p >= 'A' && *p <= 'Z'))
            *p = '_';
    }
    snprintf(b->name, sizeof(b->name), "hvd-doctor-%s-%s", host, when);
}

static void pack(const struct bundle *b, struct buf *out)
{
    int64_t now = (int64_t)(clock_wall_us() / 1000000);
    for (size_t i = 0; i < b->capture.n; i++) {
        const struct captured *e = &b->capture.entries[i];
        char path[8192];
        snprintf(path, sizeof(path), "%s/%s%s", b->name, e->path, e->kind == 'd' ? "/" : "");
        tar_put(out, e->kind, path, e->bytes, e->len, now);
    }
    tar_end(out);
}

static int write_it(const struct bundle *b, struct err *err)
{
    char path[400], line[RESULT_TEXT];
    const char *to = b->cli->output;
    struct buf tar = {0}, out = {0};
    snprintf(path, sizeof(path), "%s.tar", b->name);
    pack(b, &tar);
    if (to && strcmp(to, "-") == 0) {
        int rc = isatty(STDOUT_FILENO)
                     ? err_set(err, EINVAL, "--output -: standard output is a terminal")
                     : output_write(&tar, err);
        buf_fini(&tar);
        return rc;
    }
    int rc = save_file(to ? to : path, &tar, err);
    text_put(&out, "%s: %zu files, %zu KiB\n%s\n", to ? to : path, b->capture.n, tar.len >> 10,
             verdict_line(&b->report, line, sizeof(line)));
    if (rc == 0)
        rc = output_write(&out, err);
    buf_fini(&tar);
    buf_fini(&out);
    return rc;
}

int cli_bundle(const struct cli *cli, struct err *err)
{
    struct bundle b = {.cli = cli};
    int rc = session_open(&b.session, cli, err);
    if (rc == 0) {
        capture_start(&b.capture, &b.session.machine, b.session.redact);
        name_it(&b);
        rc = collect(&b, err);
    }
    if (rc == 0)
        rc = write_it(&b, err);
    report_fini(&b.report);
    capture_fini(&b.capture);
    session_close(&b.session);
    return rc;
}
