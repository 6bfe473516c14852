/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_discovery: see coordinator_discovery.h.
 */
#include "agent/coordinator_discovery.h"

#include <sodium.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"

#define RETRY_FIRST_MS 2000
#define RETRY_MAX_MS   60000

/* The pause before a lost host is retried: the first, and the longest. */
static uint64_t first_ms(const struct coordinator_discovery *d)
{
    return d->core->job->cooldown_min ? (uint64_t)d->core->job->cooldown_min * 1000
                                      : RETRY_FIRST_MS;
}

static uint64_t most_ms(const struct coordinator_discovery *d)
{
    return d->core->job->cooldown_max ? (uint64_t)d->core->job->cooldown_max * 1000 : RETRY_MAX_MS;
}

static bool is_same(const struct host *a, const struct host *b)
{
    return strcmp(a->name, b->name) == 0 || (a->local && b->local);
}

/* Returns the index of the host's agent that is not lost; -1: none. */
static int find_agent(const struct coordinator_discovery *d, const struct host *host)
{
    for (int i = 0; i < d->core->roster.agents.n; i++)
        if (!d->core->roster.agents.list[i].lost && is_same(&d->core->job->hosts.list[i], host))
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

static int add_agent(struct coordinator_discovery *d, const struct host *host, struct err *err)
{
    uint8_t nonce[8];
    char hex[2 * sizeof(nonce) + 1], uid[64];
    int index = d->core->roster.agents.n;
    if (index == d->agents->max)
        return err_set(err, ENOSPC, "more than %d agents", d->agents->max);
    randombytes_buf(nonce, sizeof(nonce));
    sodium_bin2hex(hex, sizeof(hex), nonce, sizeof(nonce));
    snprintf(uid, sizeof(uid), "agent-%d-%s", index, hex);
    d->core->job->hosts.list[index] = *host;
    d->core->job->hosts.list[index].nranks = 0;
    d->core->job->hosts.n = index + 1;
    int rc = roster_add_host(&d->core->roster,
                             &(struct roster_host){uid, host->name, 0, host->slots}, err);
    if (rc < 0) {
        d->core->job->hosts.n = index;
        return rc;
    }
    char *ca = NULL;
    rc = coordinator_servers_reach(d->servers, index, &ca, err);
    return rc < 0 ? rc : coordinator_agents_launch_more(d->agents, index, ca, err);
}

static void add_host(struct coordinator_discovery *d, const struct host *host)
{
    struct err err = {0};
    int before = d->core->roster.agents.n;
    coordinator_say(d->core, 1, "host %s came, with %d slots", host->name, host->slots);
    if (add_agent(d, host, &err) == 0)
        return;
    coordinator_say(d->core, 0, "host %s: %s", host->name, err_text(&err));
    if (d->core->roster.agents.n > before && d->agents->list[before].pid == 0)
        coordinator_agents_unlaunched(d->agents, before, err_text(&err));
}

/* ---- hosts that disappear, slots that change ------------------------------------------------- */

static void drain_host(struct coordinator_discovery *d, int agent)
{
    uint32_t change;
    struct err err = {0};
    struct roster_agent *a = &d->core->roster.agents.list[agent];
    char host[MEMBER_NAME_MAX];
    if (a->draining)
        return;
    snprintf(host, sizeof(host), "%s", a->host);
    coordinator_say(d->core, 1, "the discovery script does not name host %s any more", host);
    if (roster_drain_host(&d->core->roster, host, clock_ns(), &change, &err) < 0)
        coordinator_say(
            d->core, 0,
            "the discovery script does not name host %s any more, but its ranks stay: %s", host,
            err_text(&err));
}

static void resize(struct coordinator_discovery *d, int agent, int slots)
{
    uint32_t change;
    struct err err = {0};
    const struct roster_agent *a = &d->core->roster.agents.list[agent];
    if (a->nslots == slots && !a->draining)
        return;
    coordinator_say(d->core, 1, "host %s has %d slots now", a->host, slots);
    int rc = roster_set_slots(&d->core->roster, agent, slots, &err), rank;
    while (rc == 0 && (rank = roster_rank_without_slot(&d->core->roster, agent)) >= 0)
        rc = roster_drain_rank(&d->core->roster, rank, clock_ns(), &change, &err);
    if (rc < 0)
        coordinator_say(d->core, 0, "host %s has %d slots now, but the surplus ranks stay: %s",
                        d->core->roster.agents.list[agent].host, slots, err_text(&err));
}

/* Scales up to the number of slots, at most max_np. Never scales down: ranks leave only with their
 * hosts. */
static void scale_up(struct coordinator_discovery *d, const struct hosts *hosts)
{
    uint32_t change;
    struct err err = {0};
    int slots = 0;
    for (int i = 0; i < hosts->n; i++)
        slots += hosts->list[i].slots;
    slots = slots < d->core->job->max_np ? slots : d->core->job->max_np;
    if (slots > d->core->roster.target && !d->core->roster.stopping &&
        roster_scale(&d->core->roster, slots, clock_ns(), &change, &err) < 0)
        coordinator_say(d->core, 1, "the hosts have %d slots, but the job stays as it is: %s",
                        slots, err_text(&err));
}

static void apply_hosts(struct coordinator_discovery *d, const struct hosts *hosts)
{
    for (int i = 0; i < d->core->roster.agents.n; i++)
        if (!d->core->roster.agents.list[i].lost && !is_named(hosts, &d->core->job->hosts.list[i]))
            drain_host(d, i);
    for (int i = 0; i < hosts->n; i++) {
        int agent = find_agent(d, &hosts->list[i]);
        if (agent < 0)
            add_host(d, &hosts->list[i]);
        else
            resize(d, agent, hosts->list[i].slots);
    }
    scale_up(d, hosts);
    coordinator_changed(d->core);
}

static void on_hosts(void *arg, const struct hosts *hosts, const char *problem)
{
    struct coordinator_discovery *d = arg;
    if (problem)
        coordinator_say(d->core, 0, "%s: the hosts stay as they were", problem);
    else if (!d->core->roster.stopping && !roster_done(&d->core->roster))
        apply_hosts(d, hosts);
}

/* ---- limits and retries ---------------------------------------------------------------------- */

/* Treats agents as lost that have not joined in time, if the job can spare them, and agents whose
 * host was drained before they joined. */
static void drop_late(struct coordinator_discovery *d, uint64_t now)
{
    uint64_t limit = (uint64_t)d->core->job->start_timeout * CLOCK_S;
    for (int i = 0; i < d->core->roster.agents.n; i++) {
        const struct roster_agent *a = &d->core->roster.agents.list[i];
        struct launched *l = &d->agents->list[i];
        bool late = now - l->launched > limit && coordinator_agents_can_spare(d->agents, i);
        if (a->joined || a->lost || (!late && !a->draining))
            continue;
        if (a->draining)
            coordinator_say(d->core, 1, "host %s was drained before its agent joined", a->host);
        else
            coordinator_say(d->core, 0,
                            "host %s: its agent has not joined within %d s: treated as lost",
                            a->host, d->core->job->start_timeout);
        roster_agent_lost(&d->core->roster, i, "its agent did not come", now);
        launch_kill(l, SIGKILL);
    }
}

/* Was the host drained? Then it is not retried without a request. */
static bool was_drained(const struct coordinator_discovery *d, const struct host *host)
{
    bool drained = false;
    for (int i = 0; i < d->core->roster.agents.n; i++)
        if (is_same(&d->core->job->hosts.list[i], host))
            drained = d->core->roster.agents.list[i].draining;
    return drained;
}

static bool is_missing(const struct coordinator_discovery *d, const struct host *host)
{
    return find_agent(d, host) < 0 && (d->script.loop || !was_drained(d, host));
}

/* Retries hosts of the command line; the number of ranks stays. */
static void retry_hosts(struct coordinator_discovery *d, const struct hosts *known)
{
    for (int i = 0; i < known->n; i++) {
        struct host host = known->list[i];
        if (is_missing(d, &host))
            add_host(d, &host);
    }
    coordinator_changed(d->core);
}

/* The hosts that the job should have; lent. */
static struct hosts known_hosts(const struct coordinator_discovery *d)
{
    const struct hosts first = {d->core->job->hosts.list, d->first_hosts};
    return d->script.loop ? d->script.known : first;
}

static bool any_missing(const struct coordinator_discovery *d)
{
    const struct hosts known = known_hosts(d);
    for (int i = 0; i < known.n; i++)
        if (is_missing(d, &known.list[i]))
            return true;
    return false;
}

static bool is_running(const struct coordinator_discovery *d)
{
    return d->core->roster.is_elastic && !d->core->roster.stopping && !d->core->roster.rebuilding &&
           !roster_done(&d->core->roster);
}

bool coordinator_discovery_may_retry(const struct coordinator_discovery *d)
{
    return is_running(d) && d->core->roster.ends.first < 0 && any_missing(d);
}

/* Retries lost hosts with a growing pause. No host is excluded for ever. */
void coordinator_discovery_check(struct coordinator_discovery *d)
{
    const struct hosts known = known_hosts(d);
    uint64_t now = clock_ns();
    if (!is_running(d))
        return;
    drop_late(d, now);
    bool missing = any_missing(d);
    if (!missing || d->retry_at == 0) {
        uint64_t twice = d->retry_ms * 2 < most_ms(d) ? d->retry_ms * 2 : most_ms(d);
        if (missing)
            d->retry_ms = d->retry_ms ? twice : first_ms(d);
        else if (now - d->tried_at > most_ms(d) * CLOCK_MS)
            d->retry_ms = 0;
        d->retry_at = missing ? now + d->retry_ms * CLOCK_MS : 0;
        return;
    }
    if (now < d->retry_at)
        return;
    d->retry_at = 0;
    d->tried_at = now;
    if (d->script.loop)
        apply_hosts(d, &known);
    else
        retry_hosts(d, &known);
}

/* The hosts in use now, to compare with what the script names. */
static int used_hosts(const struct coordinator_discovery *d, struct hosts *ret)
{
    const struct roster *r = &d->core->roster;
    ret->list = calloc((size_t)r->agents.n + 1, sizeof(*ret->list));
    for (int i = 0; i < r->agents.n && ret->list; i++) {
        if (r->agents.list[i].lost || r->agents.list[i].draining)
            continue;
        ret->list[ret->n] = d->core->job->hosts.list[i];
        ret->list[ret->n++].slots = r->agents.list[i].nslots;
    }
    return ret->list ? 0 : -ENOMEM;
}

int coordinator_discovery_start(struct coordinator_discovery *d, struct err *err)
{
    struct hosts used = {0};
    int slots = d->core->job->slots_per_host ? d->core->job->slots_per_host : 1;
    if (!d->core->job->discovery_script)
        return 0;
    int rc = used_hosts(d, &used);
    if (rc == 0)
        rc = discovery_start(&d->script, &d->core->loop, d->core->job->discovery_script, slots,
                             &used, on_hosts, d);
    free(used.list);
    return rc < 0 ? err_sys(err, -rc, "%s", d->core->job->discovery_script) : 0;
}
