/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/api/informer against a fake API server: paged and streamed lists, watches cut
 * after every byte, 410 as status and as event, objects that are deleted and created again unseen,
 * failures. Afterwards the cache equals the server's objects, and the events were consistent.
 *
 * takes: 17 s, waiting
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "core/base/clock.h"
#include "operator/api/informer.h"
#include "tests/harness/kube_server.h"
#include "tests/unit/api/api_case.h"

static struct informer *inf;
static int stream_ms;

struct pod {
    char name[32], uid[32], phase[16];
};

/* The events that the informer reported; they must be consistent. */
static struct {
    int syncs, news, changes, gones, live;
    char said[256]; /* the last event */
    int unreadable;
} heard;

static int pod_parse(void *arg, json_t *object, void **ret, struct err *err)
{
    (void)arg;
    const char *name, *uid, *phase;
    int rc = json_expect(object, "a pod", err, "{s:{s:s, s:s}, s:{s:s}}", "metadata", "name", &name,
                         "uid", &uid, "status", "phase", &phase);
    if (rc < 0)
        return rc;
    if (heard.unreadable > 0 && heard.unreadable--)
        return err_set(err, EINVAL, "not this one");
    struct pod *pod = calloc(1, sizeof(*pod));
    if (!pod)
        return -ENOMEM;
    snprintf(pod->name, sizeof(pod->name), "%s", name);
    snprintf(pod->uid, sizeof(pod->uid), "%s", uid);
    snprintf(pod->phase, sizeof(pod->phase), "%s", phase);
    *ret = pod;
    return 0;
}

static void on_changed(void *arg, const char *key, const void *before, const void *after)
{
    const struct pod *a = before, *b = after;
    (void)arg;
    assert_true(a || b);
    if (a && b)
        assert_string_equal(a->uid, b->uid); /* another uid: deleted, then added */
    heard.news += !a;
    heard.changes += a && b;
    heard.gones += !b;
    heard.live += !a ? 1 : !b ? -1 : 0;
    snprintf(heard.said, sizeof(heard.said), "%s %s %s", key, a ? a->phase : "-",
             b ? b->phase : "-");
}

static void on_synced(void *arg)
{
    (void)arg;
    heard.syncs++;
}

#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        uint64_t deadline_ = deadline_in_ms(60000);                                                \
        while (!(condition) && !deadline_passed(deadline_))                                        \
            turn();                                                                                \
        assert_true(condition);                                                                    \
        assert_int_equal(heard.live, (int)informer_size(inf));                                     \
    } while (0)

static void begin(bool paged, int page)
{
    struct err err = {0};
    memset(&heard, 0, sizeof(heard));
    struct informer_config config = {.api = api,
                                     .resource = {"", "v1", "pods"},
                                     .namespace = "default",
                                     .labels = "app=x,y in (1)",
                                     .page = page,
                                     .paged = paged,
                                     .stream_ms = stream_ms,
                                     .parse = pod_parse,
                                     .destroy = free,
                                     .changed = on_changed,
                                     .synced = on_synced};
    assert_int_equal(informer_open(&inf, &config, &err), 0);
}

static const char *phase_of(const char *name)
{
    char key[64];
    snprintf(key, sizeof(key), "default/%s", name);
    const struct pod *pod = informer_get(inf, key);
    return pod ? pod->phase : "none";
}

static const struct informer_counts *counts(void)
{
    return informer_counts(inf);
}

static void end_quietly(void)
{
    informer_close(inf);
    inf = NULL;
    kube_server_do("cut 0");
    kube_server_do("split 0");
    kube_server_do("stream on");
    kube_server_do("fail 500 0 0");
    kube_server_do("drop 0");
    kube_server_do("clear");
}

static int after_each(void **state)
{
    (void)state;
    end_quietly();
    return 0;
}

static bool is(const char *name, const char *phase)
{
    return strcmp(phase_of(name), phase) == 0;
}

/* Changes are reported. */
static void follow_some(void)
{
    kube_server_do("touch pod-00001");
    bool was = is("pod-00001", "Pending");
    UNTIL(is("pod-00001", was ? "Running" : "Pending"));
    kube_server_do("delete pod-00002");
    UNTIL(is("pod-00002", "none"));
    kube_server_do("remake pod-00003");
    int gones = heard.gones, news = heard.news;
    UNTIL(heard.gones > gones || heard.news > news);
    UNTIL(!is("pod-00003", "none"));
    kube_server_do("remake pod-00002");
    UNTIL(!is("pod-00002", "none"));
}

static void test_pages(void **state)
{
    (void)state;
    kube_server_do("make 25 100");
    kube_server_do("split 7");
    begin(true, 10);
    UNTIL(heard.syncs == 1);
    assert_int_equal(informer_size(inf), 25);
    assert_int_equal(heard.news, 25);
    assert_int_equal(counts()->lists, 1);
    assert_int_equal(counts()->streams, 0);
    assert_int_equal(informer_state(inf), WATCH_FOLLOWING);
    follow_some();
    assert_int_equal(heard.syncs, 1);
}

static void test_streamed(void **state)
{
    (void)state;
    kube_server_do("make 25 100");
    begin(false, 10);
    UNTIL(heard.syncs == 1);
    assert_int_equal(informer_size(inf), 25);
    assert_int_equal(counts()->lists, 0);
    assert_int_equal(counts()->streams, 1);
    follow_some();
    assert_int_equal(counts()->follows, 0); /* the same request continues as the watch */
    kube_server_do("end");
    UNTIL(counts()->follows == 1);
    follow_some();
    assert_int_equal(counts()->streams, 1);
}

static void test_no_streams(void **state)
{
    (void)state;
    kube_server_do("make 25 100");
    kube_server_do("stream off");
    begin(false, 10);
    UNTIL(heard.syncs == 1);
    assert_int_equal(informer_size(inf), 25);
    assert_int_equal(counts()->lists, 1);
    follow_some();
    kube_server_do("forget http");
    UNTIL(heard.syncs == 2);
    assert_int_equal(counts()->streams, 1); /* one attempt only */
    end_quietly();
}

/* A server that treats the request as a plain watch: it never ends the list. */
static void test_streams_misunderstood(void **state)
{
    (void)state;
    kube_server_do("make 25 100");
    kube_server_do("stream mute");
    stream_ms = 8000; /* long enough for all objects to arrive first */
    begin(false, 10);
    stream_ms = 0;
    UNTIL(informer_size(inf) == 25);
    assert_false(informer_synced(inf));
    UNTIL(heard.syncs == 1);
    assert_int_equal(heard.news, 25); /* objects that had arrived are not reported again */
    assert_int_equal(counts()->lists, 1);
    follow_some();
}

/* The connection is cut after one byte, two, ... beyond the length of an event: no event is lost or
 * doubled. */
static void test_cut_after_every_byte(void **state)
{
    (void)state;
    kube_server_do("make 5 10");
    begin(true, 10);
    UNTIL(heard.syncs == 1);
    int changes = heard.changes;
    for (int n = 1; n < 320; n++) {
        kube_server_do("cut %d", n);
        kube_server_do("end");
        kube_server_do("touch pod-00004");
        UNTIL(heard.changes > changes);
        assert_int_equal(heard.changes, ++changes);
    }
    assert_true(counts()->follows > 500);
    assert_int_equal(counts()->lists, 1);
    assert_int_equal(heard.syncs, 1);
    end_quietly();
}

/* A streamed list that is cut starts again, and syncs once. */
static void test_cut_streamed_list(void **state)
{
    (void)state;
    for (int n = 1; n < 1500; n += 23) {
        kube_server_do("make 3 10");
        kube_server_do("cut %d", n);
        begin(false, 10);
        UNTIL(heard.syncs == 1);
        assert_true(informer_size(inf) >= 3 && heard.news == heard.live);
        end_quietly();
    }
}

/* Regression: if a server cut each list after its first object, the next list was requested without
 * a pause, since something had arrived. */
static void test_pauses_grow(void **state)
{
    (void)state;
    kube_server_do("make 3 10");
    kube_server_do("cut 600 100000");
    begin(false, 10);
    uint64_t end = deadline_in_ms(1500);
    while (!deadline_passed(end))
        turn();
    assert_int_equal(heard.syncs, 0);
    assert_true(informer_size(inf) > 0);
    assert_in_range(counts()->streams, 3, 20);
    kube_server_do("cut 0");
    UNTIL(heard.syncs == 1);
    end_quietly();
}

static void forget(const char *mode)
{
    int syncs = heard.syncs;
    kube_server_do("make 10 10");
    UNTIL(informer_size(inf) >= 10 && !is("pod-00009", "none"));
    int gones = heard.gones;
    /* Deleted and created again while no watch is open. */
    kube_server_do("forget %s remake pod-00005 delete pod-00006 touch pod-00007", mode);
    UNTIL(heard.syncs > syncs);
    assert_int_equal(heard.gones, gones + 2);
    assert_true(is("pod-00006", "none"));
    assert_false(is("pod-00005", "none"));
    assert_true(counts()->gone > 0);
    follow_some();
}

static void test_gone(void **state)
{
    (void)state;
    kube_server_do("make 10 10");
    for (int paged = 0; paged < 2; paged++) {
        begin(paged, 4);
        UNTIL(heard.syncs == 1);
        forget("http");
        forget("event");
        assert_int_equal(counts()->gone, 2);
        end_quietly();
    }
}

/* Regression: after an outage the pause before the new list, or after a list that was cut, was as
 * long as the outage's failures had made it, up to a minute. */
static void test_gone_after_failures(void **state)
{
    (void)state;
    kube_server_do("make 10 10");
    begin(false, 10);
    UNTIL(heard.syncs == 1);
    kube_server_do("fail 500 10 -1");
    kube_server_do("forget http touch pod-00007");
    kube_server_do("cut 600 100000");
    UNTIL(counts()->gone == 1);
    assert_int_equal(counts()->failures, 11);
    uint64_t before = clock_ns();
    UNTIL(counts()->failures > 11);
    kube_server_do("cut 0");
    UNTIL(heard.syncs == 2);
    assert_true(clock_ns() - before < 2 * CLOCK_S);
}

/* A continue token expires in the middle of a list: the informer then lists without pages. */
static void test_page_expires(void **state)
{
    (void)state;
    kube_server_do("make 25 10");
    kube_server_do("expire");
    begin(true, 10);
    UNTIL(heard.syncs == 1);
    assert_int_equal(informer_size(inf), 25);
    assert_int_equal(counts()->lists, 2);
    assert_int_equal(heard.news, 25);
}

static void test_bookmarks(void **state)
{
    (void)state;
    kube_server_do("make 5 10");
    begin(true, 10);
    UNTIL(heard.syncs == 1);
    kube_server_do("forget http"); /* raises the server's version */
    UNTIL(heard.syncs == 2);
    UNTIL((kube_server_do("bookmark"), counts()->bookmarks > 0)); /* once the watch is open */
    assert_int_equal(heard.syncs, 2);
}

static void test_failures(void **state)
{
    (void)state;
    kube_server_do("make 25 10");
    kube_server_do("fail 500 3 -1");
    begin(true, 10);
    UNTIL(*informer_problem(inf)->text);
    assert_non_null(strstr(informer_problem(inf)->text, "500 Injected"));
    UNTIL(heard.syncs == 1);
    assert_string_equal(informer_problem(inf)->text, "");
    assert_int_equal(informer_size(inf), 25);
    assert_int_equal(counts()->failures, 3);
    /* A failure during the watch: the cache is kept, no list. */
    kube_server_do("fail 429 1 1");
    uint64_t before = clock_ns();
    /* More than once: a watch may just have begun that "fail" came too late for, and one "end" too
     * early. */
    UNTIL((kube_server_do("end"), counts()->failures == 4));
    assert_int_equal(informer_size(inf), 25);
    follow_some();
    assert_true(clock_ns() - before >= CLOCK_S); /* Retry-After */
    kube_server_do("drop 4");
    kube_server_do("end");
    follow_some();
    assert_int_equal(counts()->lists + counts()->streams, 4);
}

static void test_unreadable(void **state)
{
    (void)state;
    kube_server_do("make 5 10");
    begin(true, 10);
    UNTIL(heard.syncs == 1);
    heard.unreadable = 1;
    kube_server_do("touch pod-00004");
    UNTIL(counts()->unread == 1);
    assert_true(is("pod-00004", "none")); /* no object rather than a stale one */
    kube_server_do("touch pod-00004");
    UNTIL(!is("pod-00004", "none"));
}

static void test_large_lists_are_packed(void **state)
{
    (void)state;
    long before = kube_server_count("gzip");
    kube_server_do("make 300 2000");
    begin(true, 100);
    UNTIL(heard.syncs == 1);
    assert_int_equal(informer_size(inf), 300);
    assert_int_equal(kube_server_count("gzip"), before + 3);
    end_quietly();
}

static int teardown(void **state)
{
    informer_close(inf);
    return api_case_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_pages, after_each),
        cmocka_unit_test_teardown(test_streamed, after_each),
        cmocka_unit_test_teardown(test_no_streams, after_each),
        cmocka_unit_test_teardown(test_streams_misunderstood, after_each),
        cmocka_unit_test_teardown(test_cut_after_every_byte, after_each),
        cmocka_unit_test_teardown(test_cut_streamed_list, after_each),
        cmocka_unit_test_teardown(test_pauses_grow, after_each),
        cmocka_unit_test_teardown(test_gone, after_each),
        cmocka_unit_test_teardown(test_gone_after_failures, after_each),
        cmocka_unit_test_teardown(test_page_expires, after_each),
        cmocka_unit_test_teardown(test_bookmarks, after_each),
        cmocka_unit_test_teardown(test_failures, after_each),
        cmocka_unit_test_teardown(test_unreadable, after_each),
        cmocka_unit_test_teardown(test_large_lists_are_packed, after_each),
    };
    return cmocka_run_group_tests_name("api/informer", tests, api_case_setup, teardown);
}
