/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/reconcile/fit on what driver/usage counts: any number of resource kinds, host
 * ports, other pods' anti-affinity.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operator/driver/items.h"
#include "tests/unit/operator/jobs.h"

#define NODES 6
#define PODS  16

struct world {
    struct usage usage;
    struct node nodes[NODES];
    struct usage_pod *pods[PODS];
    int npods;
    struct resources used[NODES];
    struct hostports ports[NODES];
    struct usage_antis antis;
    struct cluster c;
};

static void add_node(struct world *w, const char *name, const char *labels, const char *offers)
{
    char text[1024];
    struct node *n = &w->nodes[w->c.n++];
    snprintf(text, sizeof(text),
             "{'metadata':{'name':'%s','labels':{%s}},'status':{'allocatable':{'cpu':8,'memory':"
             "'8Gi','pods':10%s},'conditions':[{'type':'Ready','status':'True'}]}}",
             name, labels, offers);
    auto_json json_t *j = from_text(text);
    assert_int_equal(node_parse(j, n, NULL), 0);
    assert_int_equal(usage_set_node(&w->usage, name, &n->allocatable), 0);
}

static void add_pod(struct world *w, const char *name, const char *node, const char *spec)
{
    char text[2048], key[128];
    struct usage_pod *p;
    snprintf(text, sizeof(text),
             "{'metadata':{'name':'%s','namespace':'web','uid':'u'},'spec':{'nodeName':'%s',%s}}",
             name, node, spec);
    snprintf(key, sizeof(key), "web/%s", name);
    auto_json json_t *j = from_text(text);
    assert_int_equal(items_foreign(j, &p, NULL, NULL), 0);
    assert_int_equal(usage_add(&w->usage, p, key), 0);
    w->pods[w->npods++] = p;
}

static void forget(struct world *w)
{
    for (int i = 0; i < w->c.n; i++) {
        resources_fini(&w->used[i]);
        hostports_fini(&w->ports[i]);
    }
    usage_antis_fini(&w->antis);
}

/* As snapshot.c does it. */
static struct cluster *look(struct world *w)
{
    forget(w);
    w->c.nodes = w->nodes;
    w->c.used = w->used;
    w->c.ports = w->ports;
    for (int i = 0; i < w->c.n; i++) {
        assert_int_equal(usage_get(&w->usage, w->nodes[i].name, i, &w->used[i]), 0);
        assert_int_equal(usage_ports(&w->usage, w->nodes[i].name, &w->ports[i]), 0);
    }
    assert_int_equal(usage_anti(&w->usage, &w->antis), 0);
    w->c.anti = w->antis.list;
    w->c.nanti = w->antis.n;
    return &w->c;
}

static void fini(struct world *w)
{
    forget(w);
    for (int i = 0; i < w->npods; i++) {
        usage_remove(&w->usage, w->pods[i]);
        usage_pod_destroy(w->pods[i]);
    }
    for (int i = 0; i < w->c.n; i++) {
        usage_set_node(&w->usage, w->nodes[i].name, NULL);
        node_fini(&w->nodes[i]);
    }
    assert_int_equal(w->usage.nodes.n, 0);
    assert_int_equal(w->usage.anti.n, 0);
    usage_fini(&w->usage);
}

/* A job whose pods have the label app=a and this container. */
static struct hvdjob job_with(const char *container)
{
    char text[1024];
    struct hvdjob job;
    struct err err = {0};
    snprintf(text, sizeof(text),
             "{'metadata':{'name':'digits','namespace':'ml','uid':'u1'},'spec':{'workers':4,"
             "'template':{'metadata':{'labels':{'app':'a'}},'spec':{'containers':[{'command':['x'],"
             "%s}]}}}}",
             container);
    auto_json json_t *j = from_text(text);
    if (hvdjob_parse(j, &job, &err) < 0 || job.refused)
        fail_msg("%s", job.refused ? job.refused : err.msg);
    return job;
}

static void expect(const struct cluster *c, const struct hvdjob *job, const char *words)
{
    char text[1024];
    fit_explain(c, &job->podspec, 9, text, sizeof(text));
    if (!strstr(text, words))
        fail_msg("\"%s\" is not in \"%s\"", words, text);
}

/* 40 names of resources in one cluster, and amounts of each. */
static void test_many_kinds(void **state)
{
    struct world w = {.npods = 0};
    char offers[1024] = "";
    (void)state;
    for (int i = 0; i < 40; i++)
        snprintf(offers + strlen(offers), sizeof(offers) - strlen(offers), ",'x/mig%d':%d", i, i);
    add_node(&w, "a", "", offers);
    add_node(&w, "b", "", ",'rdma/hca':4");
    struct hvdjob job = job_with("'resources':{'limits':{'x/mig39':2}}");
    struct hvdjob other = job_with("'resources':{'limits':{'x/mig7':2,'rdma/hca':1}}");
    assert_int_equal(fit_count(look(&w), &job.podspec, 99), 10); /* of 19, but 10 pods */
    add_pod(&w, "p", "a", "'containers':[{'resources':{'requests':{'x/mig39':36,'no/such':5}}}]");
    assert_int_equal(fit_count(look(&w), &job.podspec, 99), 1);
    reserve(&w.c, &job.podspec, 1);
    assert_int_equal(fit_count(&w.c, &job.podspec, 99), 0);
    expect(&w.c, &job, "node a: x/mig39 2 asked, 1 of 39 free");
    assert_int_equal(fit_count_empty(&w.c, &other.podspec, 99), 0); /* on different nodes */
    hvdjob_fini(&job);
    hvdjob_fini(&other);
    fini(&w);
}

static void test_host_ports(void **state)
{
    struct world w = {.npods = 0};
    (void)state;
    add_node(&w, "a", "", "");
    add_node(&w, "b", "", "");
    add_node(&w, "c", "", "");
    struct hvdjob job = job_with("'ports':[{'containerPort':70,'hostPort':70}]");
    struct hvdjob free_port = job_with("'ports':[{'containerPort':71,'hostPort':71}]");
    add_pod(&w, "web", "a", "'containers':[{'ports':[{'hostPort':70,'hostIP':'10.0.0.1'}]}]");
    assert_int_equal(fit_count_empty(look(&w), &job.podspec, 9), 3);
    assert_int_equal(fit_count(&w.c, &job.podspec, 9), 2);
    expect(&w.c, &job, "host port 70; the whole cluster, empty, has room for 3");
    expect(&w.c, &job, "node a: host port 70/TCP is in use");
    reserve(&w.c, &job.podspec, 1);
    assert_int_equal(fit_count(&w.c, &job.podspec, 9), 1);
    assert_int_equal(fit_count(&w.c, &free_port.podspec, 9), 3);
    hvdjob_fini(&job);
    hvdjob_fini(&free_port);
    fini(&w);
}

#define ANTI_OF(key, selector, namespaces)                                                         \
    "'affinity':{'podAntiAffinity':{'requiredDuringSchedulingIgnoredDuringExecution':[{"           \
    "'topologyKey':'" key "','namespaceSelector':{" namespaces "},'labelSelector':{" selector      \
    "}}]}}"
#define ANTI(key, selector) ANTI_OF(key, selector, "")

static void test_anti_affinity(void **state)
{
    struct world w = {.npods = 0};
    struct hvdjob job = job_with("'resources':{'requests':{'cpu':8}}");
    (void)state;
    add_node(&w, "a", "'zone':'1','host':'a'", "");
    add_node(&w, "b", "'zone':'1','host':'b'", "");
    add_node(&w, "c", "'zone':'2','host':'c'", "");
    add_node(&w, "d", "", "");
    assert_int_equal(fit_count(look(&w), &job.podspec, 9), 4);
    add_pod(&w, "db-0", "c", ANTI("host", "'matchLabels':{'app':'a'}"));
    assert_int_equal(fit_count(look(&w), &job.podspec, 9), 3);
    expect(&w.c, &job, "node c: the anti-affinity of pod web/db-0 keeps workers off it");
    add_pod(&w, "db-1", "a", ANTI("zone", "'matchLabels':{'app':'a'}"));
    add_pod(&w, "db-2", "d", ANTI("zone", "'matchLabels':{'app':'a'}"));
    add_pod(&w, "quiet", "d", ANTI("zone", "'matchLabels':{'app':'b'}"));
    assert_int_equal(w.usage.anti.n, 3);                       /* the same terms are stored once */
    assert_int_equal(fit_count(look(&w), &job.podspec, 9), 1); /* d has no zone */
    assert_int_equal(fit_count_empty(&w.c, &job.podspec, 9), 4);
    reserve(&w.c, &job.podspec, 4);
    assert_int_equal(w.used[3].amount[RESOURCES_CPU], 8000);
    assert_int_equal(w.used[0].amount[RESOURCES_CPU], 0);
    usage_remove(&w.usage, w.pods[1]);
    assert_int_equal(fit_count(look(&w), &job.podspec, 9), 3);
    hvdjob_fini(&job);
    fini(&w);
}

/* Pods with the same terms on one node are one keeper, until the last of them goes. */
static void test_same_terms(void **state)
{
    struct world w = {.npods = 0};
    struct hvdjob job = job_with("'resources':{'requests':{'cpu':8}}");
    (void)state;
    add_node(&w, "a", "'host':'a'", "");
    add_node(&w, "b", "'host':'b'", "");
    for (int i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof(name), "db-%d", i);
        add_pod(&w, name, i < 5 ? "a" : "b", ANTI("host", "'matchLabels':{'app':'a'}"));
    }
    add_pod(&w, "gone", "no-such-node", ANTI("host", "'matchLabels':{'app':'a'}"));
    look(&w);
    assert_int_equal(w.antis.n, 1);
    assert_int_equal(w.antis.list[0].n, 2);
    assert_int_equal(fit_count(&w.c, &job.podspec, 9), 0);
    usage_remove(&w.usage, w.pods[5]);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(fit_count(look(&w), &job.podspec, 9), 1);
        usage_remove(&w.usage, w.pods[i]);
    }
    assert_int_equal(fit_count(look(&w), &job.podspec, 9), 2);
    assert_int_equal(w.antis.n, 0);
    hvdjob_fini(&job);
    fini(&w);
}

/* A snapshot of terms stays valid when the pods go. */
static void test_snapshot_outlives(void **state)
{
    struct world w = {.npods = 0};
    struct hvdjob job = job_with("'resources':{'requests':{'cpu':8}}");
    (void)state;
    add_node(&w, "a", "'host':'a'", "");
    add_pod(&w, "db", "a", ANTI("host", "'matchLabels':{'app':'a'}"));
    look(&w);
    usage_remove(&w.usage, w.pods[0]);
    usage_pod_destroy(w.pods[0]);
    w.npods = 0;
    assert_int_equal(w.usage.anti.n, 0);
    assert_int_equal(fit_count(&w.c, &job.podspec, 9), 0);
    expect(&w.c, &job, "node a: the anti-affinity of pod web/db keeps workers off it");
    hvdjob_fini(&job);
    fini(&w);
}

/* The workers' namespace is ml. */
static void test_namespace_labels(void **state)
{
    static const struct {
        const char *team; /* label of ml; NULL: the namespace is not known */
        int fit;
    } rows[] = {{NULL, 0}, {"a", 0}, {"b", 1}, {"", 1}};
    struct world w = {.npods = 0};
    struct hvdjob job = job_with("'resources':{'requests':{'cpu':8}}");
    (void)state;
    add_node(&w, "a", "'host':'a'", "");
    add_pod(&w, "db", "a",
            ANTI_OF("host", "'matchLabels':{'app':'a'}", "'matchLabels':{'team':'a'}"));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fit_namespace ml[] = {{.name = "default"}, {.name = "ml"}, {.name = "web"}};
        auto_json json_t *j = json_pack("{s:s}", "team", rows[i].team ? rows[i].team : "");
        assert_int_equal(labels_parse(j, &ml[1].labels, NULL), 0);
        look(&w);
        assert_true(w.antis.by_namespace);
        w.c.namespaces = ml;
        w.c.nnamespaces = rows[i].team ? 3 : 1;
        assert_int_equal(fit_count(&w.c, &job.podspec, 9), rows[i].fit);
        labels_fini(&ml[1].labels);
    }
    hvdjob_fini(&job);
    fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_kinds),        cmocka_unit_test(test_host_ports),
        cmocka_unit_test(test_anti_affinity),     cmocka_unit_test(test_same_terms),
        cmocka_unit_test(test_snapshot_outlives), cmocka_unit_test(test_namespace_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
