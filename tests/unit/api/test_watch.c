/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/api/watch, store, stamp and request: the state table, a hash table under random
 * changes, times, paths and queries.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>

#include "operator/api/request.h"
#include "operator/objects/stamp.h"
#include "operator/api/store.h"
#include "operator/api/watch.h"

/* From each state there is a way to WATCH_FOLLOWING, and a stop. */
static void test_table(void **state)
{
    size_t n;
    const struct watch_row *table = watch_table(&n);
    bool reaches[WATCH_STATES] = {[WATCH_FOLLOWING] = true};
    (void)state;
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(watch_step(table[i].state, table[i].event), &table[i]); /* no row twice */
        assert_non_null(watch_state_name(table[i].state));
        assert_non_null(watch_event_name(table[i].event));
        assert_non_null(watch_action_name(table[i].action));
    }
    for (int round = 0; round < WATCH_STATES; round++)
        for (size_t i = 0; i < n; i++)
            reaches[table[i].state] |= reaches[table[i].next] && table[i].event != WATCH_STOP;
    for (int s = 0; s < WATCH_STATES; s++) {
        assert_true(reaches[s]);
        assert_true(s == WATCH_IDLE || watch_step((enum watch_state)s, WATCH_STOP));
        /* A request in flight may fail; a pause ends. */
        if (s == WATCH_STREAMING || s == WATCH_LISTING || s == WATCH_FOLLOWING) {
            assert_non_null(watch_step((enum watch_state)s, WATCH_FAILED));
            assert_non_null(watch_step((enum watch_state)s, WATCH_GONE));
        }
    }
    /* 410 always leads to a new list. */
    assert_int_equal(watch_step(WATCH_FOLLOWING, WATCH_GONE)->next, WATCH_WAIT_LIST);
    /* No other failure drops the cache. */
    assert_int_equal(watch_step(WATCH_FOLLOWING, WATCH_FAILED)->next, WATCH_WAIT_FOLLOW);
    assert_null(watch_step(WATCH_IDLE, WATCH_TIMER));
}

static void test_store(void **state)
{
    enum { KEYS = 700 };
    static bool in[KEYS];
    struct store s = {0};
    size_t n = 0;
    (void)state;
    srand(7);
    assert_null(store_find(&s, "a"));
    assert_null(store_next(&s, NULL));
    for (int i = 0; i < 20000; i++) {
        char key[32];
        int k = rand() % KEYS;
        snprintf(key, sizeof(key), "ns/pod-%d", k);
        struct store_entry *e = store_find(&s, key);
        assert_int_equal(e != NULL, in[k]);
        if (e) {
            assert_string_equal(e->key, key);
            store_remove(&s, e);
        } else {
            assert_non_null(store_add(&s, key));
        }
        in[k] = !in[k];
        n += in[k] ? 1 : (size_t)-1;
        assert_int_equal(s.n, n);
    }
    size_t seen = 0;
    for (struct store_entry *e = store_next(&s, NULL), *next; e; e = next) {
        next = store_next(&s, e);
        seen++;
        if (seen % 2)
            store_remove(&s, e);
    }
    assert_int_equal(seen, n);
    store_fini(&s);
}

static void test_stamps(void **state)
{
    static const struct {
        const char *text;
        int64_t us;
    } good[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2026-11-21T10:00:00Z", 1795255200000000},
        {"2026-11-21T10:00:00.123456Z", 1795255200123456},
        {"2026-11-21T10:00:00.123456789Z", 1795255200123456},
        {"2026-11-21T10:00:00.5+01:30", 1795249800500000},
        {"2024-02-29t23:59:60-00:15", 1709252100000000},
        {"0001-01-01T00:00:00Z", -62135596800000000},
        {"0999-12-31T23:59:59.000001Z", -30610224000999999},
        {"9999-12-31T23:59:59.999999Z", 253402300799999999},
    };
    static const char *const bad[] = {"",
                                      "now",
                                      "2026-11-21",
                                      "2026-11-21T10:00:00",
                                      "2026-13-21T10:00:00Z",
                                      "2026-11-21T24:00:00Z",
                                      "2026-11-21T10:00:00.Z",
                                      "2026-11-21T10:00:00ZZ",
                                      "2026-11-21T10:00:00+1:00",
                                      "-026-11-21T10:00:00Z",
                                      "0001-01-01T00:00:00+00:01",
                                      "9999-12-31T23:59:59-00:01"};
    char text[STAMP_MAX];
    int64_t us = 42;
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        assert_int_equal(stamp_parse(good[i].text, &us), 0);
        assert_int_equal(us, good[i].us);
        assert_int_equal(stamp_parse(stamp_text(us, text), &us), 0);
        assert_int_equal(us, good[i].us);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_int_equal(stamp_parse(bad[i], &us), -EINVAL);
    assert_string_equal(stamp_text(1795255200000001, text), "2026-11-21T10:00:00.000001Z");
    assert_string_equal(stamp_text(-1, text), "1969-12-31T23:59:59.999999Z");
    stamp_text(INT64_MAX, text);
    stamp_text(INT64_MIN, text);
}

static void test_paths(void **state)
{
    struct resource pods = {"", "v1", "pods"}, jobs = {"hvd.dev", "v1alpha1", "hvdjobs"};
    struct buf b = {0};
    (void)state;
    request_path(&b, &pods, NULL, NULL, NULL);
    assert_string_equal(request_text(&b), "/api/v1/pods");
    buf_reset(&b);
    request_path(&b, &jobs, "team a", "../x", "status");
    request_query(&b, "fieldManager", "hvd-operator");
    request_query(&b, "empty", "");
    request_query(&b, "none", NULL);
    request_query_number(&b, "limit", 500);
    assert_string_equal(request_text(&b),
                        "/apis/hvd.dev/v1alpha1/namespaces/team%20a/hvdjobs/..%2Fx/status"
                        "?fieldManager=hvd-operator&limit=500");
    buf_reset(&b);
    request_path(&b, &pods, "", NULL, NULL);
    request_query(&b, "labelSelector", "app=a b,x in (1,2),\xc3\xa9!&#=+");
    assert_string_equal(request_text(&b), "/api/v1/pods?labelSelector=app%3Da%20b%2Cx%20in%20%281"
                                          "%2C2%29%2C%C3%A9%21%26%23%3D%2B");
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_store),
                                       cmocka_unit_test(test_stamps), cmocka_unit_test(test_paths)};
    return cmocka_run_group_tests_name("api/watch", tests, NULL, NULL);
}
