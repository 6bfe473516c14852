/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_agents: see coordinator_agents.h.
 */
#include "agent/coordinator_agents.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/env.h"
#include "core/base/lifeline.h"
#include "core/base/words.h"

#define MESSAGES_MAX   16384
#define HOSTS_MORE     1024 /* hosts that may be added, or retried, while an elastic job runs */
#define LOST_FIXED_S   5    /* seconds that ranks outlive hvdrun */
#define LOST_ELASTIC_S 60
#define LOST_MAX_S     86400
#define SILENT_S       10 /* a living agent polls for events every two seconds */

static int index_of(const struct coordinator_agents *as, const struct launched *l)
{
    return (int)(l - as->list);
}

static void check_ended(struct coordinator_agents *as, struct launched *l);

/* ---- standard output: frames ---------------------------------------------------------------- */

static void take_frames(struct coordinator_agents *as, struct launched *l)
{
    struct frame frame;
    long n = 0;
    size_t pos = 0;
    while (!l->bad_frames &&
           (n = frame_get(l->frames.data + pos, l->frames.len - pos, &frame)) > 0) {
        printer_put(&as->core->printer, &frame);
        explain_feed(&as->core->explain, &frame);
        pos += (size_t)n;
    }
    if (n < 0) {
        l->bad_frames = true;
        coordinator_fail(as->core,
                         "host %s: its login shell prints \"%.*s\" on standard output, which is "
                         "for the agent alone: silence the shell's startup files",
                         l->host->name, (int)strcspn((char *)l->frames.data + pos, "\r\n") % 60,
                         (char *)l->frames.data + pos);
    }
    if (l->bad_frames)
        buf_reset(&l->frames);
    else
        buf_consume(&l->frames, pos);
}

/* One read. Returns the bytes read; 0 at the end, after closing the descriptor; -EAGAIN. */
static ssize_t read_pipe(struct coordinator_agents *as, int *fd, struct loop_fd *lfd,
                         struct buf *dst)
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
    loop_fd_stop(&as->core->loop, lfd);
    close(*fd);
    *fd = -1;
    return 0;
}

static void on_out(void *arg, uint32_t events)
{
    struct launched *l = arg;
    struct coordinator_agents *as = l->owner;
    (void)events;
    ssize_t got = read_pipe(as, &l->out, &l->out_lfd, &l->frames);
    if (got > 0)
        take_frames(as, l);
    if (got == 0)
        check_ended(as, l);
    if (printer_full(&as->core->printer))
        coordinator_agents_pause(as, true);
}

void coordinator_agents_pause(struct coordinator_agents *as, bool pause)
{
    for (int i = 0; i < as->core->roster.agents.n; i++)
        if (as->list[i].out >= 0)
            loop_fd_set(&as->core->loop, &as->list[i].out_lfd, pause ? 0 : EPOLLIN);
}

/* ---- standard error: what the agent or ssh says ---------------------------------------------- */

/* Holds an agent's messages back until it has joined: the last ones may say why it fails to join.
 */
static void pass_messages(struct coordinator_agents *as, struct launched *l, bool all)
{
    size_t n = l->messages.len;
    if (!l->joined && n < MESSAGES_MAX && !all)
        return;
    while (!all && n > 0 && l->messages.data[n - 1] != '\n')
        n--;
    if (n > 0)
        printer_say(&as->core->printer, (char *)l->messages.data, n);
    buf_consume(&l->messages, n);
}

static void on_err(void *arg, uint32_t events)
{
    struct launched *l = arg;
    struct coordinator_agents *as = l->owner;
    (void)events;
    ssize_t got = read_pipe(as, &l->err, &l->err_lfd, &l->messages);
    if (got > 0)
        pass_messages(as, l, false);
    if (got == 0)
        check_ended(as, l);
}

/* ---- ends ----------------------------------------------------------------------------------- */

bool coordinator_agents_can_spare(const struct coordinator_agents *as, int agent)
{
    const struct roster *r = &as->core->roster;
    int slots = 0;
    if (!r->is_elastic || as->list[agent].added || r->epoch > 0)
        return r->is_elastic;
    for (int i = 0; i < r->agents.n; i++)
        if (i != agent && !r->agents.list[i].lost && !r->agents.list[i].draining)
            slots += r->agents.list[i].nslots;
    return slots >= r->elastic.min;
}

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
static void consider_failed(struct coordinator_agents *as, const struct launched *l,
                            const char *how)
{
    bool failed = WIFEXITED(l->status) && WEXITSTATUS(l->status) == 1;
    if (l->joined && failed && !as->core->job->elastic && !as->core->roster.stopping &&
        as->core->roster.ends.first < 0)
        coordinator_fail(as->core,
                         "host %s: %s: the job fails for the reason that this agent printed above",
                         l->host->name, how);
}

/* Handles the end of an agent once its process has ended and both pipes are closed. */
static void check_ended(struct coordinator_agents *as, struct launched *l)
{
    char how[512], last[512];
    if (!l->ended || l->out >= 0 || l->err >= 0)
        return;
    as->ended++;
    launch_reap_left(l);
    describe_end(l, how, sizeof(how));
    launch_last_message(l, last, sizeof(last));
    /* If the agent counted as lost before, its loss was reported then. */
    bool news = !l->joined && !as->core->roster.agents.list[index_of(as, l)].lost &&
                !as->core->roster.stopping;
    if (news && coordinator_agents_can_spare(as, index_of(as, l)))
        coordinator_say(as->core, 0, "host %s: %s before its agent joined%s%s", l->host->name, how,
                        last[0] ? ": " : "", last);
    else if (news)
        coordinator_fail(as->core, "host %s: %s before its agent joined%s%s", l->host->name, how,
                         last[0] ? ": " : "", last);
    else
        pass_messages(as, l, true);
    roster_agent_lost(&as->core->roster, index_of(as, l), how, clock_ns());
    consider_failed(as, l, how);
    coordinator_changed(as->core);
}

void coordinator_agents_reaped(struct coordinator_agents *as, pid_t pid, int status)
{
    for (int i = 0; i < as->core->roster.agents.n; i++) {
        struct launched *l = &as->list[i];
        if (l->pid != pid || l->ended)
            continue;
        l->ended = true;
        l->status = status;
        check_ended(as, l);
    }
}

/* If this process was stopped or got no processor time, it received nothing from agents: their
 * silence starts anew. */
static void forgive_all(struct coordinator_agents *as, uint64_t now)
{
    if (as->measured && now - as->measured > GAPS_LEAST_MS / 2 * CLOCK_MS)
        for (int i = 0; i < as->core->roster.agents.n; i++)
            gaps_forgive(&as->core->roster.agents.list[i].gaps, now);
    as->measured = now;
}

static int beat_ms(const struct coordinator_agents *as)
{
    const char *text = job_getenv(as->core->job, "HVD_HEARTBEAT_MS");
    int ms = text ? atoi(text) : LIFELINE_BEAT_MS;
    return ms < LIFELINE_BEAT_MS_MIN || ms > LIFELINE_BEAT_MS_MAX ? LIFELINE_BEAT_MS : ms;
}

/* How many ns an agent may be silent. Remote agents of elastic jobs send heartbeats, every `beat`
 * ms, which permits a shorter limit. */
static uint64_t silent_limit(const struct coordinator_agents *as, int agent, int beat)
{
    const uint64_t most = SILENT_S * CLOCK_S;
    if (!as->core->job->elastic || as->core->job->hosts.list[agent].local)
        return most;
    uint64_t limit = gaps_limit(&as->core->roster.agents.list[agent].gaps, beat);
    return limit < most ? limit : most;
}

void coordinator_agents_check(struct coordinator_agents *as)
{
    uint64_t now = clock_ns();
    int beat = beat_ms(as);
    forgive_all(as, now);
    for (int i = 0; i < as->core->roster.agents.n; i++) {
        struct launched *l = &as->list[i];
        struct roster_agent *a = &as->core->roster.agents.list[i];
        if (a->joined && !l->joined) {
            l->joined = true;
            coordinator_say(as->core, 1,
                            "the agent on %s (%s, pid %d, %d usable cores) joined after %llu ms",
                            a->host, words(a->self), a->pid, a->reported_slots,
                            (unsigned long long)((now - as->core->started) / CLOCK_MS));
            pass_messages(as, l, false);
        }
        if (l->reap_until)
            launch_reap_left(l);
        uint64_t silent = now - a->gaps.heard;
        if (!a->joined || a->lost || l->ended || silent < silent_limit(as, i, beat))
            continue;
        coordinator_say(as->core, 0, "the agent on %s has been silent for %.1f s: treated as lost",
                        a->host, (double)silent / CLOCK_S);
        roster_agent_lost(&as->core->roster, i, "its agent is silent", now);
        launch_kill(l, SIGKILL);
        coordinator_changed(as->core);
    }
}

/* ---- launch --------------------------------------------------------------------------------- */

int coordinator_agents_read_settings(struct coordinator_agents *as, struct err *err)
{
    int64_t seconds = 0;
    int rc =
        env_int("COORDINATOR_LOST_SECONDS", as->core->job->elastic ? LOST_ELASTIC_S : LOST_FIXED_S,
                1, LOST_MAX_S, &seconds, err);
    as->lost_seconds = (int)seconds;
    return rc;
}

static int launch_one(struct coordinator_agents *as, int i, char **remote_env, struct err *err)
{
    struct launched *l = &as->list[i];
    const struct host *host = &as->core->job->hosts.list[i];
    struct agent_config config = {
        .agent = as->core->roster.agents.list[i].uid,
        .host = as->core->roster.agents.list[i].host,
        .url = as->core->roster.agents.list[i].self, /* filled by coordinator_open() */
        .unix_path = host->local ? as->servers->unix_path : NULL,
        .ca_pem = host->local ? NULL
                  : l->ca     ? l->ca
                              : as->servers->ca_pem,
        .token = as->servers->token,
        .argv = as->core->job->argv,
        .env = host->local ? as->core->job->env : remote_env,
        .cwd = as->core->job->cwd,
        .cwd_may_lack = !host->local,
        .bind_to = as->core->job->bind_to,
        .report_bindings = as->core->job->report_bindings,
        .doctor = as->core->job->doctor,
        .metrics = as->core->job->metrics,
        /* In an elastic job a joiner may wait long for a step boundary, and survivors below the
         * minimum may wait elastic_timeout for new ranks. */
        .start_timeout =
            as->core->job->elastic && as->core->job->elastic_timeout > as->core->job->start_timeout
                ? as->core->job->elastic_timeout
                : as->core->job->start_timeout,
        .lost_seconds = as->lost_seconds,
        .beat_ms = as->core->job->elastic && !host->local ? beat_ms(as) : 0,
        .verbose = as->core->job->verbose > 1 ? as->core->job->verbose - 1 : 0,
    };
    bool added = l->added;
    int rc = launch(l, host, as->core->job, &config, err);
    l->owner = as;
    l->added = added;
    l->launched = clock_ns();
    if (rc == 0)
        rc = loop_fd_start(&as->core->loop, &l->out_lfd, l->out, EPOLLIN, on_out, l);
    if (rc == 0)
        rc = loop_fd_start(&as->core->loop, &l->err_lfd, l->err, EPOLLIN, on_err, l);
    return rc;
}

int coordinator_agents_make(struct coordinator_agents *as, struct err *err)
{
    int n = as->core->roster.agents.n;
    as->max = n + (as->core->job->elastic ? HOSTS_MORE : 0);
    as->list = calloc((size_t)as->max, sizeof(*as->list));
    /* Agents point to their hosts, so this array must not move from now on. */
    struct host *hosts =
        realloc(as->core->job->hosts.list, (size_t)as->max * sizeof(*as->core->job->hosts.list));
    if (hosts)
        as->core->job->hosts.list = hosts;
    if (!as->list || !hosts)
        return err_set(err, ENOMEM, "no memory for %d agents", n);
    for (int i = 0; i < as->max; i++)
        as->list[i].out = as->list[i].err = -1;
    return 0;
}

int coordinator_agents_launch(struct coordinator_agents *as, struct err *err)
{
    char **remote_env = job_remote_environment(as->core->job);
    int rc = remote_env ? 0 : err_set(err, ENOMEM, "no memory for the environment of agents");
    if (rc == 0)
        rc = coordinator_agents_make(as, err);
    for (int i = 0; i < as->core->roster.agents.n && rc == 0; i++)
        rc = launch_one(as, i, remote_env, err);
    free(remote_env);
    return rc;
}

int coordinator_agents_launch_more(struct coordinator_agents *as, int index, char *ca,
                                   struct err *err)
{
    char **remote_env = job_remote_environment(as->core->job);
    int rc = remote_env ? 0 : err_set(err, ENOMEM, "no memory for one more agent");
    as->list[index].added = true;
    as->list[index].ca = ca;
    if (rc == 0)
        rc = launch_one(as, index, remote_env, err);
    free(remote_env);
    return rc;
}

void coordinator_agents_unlaunched(struct coordinator_agents *as, int agent, const char *why)
{
    as->list[agent].ended = true;
    as->ended++;
    roster_agent_lost(&as->core->roster, agent, why, clock_ns());
}

void coordinator_agents_kill(struct coordinator_agents *as)
{
    for (int i = 0; as->list && i < as->core->roster.agents.n; i++)
        launch_kill(&as->list[i], SIGKILL);
}

void coordinator_agents_fini(struct coordinator_agents *as)
{
    for (int i = 0; as->list && i < as->core->roster.agents.n; i++)
        launch_fini(&as->list[i], &as->core->loop);
    free(as->list);
    as->list = NULL;
}
