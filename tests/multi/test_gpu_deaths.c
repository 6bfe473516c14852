/* SPDX-License-Identifier: Apache-2.0
 *
 * Allreduce of GPU tensors while ranks are killed at chosen calls of the driver: where inputs are
 * retained, packed, copied to the host, copied back and unpacked. One rank dies, one of every host,
 * or a whole host. The survivors repeat the operation from inputs that it has overwritten, and have
 * the same bits. A joiner replaces a lost rank.
 *
 * timeout: 900
 * takes: 70 s
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/fake/cuda/use.h"
#include "tests/harness/effort.h"
#include "tests/harness/elastic.h"
#include "tests/harness/gpu_job.h"
#include "tests/harness/gpu_side.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define CHUNK   ((int64_t)1 << 20) /* floats of a chunk: STAGED_CHUNK bytes */
#define PIECES  512                /* most tensors of a chunk: STAGED_PIECES */
#define TINY    4                  /* elements of each of these tensors */
#define FEW     5003               /* elements of a tensor in steps without a death */
#define TENSORS 9
#define SMALL   ((int64_t)1 << 17) /* floats of small() together, or of all tiny tensors */
#define STEPS   5
#define DOOM    2 /* the step in which ranks are killed */
#define MEMBERS 8

/* How long everything on a stream takes in the step in which ranks are killed, so that they die
 * while it is in flight, and in the step that is repeated until a joiner is there. */
#define DELAY_US 300

#define STRIDE  (EFFORT_LEAST ? 9 : effort_share() == 1 ? 2 : 4)
#define MOST(n) (effort_share() == 1 ? (n) : (n) / 2)

struct board {
    /* The test's choice. */
    int chunks;           /* size of the sum in which ranks die; the last chunk is short */
    bool tiny;            /* many tensors instead of one */
    unsigned doomed;      /* members to be killed, a bit each */
    const char *function; /* they die at this call of this function of the driver in step DOOM */
    long call;
    _Atomic bool dying; /* one doomed member has reached the call: all of them die */
    bool waits;         /* the last but one step is repeated until the joiner is there */
    /* What was seen, by member and step. */
    _Atomic int at[ELASTIC_MAX];
    int parts[MEMBERS][STEPS];     /* members whose inputs are in a tensor's sum */
    uint64_t bits[MEMBERS][STEPS]; /* hash of sums that depend on the order */
};

struct member {
    struct gpu_side g;
    struct board *b;
    int number, step;
    long before; /* calls of the function when the step began */
};

/* ---- death ---------------------------------------------------------------------------------- */

static void *watch(void *arg)
{
    const struct member *m = arg;
    while (m->g.fake->calls(m->b->function) - m->before < m->b->call && !m->b->dying)
        usleep(20);
    m->b->dying = true;
    raise(SIGKILL);
    return NULL;
}

static int begin_doom(struct member *m)
{
    pthread_t thread;
    if (m->step != DOOM || !(m->b->doomed & 1U << m->number))
        return 0;
    m->before = m->g.fake->calls(m->b->function);
    return pthread_create(&thread, NULL, watch, m);
}

/* ---- a step --------------------------------------------------------------------------------- */

static struct hvd_request sum_of(struct member *m, const char *name, size_t at, const int64_t *n)
{
    struct hvd_request r = gpu_side_request(&m->g, HVD_ALLREDUCE, name, HVD_FLOAT32, 1, n);
    r.input = r.output = (uint8_t *)m->g.in.at + at;
    return r;
}

static int64_t count_of(const struct member *m)
{
    const struct board *b = m->b;
    if (m->step != DOOM)
        return FEW;
    return b->tiny ? (b->chunks * PIECES - 100) * TINY : b->chunks * CHUNK - 12345;
}

/* Sums n elements as one tensor, or as many tensors that are fused. */
static int sum(struct member *m, int64_t n)
{
    static struct hvd_request r[8 * PIECES];
    static char names[8 * PIECES][12];
    static hvd_handle h[8 * PIECES];
    static const int64_t tiny = TINY;
    int tensors = n != FEW && m->b->tiny ? (int)(n / TINY) : 1, rc = 0;
    for (int i = 0; i < tensors; i++) {
        snprintf(names[i], sizeof(names[i]), "%c%d", n == FEW ? 'f' : 'l', i);
        r[i] = sum_of(m, names[i], (size_t)i * TINY * 4, tensors > 1 ? &tiny : &n);
    }
    if (hvd_submit(r, tensors, h) < 0)
        return FAIL("submit: %s", hvd_error());
    for (int i = 0; i < tensors; i++)
        if (hvd_wait(h[i]) < 0)
            rc = FAIL("%s: %s", names[i], hvd_error());
    return rc;
}

/* In place; element i is (1 << member) * (1 + i % 7). */
static int large(struct member *m)
{
    const int64_t n = count_of(m);
    float *f = (float *)m->g.host;
    for (int64_t i = 0; i < n; i++)
        f[i] = (float)((1 << m->number) * (1 + i % 7));
    if (gpu_side_send(&m->g, 0, (size_t)n * 4) < 0 || begin_doom(m) != 0)
        return FAIL("%s", m->g.err.msg);
    if (sum(m, n) != 0)
        return 1;
    if (gpu_side_read(&m->g, m->g.in.at, (size_t)n * 4) < 0)
        return FAIL("%s", m->g.err.msg);
    int parts = (int)f[0];
    for (int64_t i = 0; i < n; i++)
        if (f[i] != (float)(parts * (1 + i % 7)))
            return FAIL("step %d: element %d is %g, the first %g", m->step, (int)i, (double)f[i],
                        (double)f[0]);
    m->b->parts[m->number][m->step] = parts;
    return 0;
}

/* Several tensors of values whose sum depends on the order. */
static int small(struct member *m)
{
    static const int64_t n[TENSORS] = {1, 2, 3, 700, 70001, 5, 31, 4096, 12347};
    uint64_t random = (uint64_t)(m->number * 100 + m->step + 1), bits = 1469598103934665603ULL;
    hvd_handle h[TENSORS];
    size_t at = 0, all = 0;
    for (int i = 0; i < TENSORS; i++)
        all += (size_t)n[i];
    for (size_t i = 0; i < all; i++)
        ((float *)m->g.host)[i] = (float)(int64_t)rank_random(&random) * 1e-9F;
    if (gpu_side_send(&m->g, 0, all * 4) < 0)
        return FAIL("%s", m->g.err.msg);
    for (int i = 0; i < TENSORS; at += (size_t)n[i++] * 4) {
        char name[8];
        snprintf(name, sizeof(name), "s%d", i);
        struct hvd_request r = sum_of(m, name, at, &n[i]);
        if (hvd_submit(&r, 1, &h[i]) < 0)
            return FAIL("small: %s", hvd_error());
    }
    for (int i = 0; i < TENSORS; i++)
        if (hvd_wait(h[i]) < 0)
            return FAIL("small: %s", hvd_error());
    if (gpu_side_read(&m->g, m->g.in.at, all * 4) < 0)
        return FAIL("%s", m->g.err.msg);
    for (size_t i = 0; i < all * 4; i++)
        bits = (bits ^ m->g.host[i]) * 1099511628211ULL;
    m->b->bits[m->number][m->step] = bits;
    return 0;
}

/* All ranks agree on the step. */
static int agree(struct member *m)
{
    int64_t step = m->step;
    if (hvd_allreduce("step", &step, &step, 1, HVD_INT64, HVD_MAX) < 0)
        return FAIL("step: %s", hvd_error());
    m->step = (int)step;
    return 0;
}

/* Returns whether this step is repeated: the last but one is, until the joiner is there. */
static bool goes_on(const struct member *m)
{
    return m->b->waits && m->step == STEPS - 2 && hvd_size() < 4;
}

static int train(struct member *m)
{
    int rc = agree(m);
    while (rc == 0 && m->step < STEPS) {
        atomic_store(&m->b->at[m->number], m->step);
        m->g.fake->delay(m->step == DOOM || goes_on(m) ? DELAY_US : 0);
        rc = large(m);
        rc = rc ? rc : small(m);
        int changed = rc ? 0 : hvd_commit();
        if (changed < 0)
            rc = FAIL("commit: %s", hvd_error());
        m->step += !goes_on(m);
        if (rc == 0 && changed == 1)
            rc = agree(m);
    }
    atomic_store(&m->b->at[m->number], STEPS);
    return rc;
}

static int work(int number, void *arg)
{
    static struct member m;
    m = (struct member){.b = arg, .number = number};
    size_t room = (size_t)(m.b->tiny ? SMALL : m.b->chunks * CHUNK) * 4;
    if (gpu_side_open(&m.g, number, room, NULL) < 0)
        return FAIL("%s", m.g.err.msg);
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    int rc = hvd_enter() < 0 ? FAIL("enter: %s", hvd_error()) : train(&m);
    if (hvd_shutdown() < 0 && rc == 0)
        rc = FAIL("shutdown: %s", hvd_error());
    if (!gpu_side_close(&m.g) && rc == 0)
        rc = FAIL("%ld objects on the GPU were not freed", m.g.fake->live());
    return rc;
}

/* ---- jobs ----------------------------------------------------------------------------------- */

struct job {
    const char *hosts;   /* a character a member */
    const char *version; /* of NCCL; NULL: staged */
    int chunks;
    bool tiny;
    unsigned doomed;
};

static struct board *clean_board(void)
{
    static struct board *b;
    b = b ? b : world_shared(sizeof(*b));
    memset(b, 0, sizeof(*b));
    return b;
}

static void add(struct elastic *job, struct board *b, const char *version, char host)
{
    char where[] = "HVD_LOCALITY=?";
    const char *const env[] = {version ? *gpu_job_nccl(version, NULL) : "HVD_BACKEND=staged", where,
                               NULL};
    where[sizeof(where) - 2] = host;
    elastic_add(job, work, b, env);
}

static void check_member(const struct board *b, const struct job *j, int first, int member)
{
    const unsigned all = (1U << strlen(j->hosts)) - 1, left = all & ~j->doomed;
    for (int step = 0; step < STEPS; step++) {
        int parts = b->parts[member][step];
        if (parts != b->parts[first][step] || b->bits[member][step] != b->bits[first][step])
            fail_msg("step %d: members %d and %d differ", step, first, member);
        bool last = step == STEPS - 1;
        /* Doomed ranks do not die at the same moment. */
        if ((unsigned)parts & ~all || left & ~(unsigned)parts || (last && parts != (int)left) ||
            (step < DOOM && parts != (int)all))
            fail_msg("step %d: a sum of members %x", step, (unsigned)parts);
    }
}

static void lose(const struct job *j, const char *function, long call)
{
    struct board *b = clean_board();
    struct elastic job;
    int n = (int)strlen(j->hosts), first = -1;
    b->chunks = j->chunks;
    b->tiny = j->tiny;
    b->doomed = j->doomed;
    b->function = function;
    b->call = call;
    printf("hosts %s, %s, %d chunks%s: %x at %s %ld\n", j->hosts,
           j->version ? j->version : "staged", j->chunks, j->tiny ? " of tiny tensors" : "",
           j->doomed, function, call);
    elastic_init(&job);
    for (int m = 0; m < n; m++)
        add(&job, b, j->version, j->hosts[m]);
    if (!elastic_run(&job, elastic_all_over, NULL, 90000))
        fail_msg("the job has not ended within 90 s");
    for (int m = 0; m < n; m++) {
        bool doomed = j->doomed & 1U << m;
        if (job.members[m].status != (doomed ? SIGKILL : 0))
            fail_msg("member %d ended with status %x", m, job.members[m].status);
        if (doomed)
            continue;
        first = first < 0 ? m : first;
        check_member(b, j, first, m);
    }
    elastic_fini(&job);
}

/* Places in the order of the work: launches that retain, pack and unpack chunks, and for staged the
 * copies of chunks to the host and back. HVD_TEST_STRIDE=1 tries every place. */
static void lose_everywhere(const struct job *j)
{
    const char *asked = getenv("HVD_TEST_STRIDE");
    long stride = asked && atol(asked) > 0 ? atol(asked) : STRIDE;
    for (long call = 1; call <= (j->tiny ? 3 : 2) * j->chunks; call += stride)
        lose(j, "cuLaunchKernel", call);
    for (long call = 1; !j->version && call <= j->chunks; call += stride)
        lose(j, "cuMemcpyDtoHAsync_v2", call);
    for (long call = j->chunks; !j->version && call >= 1; call -= stride)
        lose(j, "cuMemcpyHtoDAsync_v2", call);
}

static void test_one(void **state)
{
    static const struct job jobs[] = {
        {"aaabbb", "2.27", 3, true, 1U << 1}, {"aabb", NULL, 4, false, 1U << 2},
        {"aabbcc", "2.27", 2, true, 1U << 4}, {"ababab", "2.18", 2, true, 1U << 0},
        {"aabb", "2.14", 2, true, 1U << 3},   {"aabb", "2.27", 5, false, 1U << 2}};
    for (int i = 0; i < MOST(6); i++)
        lose_everywhere(&jobs[i]);
}

static void test_one_of_every_host(void **state)
{
    static const struct job jobs[] = {{"aaabbb", "2.27", 2, true, 1U << 0 | 1U << 5},
                                      {"aaabbb", "2.18", 2, true, 1U << 0 | 1U << 5},
                                      {"aaabbb", NULL, 2, true, 1U << 0 | 1U << 5}};
    for (int i = 0; i < MOST(3); i++)
        lose_everywhere(&jobs[i]);
}

static void test_whole_host(void **state)
{
    static const struct job jobs[] = {{"aabbcc", "2.27", 2, true, 1U << 2 | 1U << 3},
                                      {"aaabbb", "2.27", 2, true, 7U << 3}};
    for (int i = 0; i < MOST(2); i++)
        lose_everywhere(&jobs[i]);
}

/* Member 3 is lost, and member 4 replaces it on that host. */
static void test_comes_back(void **state)
{
    static const char *const versions[] = {"2.27", "2.18"};
    for (int v = 0; v < MOST(2); v++) {
        struct board *b = clean_board();
        struct elastic job;
        b->chunks = 3;
        b->tiny = true;
        b->doomed = 1U << 3;
        b->function = "cuLaunchKernel";
        b->call = 3;
        b->waits = true;
        elastic_init(&job);
        for (int m = 0; m < 4; m++)
            add(&job, b, versions[v], "aabb"[m]);
        assert_true(elastic_run_to(&job, &b->at[0], STEPS - 2, 60000));
        add(&job, b, versions[v], 'b');
        assert_true(elastic_run(&job, elastic_joiners_wait, &(int){4}, 60000));
        elastic_announce(&job);
        assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
        for (int m = 0; m < 5; m++)
            if (job.members[m].status != (m == 3 ? SIGKILL : 0))
                fail_msg("member %d ended with status %x", m, job.members[m].status);
        for (int m = 0; m < 5; m++) {
            if (m == 3)
                continue;
            assert_int_equal(b->parts[m][STEPS - 1], 16 + 4 + 2 + 1);
            assert_true(b->bits[m][STEPS - 1] == b->bits[0][STEPS - 1]);
        }
        elastic_fini(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one),
        cmocka_unit_test(test_one_of_every_host),
        cmocka_unit_test(test_whole_host),
        cmocka_unit_test(test_comes_back),
    };
    return cmocka_run_group_tests_name("multi/test_gpu_deaths", tests, NULL, NULL);
}
