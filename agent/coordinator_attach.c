/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_attach: what hvdrun writes down for another hvdrun, and how hvdrun attach takes a job
 * over: it uses the previous one's directory, addresses and keys; the agents are not its children,
 * and their output arrives over the network. See coordinator.h; saved_job.h has the file.
 */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/coordinator.h"
#include "agent/jobs.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"

/* Time for agents to rejoin, which they try several times a second; the rest is lost. */
#define GATHER_MS 10000
#define PORT_MS   3000

/* ---- what is left behind -------------------------------------------------------------------- */

static bool is_leaving(const struct roster_member *m)
{
    return m->leaving && !rank_has_ended(m->state);
}

/* A hash of all that coordinator_save_job() writes and that can change. */
static uint64_t sum_up(const struct coordinator *c)
{
    const struct roster *r = &c->roster;
    uint64_t sum = 1469598103934665603ULL;
    uint64_t parts[] = {
        (uint64_t)r->target,   (uint64_t)r->members.n,         (uint64_t)r->agents.n,
        (uint64_t)r->restarts, (uint64_t)r->changes.requested, (uint64_t)c->ntcp,
        (uint64_t)r->term};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        sum = (sum ^ parts[i]) * 1099511628211ULL;
    for (int i = 0; i < r->members.n; i++)
        if (is_leaving(&r->members.list[i]))
            sum = (sum ^ (uint64_t)i) * 1099511628211ULL;
    for (int i = 0; i < r->agents.n; i++) {
        const struct roster_agent *a = &r->agents.list[i];
        sum = (sum ^ (uint64_t)(a->lost + 2 * a->draining)) * 1099511628211ULL;
        sum = (sum ^ (uint64_t)a->nslots) * 1099511628211ULL;
    }
    return sum;
}

/* Fills k; strings are lent. -ENOMEM. */
static int fill_saved(const struct coordinator *c, struct saved_job *k)
{
    const struct roster *r = &c->roster;
    *k = (struct saved_job){.job = *c->job,
                            .term = r->term,
                            .change = r->changes.requested,
                            .target = r->target,
                            .nmembers = r->members.n,
                            .restarts = r->restarts,
                            .first_hosts = c->first_hosts,
                            .nagents = r->agents.n,
                            .nservers = c->ntcp};
    gethostname(k->host, sizeof(k->host) - 1);
    saved_job_home(k->home);
    k->environment = coordinator_environment(c);
    k->agents = calloc((size_t)r->agents.n + 1, sizeof(*k->agents));
    k->leaving = calloc((size_t)r->members.n + 1, sizeof(*k->leaving));
    if (!k->agents || !k->leaving || !k->environment)
        return -ENOMEM;
    for (int i = 0; i < r->agents.n; i++) {
        const struct roster_agent *a = &r->agents.list[i];
        snprintf(k->agents[i].uid, sizeof(k->agents[i].uid), "%s", a->uid);
        k->agents[i].slots = a->nslots;
        k->agents[i].room = a->room > a->nslots ? a->room : a->nslots;
        k->agents[i].gone = a->lost;
        k->agents[i].draining = a->draining;
    }
    for (int i = 0; i < r->members.n; i++)
        if (is_leaving(&r->members.list[i]))
            k->leaving[k->nleaving++] = i;
    for (int i = 0; i < c->ntcp; i++) {
        memcpy(k->servers[i].address, c->tcp_addresses[i], sizeof(c->tcp_addresses[i]));
        k->servers[i].port = server_port(c->tcp_servers[i]);
        k->servers[i].authority = c->tcp_authority[i];
    }
    return 0;
}

void coordinator_save_job(struct coordinator *c)
{
    struct saved_job k;
    struct err err;
    uint64_t sum = sum_up(c);
    if (!c->roster.is_elastic || c->roster.rebuilding || sum == c->saved_hash)
        return;
    int rc = fill_saved(c, &k);
    rc = rc < 0 ? err_set(&err, ENOMEM, "no memory") : saved_job_store(&k, c->dir, &err);
    free(k.agents);
    free(k.leaving);
    free(k.environment);
    if (rc < 0 && !c->save_failed)
        coordinator_say(c, 0,
                        "%s: if this hvdrun is lost, hvdrun attach will not know the job as "
                        "it is",
                        err_text(&err));
    c->save_failed = rc < 0;
    c->saved_hash = rc < 0 ? c->saved_hash : sum;
}

/* ---- taking over ---------------------------------------------------------------------------- */

static int read_token(struct coordinator *c, struct err *err)
{
    char path[sizeof(c->dir) + 16];
    auto_free char *text = NULL;
    size_t len = 0;
    snprintf(path, sizeof(path), "%s/token", c->dir);
    int rc = fd_read_file(path, sizeof(c->token), &text, &len);
    if (rc < 0)
        return err_sys(err, -rc, "%s", path);
    if (len + 1 != sizeof(c->token))
        return err_set(err, EINVAL, "%s: that is no token", path);
    memcpy(c->token, text, len + 1);
    explicit_bzero(text, len);
    return 0;
}

static int make_roster(struct coordinator *c, const struct saved_job *k, struct err *err)
{
    const struct job *job = c->job;
    struct roster_elastic elastic = {.min = job->min_np,
                                     .max = job->max_np,
                                     .reset_limit = job->reset_limit,
                                     .start_limit = (uint64_t)job->start_timeout * CLOCK_S,
                                     .backoff_first = (uint64_t)job->cooldown_min * CLOCK_S,
                                     .backoff_max = (uint64_t)job->cooldown_max * CLOCK_S};
    struct roster_saved saved = {.term = k->term + 1,
                                 .change = k->change,
                                 .target = k->target,
                                 .nmembers = k->nmembers,
                                 .restarts = k->restarts,
                                 .nleaving = k->nleaving,
                                 .leaving = k->leaving};
    auto_free struct roster_host *hosts = calloc((size_t)k->nagents + 1, sizeof(*hosts));
    if (!hosts)
        return err_set(err, ENOMEM, "no memory for %d hosts", k->nagents);
    if (saved.term > ROSTER_TERM_MAX)
        return err_set(err, EOVERFLOW, "this job was taken over %u times", k->term);
    for (int i = 0; i < k->nagents; i++)
        hosts[i] =
            (struct roster_host){k->agents[i].uid, job->hosts.list[i].name, 0, k->agents[i].room};
    uint8_t key[MEMBER_KEY_SIZE];
    randombytes_buf(key, sizeof(key));
    int rc = roster_begin_rebuild(&c->roster, job->name, key, hosts, k->nagents, &elastic, &saved,
                                  deadline_in_ms(GATHER_MS), err);
    sodium_memzero(key, sizeof(key));
    for (int i = 0; i < k->nagents && rc == 0; i++) {
        c->roster.agents.list[i].nslots = k->agents[i].slots;
        c->roster.agents.list[i].lost = k->agents[i].gone;
        c->roster.agents.list[i].draining = k->agents[i].draining;
    }
    return rc;
}

/* Retries while the port is in use: a short-lived connection of another process may have it as its
 * local port. */
static int open_again(struct coordinator *c, const struct saved_job_server *s, struct err *err)
{
    const struct timespec nap = {.tv_nsec = 50000000};
    uint64_t until = deadline_in_ms(PORT_MS);
    for (;;) {
        int rc = coordinator_open_tcp(c, &s->authority, c->ntcp, s->port, err);
        if (rc != -EADDRINUSE || deadline_passed(until))
            return rc;
        nanosleep(&nap, NULL);
    }
}

/* Opens the TCP servers at which remote agents look for hvdrun, then the Unix socket: if a TCP
 * server fails, the socket is untouched. */
static int open_servers(struct coordinator *c, const struct saved_job *k, struct err *err)
{
    int rc = 0;
    for (; c->ntcp < k->nservers && rc == 0; c->ntcp += rc == 0) {
        const struct saved_job_server *s = &k->servers[c->ntcp];
        memcpy(c->tcp_addresses[c->ntcp], s->address, sizeof(s->address));
        rc = open_again(c, s, err);
        if (rc == 0)
            c->tcp_ca[c->ntcp] = strdup(s->authority.ca_pem);
    }
    if (rc == -EADDRNOTAVAIL)
        return err_set(err, EADDRNOTAVAIL,
                       "this machine has no address %s, at which the job's agents look for hvdrun: "
                       "attach where the first hvdrun ran (host %.100s)",
                       c->tcp_addresses[c->ntcp], k->host);
    if (rc < 0)
        return rc;
    if (c->ntcp > 0)
        c->ca_pem = strdup(k->servers[0].authority.ca_pem);
    unlink(c->unix_path); /* the directory is locked, so nobody listens there */
    return coordinator_open_unix(c, err);
}

/* Agents keep running and are no children of this process. Only lost agents count as ended. */
static int adopt_agents(struct coordinator *c, int first_hosts, struct err *err)
{
    int rc = coordinator_make_agents(c, err);
    c->first_hosts = first_hosts;
    for (int i = 0; i < c->roster.agents.n && rc == 0; i++) {
        struct launched *l = &c->agents[i];
        l->host = &c->job->hosts.list[i];
        l->owner = c;
        l->attached = l->added = true;
        l->ended = c->roster.agents.list[i].lost;
        c->ended += l->ended;
    }
    return rc;
}

static int publish(const struct coordinator *c, const struct job_entry *entry, struct err *err)
{
    struct job_entry mine = *entry;
    mine.pid = getpid();
    (void)c;
    return jobs_publish(&mine, err);
}

/* Sets the job's variables for agents and ranks that are started later. Variables that are set in
 * attach's own environment stay. */
static int take_environment(char *const *list, struct err *err)
{
    for (; *list; list++) {
        const char *equals = strchr(*list, '=');
        auto_free char *name = equals ? strndup(*list, (size_t)(equals - *list)) : NULL;
        if (equals && (!name || setenv(name, equals + 1, 0) < 0))
            return err_set(err, ENOMEM, "no memory for the job's environment");
    }
    return 0;
}

int coordinator_reopen(struct coordinator *c, const struct job_entry *entry,
                       const struct saved_job *k, struct err *err)
{
    snprintf(c->dir, sizeof(c->dir), "%s", entry->dir);
    jobs_path(c->unix_path, sizeof(c->unix_path), c->dir, "sock");
    int rc = take_environment(k->environment, err);
    if (rc == 0)
        rc = coordinator_read_settings(c, err);
    if (rc == 0)
        rc = read_token(c, err);
    if (rc == 0)
        rc = make_roster(c, k, err);
    if (rc == 0)
        rc = adopt_agents(c, k->first_hosts, err);
    if (rc == 0) { /* the next hvdrun must have a higher term */
        struct saved_job mine = *k;
        mine.term = c->roster.term;
        rc = saved_job_store(&mine, c->dir, err);
    }
    if (rc == 0)
        rc = open_servers(c, k, err);
    if (rc == 0)
        rc = publish(c, entry, err);
    if (rc == 0)
        c->attached = true;
    else
        c->dir[0] = '\0'; /* keep the directory for another attempt */
    return rc;
}

/* ---- its agents ----------------------------------------------------------------------------- */

static void end_agent(struct coordinator *c, struct launched *l)
{
    loop_fd_stop(&c->loop, &l->pid_lfd);
    if (l->ended)
        return;
    l->ended = true;
    c->ended++;
}

static void on_agent_end(void *arg, uint32_t events)
{
    struct launched *l = arg;
    struct coordinator *c = l->owner;
    (void)events;
    end_agent(c, l);
    coordinator_reap_left(l);
    roster_agent_lost(&c->roster, (int)(l - c->agents), "hvd-agent ended", clock_ns());
    c->service.changed(c->service.arg);
}

/* Watches an agent of this machine as a process. Agents of other hosts are watched by their
 * silence. */
static void watch_process(struct coordinator *c, struct launched *l, int pid)
{
    if (!l->host->local || l->pid > 0 || pid <= 1)
        return;
    l->pid = pid;
    if (loop_pid_start(&c->loop, &l->pid_lfd, pid, on_agent_end, l) == -ESRCH)
        on_agent_end(l, 0);
}

static void begin_again(struct coordinator *c)
{
    struct err err;
    const struct roster *r = &c->roster;
    int agents = 0, ranks = 0;
    for (int i = 0; i < r->agents.n; i++)
        agents += r->agents.list[i].joined && !r->agents.list[i].lost;
    for (int i = 0; i < r->members.n; i++)
        ranks += !rank_has_ended(r->members.list[i].state);
    c->said_attached = true;
    if (agents == 0)
        coordinator_fail(c, "no agent of job %s came back: its ranks are gone", r->job);
    else
        coordinator_say(c, 0, "attached to job %s: %d ranks on %d host(s), epoch %u", r->job, ranks,
                        agents, roster_epoch_number(r->epoch));
    if (agents > 0 && coordinator_discover(c, &err) < 0)
        coordinator_say(c, 0, "%s: hosts stay as they are", err_text(&err));
}

void coordinator_watch_attached(struct coordinator *c)
{
    if (!c->attached)
        return;
    for (int i = 0; i < c->roster.agents.n; i++) {
        const struct roster_agent *a = &c->roster.agents.list[i];
        struct launched *l = &c->agents[i];
        if (!l->attached || l->ended)
            continue;
        if (a->joined && !a->lost)
            watch_process(c, l, a->pid);
        if (a->lost && !c->roster.rebuilding)
            end_agent(c, l);
    }
    if (!c->roster.rebuilding && !c->said_attached)
        begin_again(c);
}

bool coordinator_adopted(void *arg, int agent)
{
    const struct coordinator *c = arg;
    return c->agents[agent].attached;
}

int coordinator_take_output(void *arg, int agent, const struct printed_body *body)
{
    struct coordinator *c = arg;
    struct launched *l = &c->agents[agent];
    struct frame frame;
    size_t pos = 0;
    long n;
    if (body->seq <= l->out_seq)
        return 0;
    if (printer_full(&c->printer))
        return -EAGAIN;
    l->out_seq = body->seq;
    printer_grow(&c->printer, c->roster.members.n);
    explain_grow(&c->explain, c->roster.members.n);
    if (body->lost > 0)
        coordinator_say(c, 0,
                        "host %s: %llu bytes of output came while no hvdrun was there and "
                        "were not kept",
                        l->host->name, (unsigned long long)body->lost);
    while ((n = frame_get(body->frames.data + pos, body->frames.len - pos, &frame)) > 0) {
        printer_put(&c->printer, &frame);
        explain_feed(&c->explain, &frame);
        pos += (size_t)n;
    }
    if (body->end && l->attached)
        end_agent(c, l);
    c->service.changed(c->service.arg);
    return 0;
}
