/* SPDX-License-Identifier: Apache-2.0
 *
 * plane: see plane.h. It has a loop of its own, whose epoll descriptor the owner polls, and runs
 * the HTTP server of core/member on it. plane_requests.c authenticates requests,
 * job_coordinator.c coordinates one job.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/clock.h"
#include "core/member/status.h"
#include "operator/coordinator/plane_private.h"

#define TICK_MS      100
#define SOON_MS      10
#define WAKE_MOST    64          /* long polls answered in one turn */
#define BODY_MAX     (8u << 20)  /* bytes: a rejoin with the roster of 15,000 ranks */
#define BODIES_MAX   (64u << 20) /* bytes of all bodies together */
#define AGENT_MEMORY 4096        /* bytes per connection: a token fits into the headers */
#define CONNECTIONS  60000
#define HANDSHAKES   16   /* pending at a time */
#define LATE_MS      1000 /* between two ticks; if more, agents' silence meanwhile is forgiven */

/* ---- ticks ---------------------------------------------------------------------------------- */

struct job_coordinator *plane_find(const struct plane *p, const char *job_uid)
{
    list_for_each(pos, tmp, &p->jobs)
    {
        struct job_coordinator *c = list_entry(pos, struct job_coordinator, node);
        if (strcmp(c->uid, job_uid) == 0)
            return c;
    }
    return NULL;
}

static void drop(struct plane *p, struct job_coordinator *c)
{
    struct plane_counts *sum = &p->counts;
    sum->joins += c->joins;
    sum->rejoins += c->rejoins;
    sum->losses += c->losses;
    sum->epochs_planned += c->history.planned;
    sum->epochs_lost += c->history.lost;
    /* The long polls of this job are answered with 404, since the job is not found any more. */
    list_remove(&c->node);
    uint64_t group = c->group;
    job_coordinator_destroy(c);
    while (server_wake_some(p->server, group, 0, UINT64_MAX, WAKE_MOST))
        continue;
}

/* Does the roster have news for agents' long polls? */
static bool has_news(const struct job_coordinator *c)
{
    return c->seen_notes != c->roster.notes.n || c->seen_world != c->roster.epoch;
}

/* Answers the long polls of a job whose roster has news, in portions, because thousands of
 * responses take a while. True: some remain. */
static bool wake(struct plane *p, struct job_coordinator *c)
{
    const struct roster *r = &c->roster;
    uint64_t parks = server_parks(p->server);
    bool all = c->seen_world != r->epoch;
    for (; c->seen_notes < r->notes.n; c->seen_notes++) {
        int agent = roster_note_agent(r, &r->notes.list[c->seen_notes]);
        all |= agent < 0;
        if (agent >= 0)
            server_wake_some(p->server, c->group, agent + 1, parks, WAKE_MOST);
    }
    c->seen_world = r->epoch;
    if (all) {
        c->waking = true;
        c->wake_before = parks;
    }
    if (c->waking)
        c->waking = server_wake_some(p->server, c->group, 0, c->wake_before, WAKE_MOST);
    return c->waking;
}

static void on_news(void *arg);
static void on_tick(void *arg);

static struct job_coordinator *next_news(const struct plane *p)
{
    list_for_each(pos, tmp, &p->jobs)
    {
        struct job_coordinator *c = list_entry(pos, struct job_coordinator, node);
        if (c->dirty)
            return c;
    }
    return NULL;
}

/* Starts from the beginning after each call: the owner may add and remove jobs in changed(). */
static void tell(struct plane *p)
{
    struct job_coordinator *c;
    while ((c = next_news(p))) {
        c->dirty = false;
        c->fingerprint = job_coordinator_fingerprint(c);
        if (p->config.changed)
            p->config.changed(p->config.arg, c->uid);
    }
}

static void tell_recovered(struct plane *p, struct job_coordinator *c, uint64_t now)
{
    bool lost;
    double ms;
    while (p->config.recovered && epoch_history_next_final(&c->history, now, &lost, &ms))
        p->config.recovered(p->config.arg, lost, ms / 1000);
}

/* late: the plane itself was late, so agents may stand in the queue. */
static void update_gather(struct plane *p, bool late, uint64_t now)
{
    int agents = 0;
    list_for_each(pos, tmp, &p->jobs)
    {
        agents += job_coordinator_awaits(list_entry(pos, struct job_coordinator, node));
    }
    gather_update(&p->gather, agents, late || server_is_behind(p->server), now);
}

static void look(struct plane *p, bool forgive)
{
    bool more = false, soon = false;
    update_gather(p, forgive, clock_ns());
    list_for_each(pos, tmp, &p->jobs)
    {
        struct job_coordinator *c = list_entry(pos, struct job_coordinator, node);
        /* Not once for all jobs: wake() handles requests, of other jobs, too. */
        uint64_t now = clock_ns();
        soon |= job_coordinator_tick(c, forgive, now);
        tell_recovered(p, c, now);
        more |= wake(p, c);
        if (c->ended && job_coordinator_end(c, now)) {
            drop(p, c);
            continue;
        }
        c->dirty = c->dirty || job_coordinator_fingerprint(c) != c->fingerprint;
    }
    if (more)
        loop_timer_start(&p->loop, &p->news, 0, on_news, p);
    if (list_empty(&p->jobs))
        loop_timer_stop(&p->loop, &p->tick);
    else
        loop_timer_start(&p->loop, &p->tick, soon ? SOON_MS : TICK_MS, on_tick, p);
    tell(p);
}

static void on_news(void *arg)
{
    look(arg, false);
}

static void on_tick(void *arg)
{
    struct plane *p = arg;
    uint64_t now = clock_ns();
    bool late = p->ticked && now - p->ticked > LATE_MS * CLOCK_MS;
    p->ticked = now;
    look(p, late);
}

static void on_job_changed(void *arg, struct job_coordinator *c)
{
    struct plane *p = arg;
    /* Changes of mere numbers wait for the next tick. */
    if (!p->news.on && (has_news(c) || c->urgent))
        loop_timer_start(&p->loop, &p->news, 0, on_news, p);
    c->urgent = false;
    if (!p->tick.on)
        loop_timer_start(&p->loop, &p->tick, TICK_MS, on_tick, p);
}

/* ---- life ----------------------------------------------------------------------------------- */

/* Each agent needs a descriptor, and there may be thousands. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int open_server(struct plane *p, const struct plane_config *config, struct err *err)
{
    struct server_config s = {
        .loop = &p->loop,
        .admit = plane_admit,
        .handle = plane_handle,
        .closed = plane_closed,
        .arg = p,
        .address = config->address ? config->address : "::",
        .port = config->port,
        .cert_pem = config->cert_pem,
        .key_pem = config->key_pem,
        .body_max = BODY_MAX,
        .bodies_max = BODIES_MAX,
        .memory = AGENT_MEMORY,
        .connections = CONNECTIONS,
        .handshakes = HANDSHAKES,
    };
    int rc = server_open(&p->server, &s, err);
    if (rc < 0 && !config->address) { /* this machine has no IPv6 */
        s.address = "0.0.0.0";
        rc = server_open(&p->server, &s, err);
    }
    return rc;
}

int plane_create(struct plane **ret, const struct plane_config *config, struct err *err)
{
    struct plane *p = calloc(1, sizeof(*p));
    if (!p)
        return err_set(err, ENOMEM, "no memory for the coordinator plane");
    list_init(&p->jobs);
    p->config = *config;
    p->config.address = p->config.cert_pem = p->config.key_pem = NULL;
    p->gather.base_ms = config->gather_ms ? config->gather_ms : GATHER_MS;
    p->loop.epfd = -1;
    int rc = loop_init(&p->loop);
    if (rc < 0)
        rc = err_sys(err, -rc, "epoll");
    raise_descriptors();
    if (rc == 0)
        rc = open_server(p, config, err);
    if (rc < 0) {
        plane_destroy(p);
        return rc;
    }
    *ret = p;
    return 0;
}

void plane_destroy(struct plane *p)
{
    if (!p)
        return;
    server_close(p->server);
    list_for_each(pos, tmp, &p->jobs)
    {
        struct job_coordinator *c = list_entry(pos, struct job_coordinator, node);
        list_remove(&c->node);
        job_coordinator_destroy(c);
    }
    if (p->loop.epfd >= 0)
        loop_fini(&p->loop);
    free(p);
}

int plane_use_certificate(struct plane *p, const char *cert_pem, const char *key_pem,
                          struct err *err)
{
    return server_use_certificate(p->server, cert_pem, key_pem, err);
}

int plane_port(const struct plane *p)
{
    return server_port(p->server);
}

int plane_fd(const struct plane *p)
{
    return p->loop.epfd;
}

int plane_timeout_ms(const struct plane *p)
{
    if (list_empty(&p->loop.timers))
        return -1;
    return deadline_poll_ms(list_first(&p->loop.timers, struct loop_timer, node)->due);
}

void plane_turn(struct plane *p)
{
    p->loop.stop = false;
    loop_once(&p->loop, 0);
}

void plane_synced(struct plane *p)
{
    p->synced = true;
}

/* ---- jobs and pods -------------------------------------------------------------------------- */

int plane_job(struct plane *p, const struct plane_job *job, struct err *err)
{
    struct job_coordinator *c = plane_find(p, job->uid);
    if (c && c->ended) { /* the same job starts again */
        drop(p, c);
        c = NULL;
    }
    if (c)
        return job_coordinator_update(c, job, err);
    int rc = job_coordinator_create(&c, job, p->config.term, &p->gather, on_job_changed, p, err);
    if (rc < 0)
        return rc;
    c->group = ++p->groups;
    list_append(&p->jobs, &c->node);
    on_job_changed(p, c);
    return 0;
}

int plane_pod(struct plane *p, const char *job_uid, const struct plane_pod *pod, struct err *err)
{
    struct job_coordinator *c = plane_find(p, job_uid);
    return c ? job_coordinator_pod(c, pod, err) : err_set(err, ENOENT, "no job %s", job_uid);
}

void plane_pod_gone(struct plane *p, const char *job_uid, const char *pod_uid)
{
    struct job_coordinator *c = plane_find(p, job_uid);
    if (c)
        job_coordinator_pod_gone(c, pod_uid);
}

void plane_forget(struct plane *p, const char *job_uid)
{
    struct job_coordinator *c = plane_find(p, job_uid);
    if (c && job_coordinator_end(c, clock_ns()))
        drop(p, c);
}

/* ---- results -------------------------------------------------------------------------------- */

int plane_facts(const struct plane *p, const char *job_uid, struct plane_facts *ret)
{
    const struct job_coordinator *c = plane_find(p, job_uid);
    if (!c)
        return -ENOENT;
    job_coordinator_facts(c, ret);
    return 0;
}

char *plane_status(const struct plane *p, const char *job_uid)
{
    const struct job_coordinator *c = plane_find(p, job_uid);
    return c ? status_text(&c->roster, clock_ns()) : NULL;
}

void plane_findings(const struct plane *p, const char *job_uid,
                    void (*each)(void *arg, const char *pod, const struct finding *f), void *arg)
{
    const struct job_coordinator *c = plane_find(p, job_uid);
    if (c)
        job_coordinator_findings(c, each, arg);
}

void plane_counts(const struct plane *p, struct plane_counts *ret)
{
    *ret = p->counts;
    ret->refused_body += server_refused_bodies(p->server);
    list_for_each(pos, tmp, &p->jobs)
    {
        const struct job_coordinator *c = list_entry(pos, struct job_coordinator, node);
        ret->jobs += !c->ended;
        ret->agents += job_coordinator_count_agents(c);
        ret->joins += c->joins;
        ret->rejoins += c->rejoins;
        ret->losses += c->losses;
        ret->epochs_planned += c->history.planned;
        ret->epochs_lost += c->history.lost;
    }
}
