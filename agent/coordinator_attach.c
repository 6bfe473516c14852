/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_attach: how hvdrun attach takes a job over: it uses the previous hvdrun's directory,
 * addresses and keys; the agents are not its children, and their output arrives over the network.
 * See coordinator.h; saved_job.h has the file.
 */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/coordinator.h"
#include "agent/jobs.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"

/* Time for agents to rejoin, which they try several times a second. Agents that have not rejoined
 * by then are lost. */
#define GATHER_MS 10000

static int read_token(struct coordinator *c, struct err *err)
{
    char path[sizeof(c->dir) + 16];
    auto_free char *text = NULL;
    size_t len = 0;
    snprintf(path, sizeof(path), "%s/token", c->dir);
    int rc = fd_read_file(path, sizeof(c->servers.token), &text, &len);
    if (rc < 0)
        return err_sys(err, -rc, "%s", path);
    if (len + 1 != sizeof(c->servers.token))
        return err_set(err, EINVAL, "%s: that is no token", path);
    memcpy(c->servers.token, text, len + 1);
    explicit_bzero(text, len);
    return 0;
}

static int make_roster(struct coordinator *c, const struct saved_job *k, struct err *err)
{
    const struct job *job = c->core.job;
    const struct roster_elastic elastic = coordinator_limits(job);
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
    int rc = roster_begin_rebuild(&c->core.roster, job->name, key, hosts, k->nagents, &elastic,
                                  &saved, deadline_in_ms(GATHER_MS), err);
    sodium_memzero(key, sizeof(key));
    for (int i = 0; i < k->nagents && rc == 0; i++) {
        c->core.roster.agents.list[i].nslots = k->agents[i].slots;
        c->core.roster.agents.list[i].lost = k->agents[i].gone;
        c->core.roster.agents.list[i].draining = k->agents[i].draining;
    }
    return rc;
}

static int publish(const struct job_entry *entry, struct err *err)
{
    struct job_entry mine = *entry;
    mine.pid = getpid();
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
    jobs_path(c->servers.unix_path, sizeof(c->servers.unix_path), c->dir, "sock");
    c->discovery.first_hosts = k->first_hosts;
    int rc = take_environment(k->environment, err);
    if (rc == 0)
        rc = coordinator_agents_read_settings(&c->agents, err);
    if (rc == 0)
        rc = read_token(c, err);
    if (rc == 0)
        rc = make_roster(c, k, err);
    if (rc == 0)
        rc = coordinator_agents_adopt(&c->agents, err);
    if (rc == 0) { /* the next hvdrun must have a higher term */
        struct saved_job mine = *k;
        mine.term = c->core.roster.term;
        rc = saved_job_store(&mine, c->dir, err);
    }
    if (rc == 0)
        rc = coordinator_servers_reopen(&c->servers, k, err);
    if (rc == 0)
        rc = publish(entry, err);
    if (rc == 0)
        c->attached = true;
    else
        c->dir[0] = '\0'; /* keep the directory for another attempt */
    return rc;
}

/* ---- the job's agents ----------------------------------------------------------------------- */

static void begin_again(struct coordinator *c)
{
    struct err err;
    const struct roster *r = &c->core.roster;
    int agents = 0, ranks = 0;
    for (int i = 0; i < r->agents.n; i++)
        agents += r->agents.list[i].joined && !r->agents.list[i].lost;
    for (int i = 0; i < r->members.n; i++)
        ranks += !rank_has_ended(r->members.list[i].state);
    c->said_attached = true;
    if (agents == 0)
        coordinator_fail(&c->core, "no agent of job %s has rejoined: its ranks have ended", r->job);
    else
        coordinator_say(&c->core, 0, "attached to job %s: %d ranks on %d host(s), epoch %u", r->job,
                        ranks, agents, roster_epoch_number(r->epoch));
    if (agents > 0 && coordinator_discovery_start(&c->discovery, &err) < 0)
        coordinator_say(&c->core, 0, "%s: hosts stay as they are", err_text(&err));
}

void coordinator_check_attached(struct coordinator *c)
{
    if (!c->attached)
        return;
    coordinator_agents_check_adopted(&c->agents);
    if (!c->core.roster.rebuilding && !c->said_attached)
        begin_again(c);
}
