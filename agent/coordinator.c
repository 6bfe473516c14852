/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator: see coordinator.h.
 */
#include "agent/coordinator.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/coordinator_findings.h"
#include "agent/priority.h"
#include "agent/reap.h"
#include "core/base/clock.h"

#define TICK_MS        100
#define PEER_REPORT_MS 1000   /* time for ranks to report a lost peer and exit */
#define LEAVER_MS      5000   /* time to exit for a rank that called hvd_shutdown() too early */
#define ABSENT_MS      300ULL /* missing ranks are reported this long before hvd_init() times out */
#define AGENT_END_MS   10000  /* agents that still run so long after the last rank are killed */

/* ---- decisions ------------------------------------------------------------------------------ */

/* How long after the first failure the other ranks are ended. Ranks that work with the failed rank
 * get time to report what they saw; ranks that got the same signal may exit by themselves. If a
 * rank failed because another had called hvd_shutdown(), that rank may still be exiting (Python
 * takes long), and its exit code is waited for. */
static uint64_t failure_wait_ms(const struct coordinator *c)
{
    const struct roster *r = &c->core.roster;
    int named = roster_named(r);
    if (r->ends.first < 0 && r->members.list[named].state == RANK_LEFT)
        return LEAVER_MS;
    return r->epoch > 0 || r->members.ready > 0 || c->signaled ? PEER_REPORT_MS : 0;
}

static void consider_failure(struct coordinator *c)
{
    const struct roster *r = &c->core.roster;
    if (c->core.roster.stopping || (r->ends.first < 0 && r->ends.follower < 0))
        return;
    if (!c->failed_at)
        c->failed_at = clock_ns();
    if (clock_ns() - c->failed_at >= failure_wait_ms(c) * CLOCK_MS) {
        char text[512];
        roster_describe_end(r, roster_named(r), text, sizeof(text));
        coordinator_stop(&c->core, text, STOP_GRACE_MS);
    }
}

/* A job whose standard output has lost its reader ends, as one process would (SIGPIPE). If output
 * cannot be written for another reason (disk full), the job continues, but its exit code is not 0.
 * If a reader has stopped, the job continues and drops lines. */
static void consider_output(struct coordinator *c)
{
    char what[64];
    int error;
    while ((error = printer_lost(&c->core.printer, what, sizeof(what)))) {
        c->output_lost = error == EPIPE ? 128 + SIGPIPE : c->output_lost ? c->output_lost : 1;
        if (error == EPIPE)
            coordinator_fail(&c->core, "%s: the process that read it has ended, so the job ends",
                             what);
        else
            coordinator_say(&c->core, 0,
                            "%s: %s: later output is not written there; the job continues", what,
                            strerror(error));
    }
    while (printer_stalled(&c->core.printer, what, sizeof(what)))
        coordinator_say(&c->core, 0,
                        "%s: its reader has stopped, and HVD_OUTPUT_BUFFER is full: lines are "
                        "dropped there until it reads on; the ranks do not wait for it",
                        what);
}

/* Fixed job: shortly before ranks time out in hvd_init(), tells them which ranks are missing. Ranks
 * that do not fail by themselves are ended a second later. */
static void consider_absent(struct coordinator *c)
{
    char list[512], ready[512];
    struct roster *r = &c->core.roster;
    if (r->is_elastic)
        return;
    uint64_t limit = (uint64_t)c->core.job->start_timeout * CLOCK_S;
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
                 c->core.job->start_timeout, ready);
        roster_give_up(r, first, c->absent);
        coordinator_changed(&c->core);
    }
    if (c->absent[0] && waited >= limit + CLOCK_S)
        coordinator_fail(&c->core, "%s", c->absent);
}

/* Enforces the time limits of the start. */
static void consider_start(struct coordinator *c)
{
    const struct roster *r = &c->core.roster;
    uint64_t now = clock_ns(), limit = (uint64_t)c->core.job->start_timeout * CLOCK_S;
    if (c->core.roster.stopping)
        return;
    for (int i = 0; i < r->agents.n && now - c->core.started > limit; i++)
        if (!r->agents.list[i].joined && !r->agents.list[i].lost &&
            !coordinator_agents_can_spare(&c->agents, i))
            coordinator_fail(&c->core, "host %s: its agent has not joined within %d s",
                             r->agents.list[i].host, c->core.job->start_timeout);
    consider_absent(c);
}

static void say_phases(struct coordinator *c)
{
    const struct roster *r = &c->core.roster;
    int running = 0;
    for (int i = 0; i < r->members.n; i++)
        running +=
            r->members.list[i].state >= RANK_RUNNING && r->members.list[i].state != RANK_FAILED;
    unsigned long long ms = (clock_ns() - c->core.started) / CLOCK_MS;
    if (running == r->size && c->said_running < running && r->epoch == 0)
        coordinator_say(&c->core, 1, "all %d ranks run after %llu ms", running, ms);
    c->said_running = running;
    if (r->epoch > 0 && !c->said_connected)
        coordinator_say(&c->core, 1, "all %d ranks are connected (epoch %u) after %llu ms", r->size,
                        r->epoch, ms);
    c->said_connected = r->epoch > 0;
}

/* Have all agents ended, or were the remaining agents given up? */
static bool is_over(struct coordinator *c)
{
    if (c->agents.ended == c->core.roster.agents.n &&
        !coordinator_discovery_may_retry(&c->discovery))
        return true;
    /* Agents of an elastic job do not end by themselves: they wait for more ranks. */
    if (roster_done(&c->core.roster) && c->core.roster.is_elastic && !c->core.roster.stopping)
        coordinator_stop(&c->core, "all have ended", 0);
    /* An agent ends soon after its last rank, and after all output was read. */
    if (roster_done(&c->core.roster) && (!c->core.kill_at || printer_pending(&c->core.printer) > 0))
        c->core.kill_at = deadline_in_ms(AGENT_END_MS);
    if (c->core.kill_at && deadline_passed(c->core.kill_at)) {
        coordinator_agents_kill(&c->agents);
        c->abandon_at = c->abandon_at ? c->abandon_at : deadline_in_ms(1000);
    }
    return c->abandon_at && deadline_passed(c->abandon_at);
}

static void on_tick(void *arg)
{
    struct coordinator *c = arg;
    coordinator_agents_check(&c->agents);
    coordinator_elastic_check(&c->elastic);
    coordinator_check_attached(c);
    coordinator_discovery_check(&c->discovery);
    say_phases(c);
    coordinator_say_findings(&c->core);
    consider_failure(c);
    consider_start(c);
    consider_output(c);
    if (is_over(c))
        loop_stop(&c->core.loop);
    else
        loop_timer_start(&c->core.loop, &c->tick, TICK_MS, on_tick, c);
}

/* The roster changed: wake waiting polls and run the tick. */
static void on_news(void *arg)
{
    struct coordinator *c = arg;
    coordinator_save_job(&c->save);
    coordinator_servers_wake(&c->servers);
    on_tick(c);
}

static void on_changed(void *arg)
{
    struct coordinator *c = arg;
    if (!c->news.on)
        loop_timer_start(&c->core.loop, &c->news, 0, on_news, c);
}

static void on_decided(void *arg)
{
    struct coordinator *c = arg;
    coordinator_save_job(&c->save);
}

static bool is_adopted(void *arg, int agent)
{
    const struct coordinator *c = arg;
    return c->agents.list[agent].attached;
}

static int take_output(void *arg, int agent, const struct printed_body *body)
{
    struct coordinator *c = arg;
    return coordinator_agents_take_output(&c->agents, agent, body);
}

static void reap(struct coordinator *c)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (!discovery_reap(&c->discovery.script, pid, status))
            coordinator_agents_reaped(&c->agents, pid, status);
}

static void on_drained(void *arg)
{
    struct coordinator *c = arg;
    if (!printer_full(&c->core.printer))
        coordinator_agents_pause(&c->agents, false);
}

static void on_signal(void *arg, uint32_t events)
{
    struct coordinator *c = arg;
    int signo;
    (void)events;
    while ((signo = loop_signal_next(&c->signals)) > 0) {
        if (signo == SIGCHLD) {
            reap(c);
            continue;
        }
        if (c->flushing) {
            c->flushing = false;
            continue;
        }
        if (signo == SIGINT && ++c->interrupts > 1) {
            coordinator_say(&c->core, 0, "killing all ranks");
            if (c->core.roster.ends.first < 0 && !c->core.reason[0])
                snprintf(c->core.reason, sizeof(c->core.reason), "interrupted twice");
            coordinator_stop(&c->core, "interrupted twice", 0);
            continue;
        }
        bool program = signo == SIGUSR1 || signo == SIGUSR2; /* routine: said only with -v */
        coordinator_say(&c->core, program ? 1 : 0, "signal %d (SIG%s) goes to all ranks%s", signo,
                        sigabbrev_np(signo), signo == SIGINT ? "; once more kills them" : "");
        c->signaled = true;
        roster_signal(&c->core.roster, signo);
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
    int rc = loop_signals_start(&c->core.loop, &c->signals, &set, on_signal, c);
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
    const struct roster *r = &c->core.roster;
    int named = roster_named(r);
    roster_describe_end(r, named, text, sizeof(text));
    if (named == culprit) {
        coordinator_say(&c->core, 0, "%s", text);
    } else {
        coordinator_say(&c->core, 0, "%s while other ranks still worked with it", text);
        roster_describe_end(r, culprit, text, sizeof(text));
        coordinator_say(&c->core, 0, "because of that, %s", text);
    }
    if (roster_limit_reached(r))
        coordinator_say(&c->core, 0, "--reset-limit %d is reached: no more ranks are started",
                        r->elastic.reset_limit);
}

/* Prints why the job ended. Returns hvdrun's exit code. */
static int verdict(struct coordinator *c)
{
    const struct roster *r = &c->core.roster;
    int culprit = roster_culprit(r);
    if (c->core.reason[0]) {
        coordinator_say(&c->core, 0, "%s", c->core.reason);
        if (!c->interrupts)
            coordinator_say_cause(&c->core);
        if (c->elastic.gave_up && r->ends.last_failed >= 0 && !c->interrupts)
            return exit_code(r->members.list[r->ends.last_failed].code);
        return c->interrupts > 1 ? 128 + SIGINT : c->output_lost ? c->output_lost : 1;
    }
    if (culprit < 0)
        return !roster_done(r) ? 1 : c->output_lost;
    if (c->core.job->reports && culprit == 0 && r->members.list[0].code == 1)
        return 1;
    say_end(c, culprit);
    if (c->absent[0])
        coordinator_say(&c->core, 0, "before that, %s", c->absent);
    if (r->members.list[culprit].tail && !c->core.job->reports) {
        coordinator_say(&c->core, 0, "the last lines of its stderr:");
        char *save, *tail = r->members.list[culprit].tail;
        for (char *line = strtok_r(tail, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
            coordinator_say(&c->core, 0, "  %s", line);
    }
    coordinator_say_cause(&c->core);
    coordinator_say_host(&c->core, culprit);
    return roster_exit_code(r);
}

/* The job has ended. Waits until the output is read; a signal ends this wait. */
static void flush(struct coordinator *c)
{
    printer_finish(&c->core.printer);
    c->flushing = true;
    while (printer_pending(&c->core.printer) > 0 && c->flushing) {
        c->core.loop.stop = false; /* loop_once() runs no callback while stop is set */
        loop_once(&c->core.loop, 1000);
    }
}

static int begin(struct coordinator *c, const struct job_entry *entry,
                 const struct saved_job *saved, struct err *err)
{
    int rc = saved ? coordinator_reopen(c, entry, saved, err) : coordinator_open(c, err);
    if (rc < 0)
        return rc;
    if (saved)
        coordinator_say(&c->core, 1, "job %s: taking it over; membership socket %s",
                        c->core.roster.job, c->servers.unix_path);
    else
        coordinator_say(&c->core, 1, "job %s: %d ranks on %d host(s); membership socket %s",
                        c->core.roster.job, c->core.roster.size, c->core.roster.agents.n,
                        c->servers.unix_path);
    if (saved) /* agents run already; coordinator_check_attached() starts the discovery */
        return 0;
    rc = coordinator_agents_launch(&c->agents, err);
    return rc < 0 ? rc : coordinator_discovery_start(&c->discovery, err);
}

/* saved NULL: starts a new job. make() has prepared c. */
static int run(struct coordinator *c, const struct job_entry *entry, const struct saved_job *saved,
               struct err *err)
{
    struct job *job = c->core.job;
    c->core.service = (struct service){.roster = &c->core.roster,
                                       .changed = on_changed,
                                       .arg = c,
                                       .output = saved ? take_output : NULL,
                                       .adopted = saved ? is_adopted : NULL,
                                       .keep = on_decided};
    int code = 1, rc = loop_init(&c->core.loop);
    if (rc < 0) {
        err_sys(err, -rc, "epoll");
        return 1;
    }
    reap_adopt();
    priority_raise();
    if (job->doctor != DOCTOR_OFF)
        explain_init(&c->core.explain, hosts_ranks(&job->hosts), job->output_dir);
    rc = printer_init(&c->core.printer, &c->core.loop, hosts_ranks(&job->hosts), !job->no_prefix,
                      job->output_dir, saved != NULL, on_drained, c, err);
    c->core.printer.stamps = job->stamps;
    if (rc == 0)
        rc = take_signals(c, err);
    if (rc == 0)
        rc = begin(c, entry, saved, err);
    if (rc == 0) {
        on_tick(c);
        loop_run(&c->core.loop);
        flush(c);
        consider_output(c);
        code = verdict(c);
        flush(c);
    }
    coordinator_close(c);
    explain_fini(&c->core.explain);
    printer_fini(&c->core.printer);
    loop_fini(&c->core.loop);
    return code;
}

/* The parts of a coordinator know only the parts before them. */
static void make(struct coordinator *c, struct job *job, int dir_lock)
{
    *c = (struct coordinator){.core = {.job = job, .started = clock_ns()}, .dir_lock = dir_lock};
    c->elastic.core = &c->core;
    c->servers.core = &c->core;
    c->save = (struct coordinator_save){.core = &c->core,
                                        .servers = &c->servers,
                                        .dir = c->dir,
                                        .first_hosts = &c->discovery.first_hosts};
    c->agents.core = &c->core;
    c->agents.servers = &c->servers;
    c->discovery.core = &c->core;
    c->discovery.servers = &c->servers;
    c->discovery.agents = &c->agents;
}

int coordinator_run(struct coordinator *c, struct job *job, struct err *err)
{
    make(c, job, -1);
    return run(c, NULL, NULL, err);
}

int coordinator_attach(struct coordinator *c, const struct job_entry *entry,
                       struct saved_job *saved, int lock, struct err *err)
{
    make(c, &saved->job, lock);
    return run(c, entry, saved, err);
}
