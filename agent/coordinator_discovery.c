/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_discovery: hosts that appear and disappear while an elastic job runs. With a
 * discovery script: starts agents on new hosts, drains hosts no longer named, and scales to the
 * slots there are. Without a script: retries the initial hosts when they were lost. See
 * coordinator.h.
 *
 * Host i of the job belongs to agent i of the roster. A lost host that comes back gets a new index.
 */
#include <sodium.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/coordinator.h"
#include "core/base/clock.h"

#define RETRY_FIRST_MS 2000
#define RETRY_MAX_MS   60000

/* The pause before a lost host is retried: the first, and the longest. */
static uint64_t first_ms(const struct coordinator *c)
{
    return c->job->cooldown_min ? (uint64_t)c->job->cooldown_min * 1000 : RETRY_FIRST_MS;
}

static uint64_t most_ms(const struct coordinator *c)
{
    return c->job->cooldown_max ? (uint64_t)c->job->cooldown_max * 1000 : RETRY_MAX_MS;
}

static bool is_same(const struct host *a, const struct host *b)
{
    return strcmp(a->name, b->name) == 0 || (a->local && b->local);
}

/* The agent of a host, unless lost; -1: none. */
static int find_agent(const struct coordinator *c, const struct host *host)
{
    for (int i = 0; i < c->roster.agents.n; i++)
        if (!c->roster.agents.list[i].lost && is_same(&c->job->hosts.list[i], host))
            return i;
    return -1;
}

static bool is_named(const struct hosts *hosts, const struct host *host)
{
    for (int i = 0; i < hosts->n; i++)
        if (is_same(&hosts->list[i], host))
            return true;
    return false;
}

/* ---- new hosts ------------------------------------------------------------------------------ */

static int add_agent(struct coordinator *c, const struct host *host, struct err *err)
{
    uint8_t nonce[8];
    char hex[2 * sizeof(nonce) + 1], uid[64];
    int index = c->roster.agents.n;
    if (index == c->agents_max)
        return err_set(err, ENOSPC, "more than %d agents", c->agents_max);
    randombytes_buf(nonce, sizeof(nonce));
    sodium_bin2hex(hex, sizeof(hex), nonce, sizeof(nonce));
    snprintf(uid, sizeof(uid), "agent-%d-%s", index, hex);
    c->job->hosts.list[index] = *host;
    c->job->hosts.list[index].nranks = 0;
    c->job->hosts.n = index + 1;
    int rc =
        roster_add_host(&c->roster, &(struct roster_host){uid, host->name, 0, host->slots}, err);
    if (rc < 0) {
        c->job->hosts.n = index;
        return rc;
    }
    rc = coordinator_reach(c, index, err);
    return rc < 0 ? rc : coordinator_launch_more(c, index, err);
}

static void add_host(struct coordinator *c, const struct host *host)
{
    struct err err = {0};
    int before = c->roster.agents.n;
    coordinator_say(c, 1, "host %s came, with %d slots", host->name, host->slots);
    if (add_agent(c, host, &err) == 0)
        return;
    coordinator_say(c, 0, "host %s: %s", host->name, err_text(&err));
    if (c->roster.agents.n > before && c->agents[before].pid == 0) { /* it was never launched */
        c->agents[before].ended = true;
        c->ended++;
        roster_agent_lost(&c->roster, before, err_text(&err), clock_ns());
    }
}

/* ---- hosts that disappear, slots that change ------------------------------------------------- */

static void drain_host(struct coordinator *c, int agent)
{
    uint32_t change;
    struct err err = {0};
    struct roster_agent *a = &c->roster.agents.list[agent];
    char host[MEMBER_NAME_MAX];
    if (a->draining)
        return;
    snprintf(host, sizeof(host), "%s", a->host);
    coordinator_say(c, 1, "host %s is not named any more", host);
    if (roster_drain_host(&c->roster, host, clock_ns(), &change, &err) < 0)
        coordinator_say(c, 0, "host %s is not named any more, but its ranks stay: %s", host,
                        err_text(&err));
}

static void resize(struct coordinator *c, int agent, int slots)
{
    uint32_t change;
    struct err err = {0};
    const struct roster_agent *a = &c->roster.agents.list[agent];
    if (a->nslots == slots && !a->draining)
        return;
    coordinator_say(c, 1, "host %s has %d slots now", a->host, slots);
    int rc = roster_set_slots(&c->roster, agent, slots, &err), rank;
    while (rc == 0 && (rank = roster_rank_without_slot(&c->roster, agent)) >= 0)
        rc = roster_drain_rank(&c->roster, rank, clock_ns(), &change, &err);
    if (rc < 0)
        coordinator_say(c, 0, "host %s has %d slots now, and more ranks: %s",
                        c->roster.agents.list[agent].host, slots, err_text(&err));
}

/* Scales up to the number of slots, at most max_np. Never scales down: ranks leave only with their
 * hosts. */
static void scale_up(struct coordinator *c, const struct hosts *hosts)
{
    uint32_t change;
    struct err err = {0};
    int slots = 0;
    for (int i = 0; i < hosts->n; i++)
        slots += hosts->list[i].slots;
    slots = slots < c->job->max_np ? slots : c->job->max_np;
    if (slots > c->roster.target && !c->stopped &&
        roster_scale(&c->roster, slots, clock_ns(), &change, &err) < 0)
        coordinator_say(c, 1, "the hosts have %d slots: %s", slots, err_text(&err));
}

static void apply_hosts(struct coordinator *c, const struct hosts *hosts)
{
    for (int i = 0; i < c->roster.agents.n; i++)
        if (!c->roster.agents.list[i].lost && !is_named(hosts, &c->job->hosts.list[i]))
            drain_host(c, i);
    for (int i = 0; i < hosts->n; i++) {
        int agent = find_agent(c, &hosts->list[i]);
        if (agent < 0)
            add_host(c, &hosts->list[i]);
        else
            resize(c, agent, hosts->list[i].slots);
    }
    scale_up(c, hosts);
    c->service.changed(c->service.arg);
}

static void on_hosts(void *arg, const struct hosts *hosts, const char *problem)
{
    struct coordinator *c = arg;
    if (problem)
        coordinator_say(c, 0, "%s: the hosts stay as they were", problem);
    else if (!c->stopped && !roster_done(&c->roster))
        apply_hosts(c, hosts);
}

/* ---- limits and retries ---------------------------------------------------------------------- */

bool coordinator_can_spare(const struct coordinator *c, int agent)
{
    const struct roster *r = &c->roster;
    int places = 0;
    if (!r->is_elastic || c->agents[agent].added || r->epoch > 0)
        return r->is_elastic;
    for (int i = 0; i < r->agents.n; i++)
        if (i != agent && !r->agents.list[i].lost && !r->agents.list[i].draining)
            places += r->agents.list[i].nslots;
    return places >= r->elastic.min;
}

/* Treats agents as lost that have not joined in time, if the job can spare them, and agents whose
 * host was drained before they joined. */
static void drop_late(struct coordinator *c, uint64_t now)
{
    uint64_t limit = (uint64_t)c->job->start_timeout * CLOCK_S;
    for (int i = 0; i < c->roster.agents.n; i++) {
        const struct roster_agent *a = &c->roster.agents.list[i];
        struct launched *l = &c->agents[i];
        bool late = now - l->launched > limit && coordinator_can_spare(c, i);
        if (a->joined || a->lost || (!late && !a->draining))
            continue;
        if (a->draining)
            coordinator_say(c, 1, "host %s was drained before its agent joined", a->host);
        else
            coordinator_say(c, 0, "host %s: its agent has not joined within %d s: treated as lost",
                            a->host, c->job->start_timeout);
        roster_agent_lost(&c->roster, i, "its agent did not come", now);
        launch_kill(l, SIGKILL);
    }
}

/* Was the host drained? Then it is not retried without a request. */
static bool was_drained(const struct coordinator *c, const struct host *host)
{
    bool drained = false;
    for (int i = 0; i < c->roster.agents.n; i++)
        if (is_same(&c->job->hosts.list[i], host))
            drained = c->roster.agents.list[i].draining;
    return drained;
}

static bool is_missing(const struct coordinator *c, const struct host *host)
{
    return find_agent(c, host) < 0 && (c->discovery.loop || !was_drained(c, host));
}

/* Retries hosts of the command line; the number of ranks stays. */
static void retry_hosts(struct coordinator *c, const struct hosts *known)
{
    for (int i = 0; i < known->n; i++) {
        struct host host = known->list[i];
        if (is_missing(c, &host))
            add_host(c, &host);
    }
    c->service.changed(c->service.arg);
}

/* The hosts that the job should have; lent. */
static struct hosts known_hosts(const struct coordinator *c)
{
    const struct hosts first = {c->job->hosts.list, c->first_hosts};
    return c->discovery.loop ? c->discovery.known : first;
}

static bool any_missing(const struct coordinator *c)
{
    const struct hosts known = known_hosts(c);
    for (int i = 0; i < known.n; i++)
        if (is_missing(c, &known.list[i]))
            return true;
    return false;
}

static bool is_running(const struct coordinator *c)
{
    return c->roster.is_elastic && !c->stopped && !c->roster.rebuilding && !roster_done(&c->roster);
}

bool coordinator_may_retry_hosts(const struct coordinator *c)
{
    return is_running(c) && c->roster.ends.first < 0 && any_missing(c);
}

/* Retries lost hosts with a growing pause; no host is excluded for ever. */
void coordinator_watch_discovery(struct coordinator *c)
{
    const struct hosts known = known_hosts(c);
    uint64_t now = clock_ns();
    if (!is_running(c))
        return;
    drop_late(c, now);
    bool missing = any_missing(c);
    if (!missing || c->retry_at == 0) {
        uint64_t twice = c->retry_ms * 2 < most_ms(c) ? c->retry_ms * 2 : most_ms(c);
        if (missing)
            c->retry_ms = c->retry_ms ? twice : first_ms(c);
        else if (now - c->tried_at > most_ms(c) * CLOCK_MS)
            c->retry_ms = 0;
        c->retry_at = missing ? now + c->retry_ms * CLOCK_MS : 0;
        return;
    }
    if (now < c->retry_at)
        return;
    c->retry_at = 0;
    c->tried_at = now;
    if (c->discovery.loop)
        apply_hosts(c, &known);
    else
        retry_hosts(c, &known);
}

/* The hosts in use now, to compare with what the script names. */
static int used_hosts(const struct coordinator *c, struct hosts *ret)
{
    const struct roster *r = &c->roster;
    ret->list = calloc((size_t)r->agents.n + 1, sizeof(*ret->list));
    for (int i = 0; i < r->agents.n && ret->list; i++) {
        if (r->agents.list[i].lost || r->agents.list[i].draining)
            continue;
        ret->list[ret->n] = c->job->hosts.list[i];
        ret->list[ret->n++].slots = r->agents.list[i].nslots;
    }
    return ret->list ? 0 : -ENOMEM;
}

int coordinator_discover(struct coordinator *c, struct err *err)
{
    struct hosts used = {0};
    int slots = c->job->slots_per_host ? c->job->slots_per_host : 1;
    if (!c->job->discovery_script)
        return 0;
    int rc = used_hosts(c, &used);
    if (rc == 0)
        rc = discovery_start(&c->discovery, &c->loop, c->job->discovery_script, slots, &used,
                             on_hosts, c);
    free(used.list);
    return rc < 0 ? err_sys(err, -rc, "%s", c->job->discovery_script) : 0;
}
