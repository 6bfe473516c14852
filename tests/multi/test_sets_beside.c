/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_set_add(), hvd_set_form() and hvd_set_remove() in several threads of a rank at a time, and
 * beside blocking messages of the set that is removed.
 *
 * timeout: 200
 * takes: 8 s
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/rank.h"
#include "tests/harness/world.h"

/* ---- the table of sets ----------------------------------------------------------------------- */

/* Forms a set and removes it, again and again, with a name of its own. */
struct former {
    int number, rounds, rc;
    pthread_t thread;
};

static void *form(void *arg)
{
    struct former *f = arg;
    const int ranks[] = {1, 0};
    char name[16];
    snprintf(name, sizeof(name), "f%d", f->number);
    for (int i = 0, set; i < f->rounds && f->rc == 0; i++)
        if (hvd_set_form(name, ranks, 2, &set) != 0 || hvd_set_remove(set) != 0)
            f->rc = FAIL("%s", hvd_error());
    return NULL;
}

static int both(int rank, int size, void *arg)
{
    enum { FORMERS = 3 };
    const int ranks[] = {0, 1}, rounds = *(const int *)arg;
    struct former formers[FORMERS];
    int rc = hvd_init() != 0 ? FAIL("%s", hvd_error()) : 0;
    for (int i = 0; i < FORMERS && rc == 0; i++) {
        formers[i] = (struct former){.number = i, .rounds = rounds};
        rc = pthread_create(&formers[i].thread, NULL, form, &formers[i]);
    }
    for (int i = 0, set; i < rounds && rc == 0; i++)
        if (hvd_set_add(ranks, 2, &set) != 0 || hvd_set_remove(set) != 0)
            rc = FAIL("%s", hvd_error());
    for (int i = 0; i < FORMERS && rc == 0; i++) {
        pthread_join(formers[i].thread, NULL);
        rc = formers[i].rc;
    }
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_both(void **state)
{
    int rounds = 60;
    assert_int_equal(world_run(2, both, &rounds), 0);
}

/* ---- long names ------------------------------------------------------------------------------ */

struct longest {
    char name[HVD_MAX_NAME + 1];
    int rc;
};

static void *form_longest(void *arg)
{
    struct longest *l = arg;
    const int ranks[] = {0, 1};
    int set;
    l->rc = hvd_set_form(l->name, ranks, 2, &set) == 0 ? 0 : FAIL("%s", hvd_error());
    return NULL;
}

/* Two threads form sets at a time whose names differ in the last byte alone. */
static int longest(int rank, int size, void *arg)
{
    struct longest a, b;
    pthread_t thread;
    memset(a.name, 'n', sizeof(a.name));
    a.name[HVD_MAX_NAME] = 0;
    b = a;
    b.name[HVD_MAX_NAME - 1] = 'm';
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    nap_ms(rank == 0 ? 0 : 300);
    if (pthread_create(&thread, NULL, form_longest, &a) != 0)
        return FAIL("no thread");
    form_longest(&b);
    pthread_join(thread, NULL);
    return a.rc || b.rc || hvd_shutdown() != 0;
}

static void test_longest(void **state)
{
    assert_int_equal(world_run(2, longest, NULL), 0);
}

/* ---- removal beside messages ----------------------------------------------------------------- */

struct talk {
    int set, rank;
    _Atomic int over; /* the set is removed on this rank */
};

/* Rank 1 sends to rank 0, which receives after short naps, so that the set is mostly idle. What is
 * refused is tried again, since the set may stay. */
static void *talk(void *arg)
{
    struct talk *t = arg;
    uint64_t random = (uint64_t)t->set;
    while (!atomic_load(&t->over)) {
        char x = 0;
        int rc = t->rank ? hvd_send(&x, 1, 0, 1, t->set) : hvd_recv(&x, 1, 1, 1, t->set, NULL);
        struct timespec nap = {.tv_nsec = (long)(rank_random(&random) % (rc ? 100 : 400)) * 1000};
        nanosleep(&nap, NULL);
    }
    return NULL;
}

static int removed(int rank, int size, void *arg)
{
    const int ranks[] = {0, 1};
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int round = 0; round < 100; round++) {
        struct talk t = {.rank = rank};
        pthread_t thread;
        if (hvd_set_form("talk", ranks, 2, &t.set) != 0 ||
            pthread_create(&thread, NULL, talk, &t) != 0)
            return FAIL("%s", hvd_error());
        int rc = -EBUSY;
        while (rc == -EBUSY)
            rc = hvd_set_remove(t.set);
        if (rc != 0)
            return FAIL("%s", hvd_error());
        atomic_store(&t.over, 1);
        pthread_join(thread, NULL);
    }
    return hvd_shutdown() != 0;
}

static void test_removed(void **state)
{
    const struct world_options o = {.size = 2, .timeout_s = 60};
    assert_int_equal(world_run_options(&o, removed, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_both), cmocka_unit_test(test_longest),
                                       cmocka_unit_test(test_removed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
