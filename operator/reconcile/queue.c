/* SPDX-License-Identifier: Apache-2.0
 *
 * queue: the order in which waiting jobs are decided on; see queue.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/objects/moment.h"
#include "operator/reconcile/queue_private.h"

/* ---- admissions ------------------------------------------------------------------------------ */

void admission_fini(struct admission *a)
{
    free(a->taken);
    a->taken = NULL;
    a->ntaken = 0;
}

const char *wait_name(enum wait wait)
{
    static const char *const names[WAITS] = {
        [WAIT_UNDECIDED] = "Queued",    [WAIT_UNANSWERED] = "DryRunUnanswered",
        [WAIT_REFUSED] = "PodRefused",  [WAIT_QUOTA] = "QuotaExceeded",
        [WAIT_SHARE] = "ShareExceeded", [WAIT_ROLLBACK] = "RolledBack",
        [WAIT_ROOM] = "NoRoom",         [WAIT_PREEMPTING] = "Preempting",
        [WAIT_HELD] = "NodesHeld",      [WAIT_PROBE] = "ProbeWaits"};
    return names[wait];
}

void queue_say(struct queue_job *j, const char *fmt, ...)
{
    size_t n = strlen(j->ret.why);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(j->ret.why + n, sizeof(j->ret.why) - n, fmt, ap);
    va_end(ap);
}

bool admission_takes(const struct admission *a, int worker)
{
    for (int i = 0; a && i < a->ntaken; i++)
        if (a->taken[i] == worker)
            return true;
    return false;
}

/* ---- tenants --------------------------------------------------------------------------------- */

static int by_namespace(const void *a, const void *b)
{
    return strcmp(((const struct tenant *)a)->namespace, ((const struct tenant *)b)->namespace);
}

static int tenant_by_key(const void *key, const void *tenant)
{
    return strcmp(key, ((const struct tenant *)tenant)->namespace);
}

struct tenant *queue_tenant(const struct queue *q, const struct hvdjob *job)
{
    return bsearch(job->namespace_, q->tenants, (size_t)q->ntenants, sizeof(*q->tenants),
                   tenant_by_key);
}

/* The quotas are sorted by namespace, as the tenants are. */
static void take_quotas(struct queue *q)
{
    int next = 0;
    for (int i = 0; i < q->ntenants; i++) {
        struct tenant *t = &q->tenants[i];
        while (next < q->in->nquotas && strcmp(q->in->quotas[next].namespace, t->namespace) < 0)
            next++;
        t->quotas = q->in->quotas ? q->in->quotas + next : NULL;
        for (; next < q->in->nquotas && strcmp(q->in->quotas[next].namespace, t->namespace) == 0;
             next++)
            t->nquotas++;
    }
}

static int take_tenants(struct queue *q)
{
    int n = 0;
    q->tenants = calloc((size_t)q->in->n + 1, sizeof(*q->tenants));
    if (!q->tenants)
        return -ENOMEM;
    for (int i = 0; i < q->in->n; i++)
        q->tenants[i].namespace = q->in->jobs[i].job->namespace_;
    if (q->in->n > 1)
        qsort(q->tenants, (size_t)q->in->n, sizeof(*q->tenants), by_namespace);
    for (int i = 0; i < q->in->n; i++)
        if (n == 0 || by_namespace(&q->tenants[n - 1], &q->tenants[i]) != 0)
            q->tenants[n++] = q->tenants[i];
    q->ntenants = n;
    take_quotas(q);
    return 0;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static bool claims(const struct queue_job *j)
{
    return j->ret.claimed != MOMENT_NONE;
}

/* A job whose dry run is not answered takes part only if it claims nodes. */
static bool waits(const struct queue_job *j)
{
    return queue_is_waiting(j->job) && !j->unserved && (!j->pending || claims(j));
}

static int by_age(const struct hvdjob *a, const struct hvdjob *b)
{
    if (queue_waits_since(a) != queue_waits_since(b))
        return queue_waits_since(a) < queue_waits_since(b) ? -1 : 1;
    if (a->created != b->created)
        return a->created < b->created ? -1 : 1;
    return strcmp(a->uid, b->uid);
}

static int by_line(const void *a, const void *b)
{
    const struct queue_job *p = *(struct queue_job *const *)a, *q = *(struct queue_job *const *)b;
    if (p->priority != q->priority)
        return p->priority > q->priority ? -1 : 1;
    if (claims(p) != claims(q))
        return claims(p) ? -1 : 1;
    int order = strcmp(p->job->namespace_, q->job->namespace_);
    return order != 0 ? order : by_age(p->job, q->job);
}

/* Which jobs claim nodes. The leader may have been killed after it had preempted a job and before
 * it wrote the claim. */
static void take_claims(struct queue *q)
{
    for (int i = 0; i < q->in->n; i++)
        q->in->jobs[i].ret.claimed = queue_claim_of(q, &q->in->jobs[i]);
    for (int i = 0; i < q->in->n; i++) {
        struct queue_job *by = queue_preemptor(q, &q->in->jobs[i]);
        int64_t at = q->in->jobs[i].job->status.last_preemption;
        if (by && by->ret.claimed < at)
            by->ret.claimed = at;
    }
}

static int collect_waiting(struct queue *q)
{
    q->order = calloc((size_t)q->in->n + 1, sizeof(struct queue_job *));
    if (!q->order)
        return -ENOMEM;
    take_claims(q);
    for (int i = 0; i < q->in->n; i++)
        if (waits(&q->in->jobs[i]))
            q->order[q->nwaiting++] = &q->in->jobs[i];
    if (q->nwaiting > 1)
        qsort(q->order, (size_t)q->nwaiting, sizeof(struct queue_job *), by_line);
    return 0;
}

static int take_lines(struct queue *q)
{
    struct line *l = NULL;
    q->lines = calloc((size_t)q->in->n + 1, sizeof(*q->lines));
    if (!q->lines || collect_waiting(q) < 0)
        return -ENOMEM;
    for (int i = 0; i < q->nwaiting && q->order[i]; i++) {
        const struct queue_job *j = q->order[i];
        struct tenant *t = queue_tenant(q, j->job);
        if (!l || l->priority != j->priority || l->claims != claims(j) || l->tenant != t) {
            l = &q->lines[q->nlines++];
            *l = (struct line){
                .priority = j->priority, .claims = claims(j), .tenant = t, .jobs = q->order + i};
        }
        l->n++;
    }
    return 0;
}

/* ---- a run ----------------------------------------------------------------------------------- */

void queue_crowd(struct queue *q, int priority)
{
    if (!q->crowded || priority > q->crowd)
        q->crowd = priority;
    q->crowded = true;
}

int queue_begin(struct queue **ret, const struct queue_input *in)
{
    struct queue *q = calloc(1, sizeof(*q));
    if (!q)
        return -ENOMEM;
    q->in = in;
    q->lowest = INT32_MAX;
    int rc = take_tenants(q);
    rc = rc < 0 ? rc : take_lines(q);
    rc = rc < 0 ? rc : queue_room_init(q);
    if (rc < 0) {
        queue_end(q);
        return rc;
    }
    *ret = q;
    return 0;
}

/* Before any decision: what the job has, or may get at any time. */
static void prepare(struct queue *q, struct queue_job *j)
{
    struct tenant *t = queue_tenant(q, j->job);
    admission_fini(&j->ret);
    j->ret = (struct admission){.again = INT64_MAX, .claimed = j->ret.claimed};
    if (j->preempted_by) { /* its workers are alive until they are deleted */
        queue_loosen(q, j, j->alive);
        j->ret.preempted = true;
        snprintf(j->ret.by, sizeof(j->ret.by), "%s", j->preempted_by);
        return;
    }
    queue_reserve_admitted(q, j);
    queue_take_missing(q, j);
    t->served = j->served > t->served ? j->served : t->served;
    t->asking |= j->asking;
    if (j->gates && j->bound > 0 && j->priority < q->lowest)
        q->lowest = j->priority;
}

/* Is a's turn before b's? The tenant with the smaller share, then the one that was served longer
 * ago, then the older job. */
static bool is_before(const struct line *a, const struct line *b)
{
    if (a->tenant->share != b->tenant->share)
        return a->tenant->share < b->tenant->share;
    if (a->tenant->served != b->tenant->served)
        return a->tenant->served < b->tenant->served;
    return by_age(a->jobs[a->next]->job, b->jobs[b->next]->job) < 0;
}

/* The line of this priority whose next job has its turn. heads: only lines whose oldest job had no
 * turn yet. */
static struct line *next_line(struct queue *q, bool heads)
{
    struct line *best = NULL;
    for (int i = q->level; i < q->level_end; i++) {
        struct line *l = &q->lines[i];
        if (l->next == l->n || (heads && l->headed))
            continue;
        if (!best || is_before(l, best))
            best = l;
    }
    return best;
}

/* Decides on the job that has its turn. First, of each tenant, the oldest job if it has waited
 * QUEUE_PATIENCE: one at most, so that a tenant with many old jobs does not delay others. */
static void decide_next(struct queue *q)
{
    struct line *l = q->heads_done ? NULL : next_line(q, true);
    if (l) {
        struct queue_job *j = l->jobs[0];
        l->headed = true;
        if (q->in->now >= queue_waits_since(j->job) + QUEUE_PATIENCE) {
            l->next = 1;
            queue_admit(q, j, true);
        } else {
            queue_again(j, queue_waits_since(j->job) + QUEUE_PATIENCE);
        }
        return;
    }
    q->heads_done = true;
    l = next_line(q, false);
    if (l) {
        queue_admit(q, l->jobs[l->next++], false);
        return;
    }
    q->level = q->level_end;
}

static bool is_level(const struct line *a, const struct line *b)
{
    return a->priority == b->priority && a->claims == b->claims;
}

/* True: there is none, the run is complete. */
static bool step(struct queue *q)
{
    if (q->prepared < q->in->n) {
        prepare(q, &q->in->jobs[q->prepared++]);
        return false;
    }
    if (q->level == q->level_end) {
        if (q->level == q->nlines) {
            /* Elastic jobs come last: they grow into what the waiting ones leave. */
            if (q->grown < q->in->n)
                queue_grow(q, &q->in->jobs[q->grown++]);
            return q->grown == q->in->n;
        }
        while (q->level_end < q->nlines && is_level(&q->lines[q->level_end], &q->lines[q->level]))
            q->level_end++;
        q->heads_done = false;
    }
    decide_next(q);
    return false;
}

/* One job of each tenant is asked about at a time. */
static void choose_asked(struct queue *q)
{
    for (int i = 0; i < q->ntenants; i++)
        if (q->tenants[i].ask && !q->tenants[i].asking)
            q->tenants[i].ask->ret.ask = true;
}

bool queue_step(struct queue *q, int most)
{
    for (; most > 0; most--)
        if (step(q)) {
            choose_asked(q);
            return true;
        }
    return false;
}

void queue_end(struct queue *q)
{
    if (!q)
        return;
    queue_room_fini(q);
    free(q->order);
    free(q->lines);
    free(q->tenants);
    free(q);
}

int queue_decide(const struct queue_input *in)
{
    struct queue *q;
    int rc = queue_begin(&q, in);
    if (rc < 0)
        return rc;
    while (!queue_step(q, 1 << 20))
        ;
    queue_end(q);
    return 0;
}
