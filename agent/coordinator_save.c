/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_save: see coordinator_save.h.
 */
#include "agent/coordinator_save.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/saved_job.h"

static bool is_leaving(const struct roster_member *m)
{
    return m->leaving && !rank_has_ended(m->state);
}

/* A hash of all that coordinator_save_job() writes and that can change. */
static uint64_t sum_up(const struct coordinator_save *s)
{
    const struct roster *r = &s->core->roster;
    uint64_t sum = 1469598103934665603ULL;
    uint64_t parts[] = {
        (uint64_t)r->target,   (uint64_t)r->members.n,         (uint64_t)r->agents.n,
        (uint64_t)r->restarts, (uint64_t)r->changes.requested, (uint64_t)s->servers->ntcp,
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
static int fill_saved(const struct coordinator_save *s, struct saved_job *k)
{
    const struct roster *r = &s->core->roster;
    *k = (struct saved_job){.job = *s->core->job,
                            .term = r->term,
                            .change = r->changes.requested,
                            .target = r->target,
                            .nmembers = r->members.n,
                            .restarts = r->restarts,
                            .first_hosts = *s->first_hosts,
                            .nagents = r->agents.n,
                            .nservers = s->servers->ntcp};
    gethostname(k->host, sizeof(k->host) - 1);
    saved_job_home(k->home);
    k->environment = job_remote_environment(s->core->job);
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
    for (int i = 0; i < s->servers->ntcp; i++) {
        memcpy(k->servers[i].address, s->servers->addresses[i], sizeof(s->servers->addresses[i]));
        k->servers[i].port = server_port(s->servers->tcp[i]);
        k->servers[i].authority = s->servers->authorities[i];
    }
    return 0;
}

void coordinator_save_job(struct coordinator_save *s)
{
    struct saved_job k;
    struct err err;
    uint64_t sum = sum_up(s);
    if (!s->core->roster.is_elastic || s->core->roster.rebuilding || sum == s->hash)
        return;
    int rc = fill_saved(s, &k);
    rc = rc < 0 ? err_set(&err, ENOMEM, "no memory") : saved_job_store(&k, s->dir, &err);
    free(k.agents);
    free(k.leaving);
    free(k.environment);
    if (rc < 0 && !s->failed)
        coordinator_say(s->core, 0,
                        "%s: if this hvdrun is killed, hvdrun attach will find an older state "
                        "of the job",
                        err_text(&err));
    s->failed = rc < 0;
    s->hash = rc < 0 ? s->hash : sum;
}
