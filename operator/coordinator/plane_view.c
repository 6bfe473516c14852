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

/* Bytes of a worker's list of ranks, and of their places. */
#define RANKS_TEXT  64
#define PLACES_TEXT 48

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

/* Appends the places of ranks that were written before, if one of them is not the rank. */
static void put_places(int *places, int n, bool apart, char *dst, size_t size)
{
    char list[PLACES_TEXT];
    size_t len = strlen(dst);
    put_ranks(places, n, list, sizeof(list));
    if (apart)
        snprintf(dst + len, size - len, " (place%s %s)", n == 1 ? "" : "s", list);
}

/* The ranks of a worker are in one container. */
static void add_memory(struct plane_worker *w, const struct set_report *s)
{
    w->segments += s->segments;
    if (s->memory_limit == 0 || (w->memory_limit && w->memory_left <= s->memory_left))
        return;
    w->memory_left = s->memory_left;
    w->memory_limit = s->memory_limit;
}

/* Keeps the rank whose GPU has the least memory left; without that the one with the most
 * communicators. */
static void add_gpu(struct plane_worker *w, const struct set_report *s)
{
    bool known = s->gpu_memory > 0, known_too = w->gpu_memory > 0;
    bool nearer = known && known_too   ? s->gpu_memory_left < w->gpu_memory_left
                  : known != known_too ? known
                                       : s->communicators > w->communicators;
    if (s->communicators == 0 || (w->communicators && !nearer))
        return;
    w->communicators = s->communicators;
    w->gpu_memory_left = s->gpu_memory_left;
    w->gpu_memory = s->gpu_memory;
}

static void add_sets(struct plane_worker *w, const struct set_report *s)
{
    double used = (double)s->descriptors * (double)w->descriptors_max;
    w->sets = s->n > w->sets ? s->n : w->sets;
    add_memory(w, s);
    add_gpu(w, s);
    if (s->broken > w->broken && s->listed > 0) {
        w->broken = s->broken;
        w->broken_since = s->list[0].since;
        snprintf(w->broken_set, sizeof(w->broken_set), "%s", s->list[0].text);
    }
    if (s->descriptors_max == 0 ||
        (w->descriptors_max && used <= (double)w->descriptors * (double)s->descriptors_max))
        return;
    w->descriptors = s->descriptors;
    w->descriptors_max = s->descriptors_max;
}

/* ranks: a buffer with room for twice agent->nslots. */
static struct plane_worker worker_of(const struct roster *r, const struct job_coordinator_pod *pod,
                                     int *ranks, uint64_t now)
{
    const struct roster_agent *agent = &r->agents.list[pod->agent];
    struct plane_worker w = {.batches = UINT64_MAX};
    int n = 0, least = RANK_STATES, *places = ranks + agent->nslots;
    bool apart = false;
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
        if (m->rank >= 0 && !rank_has_ended(m->state)) {
            apart |= m->place != m->rank;
            places[n] = m->place;
            ranks[n++] = m->rank;
        }
        w.batches = m->batches < w.batches ? m->batches : w.batches;
        w.idle_ms = idle > w.idle_ms ? idle : w.idle_ms;
        if (m->sets && !rank_has_ended(m->state))
            add_sets(&w, m->sets);
    }
    w.batches = w.batches == UINT64_MAX ? 0 : w.batches;
    put_ranks(ranks, n, w.ranks, RANKS_TEXT);
    put_places(places, n, apart, w.ranks, sizeof(w.ranks));
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
    auto_free int *ranks = calloc(2 * (size_t)most, sizeof(*ranks));
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
