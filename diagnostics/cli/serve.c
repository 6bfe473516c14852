/* SPDX-License-Identifier: Apache-2.0
 *
 * serve: hvd-doctor serve [ADDR:]PORT: runs the checks every N seconds and serves the last results:
 * /metrics for Prometheus, /readyz for a readiness probe, /healthz for a liveness probe, which
 * never depends on findings.
 *
 * The first thread runs the checks (and forks probes), the second runs the loop of the HTTP server.
 * They share struct shown, under its lock.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/member/pages.h"
#include "diagnostics/cli/output.h"
#include "diagnostics/cli/session.h"
#include "diagnostics/report/prometheus.h"
#include "diagnostics/report/verdict.h"

struct shown {
    pthread_mutex_t lock;
    bool looked, ready;
    char line[RESULT_TEXT]; /* the verdict */
    struct buf metrics;
};

/* ---- the second thread ---------------------------------------------------------------------- */

static int fill_ready(void *arg, struct buf *out)
{
    struct shown *s = arg;
    pthread_mutex_lock(&s->lock);
    text_put(out, "%s\n", s->looked ? s->line : "the first run of the checks has not finished");
    int status = s->looked && s->ready ? 200 : 503;
    pthread_mutex_unlock(&s->lock);
    return status;
}

static int fill_metrics(void *arg, struct buf *out)
{
    struct shown *s = arg;
    pthread_mutex_lock(&s->lock);
    buf_put(out, s->metrics.data, s->metrics.len);
    pthread_mutex_unlock(&s->lock);
    return 200;
}

static const struct page table[] = {
    {"/metrics", PAGES_PROMETHEUS, fill_metrics},
    {"/readyz", PAGES_TEXT, fill_ready},
    {"/healthz", PAGES_TEXT, pages_healthz},
};

static void *serve_pages(void *arg)
{
    loop_run(arg);
    return NULL;
}

/* ---- the first thread ----------------------------------------------------------------------- */

/* Nothing has to be cleaned up: probes end with their parent. Process 1 of a container has no
 * default action for signals, so it needs this handler. */
static void on_end(int sig)
{
    (void)sig;
    _exit(0);
}

static void show(struct shown *s, const struct report *report, const struct choice *choice)
{
    struct buf metrics = {0};
    report_prometheus(report, &metrics);
    prometheus_head(&metrics, "hvd_doctor_last_look_timestamp_seconds", "gauge",
                    "when the last run of the checks ended");
    text_put(&metrics, "hvd_doctor_last_look_timestamp_seconds %.3f\n",
             (double)clock_wall_us() / 1e6);
    pthread_mutex_lock(&s->lock);
    s->looked = true;
    s->ready = report_exit_code(report, choice) == CLI_GOOD;
    verdict_line(report, s->line, sizeof(s->line));
    if (!metrics.failed) {
        struct buf old = s->metrics;
        s->metrics = metrics;
        metrics = old;
    }
    pthread_mutex_unlock(&s->lock);
    buf_fini(&metrics);
}

static int look(const struct cli *cli, struct shown *s, struct err *err)
{
    struct session session;
    struct report report = {0};
    int rc = session_open(&session, cli, err);
    if (rc == 0)
        rc = session_run(&session, NULL, NULL, &report, err);
    if (rc == 0)
        show(s, &report, &session.choice);
    report_fini(&report);
    session_close(&session);
    return rc;
}

/* Returns only when the first run fails; a signal ends the program (on_end). A later run that fails
 * is reported on standard error, and the next run follows as usual. */
static int look_again_and_again(const struct cli *cli, struct shown *s, struct err *err)
{
    struct timespec pause = {.tv_sec = cli->every};
    int rc = look(cli, s, err);
    while (s->looked) {
        clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
        if (look(cli, s, err) < 0)
            fprintf(stderr, "hvd-doctor: %s\n", err_text(err));
    }
    return rc;
}

static int announce(const char *address, int port, struct err *err)
{
    struct buf line = {0};
    bool v6 = strchr(address, ':') != NULL;
    text_put(&line, "http://%s%s%s:%d/metrics /readyz /healthz\n", v6 ? "[" : "",
             *address ? address : "localhost", v6 ? "]" : "", port);
    int rc = output_write(&line, err);
    buf_fini(&line);
    return rc;
}

static int serve(const struct cli *cli, struct shown *s, struct loop *loop, struct err *err)
{
    char address[64];
    struct pages *pages = NULL;
    struct pages_config config = {.loop = loop,
                                  .address = address,
                                  .pages = table,
                                  .n = sizeof(table) / sizeof(table[0]),
                                  .arg = s};
    pthread_t thread;
    int rc = pages_parse(cli->args.v[0], address, sizeof(address), &config.port, err);
    if (rc == 0)
        rc = pages_open(&pages, &config, err);
    if (rc < 0)
        return rc;
    rc = announce(address, pages_port(pages), err);
    if (rc == 0) {
        rc = -pthread_create(&thread, NULL, serve_pages, loop);
        if (rc < 0)
            err_sys(err, -rc, "a thread");
    }
    if (rc < 0) {
        pages_close(pages);
        return rc;
    }
    return look_again_and_again(cli, s,
                                err); /* returning ends the program, and the other thread with it */
}

int cli_serve(const struct cli *cli, struct err *err)
{
    static struct shown shown = {.lock = PTHREAD_MUTEX_INITIALIZER};
    static struct loop loop;
    if (cli->args.n != 1)
        return err_set(err, EINVAL, "serve needs one [ADDR:]PORT");
    signal(SIGTERM, on_end);
    signal(SIGINT, on_end);
    int rc = loop_init(&loop);
    if (rc < 0)
        return err_sys(err, -rc, "a loop");
    return serve(cli, &shown, &loop, err);
}
