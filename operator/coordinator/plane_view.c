/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_view: a job's agents, ranks and epochs for the page. See plane.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "operator/coordinator/plane_private.h"

/* Order of rank states by progress. A worker shows the state of its rank with the least. */
static int progress_of(enum rank_state state)
{
    return state == RANK_FAILED ? -1 : (int)state;
}

static int by_number(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Writes "0, 2-5"; ends with "..." where it does not fit. */
static void put_ranks(int *ranks, int n, char *dst, size_t size)
{
    size_t len = 0;
    dst[0] = '\0';
    qsort(ranks, (size_t)n, sizeof(*ranks), by_number);
    for (int i = 0, last; i < n; i = last + 1) {
        char part[40];
        for (last = i; last + 1 < n && ranks[last + 1] == ranks[last] + 1;)
            last++;
        const char *comma = i ? ", " : "";
        if (last > i)
            snprintf(part, sizeof(part), "%s%d-%d", comma, ranks[i], ranks[last]);
        else
            snprintf(part, sizeof(part), "%s%d", comma, ranks[i]);
        if (len + strlen(part) + sizeof(", ...") > size) {
            snprintf(dst + len, size - len, "%s...", comma);
            return;
        }
        len += (size_t)snprintf(dst + len, size - len, "%s", part);
    }
}

static void add_sets(struct plane_worker *w, const struct roster_member *m)
{
    double used = (double)m->descriptors * (double)w->descriptors_max;
    w->sets = m->sets > w->sets ? m->sets : w->sets;
    if (m->sets == 0 || m->descriptors_max == 0 ||
        (w->descriptors_max && used <= (double)w->descriptors * (double)m->descriptors_max))
        return;
    w->descriptors = m->descriptors;
    w->descriptors_max = m->descriptors_max;
}

/* ranks: a buffer with room for agent->nslots. */
static struct plane_worker worker_of(const struct roster *r, const struct job_coordinator_pod *pod,
                                     int *ranks, uint64_t now)
{
    const struct roster_agent *agent = &r->agents.list[pod->agent];
    struct plane_worker w = {.batches = UINT64_MAX};
    int n = 0, least = RANK_STATES;
    memcpy(w.pod_uid, pod->uid, sizeof(w.pod_uid));
    w.connected = agent->joined && !agent->lost && pod->closed_at == 0;
    w.idle_ms = -1;
    for (int i = 0; i < agent->nslots; i++) {
        if (agent->slots[i].member < 0)
            continue;
        const struct roster_member *m = &r->members.list[agent->slots[i].member];
        int64_t idle = m->moved ? (int64_t)((now - m->moved) / CLOCK_MS) : -1;
        if (progress_of(m->state) < least) {
            least = progress_of(m->state);
            snprintf(w.state, sizeof(w.state), "%s", rank_state_name(m->state));
        }
        if (m->rank >= 0 && !rank_has_ended(m->state))
            ranks[n++] = m->rank;
        w.batches = m->batches < w.batches ? m->batches : w.batches;
        w.idle_ms = idle > w.idle_ms ? idle : w.idle_ms;
        add_sets(&w, m);
    }
    w.batches = w.batches == UINT64_MAX ? 0 : w.batches;
    put_ranks(ranks, n, w.ranks, sizeof(w.ranks));
    return w;
}

void plane_workers(const struct plane *p, const char *job_uid,
                   void (*each)(void *arg, const struct plane_worker *worker), void *arg)
{
    const struct job_coordinator *c = plane_find(p, job_uid);
    uint64_t now = clock_ns();
    int most = 1;
    for (int a = 0; c && a < c->roster.agents.n; a++)
        most = c->roster.agents.list[a].nslots > most ? c->roster.agents.list[a].nslots : most;
    auto_free int *ranks = calloc((size_t)most, sizeof(*ranks));
    for (int i = 0; ranks && c && i < c->npods; i++) {
        if (c->pods[i]->agent < 0)
            continue;
        struct plane_worker w = worker_of(&c->roster, c->pods[i], ranks, now);
        each(arg, &w);
    }
}

void plane_epochs(const struct plane *p, const char *job_uid,
                  void (*each)(void *arg, const struct plane_epoch *epoch), void *arg)
{
    const struct job_coordinator *c = plane_find(p, job_uid);
    uint64_t now = clock_ns();
    for (int i = c ? c->history.n - 1 : -1; i >= 0; i--) {
        const struct epoch_record *e = &c->history.list[i];
        struct plane_epoch epoch = {.number = roster_epoch_number(e->epoch),
                                    .unix_ms = clock_unix_ms(e->at, now),
                                    .size = e->size,
                                    .first = e->first,
                                    .lost = e->lost,
                                    .ms = e->ms,
                                    .cost = epoch_record_cost(e)};
        snprintf(epoch.cause, sizeof(epoch.cause), "%s", e->cause ? e->cause : "");
        each(arg, &epoch);
    }
}
