/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that wait in orders which cannot meet: the stall report says which operations wait for each
 * other, once in a stall period; the job goes on when another thread submits what is missing. A
 * stall without a cycle is not reported as one.
 *
 * timeout: 200
 * takes: 30 s, waiting
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define MOST 4
#define WORD "wait for each other"

/* Operation i of a ring is in a set of ring[i] and ring[i + 1]. Rank ring[i] waits in it first, so
 * it lacks operation i - 1, in which rank ring[i - 1] waits. */
struct plan {
    int size, n;
    int ring[MOST];
    bool world;   /* operation 0 is in the world */
    bool forms;   /* hvd_set_form() makes the sets */
    bool hosts;   /* half of the ranks is on another host */
    int rounds;   /* of all operations, before */
    bool chain;   /* the last rank of the ring submits all and waits later: there is no cycle */
    int messages; /* so many ranks of a ring of two wait in a message to or from the other one */
    bool sends;   /* they send */
    char expect[512];
};

struct board {
    struct plan plan;
    _Atomic int over; /* what is missing may be submitted */
    bool seen;
    uint64_t apart; /* ns between two reports */
    char text[1 << 16];
};

struct rank {
    struct board *b;
    int at; /* in the ring; -1: not in it */
    int sets[MOST];
    int log, console;
};

static bool is_in(const struct plan *p, int at, int i)
{
    return (p->world && i == 0) || (at >= 0 && (at == i || at == (i + 1) % p->n));
}

static int submit(struct rank *r, int i, float *x, hvd_handle *ret)
{
    static const int64_t one = 1;
    char name[8] = {'o', 'p', (char)('a' + i), 0};
    struct hvd_request q = rank_request(name, x, &one);
    q.set = r->sets[i];
    *x = 1;
    return hvd_submit(&q, 1, ret);
}

static int run(struct rank *r, int i)
{
    float x;
    hvd_handle h;
    if (submit(r, i, &x, &h) != 0 || hvd_wait(h) != 0)
        return FAIL("%s", hvd_error());
    hvd_release(h);
    return x == (float)hvd_set_size(r->sets[i]) ? 0 : FAIL("a sum is %g", (double)x);
}

/* All operations of this rank at once. */
static int round_of_all(struct rank *r)
{
    const struct plan *p = &r->b->plan;
    float x[MOST];
    hvd_handle h[MOST];
    for (int i = 0; i < p->n; i++)
        if (is_in(p, r->at, i) && submit(r, i, &x[i], &h[i]) != 0)
            return FAIL("%s", hvd_error());
    for (int i = 0; i < p->n; i++) {
        if (!is_in(p, r->at, i))
            continue;
        if (hvd_wait(h[i]) != 0)
            return FAIL("%s", hvd_error());
        hvd_release(h[i]);
    }
    return 0;
}

static int make_sets(struct rank *r)
{
    const struct plan *p = &r->b->plan;
    for (int i = p->world ? 1 : 0; i < p->n; i++) {
        int ranks[2] = {p->ring[i], p->ring[(i + 1) % p->n]}, rc = 0;
        char name[8] = {'s', (char)('a' + i), 0};
        if (!p->forms)
            rc = hvd_set_add(ranks, 2, &r->sets[i]);
        else if (is_in(p, r->at, i))
            rc = hvd_set_form(name, ranks, 2, &r->sets[i]);
        if (rc != 0)
            return FAIL("%s", hvd_error());
    }
    return 0;
}

/* ---- rank 0 reads what it prints --------------------------------------------------------------
 */

static int begin_log(struct rank *r)
{
    r->log = memfd_create("log", 0);
    r->console = dup(2);
    return r->log < 0 || dup2(r->log, 2) < 0 ? FAIL("no log") : 0;
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
        n++;
    return n;
}

static void *watch(void *arg)
{
    struct rank *r = arg;
    struct board *b = r->b;
    const char *word = b->plan.chain ? " has waited " : WORD;
    uint64_t first = 0, until = clock_ns() + 40 * CLOCK_S;
    int most = b->plan.chain ? 3 : 2;
    while (!b->seen && clock_ns() < until) {
        ssize_t n = pread(r->log, b->text, sizeof(b->text) - 1, 0);
        b->text[n > 0 ? n : 0] = 0;
        int found = count(b->text, word);
        if (found >= 1 && !first)
            first = clock_ns();
        b->seen = found >= most;
        nap_ms(5);
    }
    b->apart = clock_ns() - first;
    atomic_store(&b->over, 1);
    return NULL;
}

static void end_log(struct rank *r)
{
    struct board *b = r->b;
    ssize_t n = pread(r->log, b->text, sizeof(b->text) - 1, 0);
    b->text[n > 0 ? n : 0] = 0;
    dup2(r->console, 2);
    close(r->console);
    close(r->log);
}

/* ---- the ranks ------------------------------------------------------------------------------- */

static int await(struct board *b)
{
    while (!atomic_load(&b->over))
        nap_ms(2);
    return 0;
}

/* Whether the rank with this place in the ring waits in a message. */
static bool in_message(const struct plan *p, int at)
{
    return p->messages > 0 && at >= 2 - p->messages;
}

static int message(const struct rank *r, bool sends, int tag)
{
    static char data[2][1 << 20];
    int peer = r->b->plan.ring[1 - r->at];
    int rc = sends ? hvd_send(data[0], sizeof(data[0]), peer, tag, 0)
                   : hvd_recv(data[1], sizeof(data[1]), peer, tag, 0, NULL);
    return rc == 0 ? 0 : FAIL("%s", hvd_error());
}

static int wait_first(struct rank *r)
{
    const struct plan *p = &r->b->plan;
    return in_message(p, r->at) ? message(r, p->sends, r->at) : run(r, r->at);
}

static int submit_missing(struct rank *r)
{
    const struct plan *p = &r->b->plan;
    int other = (r->at + p->n - 1) % p->n;
    return in_message(p, other) ? message(r, !p->sends, other) : run(r, other);
}

/* Submits what the main thread of this rank does not reach. */
static void *rescue(void *arg)
{
    struct rank *r = arg;
    const struct plan *p = &r->b->plan;
    await(r->b);
    int rc = submit_missing(r);
    if (rc == 0 && p->world && r->at > 1)
        rc = run(r, 0);
    return rc == 0 ? r : NULL;
}

static int deadlock(struct rank *r)
{
    const struct plan *p = &r->b->plan;
    pthread_t thread;
    void *well = r;
    if (r->at < 0)
        return p->world ? run(r, 0) : await(r->b);
    if (p->chain && r->at == p->n - 1)
        return await(r->b) || (p->messages ? submit_missing(r) || wait_first(r) : round_of_all(r));
    if (pthread_create(&thread, NULL, rescue, r) != 0)
        return FAIL("no thread");
    int rc = wait_first(r);
    pthread_join(thread, &well);
    return rc ? rc : well ? 0 : FAIL("the other thread");
}

static int rank_main(int rank, int size, void *arg)
{
    struct board *b = arg;
    struct rank r = {.b = b, .at = -1, .log = -1};
    pthread_t thread;
    for (int i = 0; i < b->plan.n; i++)
        r.at = b->plan.ring[i] == rank ? i : r.at;
    if (b->plan.hosts)
        setenv("HVD_LOCALITY", rank < size / 2 ? "a" : "b", 1);
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    int rc = make_sets(&r);
    for (int i = 0; i < b->plan.rounds && rc == 0; i++)
        rc = round_of_all(&r);
    if (rc == 0 && rank == 0)
        rc = begin_log(&r);
    if (rc == 0 && rank == 0 && pthread_create(&thread, NULL, watch, &r) != 0)
        rc = FAIL("no thread");
    if (rc)
        return rc;
    rc = deadlock(&r);
    if (rank == 0) {
        pthread_join(thread, NULL);
        end_log(&r);
    }
    for (int i = 0; i < 10 && rc == 0; i++)
        rc = round_of_all(&r);
    return rc ? rc : hvd_shutdown() != 0;
}

static struct board *run_plan(const struct plan *p)
{
    static const char *const env[] = {"HVD_STALL_CHECK_TIME_SECONDS=1", NULL};
    const struct world_options o = {.size = p->size, .timeout_s = 60, .env = env};
    struct board *b = world_board(sizeof(*b));
    assert_non_null(b);
    b->plan = *p;
    assert_int_equal(world_run_options(&o, rank_main, b), 0);
    return b;
}

static void expect_cycle(const struct plan *p)
{
    struct board *b = run_plan(p);
    if (!b->seen || !strstr(b->text, p->expect))
        fail_msg("no '%s' in: %s", p->expect, b->text);
    assert_in_range(b->apart, 7 * CLOCK_S / 10, 10 * CLOCK_S);
}

static void test_two_sets(void **state)
{
    expect_cycle(&(struct plan){
        .size = 3,
        .n = 2,
        .ring = {0, 1},
        .expect =
            "hvd[0]: warn: set 1 (ranks 0, 1) and set 2 (ranks 1, 0) wait for each other: rank "
            "0 waits for 'opa' in set 1, which rank 1 has not submitted; rank 1 waits for "
            "'opb' in set 2, which rank 0 has not submitted. None of "});
}

static void test_three_sets(void **state)
{
    expect_cycle(&(struct plan){
        .size = 4,
        .n = 3,
        .ring = {3, 1, 2},
        .hosts = true,
        .expect =
            "hvd[0]: warn: set 2 (ranks 1, 2), set 3 (ranks 2, 3) and set 1 (ranks 3, 1) wait "
            "for each other: rank 1 waits for 'opb' in set 2, which rank 2 has not "
            "submitted; rank 2 waits for 'opc' in set 3, which rank 3 has not submitted; "
            "rank 3 waits for 'opa' in set 1, which rank 1 has not submitted. None of "});
}

static void test_with_the_world(void **state)
{
    expect_cycle(&(struct plan){
        .size = 4,
        .n = 2,
        .ring = {2, 3},
        .world = true,
        .hosts = true,
        .expect = "'opa' in the world, which rank 3 has not submitted; rank 3 waits for 'opb' in "
                  "set 1, which rank 2 has not submitted. None of "});
}

/* The sets follow their plans, without messages; rank 0 knows none of them. */
static void test_frozen(void **state)
{
    expect_cycle(&(struct plan){.size = 3,
                                .n = 2,
                                .ring = {2, 1},
                                .forms = true,
                                .rounds = 100,
                                .expect = "(ranks 1, 2) and set 100000"});
    expect_cycle(&(struct plan){.size = 4,
                                .n = 3,
                                .ring = {1, 2, 3},
                                .world = true,
                                .rounds = 100,
                                .expect = "rank 3 waits for 'opc' in set 2, which rank 1"});
}

/* Rank 3 waits in set 1, rank 1 for a message of rank 3. */
static void test_message(void **state)
{
    expect_cycle(&(struct plan){
        .size = 4,
        .n = 2,
        .ring = {3, 1},
        .hosts = true,
        .messages = 1,
        .expect =
            "the world and set 1 (ranks 3, 1) wait for each other: rank 1 waits for 'message "
            "from rank 3 to rank 1, tag 1' in the world, which rank 3 has not submitted; rank "
            "3 waits for 'opa' in set 1, which rank 1 has not submitted. None of "});
}

static void test_messages_alone(void **state)
{
    expect_cycle(&(struct plan){
        .size = 4,
        .n = 2,
        .ring = {2, 3},
        .hosts = true,
        .messages = 2,
        .expect = "operations of the world wait for each other: rank 2 waits for 'message from "
                  "rank 3 to rank 2, tag 0' in the world, which rank 3 has not submitted; rank 3"});
    expect_cycle(&(struct plan){
        .size = 2,
        .n = 2,
        .ring = {0, 1},
        .messages = 2,
        .sends = true,
        .expect = "operations of the world wait for each other: rank 0 waits for 'message from "
                  "rank 0 to rank 1, tag 0' in the world, which rank 1 has not submitted; rank 1"});
}

static void test_no_cycle(void **state)
{
    const struct plan plans[] = {
        {.size = 3, .n = 3, .ring = {0, 1, 2}, .chain = true},
        {.size = 2, .n = 2, .ring = {0, 1}, .messages = 2, .chain = true},
    };
    for (int i = 0; i < 2; i++) {
        struct board *b = run_plan(&plans[i]);
        assert_true(b->seen);
        assert_int_equal(count(b->text, WORD), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_sets),       cmocka_unit_test(test_three_sets),
        cmocka_unit_test(test_with_the_world), cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_no_cycle),       cmocka_unit_test(test_message),
        cmocka_unit_test(test_messages_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
