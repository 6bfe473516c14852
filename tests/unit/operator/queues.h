/* SPDX-License-Identifier: Apache-2.0
 *
 * queues: a cluster of a few nodes and a list of jobs, for tests of reconcile/fit and queue.
 */
#ifndef HVD_TESTS_UNIT_OPERATOR_QUEUES_H
#define HVD_TESTS_UNIT_OPERATOR_QUEUES_H

#include "operator/reconcile/queue.h"
#include "tests/unit/operator/jobs.h"

#define NODES 4

/* A worker of make_job() requests 2 CPUs and 1 GiB. */
struct world {
    struct node nodes[NODES];
    struct resources used[NODES];
    struct cluster c;
};

static inline void add_node(struct world *w, const char *name, int cpu, const char *meta,
                            const char *spec)
{
    char text[512];
    snprintf(text, sizeof(text),
             "{'metadata':{'name':'%s'%s},'spec':{%s},'status':{'allocatable':{'cpu':%d,'memory':"
             "'8Gi','pods':10},'conditions':[{'type':'Ready','status':'True'}]}}",
             name, meta, spec, cpu);
    auto_json json_t *j = from_text(text);
    assert_int_equal(node_parse(j, &w->nodes[w->c.n], NULL), 0);
    w->c.n++;
}

static inline void init(struct world *w)
{
    *w = (struct world){.c = {.nodes = w->nodes, .used = w->used}};
}

static inline void fini(struct world *w)
{
    for (int i = 0; i < w->c.n; i++)
        node_fini(&w->nodes[i]);
}

#define JOBS 6

struct line_of_jobs {
    struct hvdjob jobs[JOBS];
    struct demand demand[JOBS];
    struct queue_job q[JOBS];
    int n;
    struct quota quotas[2];
    int nquotas;
    int share; /* 0: no limit */
};

static inline void add_job(struct line_of_jobs *l, const char *name, const char *spec,
                           const char *status)
{
    struct hvdjob *job = &l->jobs[l->n];
    *job = make_job(spec, status);
    free(job->name);
    job->name = strdup(name);
    snprintf(job->uid, sizeof(job->uid), "u-%s", name);
    l->demand[l->n] = (struct demand){.spec = job->podspec, .preempts = true};
    l->q[l->n] = (struct queue_job){.job = job, .demand = &l->demand[l->n], .gates = true};
    l->n++;
}

static inline void decide(struct line_of_jobs *l, struct cluster *c, int64_t now)
{
    struct queue_input in = {.jobs = l->q,
                             .n = l->n,
                             .cluster = c,
                             .quotas = l->quotas,
                             .nquotas = l->nquotas,
                             .policy = {.share = l->share ? l->share : 100, .probes = 8},
                             .now = now};
    assert_int_equal(queue_decide(&in), 0);
}

static inline const struct admission *verdict(const struct line_of_jobs *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->q[i].job->name, name) == 0)
            return &l->q[i].ret;
    return NULL;
}

static inline void leave(struct line_of_jobs *l)
{
    for (int i = 0; i < l->n; i++)
        hvdjob_fini(&l->jobs[i]);
    l->n = 0;
}

#define QUEUED(s) "'phase':'Queued','queuedTime':'2023-11-14T22:" s "Z'"

static inline struct queue_job *last(struct line_of_jobs *l)
{
    return &l->q[l->n - 1];
}

static inline void move_to(struct line_of_jobs *l, const char *namespace)
{
    struct hvdjob *job = &l->jobs[l->n - 1];
    free(job->namespace_);
    job->namespace_ = strdup(namespace);
}

/* The last job runs on these nodes, and they are used. */
static inline void place(struct line_of_jobs *l, struct world *w, const int *at, int n)
{
    struct queue_job *j = last(l);
    j->at = at;
    j->alive = j->bound = j->nat = n;
    for (int i = 0; i < n; i++)
        fit_place(&w->c, at[i], &j->demand->spec, 1);
}

#define RUNNING(t) "'phase':'Running','admittedTime':'2023-11-14T22:" t "Z'"

static inline void expect_waits(const struct line_of_jobs *l, const char *name, const char *words)
{
    const struct admission *a = verdict(l, name);
    assert_false(a->go);
    if (!strstr(a->why, words))
        fail_msg("%s waits for \"%s\", not \"%s\"", name, a->why, words);
}

#endif
