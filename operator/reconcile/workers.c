/* SPDX-License-Identifier: Apache-2.0
 *
 * workers: see workers.h.
 */
#include "operator/reconcile/workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void workers_fini(struct workers *w)
{
    free(w->mine);
    *w = (struct workers){0};
}

bool worker_superseded(const struct hvdjob_status *status, const struct pod *p)
{
    return p->attempt < hvdjob_status_attempt(status, p->worker);
}

bool worker_strayed(const struct pod *p)
{
    return p->strayed && !pod_finished(p);
}

bool worker_alive(const struct hvdjob_status *status, const struct pod *p)
{
    return !p->deleting && !p->strayed && !pod_finished(p) && !worker_superseded(status, p);
}

/* Is the pod's name one that the job's pods may have, such as "digits-3-1"? */
static bool has_our_name(const struct hvdjob *job, const struct pod *p)
{
    size_t n = strlen(job->name);
    const char *rest = p->name + n;
    if (strncmp(p->name, job->name, n) != 0 || rest[0] != '-')
        return false;
    size_t worker = strspn(rest + 1, "0123456789");
    size_t attempt = rest[1 + worker] == '-' ? strspn(rest + worker + 2, "0123456789") : 0;
    return worker > 0 && attempt > 0 && rest[worker + 2 + attempt] == '\0';
}

static int by_place(const void *a, const void *b)
{
    const struct pod *p = *(const struct pod *const *)a, *q = *(const struct pod *const *)b;
    if (p->worker != q->worker)
        return p->worker < q->worker ? -1 : 1;
    return p->attempt < q->attempt ? -1 : p->attempt > q->attempt;
}

static void count(struct workers *w, const struct hvdjob_status *status, const struct pod *p)
{
    if (p->attempt > w->attempt_seen)
        w->attempt_seen = p->attempt;
    w->leaving += p->deleting;
    w->ended += p->phase == POD_SUCCEEDED && !p->deleting && !worker_superseded(status, p);
    if (!worker_alive(status, p))
        return;
    w->alive++;
    w->bound += p->node != NULL;
    w->running += p->phase == POD_RUNNING;
    w->ready += p->phase == POD_RUNNING && p->ready;
}

int workers_init(struct workers *w, const struct hvdjob *job, const struct hvdjob_status *status,
                 const struct pod *const *pods, int npods, struct err *err)
{
    *w = (struct workers){.attempt_seen = -1};
    w->mine = calloc((size_t)npods + 1, sizeof(*w->mine));
    if (!w->mine)
        return err_set(err, ENOMEM, "no memory");
    for (int i = 0; i < npods; i++) {
        const struct pod *p = pods[i];
        bool owned = strcmp(p->owner, job->uid) == 0;
        if (owned && p->worker >= 0 && p->attempt >= 0)
            w->mine[w->n++] = p;
        else
            w->foreign |= !owned && has_our_name(job, p);
    }
    qsort(w->mine, (size_t)w->n, sizeof(*w->mine), by_place);
    for (int i = 0; i < w->n; i++)
        count(w, status, w->mine[i]);
    return 0;
}

const struct pod *workers_stuck(const struct workers *w, const struct hvdjob_status *status)
{
    for (int i = 0; i < w->n; i++)
        if (worker_alive(status, w->mine[i]) && w->mine[i]->phase == POD_PENDING && w->mine[i]->why)
            return w->mine[i];
    return NULL;
}

const struct pod *workers_pending(const struct workers *w, const struct hvdjob_status *status)
{
    for (int i = 0; i < w->n; i++)
        if (worker_alive(status, w->mine[i]) && w->mine[i]->phase == POD_PENDING)
            return w->mine[i];
    return NULL;
}

const struct pod *workers_terminating(const struct workers *w, int64_t now, int64_t *ret_again)
{
    const struct pod *first = NULL;
    for (int i = 0; i < w->n; i++) {
        int64_t at = pod_stuck_at(w->mine[i]);
        if (!w->mine[i]->node || pod_finished(w->mine[i]))
            continue;
        if (at > now && at < *ret_again)
            *ret_again = at;
        if (at <= now && !first)
            first = w->mine[i];
    }
    return first;
}

void workers_say_terminating(const char *pod, const char *node, int64_t leaves_by, char *dst,
                             size_t size)
{
    char by[MOMENT_SIZE];
    moment_write(leaves_by, by);
    snprintf(
        dst, size,
        "pod %.127s on node %.80s should have ended by %s and keeps its room; see whether that "
        "node and its kubelet run, and delete the Node if it is lost",
        pod, node, by);
}
