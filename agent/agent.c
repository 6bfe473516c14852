/* SPDX-License-Identifier: Apache-2.0
 *
 * agent: see agent.h.
 */
#include "agent/agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/priority.h"
#include "agent/jobs.h"
#include "agent/keeper.h"
#include "agent/reap.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/cpus.h"
#include "core/base/log.h"
#include "core/include/hvd.h"

#define TICK_MS         100
#define JOIN_TIMEOUT_MS 4000
#define RETRY_MS        200
#define STOP_GRACE_MS   2000
#define LEAVE_MS        3000 /* limit for the last report at the end */
#define REST_GRACE_MS   500
#define POD_PROGRESS_MS 5000
#define UNKNOWN_MS      1000
#define SILENT_MS       10000 /* silence of the coordinator after which it is logged */

static void send_join(struct agent *a);

static const char *coordinator_name(const struct agent *a)
{
    return a->config.pod ? "the operator" : "hvdrun";
}

void agent_answered(struct agent *a)
{
    if (a->silence_reported)
        log_info("%s answers again", coordinator_name(a));
    peer_silence_end(&a->silence, clock_ns());
    a->unanswered[0] = '\0';
    a->silence_reported = false;
}

void agent_unanswered(struct agent *a, const struct client_answer *answer)
{
    if (answer->status == 0)
        snprintf(a->unanswered, sizeof(a->unanswered), "%s", answer->text);
    else
        snprintf(a->unanswered, sizeof(a->unanswered), "HTTP %ld %.200s", answer->status,
                 answer->body);
    log_debug("no answer from %s: %s", coordinator_name(a), a->unanswered);
}

void agent_fail(struct agent *a, const struct err *err)
{
    if (a->rc == 0) {
        a->rc = err->code ? err->code : -EIO;
        a->err = *err;
    }
    a->abandoned = true;
    agent_stop_ranks(a, STOP_GRACE_MS);
}

static void on_outbox(void *arg, bool refused, const char *text)
{
    struct agent *a = arg;
    agent_answered(a);
    if (refused)
        log_warn("the coordinator did not take a report: %.300s", text);
    agent_wake(a);
}

static bool on_unknown(void *arg)
{
    agent_answered(arg);
    return agent_rejoin(arg);
}

static void on_drained(void *arg)
{
    agent_pause_output(arg, false);
}

/* ---- the end -------------------------------------------------------------------------------- */

/* All ranks have ended, no rank is still to start, and the last reports and output are delivered.
 */
static bool is_done(struct agent *a)
{
    bool to_come = !a->cwd || agent_is_starting(a) || (a->welcome.elastic && !agent_pod_is_over(a));
    if (!a->stopping && !a->draining && !a->refused && to_come)
        return false; /* ranks are still to come */
    for (int i = 0; i < a->nranks; i++)
        if (!a->ranks[i]->closed)
            return false;
    if (!a->leave_at)
        a->leave_at = deadline_in_ms(LEAVE_MS);
    /* A slow reader does not count as late: while hvdrun lives, it gets all output. */
    bool late = deadline_passed(a->leave_at);
    bool reported = a->abandoned || late || (outbox_empty(&a->outbox) && !agent_awaits_doctor(a));
    if (!reported)
        return false;
    return agent_output_delivered(a, late) || (a->abandoned && late);
}

static void watch_coordinator(struct agent *a)
{
    uint64_t silent = peer_silence_measure(&a->silence, clock_ns());
    uint64_t limit = (uint64_t)a->config.lost_seconds * CLOCK_S;
    const char *why = *a->unanswered ? a->unanswered : "not a word";
    if (a->abandoned)
        return;
    if (silent < limit) {
        if (silent >= SILENT_MS * CLOCK_MS && !a->silence_reported) {
            log_warn("%s has not answered for %d s (%s); after %d s the ranks are ended",
                     coordinator_name(a), SILENT_MS / 1000, why, a->config.lost_seconds);
            a->silence_reported = true;
        }
        return;
    }
    struct err err;
    err_set(&err, ETIMEDOUT, "%s has not answered for %d s (%s): ending the ranks",
            coordinator_name(a), a->config.lost_seconds, why);
    agent_fail(a, &err);
}

static void post_progress(struct agent *a)
{
    /* An operator serves thousands of pods: fewer reports. */
    if (a->config.pod && clock_ns() - a->progress_at < POD_PROGRESS_MS * CLOCK_MS)
        return;
    a->progress_at = clock_ns();
    for (int i = 0; i < a->nranks; i++) {
        struct rank *rank = a->ranks[i];
        if (rank->progress_new && !rank->reaped)
            outbox_report(&a->outbox, &rank->progress);
        rank->progress_new = false;
    }
}

static void on_tick(void *arg)
{
    struct agent *a = arg;
    if (is_done(a)) {
        loop_stop(&a->loop);
        return;
    }
    watch_coordinator(a);
    agent_watch_output(a);
    post_progress(a);
    agent_poll_events(a);
    agent_poll_roster(a);
    loop_timer_start(&a->loop, &a->tick, TICK_MS, on_tick, a);
}

void agent_wake(struct agent *a)
{
    loop_timer_start(&a->loop, &a->tick, 0, on_tick, a);
}

/* ---- join ----------------------------------------------------------------------------------- */

static void retry_join(void *arg)
{
    send_join(arg);
}

static void on_joined(void *arg, const struct client_answer *answer)
{
    struct agent *a = arg;
    struct err err = {0};
    if (answer->status == 0 || answer->status == 503) {
        agent_unanswered(a, answer);
        if (!a->stopping)
            loop_timer_start(&a->loop, &a->retry, RETRY_MS, retry_join, a);
        return;
    }
    if (answer->status == 404 && agent_pod_may_come(a) && !a->stopping) {
        log_info("join: %s", answer->body);
        loop_timer_start(&a->loop, &a->retry, UNKNOWN_MS, retry_join, a);
        return;
    }
    agent_answered(a);
    int rc = 0;
    if (answer->status != 200)
        rc = err_set(&err, EPERM, "the coordinator refused this agent: HTTP %ld %.300s",
                     answer->status, answer->body);
    if (rc == 0)
        rc = welcome_read(answer->body, answer->len, &a->welcome, &err);
    if (rc == 0) {
        a->joined = true;
        if (a->welcome.post_output)
            agent_break_output(a);
        agent_poll_events(a);
        rc = agent_begin(a, &err);
    }
    if (rc < 0)
        agent_fail(a, &err);
}

static void send_join(struct agent *a)
{
    struct join_body body = {.slots = cpus_usable(), .pid = keeper_pid()};
    struct err err;
    snprintf(body.agent, sizeof(body.agent), "%s", a->config.agent);
    snprintf(body.version, sizeof(body.version), "%s", HVD_VERSION);
    if (gethostname(body.host, sizeof(body.host) - 1) < 0)
        snprintf(body.host, sizeof(body.host), "?");
    char *text = join_write(&body);
    int rc = text ? client_send(a->client, "/v1/join", text, JOIN_TIMEOUT_MS, on_joined, a, &err)
                  : err_set(&err, ENOMEM, "no memory to join");
    free(text);
    if (rc < 0)
        agent_fail(a, &err);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void on_signal(void *arg, uint32_t events)
{
    struct agent *a = arg;
    int signo;
    (void)events;
    while ((signo = loop_signal_next(&a->signals)) > 0) {
        if (signo == SIGCHLD) {
            agent_reap(a);
            continue;
        }
        if (signo == SIGTERM) {
            a->terminated = true;
            agent_drain(a);
            continue;
        }
        log_info("signal %d: ending the ranks", signo);
        agent_stop_ranks(a, STOP_GRACE_MS);
    }
}

static int open_all(struct agent *a, struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    int rc = loop_signals_start(&a->loop, &a->signals, &set, on_signal, a);
    if (rc < 0)
        return err_sys(err, -rc, "signalfd");
    struct client_config client = {.loop = &a->loop,
                                   .url = a->config.url,
                                   .unix_path = a->config.unix_path,
                                   .ca_pem = a->config.ca_pem,
                                   .token = a->config.token,
                                   .token_file = a->config.token_file,
                                   .jitter_ms = a->config.jitter_ms};
    rc = client_open(&a->client, &client, err);
    if (rc < 0)
        return rc;
    rc = agent_open_pages(a, err);
    if (rc == 0)
        rc = agent_pod_init(a, err);
    if (rc < 0)
        return rc;
    sink_init(&a->out, &a->loop, STDOUT_FILENO, on_drained, a);
    agent_output_init(a);
    outbox_init(&a->outbox, &a->loop, a->client, a->config.agent, on_outbox, a);
    a->outbox.unknown = on_unknown;
    return 0;
}

/* Removes the directory with the Unix socket of an hvdrun that was killed. An hvdrun that lives, or
 * is taking the job over, holds the lock and removes it itself. */
static void remove_socket(const struct agent *a)
{
    char *path = a->config.unix_path;
    char *slash = path ? strrchr(path, '/') : NULL;
    auto_close int lock = -1;
    if (!slash)
        return;
    *slash = '\0';
    if (jobs_lock(path, &lock, NULL) == 0)
        jobs_remove(path);
    *slash = '/';
}

static void close_all(struct agent *a)
{
    for (int i = 0; i < a->nranks; i++)
        agent_drop_rank(a->ranks[i]);
    agent_end_doctor(a);
    reap_rest(REST_GRACE_MS);
    if (a->abandoned)
        remove_socket(a);
    loop_timer_stop(&a->loop, &a->tick);
    loop_timer_stop(&a->loop, &a->cards_timer);
    loop_timer_stop(&a->loop, &a->start_timer);
    loop_timer_stop(&a->loop, &a->drain_timer);
    loop_timer_stop(&a->loop, &a->drain_retry);
    loop_timer_stop(&a->loop, &a->retry);
    loop_fd_stop(&a->loop, &a->signals);
    lifelines_fini(&a->lifelines);
    outbox_fini(&a->outbox);
    agent_output_fini(a);
    agent_pod_fini(a);
    sink_fini(&a->out);
    client_close(a->client);
    loop_fini(&a->loop);
    welcome_fini(&a->welcome);
    free(a->ranks);
    free(a->ends);
    free(a->world);
    free(a->rejoin_text);
    roster_body_fini(&a->roster);
    binding_fini(&a->binding);
    config_fini(&a->config);
}

int agent_run(struct agent *a, struct agent_config *config, struct err *err)
{
    *a = (struct agent){.config = *config};
    *config = (struct agent_config){0};
    int rc = loop_init(&a->loop);
    if (rc < 0) {
        config_fini(&a->config);
        return err_sys(err, -rc, "epoll");
    }
    reap_adopt();
    priority_raise();
    rc = open_all(a, err);
    if (rc == 0) {
        agent_answered(a);
        send_join(a);
        on_tick(a);
        rc = loop_run(&a->loop);
    }
    if (rc == 0 && a->rc < 0) {
        rc = a->rc;
        if (err)
            *err = a->err;
    }
    if (rc == 0)
        rc = agent_pod_code(a);
    close_all(a);
    return rc;
}
