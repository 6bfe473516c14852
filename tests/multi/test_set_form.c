/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_set_form(): sets that their members make alone, in any order and by several threads, beside
 * ranks that do something else; ranks that do not come, differ, shut down or die; removal.
 *
 * timeout: 200
 * takes: 8 s, waiting
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/open_fds.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

static int expect(int rc, int want, const char *text)
{
    if (rc != want || !strstr(hvd_error(), text))
        return FAIL("%d (%s), not %d (%s)", rc, hvd_error(), want, text);
    return 0;
}

static int submit_in(int set, float *x, hvd_handle *ret)
{
    static const int64_t n = 1;
    struct hvd_request r = rank_request("x", x, &n);
    r.set = set;
    return hvd_submit(&r, 1, ret);
}

/* Sums 1 in the set. */
static int use(int set, int size)
{
    float x = 1;
    hvd_handle h;
    if (hvd_set_size(set) != size || submit_in(set, &x, &h) != 0 || hvd_wait(h) != 0)
        return FAIL("set %d: %s", set, hvd_error());
    return x == (float)size ? 0 : FAIL("set %d: the sum is %g, not %d", set, (double)x, size);
}

/* Forms a set, uses it, and removes it. */
static int form(const char *name, const int *ranks, int n)
{
    int set = 0;
    if (hvd_set_form(name, ranks, n, &set) != 0)
        return FAIL("%s", hvd_error());
    int rc = use(set, n);
    if (!rc && hvd_set_remove(set) != 0)
        rc = FAIL("%s", hvd_error());
    return rc;
}

static int ended(int rc)
{
    return rc ? rc : hvd_shutdown() != 0 ? FAIL("%s", hvd_error()) : 0;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

/* Each pair of ranks has a set; beside them there are the world and a set of all. */
static int pairs(int rank, int size, void *arg)
{
    int sets[8], all = 0, order[8] = {7, 6, 5, 4, 3, 2, 1, 0}, rc = 0;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    if (hvd_set_add(order + 8 - size, size, &all) != 0)
        return FAIL("%s", hvd_error());
    for (int other = 0; other < size && rc == 0; other++) {
        const int pair[] = {rank < other ? rank : other, rank < other ? other : rank};
        if (other != rank && hvd_set_form("pair", pair, 2, &sets[other]) != 0)
            rc = FAIL("%s", hvd_error());
    }
    for (int round = 0; round < 100 && rc == 0; round++) {
        for (int other = 0; other < size && rc == 0; other++)
            rc = other == rank ? 0 : use(sets[other], 2);
        if (rc == 0)
            rc = use(round % 2 ? all : 0, size);
    }
    for (int other = size - 1; other >= 0 && rc == 0; other--)
        if (other != rank && hvd_set_remove(sets[other]) != 0)
            rc = FAIL("%s", hvd_error());
    if (rc == 0 && hvd_set_remove(all) != 0)
        rc = FAIL("%s", hvd_error());
    return ended(rc);
}

static void test_pairs(void **state)
{
    assert_int_equal(world_run(5, pairs, NULL), 0);
}

static void test_hosts(void **state)
{
    if (!world_can_netns("multi/set_form/hosts"))
        return;
    const struct world_options o = {.size = 5, .hosts = 3};
    assert_int_equal(world_run_options(&o, pairs, NULL), 0);
}

/* ---- other ranks do something else ---------------------------------------------------------- */

/* Ranks 0 and 3, on two hosts, form sets while 1 and 2 do nothing. */
static int alone(int rank, int size, void *arg)
{
    const int ranks[] = {3, 0};
    int rc = 0;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    uint64_t start = clock_ns();
    if (rank == 1 || rank == 2)
        nap_ms(3000);
    for (int k = 0; k < 10 && rc == 0 && ranks[0] + ranks[1] == 3 && (rank == 0 || rank == 3); k++)
        rc = form("ends", ranks, 2);
    if (rc == 0 && (rank == 0 || rank == 3) && clock_ns() - start > 2500 * CLOCK_MS)
        rc = FAIL("it took too long");
    hvd_barrier("end");
    return ended(rc);
}

static void test_alone(void **state)
{
    if (!world_can_netns("multi/set_form/alone"))
        return;
    const struct world_options o = {.size = 4, .hosts = 2};
    assert_int_equal(world_run_options(&o, alone, NULL), 0);
}

/* ---- threads -------------------------------------------------------------------------------- */

struct thread {
    pthread_t thread;
    char name[16];
    int rc;
};

static void *form_some(void *arg)
{
    static const int both[] = {0, 1};
    struct thread *t = arg;
    for (int k = 0; k < 20 && t->rc == 0; k++)
        t->rc = form(t->name, both, 2);
    return NULL;
}

static int threads(int rank, int size, void *arg)
{
    struct thread t[4] = {{.rc = 0}};
    int rc = 0;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < 4; i++) {
        snprintf(t[i].name, sizeof(t[i].name), "%d", rank ? i : 3 - i);
        if (pthread_create(&t[i].thread, NULL, form_some, &t[i]) != 0)
            return FAIL("no thread");
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i].thread, NULL);
        rc = rc ? rc : t[i].rc;
    }
    return ended(rc);
}

static void test_threads(void **state)
{
    assert_int_equal(world_run(2, threads, NULL), 0);
}

/* ---- refused -------------------------------------------------------------------------------- */

static int refuse_arguments(int rank)
{
    const int twice[] = {0, 1, 0}, far[] = {0, 1, 2, 3}, others[] = {(rank + 1) % 3};
    char name[HVD_MAX_NAME + 2];
    int set = 77;
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    int rc = expect(hvd_set_form("a", twice, 3, &set), -EINVAL, "rank 0 is named twice");
    if (!rc)
        rc = expect(hvd_set_form("a", far, 4, &set), -EINVAL, "no rank 3 in a job of 3");
    if (!rc)
        rc = expect(hvd_set_form("a", NULL, 0, &set), -EINVAL, "at least one rank");
    if (!rc)
        rc = expect(hvd_set_form("a", others, 1, &set), -EINVAL, "is not one of the set's ranks");
    if (!rc)
        rc = expect(hvd_set_form("", far, 3, &set), -EINVAL, "a set's name has 1 to");
    if (!rc)
        rc = expect(hvd_set_form(name, far, 3, &set), -EINVAL, "a set's name has 1 to");
    name[HVD_MAX_NAME] = 0;
    return rc ? rc : set != 77 ? FAIL("a number was written") : form(name, far, 3);
}

/* Rank 2 does not come; 1 asks for other ranks than 0. */
static int refuse_others(int rank)
{
    const int all[] = {0, 1, 2}, first[] = {0, 1}, second[] = {1, 0};
    int set = 77, rc = 0;
    if (rank < 2)
        rc = expect(hvd_set_form("late", all, 3, &set), -ETIMEDOUT,
                    "hvd_set_form 'late' of ranks 0, 1, 2: rank 2 has not called it within 1 s");
    if (rank < 2 && !rc)
        rc = expect(hvd_set_form("order", rank ? first : second, 2, &set), -ETIMEDOUT,
                    rank ? "of ranks 0, 1: rank 0 has not" : "of ranks 1, 0: rank 1 has not");
    return rc || set == 77 ? rc : FAIL("a number was written");
}

/* One rank has an operation in flight, and then one does not come to the removal. */
static int refuse_removal(int rank)
{
    const int both[] = {1, 0};
    float x = 1;
    int set = 0;
    hvd_handle h;
    if (rank == 2)
        return 0;
    if (hvd_set_form("busy", both, 2, &set) != 0 || (rank == 0 && submit_in(set, &x, &h) != 0))
        return FAIL("%s", hvd_error());
    int rc = expect(hvd_set_remove(set), -EBUSY, "'busy' (ranks 1, 0) are in flight;");
    if (rank == 1 && !rc && submit_in(set, &x, &h) != 0)
        return FAIL("%s", hvd_error());
    if (!rc && hvd_wait(h) != 0)
        rc = FAIL("%s", hvd_error());
    if (!rc && rank == 0)
        rc = expect(hvd_set_remove(set), -ETIMEDOUT, "rank 1 has not called it within 1 s");
    if (!rc && rank == 1)
        nap_ms(1500);
    if (!rc)
        rc = use(set, 2);
    if (!rc && hvd_set_remove(set) != 0)
        rc = FAIL("%s", hvd_error());
    return rc ? rc : expect(hvd_set_remove(set), -EINVAL, "there is no set 1000");
}

static int refused(int rank, int size, void *arg)
{
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    int rc = refuse_arguments(rank);
    rc = rc ? rc : refuse_others(rank);
    rc = rc ? rc : refuse_removal(rank);
    hvd_barrier("end");
    return ended(rc);
}

static void test_refused(void **state)
{
    const char *const env[] = {"HVD_START_TIMEOUT=1", NULL};
    const struct world_options o = {.size = 3, .env = env};
    assert_int_equal(world_run_options(&o, refused, NULL), 0);
}

static void *in_join(void *arg)
{
    *(int *)arg = hvd_join();
    return NULL;
}

/* A thread of rank 1 is in hvd_join(). */
static int joined(int rank, int size, void *arg)
{
    const int own[] = {1};
    int set, last = -1, rc = 0;
    pthread_t thread;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    if (rank == 1) {
        if (pthread_create(&thread, NULL, in_join, &last) != 0)
            return FAIL("no thread");
        nap_ms(300);
        rc = expect(hvd_set_form("a", own, 1, &set), -EBUSY, "a thread is in hvd_join()");
        pthread_join(thread, NULL);
    } else {
        nap_ms(600);
        last = hvd_join();
    }
    return ended(rc ? rc : last == 0 ? 0 : FAIL("%d: %s", last, hvd_error()));
}

static void test_joined(void **state)
{
    assert_int_equal(world_run(2, joined, NULL), 0);
}

/* ---- made and removed ----------------------------------------------------------------------- */

static int again(int rank, int size, void *arg)
{
    const int ranks[] = {2, 0, 1};
    int before = 0, rc = 0;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < 100 && rc == 0; k++) {
        int n = 1 + k % 3;
        bool in = rank == 2 || (rank == 0 && n > 1) || n == 3;
        rc = in ? form("again", ranks, n) : 0;
        if (k == 10)
            before = open_fds();
    }
    int left = open_fds() - before;
    if (rc == 0 && left > 0)
        rc = FAIL("%d descriptors are left", left);
    hvd_barrier("end");
    return ended(rc);
}

static void test_again(void **state)
{
    assert_int_equal(world_run(3, again, NULL), 0);
}

/* ---- the end of a rank ---------------------------------------------------------------------- */

/* Rank 2 leaves in order, or dies, while the others wait for it. 0 and 1 go on if it has left. */
static int loses(int rank, int size, void *arg)
{
    const int all[] = {0, 1, 2}, rest[] = {1, 0};
    bool dies = arg;
    int set;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    if (rank == 2) {
        nap_ms(200);
        return dies ? raise(SIGKILL) : hvd_shutdown() != 0;
    }
    int rc = expect(hvd_set_form("all", all, 3, &set), dies ? -ECONNRESET : -ESHUTDOWN,
                    dies ? "rank 2" : "rank 2 has shut down");
    if (!rc && !dies)
        rc = expect(hvd_set_form("all", all, 3, &set), -ESHUTDOWN, "rank 2 has shut down");
    if (!rc && !dies)
        rc = form("rest", rest, 2);
    return ended(rc);
}

static void test_leaves(void **state)
{
    assert_int_equal(world_run(3, loses, NULL), 0);
}

static void test_dies(void **state)
{
    struct world *w;
    int status[3];
    const struct world_options o = {.size = 3};
    assert_int_equal(world_start(&o, loses, "dies", &w), 0);
    world_wait(w, status);
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
}

/* Another thread of a rank that waits shuts down. */
static void *shut_down(void *arg)
{
    nap_ms(200);
    *(int *)arg = hvd_shutdown();
    return NULL;
}

static int closes(int rank, int size, void *arg)
{
    const int both[] = {0, 1};
    int set, down = -1, rc = 0;
    pthread_t thread;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    if (rank == 1) {
        nap_ms(1000);
        return hvd_shutdown() != 0;
    }
    if (pthread_create(&thread, NULL, shut_down, &down) != 0)
        return FAIL("no thread");
    rc = expect(hvd_set_form("both", both, 2, &set), -ESHUTDOWN, "");
    pthread_join(thread, NULL);
    return rc ? rc : down;
}

static void test_closes(void **state)
{
    assert_int_equal(world_run(2, closes, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),   cmocka_unit_test(test_threads),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_joined),
        cmocka_unit_test(test_again),   cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_dies),    cmocka_unit_test(test_closes),
        cmocka_unit_test(test_hosts),   cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
