/* SPDX-License-Identifier: Apache-2.0
 *
 * page_members: the workers of a job: each pod with what its agent reports of its ranks. At most
 * PAGE_MEMBERS_MAX, those with problems first.
 */
#include <stdlib.h>

#include "core/base/cleanup.h"
#include "operator/page/page_private.h"

#define WHY_MAX 500

/* The state of a worker, in the order of the page. */
enum level { LEVEL_BAD, LEVEL_BUSY, LEVEL_OK, LEVEL_PAST };

struct member {
    const struct pod *pod;
    bool known; /* the pod's agent has joined */
    struct plane_worker worker;
    enum level level;
    const char *state;
};

struct members {
    struct member *list;
    int n, cap;
    bool failed;
};

static void add_pod(void *arg, const struct pod *pod)
{
    struct members *all = arg;
    if (all->n == all->cap) {
        int cap = all->cap ? 2 * all->cap : 16;
        struct member *grown = realloc(all->list, (size_t)cap * sizeof(*grown));
        all->failed |= !grown;
        if (!grown)
            return;
        all->list = grown;
        all->cap = cap;
    }
    all->list[all->n++] = (struct member){.pod = pod};
}

static int by_uid(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    return strcmp(x->pod->uid, y->pod->uid);
}

static int uid_of(const void *uid, const void *member)
{
    const struct member *m = member;
    return strcmp(uid, m->pod->uid);
}

static void add_worker(struct members *all, const struct plane_worker *worker)
{
    struct member *m =
        all->n ? bsearch(worker->pod_uid, all->list, (size_t)all->n, sizeof(*m), uid_of) : NULL;
    if (!m)
        return;
    m->known = true;
    m->worker = *worker;
}

/* rank_state_name() as text for people. */
static const struct {
    const char *state, *text;
    enum level level;
} states[] = {
    {"expected", "waits for its agent", LEVEL_BUSY},
    {"assigned", "ranks start", LEVEL_BUSY},
    {"running", "ranks start", LEVEL_BUSY},
    {"arrived", "ranks start", LEVEL_BUSY},
    {"ready", "ready, waits for other workers", LEVEL_BUSY},
    {"active", "trains", LEVEL_OK},
    {"left", "has left", LEVEL_OK},
    {"finished", "has finished", LEVEL_OK},
    {"failed", "a rank has failed", LEVEL_BAD},
};

static void judge_running(struct member *m)
{
    m->level = m->pod->ready ? LEVEL_OK : LEVEL_BUSY;
    m->state = m->pod->ready ? "runs" : "runs, not ready";
    if (m->known && !m->worker.connected) {
        m->level = LEVEL_BAD;
        m->state = "agent is not connected";
        return;
    }
    for (size_t i = 0; m->known && i < sizeof(states) / sizeof(states[0]); i++)
        if (strcmp(states[i].state, m->worker.state) == 0) {
            m->level = states[i].level;
            m->state = states[i].text;
        }
    if (m->known && m->level == LEVEL_OK && m->worker.broken > 0) {
        m->level = LEVEL_BAD;
        m->state = "a set is broken";
    }
}

static void judge(struct member *m)
{
    const struct pod *p = m->pod;
    m->level = LEVEL_BUSY;
    if (pod_finished(p)) {
        m->level = LEVEL_PAST;
        m->state = p->phase == POD_SUCCEEDED ? "has succeeded" : "has failed";
    } else if (p->deleting) {
        m->state = "is being deleted";
    } else if (p->phase == POD_RUNNING) {
        judge_running(m);
    } else {
        m->level = p->why ? LEVEL_BAD : LEVEL_BUSY;
        m->state = p->node ? "pod starts" : "waits for a node";
    }
}

static int by_need(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    int order = (int)x->level - (int)y->level;
    order = order ? order : x->pod->worker - y->pod->worker;
    return order ? order : x->pod->attempt - y->pod->attempt;
}

static json_t *row_of(const struct member *m)
{
    static const char *const levels[] = {"bad", "busy", "ok", "past"};
    const struct pod *p = m->pod;
    json_t *j = json_pack("{s:i, s:i, s:s, s:s, s:s, s:s, s:I}", "worker", p->worker, "attempt",
                          p->attempt, "pod", p->name, "node", p->node ? p->node : "", "level",
                          levels[m->level], "state", m->state, "created", (json_int_t)p->created);
    json_put(&j, "why", page_text(p->why, WHY_MAX));
    if (!m->known || m->level == LEVEL_PAST)
        return j;
    json_put(&j, "ranks", json_string(m->worker.ranks));
    json_put(&j, "batches", json_integer((json_int_t)m->worker.batches));
    json_put(&j, "idleMs", json_integer(m->worker.idle_ms));
    if (m->worker.sets > 0) {
        json_put(&j, "sets", json_integer((json_int_t)m->worker.sets));
        json_put(&j, "descriptors", json_integer((json_int_t)m->worker.descriptors));
        json_put(&j, "descriptorsMax", json_integer((json_int_t)m->worker.descriptors_max));
        json_put(&j, "segments", json_integer((json_int_t)m->worker.segments));
        json_put(&j, "memoryLeft", json_integer((json_int_t)m->worker.memory_left));
        json_put(&j, "memoryLimit", json_integer((json_int_t)m->worker.memory_limit));
        json_put(&j, "communicators", json_integer((json_int_t)m->worker.communicators));
        json_put(&j, "gpuMemoryLeft", json_integer((json_int_t)m->worker.gpu_memory_left));
        json_put(&j, "gpuMemory", json_integer((json_int_t)m->worker.gpu_memory));
    }
    if (m->worker.broken > 0) {
        json_put(&j, "broken", json_integer((json_int_t)m->worker.broken));
        json_put(&j, "brokenSince", json_integer((json_int_t)m->worker.broken_since));
        json_put(&j, "brokenSet", page_text(m->worker.broken_set, WHY_MAX));
    }
    return j;
}

json_t *page_members(const struct driver *d, const struct plane_view *view,
                     const struct hvdjob *job)
{
    struct members all = {0};
    int counts[LEVEL_PAST + 1] = {0};
    driver_pods(d, job, add_pod, &all);
    if (all.n > 0)
        qsort(all.list, (size_t)all.n, sizeof(*all.list), by_uid);
    for (int i = 0; view && i < view->nworkers; i++)
        add_worker(&all, &view->workers[i]);
    for (int i = 0; i < all.n; i++) {
        judge(&all.list[i]);
        counts[all.list[i].level]++;
    }
    if (all.n > 0)
        qsort(all.list, (size_t)all.n, sizeof(*all.list), by_need);
    json_t *list = all.failed ? NULL : json_array();
    for (int i = 0; i < all.n && i < PAGE_MEMBERS_MAX; i++)
        json_append(&list, row_of(&all.list[i]));
    free(all.list);
    return json_pack("{s:i, s:i, s:i, s:i, s:o}", "total", all.n, "bad", counts[LEVEL_BAD], "busy",
                     counts[LEVEL_BUSY], "ok", counts[LEVEL_OK], "list", list);
}
