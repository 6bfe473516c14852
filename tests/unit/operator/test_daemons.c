/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/objects/daemonset and operator/driver/daemons: on which nodes a DaemonSet runs,
 * and that what a node lacks of it is counted until it comes, and no longer than a node is new.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operator/driver/daemons.h"
#include "operator/driver/items.h"
#include "tests/unit/operator/jobs.h"

static struct node node_of(const char *name, const char *labels, const char *taints)
{
    char text[1024];
    struct node n;
    snprintf(text, sizeof(text),
             "{'metadata':{'name':'%s','labels':{%s}},'spec':{'taints':[%s]},'status':{"
             "'allocatable':{'cpu':8,'memory':'8Gi','pods':10,'x/gpu':4},'conditions':[{'type':"
             "'Ready','status':'True'}]}}",
             name, labels, taints);
    auto_json json_t *j = from_text(text);
    assert_int_equal(node_parse(j, &n, NULL), 0);
    return n;
}

static struct daemonset *set_of(const char *uid, int generation, const char *spec)
{
    char text[2048];
    struct daemonset *set;
    struct err err = {0};
    snprintf(text, sizeof(text),
             "{'metadata':{'name':'logs','namespace':'kube-system','uid':'%s','generation':%d},"
             "'spec':{'template':{'spec':{%s}}}}",
             uid, generation, spec);
    auto_json json_t *j = from_text(text);
    if (items_daemonset(j, &set, &err) < 0)
        fail_msg("%s", err.msg);
    return set;
}

#define AFFINITY(terms)                                                                            \
    "'affinity':{'nodeAffinity':{'requiredDuringSchedulingIgnoredDuringExecution':{"               \
    "'nodeSelectorTerms':[" terms "]}}}"
#define WANTS(key, op, values)                                                                     \
    "{'matchExpressions':[{'key':'" key "','operator':'" op "','values':[" values "]}]}"
#define NAMED(op, name)                                                                            \
    "{'matchFields':[{'key':'metadata.name','operator':'" op "','values':['" name "']}]}"
#define TAINT(key, effect) "{'key':'" key "','effect':'" effect "'}"

/* Against a node "a" with the labels pool=gpu and size=12. */
static void test_runs_on(void **state)
{
    static const struct {
        const char *spec, *taints;
        bool runs;
    } rows[] = {
        {"", "", true},
        {"'nodeSelector':{'pool':'gpu'}", "", true},
        {"'nodeSelector':{'pool':'cpu'}", "", false},
        {"'nodeName':'a'", "", true},
        {"'nodeName':'b'", "", false},
        {AFFINITY(WANTS("pool", "In", "'cpu','gpu'")), "", true},
        {AFFINITY(WANTS("pool", "NotIn", "'gpu'")), "", false},
        {AFFINITY(WANTS("no", "NotIn", "'gpu'")), "", true},
        {AFFINITY(WANTS("no", "Exists", "")), "", false},
        {AFFINITY(WANTS("no", "Exists", "") "," WANTS("pool", "Exists", "")), "", true},
        {AFFINITY(WANTS("pool", "DoesNotExist", "")), "", false},
        {AFFINITY(WANTS("size", "Gt", "'11'")), "", true},
        {AFFINITY(WANTS("size", "Gt", "'12'")), "", false},
        {AFFINITY(WANTS("size", "Lt", "'100'")), "", true},
        {AFFINITY(WANTS("size", "Lt", "'x'")), "", false},
        {AFFINITY(WANTS("pool", "Lt", "'100'")), "", false},
        {AFFINITY(NAMED("In", "a")), "", true},
        {AFFINITY(NAMED("In", "b")), "", false},
        {AFFINITY(NAMED("NotIn", "a")), "", false},
        {AFFINITY("{}"), "", false},
        {"'affinity':{'nodeAffinity':{}}", "", true},
        {"'nodeSelector':{'pool':'gpu'}," AFFINITY(WANTS("pool", "In", "'x'")), "", false},
        {"", TAINT("x", "NoSchedule"), false},
        {"", TAINT("x", "PreferNoSchedule"), true},
        {"'tolerations':[{'key':'x','operator':'Exists'}]", TAINT("x", "NoSchedule"), true},
        {"'tolerations':null", TAINT("node.kubernetes.io/unschedulable", "NoSchedule"), true},
        {"", TAINT("node.kubernetes.io/not-ready", "NoExecute"), true},
        {"", TAINT("node.kubernetes.io/not-ready", "NoSchedule"), false}, /* until it is Ready */
        {"", TAINT("node.kubernetes.io/disk-pressure", "NoSchedule"), true},
        {"", TAINT("node.kubernetes.io/network-unavailable", "NoSchedule"), false},
        {"'hostNetwork':true", TAINT("node.kubernetes.io/network-unavailable", "NoSchedule"), true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct node n = node_of("a", "'pool':'gpu','size':'12'", rows[i].taints);
        struct daemonset *set = set_of("u", 1, rows[i].spec);
        if (daemonset_runs_on(set, &n) != rows[i].runs)
            fail_msg("%s on a node with %s", rows[i].spec, rows[i].taints);
        set->deleting = true;
        assert_false(daemonset_runs_on(set, &n));
        items_daemonset_destroy(set);
        node_fini(&n);
    }
}

/* ---- what is awaited ------------------------------------------------------------------------- */

struct world {
    struct usage usage;
    struct daemons daemons;
    uint64_t now, until; /* of nodes that join now */
};

static void init(struct world *w)
{
    *w = (struct world){.now = CLOCK_S, .until = 100 * CLOCK_S};
    daemons_init(&w->daemons, &w->usage);
}

static void fini(struct world *w)
{
    daemons_fini(&w->daemons);
    assert_int_equal(w->usage.nodes.n, 0);
    assert_int_equal(w->usage.anti.n, 0);
    usage_fini(&w->usage);
}

static void note_node(struct world *w, const char *name, const struct node *n)
{
    if (n)
        assert_int_equal(usage_set_node(&w->usage, name, &n->allocatable), 0);
    assert_int_equal(daemons_note_node(&w->daemons, name, n, w->until, w->now), 0);
    if (!n)
        assert_int_equal(usage_set_node(&w->usage, name, NULL), 0);
}

static bool note_set(struct world *w, const struct daemonset *was, const struct daemonset *is)
{
    bool changed;
    assert_int_equal(daemons_note_set(&w->daemons, was, is, w->now, &changed), 0);
    return changed;
}

static int64_t used(struct world *w, const char *node, const char *kind)
{
    struct resources r;
    assert_int_equal(usage_get(&w->usage, node, 0, &r), 0);
    int64_t ret = (int64_t)resources_get(&r, kind);
    resources_fini(&r);
    return ret;
}

/* A pod of the DaemonSet with that uid is bound to the node. */
static struct usage_pod *bind(struct world *w, const char *node, const char *owner, const char *cpu)
{
    char text[1024];
    struct usage_pod *p;
    snprintf(text, sizeof(text),
             "{'metadata':{'name':'logs-x','namespace':'kube-system','uid':'p','ownerReferences':[{"
             "'kind':'DaemonSet','controller':true,'uid':'%s'}]},'spec':{'nodeName':'%s',"
             "'containers':[{'resources':{'requests':{'cpu':'%s'}}}]}}",
             owner, node, cpu);
    auto_json json_t *j = from_text(text);
    assert_int_equal(items_foreign(j, &p, NULL, NULL), 0);
    assert_int_equal(usage_add(&w->usage, p, "kube-system/logs-x"), 0);
    assert_int_equal(daemons_note_pod(&w->daemons, node, p->owner, w->now), 0);
    return p;
}

static void unbind(struct world *w, const char *node, struct usage_pod *p)
{
    usage_remove(&w->usage, p);
    assert_int_equal(daemons_note_pod(&w->daemons, node, p->owner, w->now), 0);
    usage_pod_destroy(p);
}

#define CPU(text) "'containers':[{'resources':{'requests':{'cpu':'" text "'}}}]"

/* A node joins, its pod comes, and goes again. */
static void test_until_it_comes(void **state)
{
    struct world w;
    struct node a = node_of("a", "", ""), b = node_of("b", "", TAINT("x", "NoSchedule"));
    struct daemonset *set = set_of("u1", 1, CPU("2"));
    (void)state;
    init(&w);
    assert_true(note_set(&w, NULL, set));
    note_node(&w, "a", &a);
    note_node(&w, "b", &b);
    assert_int_equal(used(&w, "a", "cpu"), 2000);
    assert_int_equal(used(&w, "a", "pods"), 1);
    assert_int_equal(used(&w, "b", "pods"), 0);
    unbind(&w, "a", bind(&w, "a", "another", "1")); /* of a ReplicaSet */
    assert_int_equal(used(&w, "a", "cpu"), 2000);
    struct usage_pod *pod = bind(&w, "a", "u1", "2500m");
    assert_int_equal(used(&w, "a", "cpu"), 2500);
    assert_int_equal(used(&w, "a", "pods"), 1);
    assert_true(daemons_expire(&w.daemons, w.now) == UINT64_MAX);
    note_node(&w, "a", &a); /* a heartbeat */
    assert_int_equal(used(&w, "a", "pods"), 1);
    unbind(&w, "a", pod);
    assert_int_equal(used(&w, "a", "cpu"), 2000);
    note_node(&w, "a", NULL);
    assert_int_equal(w.usage.nodes.n, 1);
    assert_true(note_set(&w, set, NULL));
    note_node(&w, "b", NULL);
    items_daemonset_destroy(set);
    node_fini(&a);
    node_fini(&b);
    fini(&w);
}

/* On a node that is not new any more nothing is awaited, whatever changes. */
static void test_no_longer(void **state)
{
    struct world w;
    struct node a = node_of("a", "", ""), b = node_of("b", "", ""), c = node_of("c", "", "");
    struct daemonset *set = set_of("u1", 1, CPU("2")), *same = set_of("u1", 1, CPU("2"));
    struct daemonset *larger = set_of("u1", 2, CPU("3"));
    (void)state;
    init(&w);
    note_node(&w, "a", &a);
    w.until = 50 * CLOCK_S; /* b joined earlier, and is seen later */
    note_node(&w, "b", &b);
    note_set(&w, NULL, set);
    assert_int_equal(used(&w, "a", "cpu"), 2000);
    assert_int_equal(used(&w, "b", "cpu"), 2000);
    assert_true(daemons_expire(&w.daemons, 50 * CLOCK_S - 1) == 50 * CLOCK_S);
    assert_true(daemons_expire(&w.daemons, 50 * CLOCK_S) == 100 * CLOCK_S);
    assert_int_equal(used(&w, "a", "cpu"), 2000);
    assert_int_equal(used(&w, "b", "cpu"), 0);
    w.now = 100 * CLOCK_S;
    assert_true(daemons_expire(&w.daemons, w.now) == UINT64_MAX);
    assert_int_equal(used(&w, "a", "cpu"), 0);
    note_node(&w, "a", &a);
    assert_false(note_set(&w, set, same));
    items_daemonset_destroy(set);
    unbind(&w, "a", bind(&w, "a", "u1", "2"));
    assert_true(note_set(&w, same, larger)); /* another template */
    items_daemonset_destroy(same);
    assert_int_equal(used(&w, "a", "cpu"), 0);
    w.until = 200 * CLOCK_S;
    note_node(&w, "a", &a); /* still the same node */
    note_node(&w, "c", &c);
    assert_int_equal(used(&w, "a", "cpu"), 0);
    assert_int_equal(used(&w, "c", "cpu"), 3000);
    note_set(&w, larger, NULL);
    assert_int_equal(used(&w, "c", "cpu"), 0);
    items_daemonset_destroy(larger);
    note_node(&w, "a", NULL);
    note_node(&w, "b", NULL);
    note_node(&w, "c", NULL);
    node_fini(&a);
    node_fini(&b);
    node_fini(&c);
    fini(&w);
}

/* Host ports and anti-affinity are counted, too, and a pod that cannot be judged is not. */
static void test_ports(void **state)
{
    struct world w;
    struct node a = node_of("a", "'host':'a'", "");
    struct daemonset *set =
        set_of("u1", 1,
               "'containers':[{'ports':[{'hostPort':70}],'resources':{'limits':{"
               "'x/gpu':1}}}],'affinity':{'podAntiAffinity':{"
               "'requiredDuringSchedulingIgnoredDuringExecution':[{"
               "'topologyKey':'host','labelSelector':{}}]}}");
    struct daemonset *odd = set_of("u2", 1, CPU("many"));
    struct hostports ports;
    struct usage_antis antis;
    (void)state;
    init(&w);
    note_set(&w, NULL, set);
    note_set(&w, NULL, odd);
    note_node(&w, "a", &a);
    assert_int_equal(usage_ports(&w.usage, "a", &ports), 0);
    assert_int_equal(ports.n, 1);
    assert_int_equal(ports.all[0].port, 70);
    assert_int_equal(usage_anti(&w.usage, &antis), 0);
    assert_int_equal(antis.n, 1);
    assert_string_equal(antis.keepers[0].pod, "kube-system/logs");
    assert_int_equal(used(&w, "a", "x/gpu"), 1);
    assert_int_equal(used(&w, "a", "pods"), 1);
    hostports_fini(&ports);
    usage_antis_fini(&antis);
    note_node(&w, "a", NULL);
    daemons_fini(&w.daemons);
    items_daemonset_destroy(set);
    items_daemonset_destroy(odd);
    node_fini(&a);
    fini(&w);
}

/* A pod that is larger than the node never comes, so it keeps nobody off. */
static void test_too_large(void **state)
{
    struct world w;
    struct node a = node_of("a", "", "");
    struct daemonset *set = set_of("u1", 1, CPU("9"));
    (void)state;
    init(&w);
    note_set(&w, NULL, set);
    note_node(&w, "a", &a);
    assert_int_equal(used(&w, "a", "pods"), 0);
    note_node(&w, "a", NULL);
    daemons_fini(&w.daemons);
    items_daemonset_destroy(set);
    node_fini(&a);
    fini(&w);
}

/* A node has as many as it could run. */
static void test_limit(void **state)
{
    struct world w;
    struct node a = node_of("a", "", "");
    struct daemonset *sets[DAEMONS_A_NODE + 6];
    (void)state;
    init(&w);
    note_node(&w, "a", &a);
    for (int i = 0; i < DAEMONS_A_NODE + 6; i++) {
        char uid[16];
        snprintf(uid, sizeof(uid), "u%d", i);
        sets[i] = set_of(uid, 1, CPU("10m"));
        note_set(&w, NULL, sets[i]);
    }
    assert_int_equal(used(&w, "a", "pods"), DAEMONS_A_NODE);
    for (int i = 0; i < 2; i++)
        note_set(&w, sets[i], NULL);
    note_node(&w, "a", &a);
    assert_int_equal(used(&w, "a", "pods"), DAEMONS_A_NODE);
    note_node(&w, "a", NULL);
    daemons_fini(&w.daemons);
    for (int i = 0; i < DAEMONS_A_NODE + 6; i++)
        items_daemonset_destroy(sets[i]);
    node_fini(&a);
    fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_on),   cmocka_unit_test(test_until_it_comes),
        cmocka_unit_test(test_no_longer), cmocka_unit_test(test_ports),
        cmocka_unit_test(test_limit),     cmocka_unit_test(test_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
