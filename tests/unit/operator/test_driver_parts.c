/* SPDX-License-Identifier: Apache-2.0
 *
 * test_driver_parts: the parts of the driver that need no server: versions, expectations, entries,
 * usage of nodes, request bodies, metrics, the command line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/driver/bodies.h"
#include "operator/driver/entries.h"
#include "operator/driver/inflight.h"
#include "operator/driver/usage.h"
#include "operator/metrics/metrics.h"
#include "operator/settings.h"

static void test_versions(void **state)
{
    (void)state;
    assert_int_equal(items_version("12"), 12);
    assert_int_equal(items_version("123456789012345678"), 123456789012345678);
    static const char *const none[] = {"", "x", "12x", "-1", " 1", "1234567890123456789"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert_int_equal(items_version(none[i]), 0);
}

/* ---- inflight ------------------------------------------------------------------------------- */

struct sender {
    struct inflight *inflight;
    struct inflight_user turn;
    int todo, sent;
};

static void send_more(void *arg)
{
    struct sender *s = arg;
    while (s->todo > 0) {
        if (!inflight_acquire(s->inflight, &s->turn))
            return;
        s->todo--;
        s->sent++;
    }
    inflight_unqueue(&s->turn);
}

/* With a limit of two, turns are in the order of registration, also for a sender that asks again
 * later. */
static void test_inflight(void **state)
{
    struct inflight t;
    struct sender all[3] = {{.todo = 1}, {.todo = 3}, {.todo = 2}};
    (void)state;
    inflight_init(&t, 2);
    for (int i = 0; i < 3; i++) {
        all[i].inflight = &t;
        inflight_register(&t, &all[i].turn, send_more, &all[i]);
        send_more(&all[i]);
    }
    assert_int_equal(all[0].sent, 1);
    assert_int_equal(all[1].sent, 1);
    inflight_release(&t);
    assert_int_equal(all[1].sent, 2);
    all[0].todo = 1; /* its request has finished and it sends the next one */
    send_more(&all[0]);
    assert_int_equal(all[0].sent, 1);
    inflight_release(&t);
    assert_int_equal(all[0].sent, 2);
    assert_int_equal(all[1].sent, 2);
    inflight_unqueue(&all[1].turn); /* the waiting turn is cancelled */
    inflight_release(&t);
    inflight_release(&t);
    assert_int_equal(all[2].sent, 2);
    assert_int_equal(t.free, 0);
    assert_true(list_empty(&t.queue));
    inflight_release(&t);
    inflight_release(&t);
    assert_int_equal(t.free, 2);
}

/* ---- expectations ---------------------------------------------------------------------------- */

static bool is_older(void *arg, const struct expectation *w)
{
    return w->version <= *(const uint64_t *)arg;
}

static void test_expectations(void **state)
{
    (void)state;
    struct expectations w = {0};
    uint64_t seen = 0;
    assert_true(expectations_satisfied(&w, is_older, &seen));
    for (uint64_t i = 1; i <= 100; i++)
        assert_int_equal(
            expectations_add(&w, &(struct expectation){.kind = EXPECT_POD, .version = i}), 0);
    assert_false(expectations_satisfied(&w, is_older, &seen));
    seen = 99;
    assert_false(expectations_satisfied(&w, is_older, &seen));
    assert_int_equal(w.n, 100); /* the last one is not satisfied: no other is checked */
    seen = 100;
    assert_true(expectations_satisfied(&w, is_older, &seen));
    assert_int_equal(w.n, 0);
    /* expectations expire */
    assert_int_equal(
        expectations_add(&w, &(struct expectation){.kind = EXPECT_POD, .version = 200}), 0);
    assert_false(expectations_satisfied(&w, is_older, &seen));
    w.until = 1;
    assert_true(expectations_satisfied(&w, is_older, &seen));
    assert_null(w.all);
}

/* ---- entries --------------------------------------------------------------------------------- */

static struct pod_item *new_pod(const char *name)
{
    struct pod_item *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    p->pod.name = strdup(name);
    return p;
}

static void test_entry_pods(void **state)
{
    (void)state;
    struct entries all;
    struct pod_item *pods[10];
    entries_init(&all, NULL);
    struct entry *e = entries_make(&all, "default", "digits");
    assert_non_null(e);
    assert_ptr_equal(entries_find(&all, "default", "digits"), e);
    assert_null(entries_find(&all, "other", "digits"));
    for (int i = 0; i < 10; i++) {
        pods[i] = new_pod("p");
        assert_int_equal(entry_add_pod(e, pods[i]), 0);
    }
    entry_remove_pod(e, pods[3]);
    entry_remove_pod(e, pods[3]); /* not in this entry: no effect */
    assert_int_equal(e->npods, 9);
    struct pod_item *other = new_pod("q");
    entry_replace_pod(e, pods[9], other);
    assert_int_equal(e->npods, 9);
    for (int i = 0; i < e->npods; i++) {
        assert_int_equal(e->pods[i]->place, i);
        assert_ptr_not_equal(e->pods[i], pods[3]);
        assert_ptr_not_equal(e->pods[i], pods[9]);
    }
    entries_drop(&all, e); /* the entry has pods, so it stays */
    assert_ptr_equal(entries_find(&all, "default", "digits"), e);
    while (e->npods > 0)
        entry_remove_pod(e, e->pods[0]);
    entries_drop(&all, e);
    assert_null(entries_find(&all, "default", "digits"));
    for (int i = 0; i < 10; i++)
        items_pod_destroy(pods[i]);
    items_pod_destroy(other);
    entries_fini(&all);
}

static void test_entry_due(void **state)
{
    (void)state;
    struct entries all;
    entries_init(&all, NULL);
    struct entry *e = entries_make(&all, "a", "b");
    entries_due(&all, e, 50);
    entries_due(&all, e, 70); /* the earlier time is kept */
    assert_int_equal(e->due, 50);
    entries_due(&all, e, 20);
    assert_int_equal(e->due, 20);
    assert_ptr_equal(list_first(&all.due, struct entry, node), e);
    entries_not_due(e);
    assert_true(list_empty(&all.due));
    assert_true(e->due == ENTRY_NEVER);
    entries_fini(&all);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Reads a pod of this spec, bound to node n. */
static struct usage_pod *read_use(const char *name, const char *spec)
{
    char text[2048];
    struct usage_pod *p;
    auto_json json_t *j = NULL;
    snprintf(text, sizeof(text),
             "{\"metadata\": {\"name\": \"%s\", \"namespace\": \"ns\", \"uid\": \"u\"},"
             " \"spec\": {\"nodeName\": \"n\", %s}, \"status\": {\"phase\": \"Running\"}}",
             name, spec);
    assert_int_equal(json_read(text, strlen(text), "pod", &j, NULL), 0);
    assert_int_equal(items_foreign(j, &p, NULL, NULL), 0);
    return p;
}

#define REQUESTS(text) "\"containers\": [{\"resources\": {\"requests\": {" text "}}}]"

static int64_t used(struct usage *u, const char *name)
{
    struct resources r;
    assert_int_equal(usage_get(u, "n", 0, &r), 0);
    int64_t ret = (int64_t)resources_get(&r, name);
    resources_fini(&r);
    return ret;
}

/* Sums are exact, and only kinds that the node offers are counted, whether the node or its pods
 * come first. */
static void test_usage(void **state)
{
    (void)state;
    struct usage u = {0};
    struct resources offered = {.n = 0};
    struct usage_pod *gpu = read_use("a", REQUESTS("\"cpu\": 1, \"x/gpu\": 2, \"evil/1\": 7"));
    struct usage_pod *big = read_use("b", REQUESTS("\"cpu\": \"9Ei\", \"memory\": \"9Ei\""));
    assert_int_equal(used(&u, "cpu"), 0);
    assert_int_equal(usage_add(&u, gpu, "ns/a"), 0);
    assert_null(gpu->node);
    assert_int_equal(used(&u, "cpu"), 1000);
    assert_int_equal(used(&u, "pods"), 1);
    assert_int_equal(used(&u, "x/gpu"), 0);
    assert_int_equal(resources_set(&offered, "x/gpu", 8, NULL), 0);
    assert_int_equal(usage_set_node(&u, "n", &offered), 0);
    assert_int_equal(used(&u, "x/gpu"), 2);
    assert_int_equal(used(&u, "evil/1"), 0);
    assert_int_equal(usage_add(&u, big, "ns/b"), 0);
    struct resources r;
    assert_int_equal(usage_get(&u, "n", 0, &r), 0);
    assert_true(r.amount[RESOURCES_CPU] == (resources_sum)QUANTITY_MAX + 1000);
    resources_fini(&r);
    usage_remove(&u, big);
    assert_int_equal(used(&u, "cpu"), 1000);
    assert_int_equal(used(&u, "memory"), 0);
    /* a device plugin goes, and another comes */
    assert_int_equal(resources_set(&offered, "x/mig", 8, NULL), 0);
    assert_int_equal(usage_set_node(&u, "n", &offered), 0);
    assert_int_equal(used(&u, "x/gpu"), 2);
    assert_int_equal(usage_set_node(&u, "n", NULL), 0);
    assert_int_equal(used(&u, "x/gpu"), 0);
    usage_remove(&u, gpu);
    usage_remove(&u, gpu); /* no effect */
    assert_int_equal(u.nodes.n, 0);
    usage_pod_destroy(gpu);
    usage_pod_destroy(big);
    resources_fini(&offered);
    usage_fini(&u);
}

/* A pod that invents many names of resources costs its node, but no memory. */
static void test_many_names(void **state)
{
    (void)state;
    struct usage u = {0};
    auto_json json_t *j = NULL, *names = json_object();
    struct usage_pod *p;
    for (int i = 0; i <= RESOURCES_OTHERS_MAX; i++) {
        char name[32];
        snprintf(name, sizeof(name), "evil/%d", i);
        json_object_set_new(names, name, json_integer(1));
    }
    j = json_pack("{s:{s:s, s:s}, s:{s:s, s:[{s:{s:O}}]}}", "metadata", "name", "x", "uid", "u",
                  "spec", "nodeName", "n", "containers", "resources", "requests", names);
    assert_int_equal(items_foreign(j, &p, NULL, NULL), 0);
    assert_int_equal(p->others, 0);
    assert_int_equal(usage_add(&u, p, "ns/x"), 0);
    assert_true(used(&u, "pods") == QUANTITY_MAX);
    usage_remove(&u, p);
    assert_int_equal(u.nodes.n, 0);
    usage_pod_destroy(p);
    usage_fini(&u);
}

static void test_foreign(void **state)
{
    (void)state;
    auto_json json_t *j = NULL;
    struct usage_pod *item = read_use("x", REQUESTS("\"cpu\": \"500m\""));
    assert_string_equal(item->node, "n");
    assert_true(usage_pod_counts(item));
    usage_pod_destroy(item);
    /* a finished pod uses nothing */
    static const char text[] = "{\"metadata\": {\"name\": \"x\", \"uid\": \"u\"}, \"spec\":"
                               " {\"nodeName\": \"n\"}, \"status\": {\"phase\": \"Succeeded\"}}";
    assert_int_equal(json_read(text, strlen(text), "pod", &j, NULL), 0);
    assert_int_equal(items_foreign(j, &item, NULL, NULL), 0);
    assert_false(usage_pod_counts(item));
    usage_pod_destroy(item);
}

/* A worker's pod without the job's label is found among the others, and uses its node as before. */
static void test_foreign_worker(void **state)
{
    (void)state;
    static const char text[] =
        "{\"metadata\": {\"name\": \"a-3-1\", \"uid\": \"u\", \"resourceVersion\": \"7\", "
        "\"ownerReferences\": [{\"apiVersion\": \"hvd.dev/v1alpha1\", \"kind\": \"%s\", "
        "\"name\": \"a\", \"uid\": \"j\", \"controller\": true}]}, \"spec\": {\"nodeName\": "
        "\"n\"}}";
    for (int ours = 0; ours < 2; ours++) {
        char filled[512];
        struct usage_pod *use;
        struct pod_item *worker;
        auto_json json_t *j = NULL;
        snprintf(filled, sizeof(filled), text, ours ? "HvdJob" : "Job");
        assert_int_equal(json_read(filled, strlen(filled), "pod", &j, NULL), 0);
        assert_int_equal(items_foreign(j, &use, &worker, NULL), 0);
        assert_true(usage_pod_counts(use));
        assert_int_equal(worker != NULL, ours);
        if (ours) {
            assert_true(worker->pod.strayed && worker->pod.worker == 3 && worker->version == 7);
            assert_string_equal(worker->pod.job, "a");
        }
        usage_pod_destroy(use);
        items_pod_destroy(worker);
    }
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static void expect_json(char *text, const char *want)
{
    auto_json json_t *a = NULL, *b = NULL;
    assert_non_null(text);
    assert_int_equal(json_read(text, strlen(text), "a body", &a, NULL), 0);
    assert_int_equal(json_read(want, strlen(want), "what is wanted", &b, NULL), 0);
    if (!json_equal(a, b))
        fail_msg("%s\nwanted %s", text, want);
    free(text);
}

static void test_bodies(void **state)
{
    (void)state;
    expect_json(bodies_delete("u-2"),
                "{\"apiVersion\": \"v1\", \"kind\": \"DeleteOptions\", \"propagationPolicy\": "
                "\"Background\", \"preconditions\": {\"uid\": \"u-2\"}}");
    expect_json(bodies_leader(true, NULL),
                "{\"metadata\": {\"labels\": {\"hvd.dev/leader\": \"true\"}}}");
    expect_json(bodies_leader(false, NULL),
                "{\"metadata\": {\"labels\": {\"hvd.dev/leader\": null}}}");
    expect_json(bodies_leader(false, "7"),
                "{\"metadata\": {\"resourceVersion\": \"7\", \"labels\": "
                "{\"hvd.dev/leader\": null}}}");
    struct hvdjob job = {.name = "digits", .namespace_ = "default", .version = "41", .uid = "u-3"};
    struct hvdjob_status status = {.phase = JOB_RUNNING, .ready = 2};
    char *text = bodies_status(&job, &status);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"resourceVersion\":\"41\""));
    assert_non_null(strstr(text, "\"phase\":\"Running\""));
    assert_non_null(strstr(text, "\"selector\":\"hvd.dev/job=digits\""));
    free(text);
}

/* ---- metrics --------------------------------------------------------------------------------- */

static void test_metrics_text(void **state)
{
    (void)state;
    struct buf b = {0};
    struct histogram h = {0};
    metrics_head(&b, "hvd_x", "gauge", "Some.");
    metrics_value(&b, "hvd_x", NULL, NULL, 3);
    metrics_value(&b, "hvd_x", "name", "a\"b\\c\nd", 0.25);
    metrics_value2(&b, "hvd_x", "a", "1", "b", "2", 1e20);
    buf_put_u8(&b, 0);
    assert_string_equal((char *)b.data, "# HELP hvd_x Some.\n# TYPE hvd_x gauge\nhvd_x 3\n"
                                        "hvd_x{name=\"a\\\"b\\\\c\\nd\"} 0.25\n"
                                        "hvd_x{a=\"1\",b=\"2\"} 1e+20\n");
    buf_reset(&b);
    histogram_add(&h, 0.001);
    histogram_add(&h, 0.0011);
    histogram_add(&h, 1e9);
    metrics_histogram(&b, "hvd_s", "Time.", &h);
    buf_put_u8(&b, 0);
    assert_non_null(strstr((char *)b.data, "hvd_s_bucket{le=\"0.001\"} 1\n"));
    assert_non_null(strstr((char *)b.data, "hvd_s_bucket{le=\"0.004\"} 2\n"));
    assert_non_null(strstr((char *)b.data, "hvd_s_bucket{le=\"67108.864\"} 2\n"));
    assert_non_null(strstr((char *)b.data, "hvd_s_bucket{le=\"+Inf\"} 3\n"));
    assert_non_null(strstr((char *)b.data, "hvd_s_count 3\n"));
    buf_reset(&b);
    static const char *const causes[] = {"planned", "lost"};
    const struct histogram two[2] = {[1] = h};
    metrics_histograms(&b, "hvd_r", "Time.", "cause", causes, two, 2);
    buf_put_u8(&b, 0);
    assert_non_null(strstr((char *)b.data, "hvd_r_bucket{cause=\"lost\",le=\"+Inf\"} 3\n"));
    assert_non_null(strstr((char *)b.data, "hvd_r_count{cause=\"planned\"} 0\n"));
    assert_non_null(strstr((char *)b.data, "hvd_r_sum{cause=\"planned\"} 0\n"));
    buf_fini(&b);
}

/* ---- the command line ------------------------------------------------------------------------ */

static int parse(struct settings *o, enum settings_what *what, struct err *err, const char *a,
                 const char *b)
{
    char *argv[] = {(char *)"hvd-operator", (char *)a, (char *)b, NULL};
    *err = (struct err){0};
    return settings_parse(b ? 3 : a ? 2 : 1, argv, o, what, err);
}

static void test_options(void **state)
{
    (void)state;
    struct settings o;
    enum settings_what what;
    struct err err;
    unsetenv("HVD_WATCH_NAMESPACE");
    assert_int_equal(parse(&o, &what, &err, NULL, NULL), 0);
    assert_true(what == SETTINGS_RUN && o.elect && !o.namespace);
    assert_string_equal(o.metrics, ":8080");
    assert_true(o.page == PAGE_LOCAL);
    assert_int_equal(parse(&o, &what, &err, "--page", "all"), 0);
    assert_true(o.page == PAGE_ALL);
    assert_int_equal(parse(&o, &what, &err, "--page", "some"), -EINVAL);
    assert_int_equal(parse(&o, &what, &err, "--metrics-addr", "off"), 0);
    assert_string_equal(o.metrics, "");
    assert_null(o.plane_socket);
    assert_int_equal(o.plane_uid, -1);
    assert_int_equal(parse(&o, &what, &err, "--plane-uid", "65533"), 0);
    assert_int_equal(o.plane_uid, 65533);
    assert_int_equal(parse(&o, &what, &err, "--plane-socket=/s", "--bundle-mount"), 0);
    assert_string_equal(o.plane_socket, "/s");
    assert_true(o.mount);
    assert_int_equal(o.certificate_s, 604800);
    assert_int_equal(parse(&o, &what, &err, "--certificate-life=30", "--ca-life=90"), 0);
    assert_int_equal(o.certificate_s, 30);
    assert_int_equal(o.ca_s, 90);
    assert_int_equal(parse(&o, &what, &err, "--namespace=team", NULL), 0);
    assert_string_equal(o.namespace, "team");
    setenv("HVD_WATCH_NAMESPACE", "given", 1);
    assert_int_equal(parse(&o, &what, &err, "-vv", NULL), 0);
    assert_string_equal(o.namespace, "given");
    assert_int_equal(o.verbose, 2);
    unsetenv("HVD_WATCH_NAMESPACE");
    assert_int_equal(parse(&o, &what, &err, "--explain-states", NULL), 0);
    assert_true(what == SETTINGS_STATES);
    assert_int_equal(o.drain_s, 900);
    int built_in = o.signals.n;
    assert_int_equal(parse(&o, &what, &err, "--drain-limit=0", "--drain-signals=a/b:leave"), 0);
    assert_int_equal(o.drain_s, 0);
    assert_int_equal(o.signals.n, built_in + 1);
    assert_string_equal(o.signals.all[built_in].key, "a/b");
    static const char *const wrong[][2] = {
        {"--drain-limit", "-1"},  {"--drain-limit", "86401"},
        {"--drain-signals", "a"}, {"--what", NULL},
        {"extra", NULL},          {"--lease-duration", "0"},
        {"--lease-renew", "1x"},  {"--lease-renew", "20"},
        {"--lease-retry", "11"},  {"--kubeconfig", NULL},
        {"--namespace", ""},      {"--lease-duration", "-3"},
        {"--plane-uid", "-1"},    {"--plane-uid", "me"},
        {"--plane-socket", ""},   {"--ca-life", "0"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(parse(&o, &what, &err, wrong[i][0], wrong[i][1]), -EINVAL);
        assert_true(err.msg[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),       cmocka_unit_test(test_inflight),
        cmocka_unit_test(test_expectations),   cmocka_unit_test(test_entry_pods),
        cmocka_unit_test(test_entry_due),      cmocka_unit_test(test_usage),
        cmocka_unit_test(test_many_names),     cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_foreign_worker), cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_metrics_text),   cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
