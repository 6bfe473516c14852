/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_agents: the agents that hvdrun launched: reads their pipes, handles their ends. See
 * coordinator.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/coordinator.h"
#include "agent/reap.h"
#include "core/base/clock.h"
#include "core/base/lifeline.h"
#include "core/base/words.h"

#define MESSAGES_MAX 16384
#define HOSTS_MORE   1024 /* hosts that may be added, or retried, while an elastic job runs */
#define REAP_MS      1000
#define SILENT_S     10 /* a living agent polls for events every two seconds */

static int index_of(const struct coordinator *c, const struct launched *l)
{
    return (int)(l - c->agents);
}

static void check_ended(struct coordinator *c, struct launched *l);

/* ---- standard output: frames ---------------------------------------------------------------- */

static void take_frames(struct coordinator *c, struct launched *l)
{
    struct frame frame;
    long n = 0;
    size_t pos = 0;
    while (!l->bad_frames &&
           (n = frame_get(l->frames.data + pos, l->frames.len - pos, &frame)) > 0) {
        printer_put(&c->printer, &frame);
        explain_feed(&c->explain, &frame);
        pos += (size_t)n;
    }
    if (n < 0) {
        l->bad_frames = true;
        coordinator_fail(c, "host %s: its shell prints \"%.*s\" where only the agent should",
                         l->host->name, (int)strcspn((char *)l->frames.data + pos, "\r\n") % 60,
                         (char *)l->frames.data + pos);
    }
    if (l->bad_frames)
        buf_reset(&l->frames);
    else
        buf_consume(&l->frames, pos);
}

/* One read. Returns the bytes read; 0 at the end, after closing the descriptor; -EAGAIN. */
static ssize_t read_pipe(struct coordinator *c, int *fd, struct loop_fd *lfd, struct buf *dst)
{
    uint8_t *room = buf_reserve(dst, 65537);
    if (!room)
        return -EAGAIN;
    ssize_t got = read(*fd, room, 65536);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    if (got > 0) {
        dst->len += (size_t)got;
        room[got] = '\0'; /* so that messages can quote it */
        return got;
    }
    loop_fd_stop(&c->loop, lfd);
    close(*fd);
    *fd = -1;
    return 0;
}

static void on_out(void *arg, uint32_t events)
{
    struct launched *l = arg;
    struct coordinator *c = l->owner;
    (void)events;
    ssize_t got = read_pipe(c, &l->out, &l->out_lfd, &l->frames);
    if (got > 0)
        take_frames(c, l);
    if (got == 0)
        check_ended(c, l);
    if (printer_full(&c->printer))
        coordinator_pause(c, true);
}

void coordinator_pause(struct coordinator *c, bool pause)
{
    for (int i = 0; i < c->roster.agents.n; i++)
        if (c->agents[i].out >= 0)
            loop_fd_set(&c->loop, &c->agents[i].out_lfd, pause ? 0 : EPOLLIN);
}

/* ---- standard error: what the agent or ssh says ---------------------------------------------- */

/* Holds an agent's messages back until it has joined: the last ones may say why it fails to join.
 */
static void pass_messages(struct coordinator *c, struct launched *l, bool all)
{
    size_t n = l->messages.len;
    if (!l->joined && n < MESSAGES_MAX && !all)
        return;
    while (!all && n > 0 && l->messages.data[n - 1] != '\n')
        n--;
    if (n > 0)
        printer_say(&c->printer, (char *)l->messages.data, n);
    buf_consume(&l->messages, n);
}

static void on_err(void *arg, uint32_t events)
{
    struct launched *l = arg;
    struct coordinator *c = l->owner;
    (void)events;
    ssize_t got = read_pipe(c, &l->err, &l->err_lfd, &l->messages);
    if (got > 0)
        pass_messages(c, l, false);
    if (got == 0)
        check_ended(c, l);
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void describe_end(const struct launched *l, char *dst, size_t size)
{
    const char *program = launch_program(l->host);
    if (WIFSIGNALED(l->status))
        snprintf(dst, size, "%s was ended by signal %d", program, WTERMSIG(l->status));
    else
        snprintf(dst, size, "%s ended with code %d", program, WEXITSTATUS(l->status));
}

/* An agent that failed has said why and ended its ranks. In a fixed job this is a failure even if
 * all ranks had finished. */
static void consider_failed(struct coordinator *c, const struct launched *l, const char *how)
{
    bool failed = WIFEXITED(l->status) && WEXITSTATUS(l->status) == 1;
    if (l->joined && failed && !c->job->elastic && !c->stopped && c->roster.ends.first < 0)
        coordinator_fail(c, "host %s: %s: the job fails for the reason that it gave above",
                         l->host->name, how);
}

/* Handles the end of an agent once its process has ended and both pipes are closed. */
static void check_ended(struct coordinator *c, struct launched *l)
{
    char how[512], last[512];
    if (!l->ended || l->out >= 0 || l->err >= 0)
        return;
    c->ended++;
    coordinator_reap_left(l);
    describe_end(l, how, sizeof(how));
    launch_last_message(l, last, sizeof(last));
    /* An agent that was treated as lost before was reported then. */
    bool news = !l->joined && !c->roster.agents.list[index_of(c, l)].lost && !c->stopped;
    if (news && coordinator_can_spare(c, index_of(c, l)))
        coordinator_say(c, 0, "host %s: %s before its agent joined%s%s", l->host->name, how,
                        last[0] ? ": " : "", last);
    else if (news)
        coordinator_fail(c, "host %s: %s before its agent joined%s%s", l->host->name, how,
                         last[0] ? ": " : "", last);
    else
        pass_messages(c, l, true);
    roster_agent_lost(&c->roster, index_of(c, l), how, clock_ns());
    consider_failed(c, l, how);
    c->service.changed(c->service.arg);
}

/* A killed agent cannot end what its ranks started. Repeats for REAP_MS, because dying processes
 * may start more. */
void coordinator_reap_left(struct launched *l)
{
    if (!l->host->local || l->pid <= 0)
        return;
    if (!l->reap_until)
        l->reap_until = deadline_in_ms(REAP_MS);
    if (!deadline_passed(l->reap_until))
        reap_session(l->pid);
}

void coordinator_reap(struct coordinator *c)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (discovery_reap(&c->discovery, pid, status))
            continue;
        for (int i = 0; i < c->roster.agents.n; i++) {
            struct launched *l = &c->agents[i];
            if (l->pid != pid || l->ended)
                continue;
            l->ended = true;
            l->status = status;
            check_ended(c, l);
        }
    }
}

/* This process was stopped or had no processor: it received nothing from agents, so their silence
 * starts anew. */
static void forgive_all(struct coordinator *c, uint64_t now)
{
    if (c->watched && now - c->watched > GAPS_LEAST_MS / 2 * CLOCK_MS)
        for (int i = 0; i < c->roster.agents.n; i++)
            gaps_forgive(&c->roster.agents.list[i].gaps, now);
    c->watched = now;
}

/* How many ns an agent may be silent. Remote agents of elastic jobs send heartbeats, which permits
 * a shorter limit. */
static uint64_t silent_limit(const struct coordinator *c, int agent)
{
    const uint64_t most = SILENT_S * CLOCK_S;
    if (!c->job->elastic || c->job->hosts.list[agent].local)
        return most;
    uint64_t limit = gaps_limit(&c->roster.agents.list[agent].gaps);
    return limit < most ? limit : most;
}

void coordinator_watch_agents(struct coordinator *c)
{
    uint64_t now = clock_ns();
    forgive_all(c, now);
    for (int i = 0; i < c->roster.agents.n; i++) {
        struct launched *l = &c->agents[i];
        struct roster_agent *a = &c->roster.agents.list[i];
        if (a->joined && !l->joined) {
            l->joined = true;
            coordinator_say(c, 1,
                            "the agent on %s (%s, pid %d, %d usable cores) joined after %llu ms",
                            a->host, words(a->self), a->pid, a->reported_slots,
                            (unsigned long long)((now - c->started) / CLOCK_MS));
            pass_messages(c, l, false);
        }
        if (l->reap_until)
            coordinator_reap_left(l);
        uint64_t silent = now - a->gaps.heard;
        if (!a->joined || a->lost || l->ended || silent < silent_limit(c, i))
            continue;
        coordinator_say(c, 0, "the agent on %s has been silent for %.1f s: treated as lost",
                        a->host, (double)silent / CLOCK_S);
        roster_agent_lost(&c->roster, i, "its agent is silent", now);
        launch_kill(l, SIGKILL);
        c->service.changed(c->service.arg);
    }
}

/* ---- launch --------------------------------------------------------------------------------- */

static bool is_forwarded(const char *variable)
{
    const char *const prefixes[] = {"HVD_", "HOROVOD_", "PYTHON"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

extern char **environ;

char **coordinator_environment(const struct coordinator *c)
{
    size_t n = 0, nset = strings_count(c->job->env);
    char **list = calloc(strings_count(environ) + nset + 1, sizeof(*list));
    for (char **e = environ; list && *e; e++)
        if (is_forwarded(*e))
            list[n++] = *e;
    if (list && nset)
        memcpy(list + n, c->job->env, nset * sizeof(*list));
    return list;
}

static int beat_ms(const struct coordinator *c)
{
    const char *text = job_getenv(c->job, "HVD_HEARTBEAT_MS");
    int ms = text ? atoi(text) : LIFELINE_BEAT_MS;
    return ms < LIFELINE_BEAT_MS_MIN || ms > LIFELINE_BEAT_MS_MAX ? LIFELINE_BEAT_MS : ms;
}

static int launch_one(struct coordinator *c, int i, char **remote_env, struct err *err)
{
    struct launched *l = &c->agents[i];
    const struct host *host = &c->job->hosts.list[i];
    struct agent_config config = {
        .agent = c->roster.agents.list[i].uid,
        .host = c->roster.agents.list[i].host,
        .url = c->roster.agents.list[i].self, /* filled by coordinator_open() */
        .unix_path = host->local ? c->unix_path : NULL,
        .ca_pem = host->local ? NULL
                  : l->ca     ? l->ca
                              : c->ca_pem,
        .token = c->token,
        .argv = c->job->argv,
        .env = host->local ? c->job->env : remote_env,
        .cwd = c->job->cwd,
        .cwd_may_lack = !host->local,
        .bind_to = c->job->bind_to,
        .report_bindings = c->job->report_bindings,
        .doctor = c->job->doctor,
        .metrics = c->job->metrics,
        /* In an elastic job a joiner may wait long for a step boundary, and survivors below the
         * minimum may wait elastic_timeout for new ranks. */
        .start_timeout = c->job->elastic && c->job->elastic_timeout > c->job->start_timeout
                             ? c->job->elastic_timeout
                             : c->job->start_timeout,
        .lost_seconds = c->lost_seconds,
        .beat_ms = c->job->elastic && !host->local ? beat_ms(c) : 0,
        .verbose = c->job->verbose > 1 ? c->job->verbose - 1 : 0,
    };
    bool added = l->added;
    int rc = launch(l, host, c->job, &config, err);
    l->owner = c;
    l->added = added;
    l->launched = clock_ns();
    if (rc == 0)
        rc = loop_fd_start(&c->loop, &l->out_lfd, l->out, EPOLLIN, on_out, l);
    if (rc == 0)
        rc = loop_fd_start(&c->loop, &l->err_lfd, l->err, EPOLLIN, on_err, l);
    return rc;
}

int coordinator_make_agents(struct coordinator *c, struct err *err)
{
    int n = c->roster.agents.n;
    c->agents_max = n + (c->job->elastic ? HOSTS_MORE : 0);
    c->agents = calloc((size_t)c->agents_max, sizeof(*c->agents));
    /* Agents point to their hosts, so this array must not move from now on. */
    struct host *hosts =
        realloc(c->job->hosts.list, (size_t)c->agents_max * sizeof(*c->job->hosts.list));
    if (hosts)
        c->job->hosts.list = hosts;
    if (!c->agents || !hosts)
        return err_set(err, ENOMEM, "no memory for %d agents", n);
    for (int i = 0; i < c->agents_max; i++)
        c->agents[i].out = c->agents[i].err = -1;
    return 0;
}

int coordinator_launch(struct coordinator *c, struct err *err)
{
    char **remote_env = coordinator_environment(c);
    int rc = remote_env ? 0 : err_set(err, ENOMEM, "no memory for the environment of agents");
    if (rc == 0)
        rc = coordinator_make_agents(c, err);
    for (int i = 0; i < c->roster.agents.n && rc == 0; i++)
        rc = launch_one(c, i, remote_env, err);
    free(remote_env);
    return rc;
}

int coordinator_launch_more(struct coordinator *c, int index, struct err *err)
{
    char **remote_env = coordinator_environment(c);
    int rc = remote_env ? 0 : err_set(err, ENOMEM, "no memory for one more agent");
    c->agents[index].added = true;
    if (rc == 0)
        rc = launch_one(c, index, remote_env, err);
    free(remote_env);
    return rc;
}
