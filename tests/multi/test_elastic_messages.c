/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages in an elastic job: ranks are killed at any moment, join and leave, while all ranks send
 * to each other, in the world and in a set. Each message between survivors comes exactly once and
 * in order, also one that is sent before a boundary and received after it. Only messages with a
 * killed rank fail. In some jobs half of the memory is a GPU's. test_elastic_messages_ends.c has
 * single cases.
 *
 * timeout: 300
 * takes: 10 s
 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/fake/cuda/use.h"
#include "tests/harness/deaths.h"
#include "tests/harness/effort.h"
#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

enum {
    MEMBERS = 4,
    MOST = 7, /* members of a job in its life */
    STEPS = 40,
    LIMIT = 60000, /* ms */
    LATE = 50,     /* the tag of messages that are received after the next boundary */
    ANY = 60,      /* received from any rank */
    TAGS = 3,
    CALLS = 2 * MOST * TAGS * 2 + 2 * MOST, /* of a step */
};

struct board {
    _Atomic int at[ELASTIC_MAX]; /* the step in which each member is */
    _Atomic int hold;            /* no member begins this step; -1: all go on */
    _Atomic bool killed[ELASTIC_MAX];
    bool any;          /* also receives from any rank: no rank is killed */
    bool gpu;          /* half of the memory is that of a GPU of the fake driver, one a member */
    bool nccl;         /* and NCCL runs the messages between GPUs */
    _Atomic int flown; /* by NCCL */
    unsigned delay_us; /* of everything on the GPUs' streams */
    _Atomic int dead;  /* calls that failed with -EOWNERDEAD */
    _Atomic int late;  /* messages that came after a boundary */
};

struct call {
    hvd_handle handle;
    struct hvd_message message;
    struct hvd_arrival arrival;
    int from, to; /* members; from is -1: any */
};

struct member {
    struct board *board;
    int number, step;
    int set;                          /* 0: this rank is in none */
    int64_t crew[MOST], before[MOST]; /* members by rank, now and in the last step; -1: none */
    struct call calls[CALLS];
    int ncalls;
    float sum;
};

/* ---- messages ------------------------------------------------------------------------------- */

static size_t size_of(int step, int from, int to, int tag)
{
    static const size_t sizes[] = {
        8, 9, 1000, 16384, 16385, 70000, EFFORT_LEAST ? 200000 : 1500000};
    uint64_t state =
        (uint64_t)step * 7919 + (uint64_t)from * 104729 + (uint64_t)to * 31 + (uint64_t)tag;
    for (int i = 0; i < 3; i++)
        rank_random(&state);
    return tag >= LATE ? 100 : sizes[rank_random(&state) % 7];
}

static uint64_t word_of(int step, int from, int to, int tag)
{
    return (uint64_t)step << 32 | (uint64_t)from << 24 | (uint64_t)to << 16 | (uint64_t)tag;
}

static void fill(uint8_t *data, size_t bytes, uint64_t word)
{
    memset(data, (int)(word >> 32) + (int)(word >> 24) + (int)word, bytes);
    memcpy(data, &word, sizeof(word));
}

static bool is_whole(const uint8_t *data, size_t bytes, uint64_t word)
{
    uint8_t rest = (uint8_t)((word >> 32) + (word >> 24) + word);
    for (size_t i = 8; i < bytes; i++)
        if (data[i] != rest)
            return false;
    return memcmp(data, &word, sizeof(word)) == 0;
}

static int post(struct member *m, enum hvd_direction direction, int rank, int peer, int tag,
                int set)
{
    struct call *c = &m->calls[m->ncalls++];
    bool sends = direction == HVD_SEND;
    c->from = sends ? m->number : peer;
    c->to = sends ? peer : m->number;
    size_t bytes = size_of(m->step, c->from, c->to, tag + 10 * (set > 0));
    c->message = (struct hvd_message){.direction = direction,
                                      .peer = rank,
                                      .tag = tag,
                                      .set = set,
                                      .device = m->board->gpu && m->ncalls % 2 ? m->number : -1,
                                      .data = malloc(bytes),
                                      .bytes = (int64_t)bytes,
                                      .ret_arrival = &c->arrival};
    if (sends)
        fill(c->message.data, bytes, word_of(m->step, c->from, c->to, tag));
    return hvd_exchange(&c->message, 1, &c->handle) < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* Whether a call with the member may have failed like this. */
static bool is_expected(struct member *m, int rc, int peer)
{
    bool dead = rc == -EOWNERDEAD && peer >= 0 && atomic_load(&m->board->killed[peer]);
    if (dead)
        atomic_fetch_add(&m->board->dead, 1);
    return dead;
}

static int finish_call(struct member *m, struct call *c)
{
    const struct hvd_message *h = &c->message;
    int peer = h->direction == HVD_SEND ? c->to : c->from, rc = hvd_wait(c->handle);
    if (rc < 0)
        return is_expected(m, rc, peer)
                   ? 0
                   : FAIL("member %d, step %d, with %d: %s", m->number, m->step, peer, hvd_error());
    if (h->direction == HVD_SEND)
        return 0;
    int from = peer < 0 ? (int)m->crew[c->arrival.peer] : peer;
    if (c->arrival.bytes != h->bytes || (peer >= 0 && c->arrival.peer != h->peer) ||
        !is_whole(h->data, (size_t)h->bytes, word_of(m->step, from, m->number, h->tag)))
        return FAIL("member %d, step %d: another message from %d, tag %d: %d of %d bytes, rank %d "
                    "not %d, word %llx",
                    m->number, m->step, from, h->tag, (int)c->arrival.bytes, (int)h->bytes,
                    c->arrival.peer, h->peer, (unsigned long long)*(uint64_t *)h->data);
    return 0;
}

/* In the order of ranks or in the other one, so that sends and receives meet in all ways. */
static int post_all(struct member *m, enum hvd_direction direction)
{
    int size = hvd_size(), ranks[MOST], rc = 0;
    int nset = m->set ? hvd_set_ranks(m->set, ranks, MOST) : 0;
    for (int i = 0; i < TAGS * size && rc == 0; i++) {
        int r = (i + m->number) % size, tag = i / size;
        if (r != hvd_rank() && m->crew[r] >= 0)
            rc = post(m, direction, r, (int)m->crew[r], tag, 0);
    }
    for (int i = 0; i < nset && rc == 0; i++)
        if (ranks[i] != hvd_rank() && m->crew[ranks[i]] >= 0)
            rc = post(m, direction, i, (int)m->crew[ranks[i]], 1, m->set);
    for (int r = 0; r < size && rc == 0 && m->board->any; r++)
        rc = post(m, direction, direction == HVD_SEND ? r : HVD_ANY,
                  direction == HVD_SEND ? (int)m->crew[r] : -1, ANY, 0);
    return rc;
}

/* A sum on the GPU makes NCCL's communicator in each epoch. */
static int submit_sum(struct member *m, hvd_handle *ret)
{
    static const int64_t one = 1;
    struct hvd_request r = rank_request("sum", &m->sum, &one);
    m->sum = 1;
    r.device = m->number;
    return hvd_submit(&r, 1, ret) < 0 ? FAIL("%s", hvd_error()) : 0;
}

static int exchange(struct member *m)
{
    bool first = (m->step + m->number) % 2;
    hvd_handle sum = 0;
    m->ncalls = 0;
    int rc = m->board->nccl ? submit_sum(m, &sum) : 0;
    if (rc == 0)
        rc = post_all(m, first ? HVD_SEND : HVD_RECV);
    if (rc == 0)
        rc = post_all(m, first ? HVD_RECV : HVD_SEND);
    for (int i = 0; i < m->ncalls; i++) {
        if (rc == 0)
            rc = finish_call(m, &m->calls[i]);
        if (rc == 0)
            free(m->calls[i].message.data);
    }
    if (rc == 0 && sum && (hvd_wait(sum) < 0 || m->sum < 1 || m->sum > MOST))
        rc = FAIL("a sum of %g: %s", (double)m->sum, hvd_error());
    if (sum)
        hvd_release(sum);
    return rc;
}

/* ---- across boundaries ---------------------------------------------------------------------- */

static bool was_there(const struct member *m, int64_t other)
{
    bool both[2] = {false, false};
    for (int r = 0; r < MOST; r++) {
        both[0] = both[0] || m->before[r] == other;
        both[1] = both[1] || m->before[r] == m->number;
    }
    return both[0] && both[1];
}

/* Receives what was sent to this rank in the last step. */
static int take_late(struct member *m)
{
    uint8_t data[100];
    for (int r = 0; r < hvd_size(); r++) {
        int peer = (int)m->crew[r];
        if (peer < 0 || r == hvd_rank() || !was_there(m, peer))
            continue;
        int rc = hvd_recv(data, sizeof(data), r, LATE, 0, NULL);
        if (rc < 0 && !is_expected(m, rc, peer))
            return FAIL("member %d, step %d, late: %s", m->number, m->step, hvd_error());
        if (rc == 0 && !is_whole(data, 100, word_of(m->step - 1, peer, m->number, LATE)))
            return FAIL("member %d, step %d: another late message from %d", m->number, m->step,
                        peer);
        atomic_fetch_add(&m->board->late, rc == 0);
    }
    return 0;
}

static int send_late(struct member *m)
{
    uint8_t data[100];
    for (int r = 0; r < hvd_size(); r++) {
        int peer = (int)m->crew[r];
        if (peer < 0 || r == hvd_rank())
            continue;
        fill(data, sizeof(data), word_of(m->step, m->number, peer, LATE));
        int rc = hvd_send(data, sizeof(data), r, LATE, 0);
        if (rc < 0 && !is_expected(m, rc, peer))
            return FAIL("member %d, step %d, late send: %s", m->number, m->step, hvd_error());
    }
    return 0;
}

/* ---- a member ------------------------------------------------------------------------------- */

static int run_step(struct member *m)
{
    struct board *b = m->board;
    atomic_store(&b->at[m->number], m->step);
    while (m->step == atomic_load(&b->hold))
        nap_ms(1);
    memset(m->crew, 0xff, sizeof(m->crew));
    if (rank_crew(m->number, m->crew) < 0)
        return FAIL("%s", hvd_error());
    int rc = take_late(m);
    if (rc == 0)
        rc = exchange(m);
    if (rc == 0)
        rc = send_late(m);
    memcpy(m->before, m->crew, sizeof(m->before));
    return rc;
}

static int start(struct member *m)
{
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    const int ranks[] = {2, 0, 3};
    int64_t step = 0;
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    hvd_world(&w);
    memset(m->before, 0xff, sizeof(m->before));
    if (w.is_new && hvd_broadcast("step", &step, 1, HVD_INT64, w.source) < 0)
        return FAIL("%s", hvd_error());
    if (!w.is_new && hvd_set_add(ranks, 3, &m->set) < 0)
        return FAIL("%s", hvd_error());
    if (w.is_new) /* where places are kept it is in the set of the rank that had its place */
        m->set = 1;
    m->set = m->set && hvd_set_rank(m->set) >= 0 ? m->set : 0;
    m->step = (int)step;
    return 0;
}

static void use_nccl(void)
{
    char path[PATH_MAX];
    fake_nccl_path("2.27", path);
    setenv("HVD_NCCL_LIB", path, 1);
    setenv("HVD_NCCL_MESSAGE_THRESHOLD", "1000", 1);
}

static int train(int member, void *arg)
{
    struct member *m = calloc(1, sizeof(*m));
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    m->board = arg;
    m->number = member;
    if (m->board->gpu) { /* which takes all memory of the process for a GPU's */
        char text[32];
        snprintf(text, sizeof(text), "count=8;unified=%d", member + 1);
        setenv("FAKE_CUDA", text, 1);
        fake_cuda_use("cuda")->delay(m->board->delay_us);
    }
    if (m->board->nccl)
        use_nccl();
    int rc = start(m);
    for (; rc == 0 && m->step < STEPS; m->step++) {
        rc = run_step(m);
        int changed = rc == 0 ? hvd_commit() : 0;
        if (changed == -ESHUTDOWN)
            return 0;
        if (changed < 0)
            return FAIL("member %d: hvd_commit: %s", member, hvd_error());
        int64_t next = m->step + 1;
        hvd_world(&w);
        if (changed == 1 && w.joined > 0 &&
            hvd_broadcast("step", &next, 1, HVD_INT64, w.source) < 0)
            return FAIL("%s", hvd_error());
    }
    atomic_store(&m->board->at[member], STEPS);
    struct hvd_stats stats = {.size = sizeof(stats)};
    hvd_stats(&stats);
    atomic_fetch_add(&m->board->flown, (int)stats.messages_nccl);
    free(m);
    return rc ? rc : hvd_shutdown() < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void end(struct elastic *job, struct board *b, uint32_t left, const char *what)
{
    atomic_store(&b->hold, -1);
    deaths_expect_end(job, left, what);
    elastic_fini(job);
}

/* Two ranks are killed at random moments, together or one after the other. */
static void test_kill_at_random(void **state)
{
    int dead = 0;
    for (unsigned seed = 1; seed <= (unsigned)effort(36); seed++) {
        struct board *b = world_board(sizeof(*b));
        struct elastic job;
        char what[32];
        uint64_t random = seed;
        int first = (int)(rank_random(&random) % MEMBERS);
        int second = (first + 1 + (int)(rank_random(&random) % (MEMBERS - 1))) % MEMBERS;
        snprintf(what, sizeof(what), "seed %u", seed);
        b->hold = STEPS / 2;
        b->gpu = seed % 2;
        b->nccl = seed % 8 == 1;
        b->delay_us = seed % 16 == 9 ? 300 : 0;
        elastic_init(&job);
        for (int m = 0; m < MEMBERS; m++) {
            const char *const env[] = {deaths_places[seed % 3][m], NULL};
            elastic_add(&job, train, b, env);
        }
        assert_true(
            elastic_run_to(&job, &b->at[second], 5 + (int)(rank_random(&random) % 6), LIMIT));
        nap_ms((unsigned)(rank_random(&random) % 4));
        deaths_kill(&job, b->killed, first);
        if (seed % 4 > 1)
            assert_true(elastic_run_to(&job, &b->at[second], 12, LIMIT));
        nap_ms((unsigned)(rank_random(&random) % 4));
        deaths_kill(&job, b->killed, second);
        end(&job, b, 0xfu & ~(1u << first) & ~(1u << second), what);
        dead += b->dead;
        assert_true(b->late > 0);
        assert_true(!b->nccl == !b->flown);
    }
    assert_true(dead > 0);
}

/* A second rank dies in each phase of the repair. */
static void test_kill_in_repair(void **state)
{
    static const char *const places[] = {"revoke",      "report",  "install",  "connect",
                                         "set connect", "barrier", "resubmit", "lost"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct board *b = world_board(sizeof(*b));
        struct elastic job;
        char variable[64];
        const char *const env[] = {variable, NULL};
        snprintf(variable, sizeof(variable), "HVD_TEST_FAIL=%s", places[i]);
        b->hold = -1;
        b->killed[0] = true; /* it may be */
        b->gpu = i % 4 > 0;
        b->nccl = i % 4 == 1;
        elastic_init(&job);
        for (int m = 0; m < MEMBERS; m++)
            elastic_add(&job, train, b, m == 0 ? env : NULL);
        assert_true(elastic_run_to(&job, &b->at[0], 10, LIMIT));
        deaths_kill(&job, b->killed, 2);
        if (!elastic_run(&job, elastic_all_over, NULL, LIMIT))
            fail_msg("killed at %s: the job has not ended within a minute", places[i]);
        if ((elastic_survivors(&job) | 1) != 0xb)
            fail_msg("killed at %s: members %x survived", places[i], elastic_survivors(&job));
        elastic_fini(&job);
    }
}

/* Ranks join, and one leaves: no message fails, also of those from any rank. */
static void test_grow_and_shrink(void **state)
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    b->hold = 10;
    b->any = b->gpu = b->nccl = true;
    elastic_init(&job);
    for (int m = 0; m < MEMBERS; m++)
        elastic_add(&job, train, b, NULL);
    assert_true(elastic_run_to(&job, &b->at[0], 5, LIMIT));
    for (int m = 0; m < 2; m++)
        elastic_add(&job, train, b, NULL);
    assert_true(elastic_run(&job, elastic_joiners_wait, &(int){MEMBERS}, LIMIT));
    elastic_announce(&job);
    atomic_store(&b->hold, STEPS - 12);
    assert_true(elastic_run_to(&job, &b->at[MEMBERS], 12, LIMIT));
    job.members[1].leaving = true;
    elastic_announce(&job);
    end(&job, b, 0x3f, "grow and shrink");
    assert_int_equal(b->dead, 0);
}

static void admit(struct elastic *job, struct board *b)
{
    int joiner = elastic_add(job, train, b, NULL);
    assert_true(elastic_run(job, elastic_joiners_wait, &joiner, LIMIT));
    elastic_announce(job);
    atomic_store(&b->hold, b->hold + 10);
    assert_true(elastic_run_to(job, &b->at[joiner], b->hold - 5, LIMIT));
}

/* Places are kept, so joiners come between the survivors, and the numbers of these change: a joiner
 * is rank 0 for a lost one, and another one takes the place of a member that leaves. */
static void test_places_are_kept(void **state)
{
    for (size_t i = 0; i < DEATHS_PLACES; i++) {
        struct board *b = world_board(sizeof(*b));
        struct elastic job;
        b->hold = 10;
        elastic_init(&job);
        job.keep_places = true;
        for (int m = 0; m < MEMBERS; m++) {
            const char *const env[] = {deaths_places[i][m], NULL};
            elastic_add(&job, train, b, env);
        }
        assert_true(elastic_run_to(&job, &b->at[1], 5, LIMIT));
        deaths_kill(&job, b->killed, 0);
        assert_true(elastic_run_to(&job, &b->at[1], 8, LIMIT));
        admit(&job, b);
        job.members[2].leaving = true;
        admit(&job, b);
        end(&job, b, 0x3e, "places are kept");
        const int ranks[] = {-1, 1, -1, 3, 0, 2};
        for (int m = 1; m < 6; m++)
            if (ranks[m] >= 0)
                assert_int_equal(job.members[m].rank, ranks[m]);
        assert_true(b->late > 0);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill_at_random),
        cmocka_unit_test(test_kill_in_repair),
        cmocka_unit_test(test_grow_and_shrink),
        cmocka_unit_test(test_places_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
