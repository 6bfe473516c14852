/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/driver/driver_tenants: what the driver remembers of namespaces, and for how
 * long.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "operator/driver/driver_private.h"
#include "operator/objects/moment.h"

#define HOUR (3600 * MOMENT_S)

static int make(void **state)
{
    static struct driver d;
    d = (struct driver){0};
    list_init(&d.turns);
    entries_init(&d.entries, &d);
    *state = &d;
    return 0;
}

static int end(void **state)
{
    struct driver *d = *state;
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e))
        e->job = NULL;
    entries_fini(&d->entries);
    driver_tenants_fini(d);
    assert_true(list_empty(&d->turns));
    return 0;
}

/* Records of that many namespaces that had a job once; none of it was admitted. */
static void see_others(struct driver *d, int n)
{
    char name[32];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "other-%d", i);
        assert_non_null(driver_tenant(d, name));
    }
}

static bool is_known(const struct driver *d, const char *namespace)
{
    return store_find(&d->tenants, namespace) != NULL;
}

static void test_forgotten_without_a_job(void **state)
{
    struct driver *d = *state;
    int64_t now = driver_now();
    driver_note_served(d, "long-ago", now - HOUR - MOMENT_S);
    driver_note_served(d, "lately", now - HOUR / 2);
    see_others(d, 100000);
    assert_true(d->tenants.n < 200);
    assert_int_equal(driver_served(d, "long-ago"), MOMENT_NONE);
    assert_int_equal(driver_served(d, "lately"), now - HOUR / 2);
}

static void test_kept_with_a_job(void **state)
{
    struct driver *d = *state;
    struct job_item job = {.job = {.namespace_ = "busy"}};
    struct entry *e = entries_make(&d->entries, "busy", "job");
    assert_non_null(e);
    e->job = &job;
    driver_note_served(d, "busy", MOMENT_S);
    see_others(d, 1000);
    assert_int_equal(driver_served(d, "busy"), MOMENT_S);
    e->job = NULL;
    see_others(d, 1000);
    assert_false(is_known(d, "busy"));
}

/* A namespace whose job waits for a dry run is known until the job has had it, and has its turn. */
static void test_kept_while_a_dry_run_waits(void **state)
{
    struct driver *d = *state;
    struct entry *e = entries_make(&d->entries, "asks", "job");
    assert_non_null(e);
    struct driver_tenant *t = driver_tenant(d, "asks");
    list_append(&t->waiting, &e->dry_run.turn);
    list_append(&d->turns, &t->turn);
    see_others(d, 1000);
    assert_ptr_equal(driver_tenant(d, "asks"), t);
    list_remove(&e->dry_run.turn);
    see_others(d, 1000);
    assert_false(is_known(d, "asks"));
    assert_true(list_empty(&d->turns));
}

/* All of many namespaces with a job are kept. */
static void test_many_with_a_job(void **state)
{
    static struct job_item jobs[5000];
    static char names[5000][16];
    struct driver *d = *state;
    for (int i = 0; i < 5000; i++) {
        snprintf(names[i], sizeof(names[i]), "team-%d", i);
        jobs[i].job.namespace_ = names[i];
        struct entry *e = entries_make(&d->entries, names[i], "job");
        assert_non_null(e);
        e->job = &jobs[i];
        driver_note_served(d, names[i], MOMENT_S);
    }
    see_others(d, 20000);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(driver_served(d, names[i]), MOMENT_S);
    assert_in_range(d->tenants.n, 5000, 10000);
}

/* A job that a quota refused may be asked about once that quota has changed, and not for what else
 * the API server refuses. */
static void test_quota_that_gives(void **state)
{
    struct driver *d = *state;
    int64_t now = driver_now();
    struct verdict v = {.wait = WAIT_QUOTA, .at = now - MOMENT_S};
    driver_note_quota(d, "unknown");
    assert_false(is_known(d, "unknown"));
    assert_non_null(driver_tenant(d, "busy"));
    assert_false(driver_may_ask(d, "busy", &v));
    driver_note_quota(d, "busy");
    assert_true(driver_may_ask(d, "busy", &v));
    assert_false(driver_may_ask(d, "unknown", &v));
    v.at = now + MOMENT_S; /* refused again, by a server that may not know of the change */
    assert_true(driver_may_ask(d, "busy", &v));
    v.at = driver_now() + DRY_RUN_SETTLES + 1;
    assert_false(driver_may_ask(d, "busy", &v));
    v = (struct verdict){.wait = WAIT_REFUSED, .at = now - MOMENT_S};
    assert_false(driver_may_ask(d, "busy", &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_forgotten_without_a_job, make, end),
        cmocka_unit_test_setup_teardown(test_kept_with_a_job, make, end),
        cmocka_unit_test_setup_teardown(test_kept_while_a_dry_run_waits, make, end),
        cmocka_unit_test_setup_teardown(test_many_with_a_job, make, end),
        cmocka_unit_test_setup_teardown(test_quota_that_gives, make, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
