/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator: see coordinator.h.
 */
#include "agent/coordinator.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/priority.h"
#include "agent/reap.h"
#include "core/base/clock.h"

#define TICK_MS        100
#define PEER_REPORT_MS 1000   /* time for ranks to report a lost peer and exit */
#define LEAVER_MS      5000   /* time for a rank that called hvd_shutdown() too early to exit */
#define ABSENT_MS      300ULL /* missing ranks are reported this long before hvd_init() times out */
#define STOP_GRACE_MS  2000   /* between SIGTERM and SIGKILL */
#define KILL_AFTER_MS  3500   /* after a stop: agents that still run are killed */
#define AGENT_END_MS   10000  /* after the last rank: agents that still run are killed */

void coordinator_say(struct coordinator *c, int level, const char *fmt, ...)
{
    char line[4096] = "hvdrun: ";
    va_list ap;
    if (level > c->job->verbose)
        return;
    va_start(ap, fmt);
    vsnprintf(line + 8, sizeof(line) - 9, fmt, ap);
    va_end(ap);
    size_t n = strlen(line);
    line[n++] = '\n';
    printer_say(&c->printer, line, n);
}

static void stop(struct coordinator *c, const char *reason, int grace_ms)
{
    if (!c->stopped)
        coordinator_say(c, 1, "ending all ranks: %s", reason);
    c->stopped = true;
    c->kill_at = deadline_in_ms((uint64_t)grace_ms + KILL_AFTER_MS - STOP_GRACE_MS);
    roster_stop(&c->roster, reason, grace_ms);
    c->service.changed(c->service.arg);
}

void coordinator_fail(struct coordinator *c, const char *fmt, ...)
{
    va_list ap;
    if (c->reason[0] || c->stopped)
        return;
    va_start(ap, fmt);
    vsnprintf(c->reason, sizeof(c->reason), fmt, ap);
    va_end(ap);
    stop(c, c->reason, STOP_GRACE_MS);
}

/* ---- decisions ------------------------------------------------------------------------------ */

/* How long after the first failure the other ranks are ended. Ranks that work with the failed rank
 * get time to report what they saw; ranks that got the same signal may exit by themselves. If a
 * rank failed because another had called hvd_shutdown(), that rank may still be exiting (Python
 * takes long), and its exit code is waited for. */
static uint64_t failure_wait_ms(const struct coordinator *c)
{
    const struct roster *r = &c->roster;
    int named = roster_named(r);
    if (r->ends.first < 0 && r->members.list[named].state == RANK_LEFT)
        return LEAVER_MS;
    return r->epoch > 0 || r->members.ready > 0 || c->signaled ? PEER_REPORT_MS : 0;
}

static void consider_failure(struct coordinator *c)
{
    const struct roster *r = &c->roster;
    if (c->stopped || (r->ends.first < 0 && r->ends.follower < 0))
        return;
    if (!c->failed_at)
        c->failed_at = clock_ns();
    if (clock_ns() - c->failed_at >= failure_wait_ms(c) * CLOCK_MS) {
        char text[512];
        roster_describe_end(r, roster_named(r), text, sizeof(text));
        stop(c, text, STOP_GRACE_MS);
    }
}

/* A job whose standard output has lost its reader ends, as one process would (SIGPIPE). If output
 * cannot be written for another reason (disk full), the job continues, but its exit code is not 0.
 * If a reader has stopped, the job continues and drops lines. */
static void consider_output(struct coordinator *c)
{
    char what[64];
    int error;
    while ((error = printer_lost(&c->printer, what, sizeof(what)))) {
        c->output_lost = error == EPIPE ? 128 + SIGPIPE : c->output_lost ? c->output_lost : 1;
        if (error == EPIPE)
            coordinator_fail(c, "%s: whoever read it is gone: the job ends", what);
        else
            coordinator_say(c, 0, "%s: %s: what comes after this is lost there; the job goes on",
                            what, strerror(error));
    }
    while (printer_stalled(&c->printer, what, sizeof(what)))
        coordinator_say(c, 0,
                        "%s: its reader has stopped, and HVD_OUTPUT_BUFFER is full: lines are "
                        "dropped there until it reads on; the ranks do not wait for it",
                        what);
}

/* Fixed job: shortly before ranks time out in hvd_init(), tells them which ranks are missing. Ranks
 * that do not fail by themselves are ended a second later. */
static void consider_absent(struct coordinator *c)
{
    char list[512], ready[512];
    struct roster *r = &c->roster;
    if (r->is_elastic)
        return;
    uint64_t limit = (uint64_t)c->job->start_timeout * CLOCK_S;
    uint64_t waited = r->members.ready > 0 ? clock_ns() - r->members.first_ready : 0;
    enum rank_state state = r->epoch == 0 ? RANK_RUNNING : RANK_LEFT;
    if (!c->absent[0] && waited >= limit - ABSENT_MS * CLOCK_MS) {
        int first = 0;
        while (first < r->members.n && r->members.list[first].state != state)
            first++;
        if (first == r->members.n)
            return;
        roster_list(r, state, list, sizeof(list));
        roster_list(r, RANK_READY, ready, sizeof(ready));
        snprintf(c->absent, sizeof(c->absent),
                 "ranks %s did not call hvd_init within %d s; ranks %s waited for them", list,
                 c->job->start_timeout, ready);
        roster_give_up(r, first, c->absent);
        c->service.changed(c->service.arg);
    }
    if (c->absent[0] && waited >= limit + CLOCK_S)
        coordinator_fail(c, "%s", c->absent);
}

/* Enforces the time limits of the start. */
static void consider_start(struct coordinator *c)
{
    const struct roster *r = &c->roster;
    uint64_t now = clock_ns(), limit = (uint64_t)c->job->start_timeout * CLOCK_S;
    if (c->stopped)
        return;
    for (int i = 0; i < r->agents.n && now - c->started > limit; i++)
        if (!r->agents.list[i].joined && !r->agents.list[i].lost && !coordinator_can_spare(c, i))
            coordinator_fail(c, "host %s: its agent has not joined within %d s",
                             r->agents.list[i].host, c->job->start_timeout);
    consider_absent(c);
}

static void say_phases(struct coordinator *c)
{
    const struct roster *r = &c->roster;
    int running = 0;
    for (int i = 0; i < r->members.n; i++)
        running +=
            r->members.list[i].state >= RANK_RUNNING && r->members.list[i].state != RANK_FAILED;
    unsigned long long ms = (clock_ns() - c->started) / CLOCK_MS;
    if (running == r->size && c->said_running < running && r->epoch == 0)
        coordinator_say(c, 1, "all %d ranks run after %llu ms", running, ms);
    c->said_running = running;
    if (r->epoch > 0 && c->said_epoch == 0)
        coordinator_say(c, 1, "all %d ranks are connected (epoch %u) after %llu ms", r->size,
                        r->epoch, ms);
    c->said_epoch = r->epoch;
}

/* Have all agents ended, or were the rest given up? */
static bool is_over(struct coordinator *c)
{
    if (c->ended == c->roster.agents.n && !coordinator_may_retry_hosts(c))
        return true;
    /* Agents of an elastic job do not end by themselves: they wait for more ranks. */
    if (roster_done(&c->roster) && c->roster.is_elastic && !c->stopped)
        stop(c, "all have ended", 0);
    /* An agent ends soon after its last rank, and after all output was read. */
    if (roster_done(&c->roster) && (!c->kill_at || printer_pending(&c->printer) > 0))
        c->kill_at = deadline_in_ms(AGENT_END_MS);
    if (c->kill_at && deadline_passed(c->kill_at)) {
        for (int i = 0; i < c->roster.agents.n; i++)
            launch_kill(&c->agents[i], SIGKILL);
        c->abandon_at = c->abandon_at ? c->abandon_at : deadline_in_ms(1000);
    }
    return c->abandon_at && deadline_passed(c->abandon_at);
}

static void on_tick(void *arg)
{
    struct coordinator *c = arg;
    coordinator_watch_agents(c);
    coordinator_watch_elastic(c);
    coordinator_watch_attached(c);
    coordinator_watch_discovery(c);
    say_phases(c);
    coordinator_say_findings(c);
    consider_failure(c);
    consider_start(c);
    consider_output(c);
    if (is_over(c))
        loop_stop(&c->loop);
    else
        loop_timer_start(&c->loop, &c->tick, TICK_MS, on_tick, c);
}

/* The roster changed: wake waiting polls and run the tick. */
static void on_news(void *arg)
{
    struct coordinator *c = arg;
    coordinator_save_job(c);
    server_wake(c->unix_server);
    for (int i = 0; i < c->ntcp; i++)
        server_wake(c->tcp_servers[i]);
    on_tick(c);
}

static void on_changed(void *arg)
{
    struct coordinator *c = arg;
    if (!c->news.on)
        loop_timer_start(&c->loop, &c->news, 0, on_news, c);
}

static void on_decided(void *arg)
{
    coordinator_save_job(arg);
}

static void on_drained(void *arg)
{
    struct coordinator *c = arg;
    if (!printer_full(&c->printer))
        coordinator_pause(c, false);
}

static void on_signal(void *arg, uint32_t events)
{
    struct coordinator *c = arg;
    int signo;
    (void)events;
    while ((signo = loop_signal_next(&c->signals)) > 0) {
        if (signo == SIGCHLD) {
            coordinator_reap(c);
            continue;
        }
        if (c->flushing) {
            c->flushing = false;
            continue;
        }
        if (signo == SIGINT && ++c->interrupts > 1) {
            coordinator_say(c, 0, "killing all ranks");
            if (c->roster.ends.first < 0 && !c->reason[0])
                snprintf(c->reason, sizeof(c->reason), "interrupted twice");
            stop(c, "interrupted twice", 0);
            continue;
        }
        bool program = signo == SIGUSR1 || signo == SIGUSR2; /* routine: said only with -v */
        coordinator_say(c, program ? 1 : 0, "signal %d (SIG%s) goes to all ranks%s", signo,
                        sigabbrev_np(signo), signo == SIGINT ? "; once more kills them" : "");
        c->signaled = true;
        roster_signal(&c->roster, signo);
        on_changed(c);
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

static int take_signals(struct coordinator *c, struct err *err)
{
    const int forwarded[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
        sigaddset(&set, forwarded[i]);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* so that a file at its size limit is a write error */
    signal(SIGTSTP, SIG_IGN); /* agents would take a stopped hvdrun for lost */
    int rc = loop_signals_start(&c->loop, &c->signals, &set, on_signal, c);
    return rc < 0 ? err_sys(err, -rc, "signalfd") : 0;
}

static int exit_code(int code)
{
    return code < 0 ? 128 - code : code ? code : 1;
}

/* Prints whose end explains the failure, and whose exit code counts if that is another rank's. */
static void say_end(struct coordinator *c, int culprit)
{
    char text[512];
    const struct roster *r = &c->roster;
    int named = roster_named(r);
    roster_describe_end(r, named, text, sizeof(text));
    if (named == culprit) {
        coordinator_say(c, 0, "%s", text);
    } else {
        coordinator_say(c, 0, "%s while other ranks still worked with it", text);
        roster_describe_end(r, culprit, text, sizeof(text));
        coordinator_say(c, 0, "because of that, %s", text);
    }
    if (roster_limit_reached(r))
        coordinator_say(c, 0, "--reset-limit %d is reached: no more ranks are started",
                        r->elastic.reset_limit);
}

/* Prints why the job ended. Returns hvdrun's exit code. */
static int verdict(struct coordinator *c)
{
    const struct roster *r = &c->roster;
    int culprit = roster_culprit(r);
    if (c->reason[0]) {
        coordinator_say(c, 0, "%s", c->reason);
        if (!c->interrupts)
            coordinator_say_cause(c);
        if (c->gave_up && r->ends.last_failed >= 0 && !c->interrupts)
            return exit_code(r->members.list[r->ends.last_failed].code);
        return c->interrupts > 1 ? 128 + SIGINT : c->output_lost ? c->output_lost : 1;
    }
    if (culprit < 0)
        return !roster_done(r) ? 1 : c->output_lost;
    if (c->job->reports && culprit == 0 && r->members.list[0].code == 1)
        return 1;
    say_end(c, culprit);
    if (c->absent[0])
        coordinator_say(c, 0, "before that, %s", c->absent);
    if (r->members.list[culprit].tail) {
        coordinator_say(c, 0, "the last lines of its stderr:");
        char *save, *tail = r->members.list[culprit].tail;
        for (char *line = strtok_r(tail, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
            coordinator_say(c, 0, "  %s", line);
    }
    coordinator_say_cause(c);
    coordinator_say_host(c, culprit);
    return roster_exit_code(r);
}

/* The job has ended. Waits until the output is read; a signal ends this wait. */
static void flush(struct coordinator *c)
{
    printer_finish(&c->printer);
    c->flushing = true;
    while (printer_pending(&c->printer) > 0 && c->flushing) {
        c->loop.stop = false; /* loop_once() runs no callback while stop is set */
        loop_once(&c->loop, 1000);
    }
}

static int begin(struct coordinator *c, const struct job_entry *entry,
                 const struct saved_job *saved, struct err *err)
{
    int rc = saved ? coordinator_reopen(c, entry, saved, err) : coordinator_open(c, err);
    if (rc < 0)
        return rc;
    if (saved)
        coordinator_say(c, 1, "job %s: taking it over; membership socket %s", c->roster.job,
                        c->unix_path);
    else
        coordinator_say(c, 1, "job %s: %d ranks on %d host(s); membership socket %s", c->roster.job,
                        c->roster.size, c->roster.agents.n, c->unix_path);
    if (saved) /* its agents run; coordinator_watch_attached() starts the discovery */
        return 0;
    rc = coordinator_launch(c, err);
    return rc < 0 ? rc : coordinator_discover(c, err);
}

/* saved NULL: starts a new job. c has only its first fields set. */
static int run(struct coordinator *c, const struct job_entry *entry, const struct saved_job *saved,
               struct err *err)
{
    struct job *job = c->job;
    c->service = (struct service){.roster = &c->roster,
                                  .changed = on_changed,
                                  .arg = c,
                                  .output = saved ? coordinator_take_output : NULL,
                                  .adopted = saved ? coordinator_adopted : NULL,
                                  .keep = on_decided};
    int code = 1, rc = loop_init(&c->loop);
    if (rc < 0) {
        err_sys(err, -rc, "epoll");
        return 1;
    }
    reap_adopt();
    priority_raise();
    if (job->doctor != DOCTOR_OFF)
        explain_init(&c->explain, hosts_ranks(&job->hosts), job->output_dir);
    rc = printer_init(&c->printer, &c->loop, hosts_ranks(&job->hosts), !job->no_prefix,
                      job->output_dir, saved != NULL, on_drained, c, err);
    if (rc == 0)
        rc = take_signals(c, err);
    if (rc == 0)
        rc = begin(c, entry, saved, err);
    if (rc == 0) {
        on_tick(c);
        loop_run(&c->loop);
        flush(c);
        consider_output(c);
        code = verdict(c);
        flush(c);
    }
    coordinator_close(c);
    explain_fini(&c->explain);
    printer_fini(&c->printer);
    loop_fini(&c->loop);
    return code;
}

int coordinator_run(struct coordinator *c, struct job *job, struct err *err)
{
    *c = (struct coordinator){.job = job, .started = clock_ns(), .dir_lock = -1};
    return run(c, NULL, NULL, err);
}

int coordinator_attach(struct coordinator *c, const struct job_entry *entry,
                       struct saved_job *saved, int lock, struct err *err)
{
    *c = (struct coordinator){.job = &saved->job, .started = clock_ns(), .dir_lock = lock};
    return run(c, entry, saved, err);
}
