/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/reconcile/fit and queue: what fits, messages about what does not, admission.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operator/reconcile/backoff.h"
#include "operator/reconcile/queue.h"
#include "tests/unit/operator/jobs.h"

#define NODES 4

/* A worker of make_job() requests 2 CPUs and 1 GiB. */
struct world {
    struct node nodes[NODES];
    struct resources used[NODES];
    struct cluster c;
};

static void add_node(struct world *w, const char *name, int cpu, const char *meta, const char *spec)
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

static void init(struct world *w)
{
    *w = (struct world){.c = {.nodes = w->nodes, .used = w->used}};
}

static void fini(struct world *w)
{
    for (int i = 0; i < w->c.n; i++)
        node_fini(&w->nodes[i]);
}

static void test_fit(void **state)
{
    struct world w;
    struct hvdjob job = make_job("'workers':4", "");
    char text[1024];
    (void)state;
    init(&w);
    fit_explain(&w.c, &job.podspec, 4, text, sizeof(text));
    assert_non_null(strstr(text,
                           "0 of 4 workers fit now; a worker asks for cpu 2, memory 1Gi; there "
                           "are no nodes"));
    add_node(&w, "a", 5, "", "");
    add_node(&w, "b", 4, "", "'unschedulable':true");
    add_node(&w, "c", 4, "", "'taints':[{'key':'ml','value':'x','effect':'NoSchedule'}]");
    add_node(&w, "d", 3, "", "");
    assert_int_equal(fit_count(&w.c, &job.podspec, 9), 3); /* 2 on a, 1 on d */
    w.used[0].amount[RESOURCES_CPU] = 2000;
    assert_int_equal(fit_count(&w.c, &job.podspec, 9), 2);
    assert_int_equal(fit_count_empty(&w.c, &job.podspec, 9), 3);
    fit_reserve(&w.c, &job.podspec, 1);
    assert_int_equal(w.used[0].amount[RESOURCES_CPU], 4000);
    fit_explain(&w.c, &job.podspec, 4, text, sizeof(text));
    static const char *const words[] = {
        "1 of 4 workers fit now; a worker asks for cpu 2, memory 1Gi",
        "the whole cluster, empty, has room for 3",
        "node a: cpu 2 asked, 1 of 5 free",
        "node b: cordoned",
        "node c: taint ml=x:NoSchedule is not tolerated",
        "node d: room for 1",
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strstr(text, words[i]))
            fail_msg("\"%s\" is not in \"%s\"", words[i], text);
    /* A message that does not fit is cut. */
    char small[40];
    fit_explain(&w.c, &job.podspec, 4, small, sizeof(small));
    assert_int_equal(strlen(small), sizeof(small) - 1);
    fini(&w);
    hvdjob_fini(&job);
}

static void test_never(void **state)
{
    struct world w;
    struct hvdjob job = make_job("'workers':2", "");
    char text[1024];
    (void)state;
    init(&w);
    add_node(&w, "a", 1, "", "");
    add_node(&w, "b", 1, ",'labels':{'x':'y'}", "");
    fit_explain(&w.c, &job.podspec, 2, text, sizeof(text));
    assert_non_null(
        strstr(text, "no node for it has that much cpu even when empty (the largest has 1)"));
    job.podspec.selector.text = malloc(5);
    memcpy(job.podspec.selector.text, "x\0z\0", 5);
    fit_explain(&w.c, &job.podspec, 2, text, sizeof(text));
    assert_non_null(strstr(text, "node a: without the label x=z"));
    fini(&w);
    hvdjob_fini(&job);
}

/* ---- the queue ------------------------------------------------------------------------------ */

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

static void add_job(struct line_of_jobs *l, const char *name, const char *spec, const char *status)
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

static void decide(struct line_of_jobs *l, struct cluster *c, int64_t now)
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

static const struct admission *verdict(const struct line_of_jobs *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->q[i].job->name, name) == 0)
            return &l->q[i].ret;
    return NULL;
}

static void leave(struct line_of_jobs *l)
{
    for (int i = 0; i < l->n; i++)
        hvdjob_fini(&l->jobs[i]);
    l->n = 0;
}

#define QUEUED(s) "'phase':'Queued','queuedTime':'2023-11-14T22:" s "Z'"

/* Two gangs of which only one fits: the first is admitted, the second waits with a reason. */
static void test_promises(void **state)
{
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    add_node(&w, "b", 4, "", "");
    add_job(&l, "late", "'workers':3", QUEUED("13:10"));
    add_job(&l, "early", "'workers':3", QUEUED("13:05"));
    add_job(&l, "small", "'workers':1", QUEUED("13:15"));
    decide(&l, &w.c, NOW);
    assert_true(verdict(&l, "early")->go);
    assert_false(verdict(&l, "late")->go);
    assert_non_null(strstr(verdict(&l, "late")->why, "1 of 3 workers fit now"));
    assert_true(verdict(&l, "small")->go); /* fits beside the first */
    /* The same if the first was admitted and has no pods yet. */
    l.jobs[1].status.phase = JOB_STARTING;
    l.jobs[2].status.phase = JOB_STARTING;
    memset(w.used, 0, sizeof(w.used));
    decide(&l, &w.c, NOW);
    assert_false(verdict(&l, "late")->go);
    leave(&l);
    fini(&w);
}

/* No younger job overtakes a job that has waited QUEUE_PATIENCE, unless the older job would not
 * even fit the empty cluster. */
static void test_patience(void **state)
{
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    w.used[0].amount[RESOURCES_CPU] = 2000;
    add_job(&l, "large", "'workers':2,'gang':{'probeSeconds':0}", QUEUED("00:00"));
    add_job(&l, "small", "'workers':1", QUEUED("13:15"));
    decide(&l, &w.c, NOW);
    assert_false(verdict(&l, "large")->go);
    assert_false(verdict(&l, "small")->go);
    assert_non_null(strstr(verdict(&l, "small")->why,
                           "job ml/large has waited longer than 300 s and holds the nodes"));
    leave(&l);
    add_job(&l, "never", "'workers':9,'gang':{'probeSeconds':0}", QUEUED("00:00"));
    add_job(&l, "small", "'workers':1", QUEUED("13:15"));
    memset(w.used, 0, sizeof(w.used));
    decide(&l, &w.c, NOW);
    assert_false(verdict(&l, "never")->go);
    assert_true(verdict(&l, "small")->go);
    leave(&l);
    add_job(&l, "large", "'workers':2", QUEUED("13:00"));
    w.used[0].amount[RESOURCES_CPU] = 2000;
    decide(&l, &w.c, NOW);
    assert_true(verdict(&l, "large")->again == NOW - 20000 + QUEUE_PATIENCE);
    leave(&l);
    fini(&w);
}

/* Where fitting is unknown: one gang at a time, oldest first. */
static void test_tries(void **state)
{
    struct line_of_jobs l = {.n = 0};
    (void)state;
    add_job(&l, "b", "'workers':2", QUEUED("13:10"));
    add_job(&l, "a", "'workers':2", QUEUED("13:05"));
    decide(&l, NULL, NOW);
    assert_true(verdict(&l, "a")->go);
    assert_false(verdict(&l, "b")->go);
    assert_non_null(strstr(verdict(&l, "b")->why, "may not list nodes"));
    l.jobs[1].status.phase = JOB_STARTING;
    decide(&l, NULL, NOW);
    assert_false(verdict(&l, "b")->go);
    for (int i = 0; i < l.n; i++)
        if (l.q[i].job == &l.jobs[1])
            l.q[i].bound = 2; /* it has its nodes: the next is admitted */
    decide(&l, NULL, NOW);
    assert_true(verdict(&l, "b")->go);
    leave(&l);
}

/* A gang waits longer after each rollback; one that fits nowhere is admitted for an autoscaler
 * after probeSeconds. */
static void test_back(void **state)
{
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    add_job(&l, "a", "'workers':1",
            QUEUED("13:10") ",'rollbacks':2,'lastRollbackTime':'2023-11-14T22:13:15Z'");
    decide(&l, &w.c, NOW);
    assert_false(verdict(&l, "a")->go);
    assert_non_null(strstr(verdict(&l, "a")->why, "tried again 10 s after that"));
    assert_true(verdict(&l, "a")->again == NOW + 5000);
    decide(&l, &w.c, NOW + 5000);
    assert_true(verdict(&l, "a")->go);
    leave(&l);
    memset(w.used, 0, sizeof(w.used));
    add_job(&l, "a", "'workers':9,'gang':{'probeSeconds':30}", QUEUED("13:00"));
    decide(&l, &w.c, NOW);
    assert_false(verdict(&l, "a")->go);
    assert_true(verdict(&l, "a")->again == NOW + 10000);
    decide(&l, &w.c, NOW + 10000);
    assert_true(verdict(&l, "a")->go);
    leave(&l);
    fini(&w);
    assert_int_equal(backoff(0, 1, 60), 0);
    assert_int_equal(backoff(1, 1, 60), 1);
    assert_int_equal(backoff(4, 1, 60), 8);
    assert_int_equal(backoff(1000000, 1, 60), 60);
}

/* ---- tenants, priorities, preemption ----------------------------------------------------------
 */

static struct queue_job *last(struct line_of_jobs *l)
{
    return &l->q[l->n - 1];
}

static void move_to(struct line_of_jobs *l, const char *namespace)
{
    struct hvdjob *job = &l->jobs[l->n - 1];
    free(job->namespace_);
    job->namespace_ = strdup(namespace);
}

/* The last job runs on these nodes, and they are used. */
static void place(struct line_of_jobs *l, struct world *w, const int *at, int n)
{
    struct queue_job *j = last(l);
    j->at = at;
    j->alive = j->bound = j->nat = n;
    for (int i = 0; i < n; i++)
        fit_place(&w->c, at[i], &j->demand->spec, 1);
}

#define RUNNING(t) "'phase':'Running','admittedTime':'2023-11-14T22:" t "Z'"

static void expect_waits(const struct line_of_jobs *l, const char *name, const char *words)
{
    const struct admission *a = verdict(l, name);
    assert_false(a->go);
    if (!strstr(a->why, words))
        fail_msg("%s waits for \"%s\", not \"%s\"", name, a->why, words);
}

/* The higher priority is first, though it is younger. */
static void test_priority(void **state)
{
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    add_job(&l, "old", "'workers':2", QUEUED("13:00"));
    add_job(&l, "new", "'workers':2", QUEUED("13:10"));
    last(&l)->priority = 5;
    decide(&l, &w.c, NOW);
    assert_true(verdict(&l, "new")->go);
    expect_waits(&l, "old", "0 of 2 workers fit now");
    leave(&l);
    fini(&w);
}

/* Of two namespaces the one that holds less is first, however many older jobs the other one has. */
static void test_fair(void **state)
{
    static const int at[] = {0};
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 6, "", "");
    add_job(&l, "runs", "'workers':1", RUNNING("10:00"));
    place(&l, &w, at, 1);
    add_job(&l, "more1", "'workers':1", QUEUED("13:00"));
    add_job(&l, "more2", "'workers':1", QUEUED("13:01"));
    add_job(&l, "other1", "'workers':1", QUEUED("13:02"));
    move_to(&l, "xx");
    add_job(&l, "other2", "'workers':1", QUEUED("13:03"));
    move_to(&l, "xx");
    decide(&l, &w.c, NOW);
    assert_true(verdict(&l, "other1")->go);
    assert_true(verdict(&l, "more1")->go); /* now both hold one, and it is older */
    assert_false(verdict(&l, "more2")->go);
    assert_false(verdict(&l, "other2")->go);
    leave(&l);
    fini(&w);
}

/* A job that has waited long holds the nodes that it needs, and no others. */
static void test_holds_its_nodes_only(void **state)
{
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    add_node(&w, "b", 4, "", "");
    add_node(&w, "c", 4, "", "");
    for (int i = 0; i < 3; i++)
        w.used[i].amount[RESOURCES_CPU] = 2000;
    add_job(&l, "large", "'workers':4,'gang':{'probeSeconds':0}", QUEUED("00:00"));
    add_job(&l, "s1", "'workers':1", QUEUED("13:15"));
    add_job(&l, "s2", "'workers':1", QUEUED("13:16"));
    decide(&l, &w.c, NOW);
    expect_waits(&l, "large", "3 of 4 workers fit now");
    expect_waits(&l, "s1", "holds the nodes that it needs"); /* large holds all that is free */
    leave(&l);
    for (int more = 0; more < 2; more++) {
        memset(w.used, 0, sizeof(w.used));
        w.used[0].amount[RESOURCES_CPU] = 4000;
        add_job(&l, "large", "'workers':3,'gang':{'probeSeconds':0}", QUEUED("00:00"));
        l.demand[0].spec.requests.amount[RESOURCES_CPU] = 4000;
        add_job(&l, "s1", "'workers':1", QUEUED("13:15"));
        decide(&l, &w.c, NOW);
        expect_waits(&l, "large", "2 of 3 workers fit now");
        assert_int_equal(verdict(&l, "s1")->go, more);
        leave(&l);
        if (more == 0)
            add_node(&w, "d", 2, "", ""); /* too small for large */
    }
    fini(&w);
}

/* What the namespace's gangs may hold at most; an elastic job gets what is left of it. */
static void test_share(void **state)
{
    static const int at[] = {0};
    struct world w;
    struct line_of_jobs l = {.share = 50};
    (void)state;
    init(&w);
    add_node(&w, "a", 8, "", "");
    add_job(&l, "runs", "'workers':1", RUNNING("10:00"));
    place(&l, &w, at, 1);
    add_job(&l, "two", "'workers':2", QUEUED("13:00"));
    add_job(&l, "grows", "'workers':3,'minWorkers':1,'maxWorkers':3", QUEUED("13:01"));
    add_job(&l, "other", "'workers':2", QUEUED("13:02"));
    move_to(&l, "xx");
    decide(&l, &w.c, NOW);
    expect_waits(&l, "two", "may hold 50 % of the cluster's cpu");
    assert_true(verdict(&l, "two")->no_pods);
    assert_true(verdict(&l, "grows")->go);
    assert_int_equal(verdict(&l, "grows")->workers, 1);
    assert_true(verdict(&l, "other")->go);
    leave(&l);
    fini(&w);
}

static struct quota make_quota(const char *namespace, const char *hard, const char *used,
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

/* The gang's sum against what the quota has left, before it has a pod. */
static void test_quota(void **state)
{
    struct world w;
    struct line_of_jobs l = {.nquotas = 1};
    (void)state;
    init(&w);
    add_node(&w, "a", 99, "", "");
    w.nodes[0].allocatable.amount[RESOURCES_PODS] = 99;
    w.nodes[0].allocatable.amount[RESOURCES_MEMORY] *= 8;
    l.quotas[0] =
        make_quota("ml", "'requests.cpu':'10','count/services':'1'", "'requests.cpu':'1500m'", "");
    add_job(&l, "five", "'workers':5", QUEUED("13:00"));
    add_job(&l, "elastic", "'workers':4,'minWorkers':2,'maxWorkers':4", QUEUED("13:01"));
    add_job(&l, "other", "'workers':5", QUEUED("13:02"));
    move_to(&l, "xx");
    decide(&l, &w.c, NOW);
    expect_waits(&l, "five", "quota few: requests.cpu 10 asked, 8500m of 10 left");
    assert_true(verdict(&l, "five")->no_pods);
    assert_true(verdict(&l, "elastic")->go);
    assert_int_equal(verdict(&l, "elastic")->workers, 4);
    assert_true(verdict(&l, "other")->go);
    quota_fini(&l.quotas[0]);
    leave(&l);

    /* Pods with gates count: a job that is decided later has none while an earlier one waits. */
    l.quotas[0] = make_quota("ml", "'pods':'4'", "'pods':'0'", "");
    w.nodes[0].allocatable.amount[RESOURCES_CPU] = 2000;
    memset(w.used, 0, sizeof(w.used));
    add_job(&l, "five", "'workers':5", QUEUED("13:00"));
    add_job(&l, "two", "'workers':2", QUEUED("13:01"));
    decide(&l, &w.c, NOW);
    assert_true(verdict(&l, "five")->no_pods);
    expect_waits(&l, "two", "1 of 2 workers fit now");
    assert_true(verdict(&l, "two")->no_pods);
    quota_fini(&l.quotas[0]);
    leave(&l);
    fini(&w);
}

static void test_quota_scopes(void **state)
{
    struct hvdjob job = make_job("'workers':2", "");
    struct demand d = {.spec = job.podspec, .priority_class = "high"};
    static const struct {
        const char *scope;
        int admits;
    } cases[] = {
        {"", 1},
        {"'scopes':['BestEffort']", 9},
        {"'scopes':['NotBestEffort']", 1},
        {"'scopes':['Terminating']", 9},
        {"'scopes':['NotTerminating','NotBestEffort']", 1},
        {"'scopes':['CrossNamespacePodAffinity']", 9},
        {"'scopeSelector':{'matchExpressions':[{'scopeName':'PriorityClass','operator':'In',"
         "'values':['low','high']}]}",
         1},
        {"'scopeSelector':{'matchExpressions':[{'scopeName':'PriorityClass','operator':'NotIn',"
         "'values':['high']}]}",
         9},
        {"'scopes':['PriorityClass']", 1},
        {"'scopeSelector':{'matchExpressions':[{'scopeName':'PriorityClass','operator':"
         "'DoesNotExist'}]}",
         9},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct quota_line *line = NULL;
        struct quota q = make_quota("ml", "'memory':'3Gi'", "'memory':'2Gi'", cases[i].scope);
        int n = quota_admits(&q, &d, 9, &line);
        if (n != cases[i].admits)
            fail_msg("%s: admits %d instead of %d", cases[i].scope, n, cases[i].admits);
        quota_take(&q, &d, 1);
        assert_int_equal(quota_admits(&q, &d, 9, &line), cases[i].admits == 1 ? 0 : 9);
        quota_fini(&q);
    }
    hvdjob_fini(&job);
}

/* Elastic gangs shrink first, then whole gangs go: of the lowest priority, the last admitted. */
static void test_preemption(void **state)
{
    static const int two[] = {0, 0}, one[] = {1}, other[] = {1};
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    add_node(&w, "b", 4, "", "");
    add_job(&l, "elastic", "'workers':2,'minWorkers':1,'maxWorkers':2", RUNNING("10:00"));
    place(&l, &w, two, 2);
    last(&l)->priority = 1;
    add_job(&l, "first", "'workers':1", RUNNING("10:00"));
    place(&l, &w, one, 1);
    add_job(&l, "second", "'workers':1", RUNNING("11:00"));
    place(&l, &w, other, 1);
    add_job(&l, "high", "'workers':1", QUEUED("13:00"));
    last(&l)->priority = 9;
    struct world fresh = w;
    decide(&l, &w.c, NOW);
    expect_waits(&l, "high", "preempts job ml/elastic (priority 1, this one has 9)");
    assert_int_equal(verdict(&l, "elastic")->workers, 1);
    assert_false(verdict(&l, "elastic")->preempted);
    assert_false(verdict(&l, "second")->preempted);

    l.jobs[3].min = l.jobs[3].workers = 2;
    memcpy(w.used, fresh.used, sizeof(w.used));
    decide(&l, &w.c, NOW);
    assert_int_equal(verdict(&l, "elastic")->workers, 1);
    assert_true(verdict(&l, "second")->preempted);
    assert_string_equal(verdict(&l, "second")->why, "ml/high");
    assert_false(verdict(&l, "first")->preempted);
    assert_non_null(strstr(verdict(&l, "high")->why, "and 1 more"));

    /* Nothing is taken that would not help. */
    l.jobs[3].min = l.jobs[3].workers = 5;
    memcpy(w.used, fresh.used, sizeof(w.used));
    decide(&l, &w.c, NOW);
    expect_waits(&l, "high", "0 of 5 workers fit now");
    assert_int_equal(verdict(&l, "elastic")->workers, 2);
    assert_false(verdict(&l, "first")->preempted || verdict(&l, "second")->preempted);

    /* The same priority, or preemptionPolicy: Never. */
    l.jobs[3].min = l.jobs[3].workers = 1;
    l.q[3].priority = 0;
    memcpy(w.used, fresh.used, sizeof(w.used));
    decide(&l, &w.c, NOW);
    expect_waits(&l, "high", "0 of 1 workers fit now");
    l.q[3].priority = 9;
    l.demand[3].preempts = false;
    memcpy(w.used, fresh.used, sizeof(w.used));
    decide(&l, &w.c, NOW);
    expect_waits(&l, "high", "0 of 1 workers fit now");
    assert_int_equal(verdict(&l, "elastic")->workers, 2);
    leave(&l);
    fini(&w);
}

/* While workers end, no further ones are taken, and a lower job does not take their room. */
static void test_freeing(void **state)
{
    struct world w;
    struct resources freeing[NODES] = {{.n = 0}};
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    w.used[0].amount[RESOURCES_CPU] = 4000;
    freeing[0].amount[RESOURCES_CPU] = 2000;
    add_job(&l, "high", "'workers':1", QUEUED("13:00"));
    last(&l)->priority = 9;
    struct queue_input in = {.jobs = l.q,
                             .n = l.n,
                             .cluster = &w.c,
                             .freeing = freeing,
                             .policy = {.share = 100, .probes = 8},
                             .now = NOW};
    assert_int_equal(queue_decide(&in), 0);
    expect_waits(&l, "high", "waits for workers of other jobs to end");
    assert_int_equal(w.used[0].amount[RESOURCES_CPU], 6000);

    /* A victim of an earlier run stays one, and no other is taken. */
    static const int at[] = {0};
    w.used[0].amount[RESOURCES_CPU] = 2000;
    add_job(&l, "victim", "'workers':1", RUNNING("10:00"));
    last(&l)->preempted_by = "ml/high";
    add_job(&l, "runs", "'workers':1", RUNNING("11:00"));
    place(&l, &w, at, 1);
    in.n = l.n;
    assert_int_equal(queue_decide(&in), 0);
    expect_waits(&l, "high", "waits for workers of other jobs to end");
    assert_true(verdict(&l, "victim")->preempted);
    assert_string_equal(verdict(&l, "victim")->why, "ml/high");
    assert_false(verdict(&l, "runs")->preempted);
    leave(&l);
    fini(&w);
}

/* Regression: a preempted job fitted elsewhere and was admitted at once, but the scheduler placed
 * its workers on the nodes that had been made free, so it was preempted again, and so on. */
static void test_claimed_nodes(void **state)
{
    static const int at[] = {0};
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 2, ",'labels':{'pool':'x'}", "");
    add_node(&w, "b", 4, "", "");
    add_job(&l, "victim", "'workers':1", RUNNING("10:00"));
    place(&l, &w, at, 1);
    add_job(&l, "high", "'workers':1", QUEUED("13:00"));
    l.jobs[1].podspec.selector.text = calloc(1, 8);
    memcpy(l.jobs[1].podspec.selector.text, "pool\0x\0", 8);
    l.demand[1].spec = l.jobs[1].podspec;
    last(&l)->priority = 9;
    add_job(&l, "low", "'workers':1", QUEUED("13:01"));
    struct world fresh = w;
    decide(&l, &w.c, NOW);
    assert_true(verdict(&l, "victim")->preempted);
    expect_waits(&l, "low",
                 "could take the nodes on which other jobs are preempted for job ml/high");

    /* Also the victim, and also until the other one's workers have their nodes. */
    l.jobs[0].status.phase = JOB_QUEUED;
    l.jobs[0].status.preempted_by = strdup("ml/high");
    l.jobs[0].status.last_preemption = NOW - MOMENT_S;
    l.q[0].alive = l.q[0].bound = l.q[0].nat = 0;
    l.jobs[1].status.phase = JOB_STARTING;
    memset(w.used, 0, sizeof(w.used));
    decide(&l, &w.c, NOW);
    expect_waits(&l, "victim", "could take the nodes");
    assert_false(verdict(&l, "low")->go);
    l.jobs[1].status.phase = JOB_RUNNING;
    l.q[1].alive = l.q[1].bound = 1;
    w.used[0] = fresh.used[0];
    memset(&w.used[1], 0, sizeof(w.used[1]));
    decide(&l, &w.c, NOW);
    assert_true(verdict(&l, "victim")->go && verdict(&l, "low")->go);

    /* Not for ever, should the workers never end. */
    l.jobs[1].status.phase = JOB_STARTING;
    l.q[1].alive = l.q[1].bound = 0;
    memset(w.used, 0, sizeof(w.used));
    decide(&l, &w.c, NOW + 300 * MOMENT_S);
    assert_true(verdict(&l, "low")->go);
    leave(&l);
    fini(&w);
}

/* An elastic job grows only into free room while a job of its priority or a higher one waits. */
static void test_growth(void **state)
{
    static const int at[] = {0};
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    add_job(&l, "elastic", "'workers':3,'minWorkers':1,'maxWorkers':3", RUNNING("10:00"));
    place(&l, &w, at, 1);
    decide(&l, &w.c, NOW);
    assert_int_equal(verdict(&l, "elastic")->workers, 3);
    add_job(&l, "waits", "'workers':2", QUEUED("13:00"));
    memset(w.used, 0, sizeof(w.used));
    w.used[0].amount[RESOURCES_CPU] = 2000;
    decide(&l, &w.c, NOW);
    assert_false(verdict(&l, "waits")->go);
    assert_int_equal(verdict(&l, "elastic")->workers, 2);

    /* Its pending workers take no room from the waiting job. */
    l.q[0].alive = 3;
    l.q[0].unbound = 2;
    l.jobs[1].workers = l.jobs[1].min = 1;
    w.used[0].amount[RESOURCES_CPU] = 2000;
    decide(&l, &w.c, NOW);
    assert_true(verdict(&l, "waits")->go);
    assert_int_equal(verdict(&l, "elastic")->workers, 1);
    leave(&l);
    fini(&w);
}

/* One gang in probe for each namespace and node pool, and not more in all than the administrator
 * allows. */
static void test_probes(void **state)
{
    struct line_of_jobs l = {.n = 0};
    (void)state;
    add_job(&l, "a1", "'workers':1", QUEUED("13:00"));
    add_job(&l, "a2", "'workers':1", QUEUED("13:01"));
    add_job(&l, "b1", "'workers':1", QUEUED("13:02"));
    move_to(&l, "xx");
    decide(&l, NULL, NOW);
    assert_true(verdict(&l, "a1")->go);
    expect_waits(&l, "a2", "job ml/a1 is being tried");
    assert_true(verdict(&l, "b1")->go);
    struct queue_input in = {
        .jobs = l.q, .n = l.n, .policy = {.share = 100, .probes = 1}, .now = NOW};
    assert_int_equal(queue_decide(&in), 0);
    expect_waits(&l, "b1", "at most 1 such jobs are tried at a time");
    leave(&l);
}

/* The API server refuses the dry run, or has refused pods: no pods, and no reservation. */
static void test_refused(void **state)
{
    struct world w;
    struct line_of_jobs l = {.n = 0};
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    add_job(&l, "bad", "'workers':2", QUEUED("13:00"));
    last(&l)->refused = "privileged containers are not allowed";
    last(&l)->refused_again = NOW + 7000;
    add_job(
        &l, "again", "'workers':2",
        QUEUED("13:00") ",'refusals':1,'refusal':'no','lastRefusalTime':'2023-11-14T22:13:19Z'");
    add_job(&l, "good", "'workers':2", QUEUED("13:10"));
    add_job(&l, "unasked", "'workers':1", QUEUED("13:00"));
    last(&l)->pending = true;
    decide(&l, &w.c, NOW);
    expect_waits(&l, "bad", "refuses a worker's pod: privileged containers");
    assert_true(verdict(&l, "bad")->no_pods && verdict(&l, "again")->no_pods);
    assert_true(verdict(&l, "bad")->again == NOW + 7000);
    expect_waits(&l, "again", "refuses a worker's pod: no");
    assert_true(verdict(&l, "again")->again == NOW + 4000);
    assert_true(verdict(&l, "good")->go);
    expect_waits(&l, "unasked", "");
    leave(&l);
    fini(&w);
}

/* Many jobs, a few at a time: the same decisions as at once. */
static void test_slices(void **state)
{
    struct world w;
    struct line_of_jobs l = {.n = 0};
    struct queue *q;
    int turns = 1;
    (void)state;
    init(&w);
    add_node(&w, "a", 4, "", "");
    for (int i = 0; i < JOBS; i++)
        add_job(&l, i == 0 ? "0" : i == 1 ? "1" : "more", "'workers':1", QUEUED("13:00"));
    struct queue_input in = {
        .jobs = l.q, .n = l.n, .cluster = &w.c, .policy = {.share = 100, .probes = 1}, .now = NOW};
    assert_int_equal(queue_begin(&q, &in), 0);
    while (!queue_step(q, 1))
        turns++;
    queue_end(q);
    assert_true(turns > JOBS);
    assert_true(verdict(&l, "0")->go && verdict(&l, "1")->go);
    assert_false(verdict(&l, "more")->go);
    leave(&l);
    fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_never),
        cmocka_unit_test(test_promises),
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_tries),
        cmocka_unit_test(test_back),
        cmocka_unit_test(test_priority),
        cmocka_unit_test(test_fair),
        cmocka_unit_test(test_holds_its_nodes_only),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_quota),
        cmocka_unit_test(test_quota_scopes),
        cmocka_unit_test(test_preemption),
        cmocka_unit_test(test_claimed_nodes),
        cmocka_unit_test(test_freeing),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_probes),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
