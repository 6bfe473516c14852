/* SPDX-License-Identifier: Apache-2.0
 *
 * queues: a cluster of a few nodes and a list of jobs, for tests of reconcile/fit and queue.
 */
#ifndef HVD_TESTS_UNIT_OPERATOR_QUEUES_H
#define HVD_TESTS_UNIT_OPERATOR_QUEUES_H

#include "operator/reconcile/queue.h"
#include "tests/unit/operator/jobs.h"

#ifndef NODES
#define NODES 4
#define JOBS  6
#endif

/* A worker of make_job() requests 2 CPUs and 1 GiB. */
struct world {
    struct node nodes[NODES];
    struct resources used[NODES]; /* by pods with a node */
    struct cluster c;
    bool blind; /* nodes may not be listed */
    struct hvdjob jobs[JOBS];
    struct demand demand[JOBS];
    struct queue_job q[JOBS];
    int n;
    struct quota quotas[2];
    int nquotas;
    struct resources freeing[NODES], foreign[NODES];
    struct queue_stuck stuck[2];
    int nstuck;
    struct queue_policy policy;
    struct resources reserved[NODES]; /* of the last decide(): with what is used */
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

static inline void add_job(struct world *w, const char *name, const char *spec, const char *status)
{
    struct hvdjob *job = &w->jobs[w->n];
    *job = make_job(spec, status);
    free(job->name);
    job->name = strdup(name);
    snprintf(job->uid, sizeof(job->uid), "u-%s", name);
    w->demand[w->n] = (struct demand){.spec = job->podspec, .preempts = true};
    w->q[w->n] = (struct queue_job){.job = job, .demand = &w->demand[w->n], .gates = true};
    w->n++;
}

static inline struct queue_input queue_of(struct world *w, struct cluster *c, int64_t now)
{
    *c = w->c;
    c->used = w->reserved;
    memcpy(w->reserved, w->used, sizeof(w->used));
    return (struct queue_input){.jobs = w->q,
                                .n = w->n,
                                .cluster = w->blind ? NULL : c,
                                .freeing = w->freeing,
                                .foreign = w->foreign,
                                .stuck = w->stuck,
                                .nstuck = w->nstuck,
                                .quotas = w->quotas,
                                .nquotas = w->nquotas,
                                .policy = w->policy,
                                .now = now};
}

static inline void decide(struct world *w, int64_t now)
{
    struct cluster c;
    struct queue_input in = queue_of(w, &c, now);
    assert_int_equal(queue_decide(&in), 0);
}

static inline const struct admission *verdict(const struct world *w, const char *name)
{
    for (int i = 0; i < w->n; i++)
        if (strcmp(w->q[i].job->name, name) == 0)
            return &w->q[i].ret;
    return NULL;
}

/* All jobs and quotas are gone, and what their pods use. */
static inline void leave(struct world *w)
{
    for (int i = 0; i < w->n; i++) {
        admission_fini(&w->q[i].ret);
        hvdjob_fini(&w->jobs[i]);
    }
    for (int i = 0; i < w->nquotas; i++)
        quota_fini(&w->quotas[i]);
    w->n = w->nquotas = 0;
    memset(w->used, 0, sizeof(w->used));
}

/* cmocka's set-up and tear-down of each test. */
static inline int world_begin(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    *state = w;
    if (w) {
        w->c = (struct cluster){.nodes = w->nodes, .used = w->used};
        w->policy = (struct queue_policy){.share = 100, .probes = 8};
    }
    return w ? 0 : -1;
}

static inline int world_end(void **state)
{
    struct world *w = *state;
    leave(w);
    for (int i = 0; i < w->c.n; i++)
        node_fini(&w->nodes[i]);
    free(w);
    return 0;
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_begin, world_end)

#define QUEUED(s) "'phase':'Queued','queuedTime':'2023-11-14T22:" s "Z'"

static inline struct queue_job *last(struct world *w)
{
    return &w->q[w->n - 1];
}

static inline void move_to(struct world *w, const char *namespace)
{
    struct hvdjob *job = &w->jobs[w->n - 1];
    free(job->namespace_);
    job->namespace_ = strdup(namespace);
}

/* The last job runs on these nodes, and they are used. */
static inline void place(struct world *w, const int *at, int n)
{
    struct queue_job *j = last(w);
    j->at = at;
    j->alive = j->bound = j->nat = n;
    for (int i = 0; i < n; i++)
        resources_count(&w->used[at[i]], &j->demand->spec.requests, 1);
}

#define RUNNING(t) "'phase':'Running','admittedTime':'2023-11-14T22:" t "Z'"

static inline void expect_waits(const struct world *w, const char *name, const char *words)
{
    const struct admission *a = verdict(w, name);
    assert_false(a->go);
    if (!strstr(a->why, words))
        fail_msg("%s waits for \"%s\", not \"%s\"", name, a->why, words);
}

static inline struct quota make_quota(const char *namespace, const char *hard, const char *used,
                                      const char *more)
{
    char text[512];
    struct quota q;
    snprintf(text, sizeof(text),
             "{'metadata':{'namespace':'%s','name':'few'},'spec':{%s},'status':{'hard':{%s},"
             "'used':{%s}}}",
             namespace, more, hard, used);
    auto_json json_t *j = from_text(text);
    assert_int_equal(quota_parse(j, &q, NULL), 0);
    return q;
}

static inline void add_quota(struct world *w, const char *namespace, const char *hard,
                             const char *used, const char *more)
{
    w->quotas[w->nquotas++] = make_quota(namespace, hard, used, more);
}

#endif
