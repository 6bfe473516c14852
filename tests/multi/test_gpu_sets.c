/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets whose tensors are on GPUs, by NCCL: the ranks launch the operations of all sets that they
 * share in one order, whatever order their programs have. NCCL's operations block the stream until
 * all ranks of the set run them, so two ranks with different orders would wait for each other
 * forever.
 *
 * timeout: 300
 * takes: 20 s
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
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
#include "tests/harness/gpu_job.h"
#include "tests/harness/rank.h"

#define GROUPS  4
#define TENSORS 3 /* of a group in a round */
#define COUNT   2000
#define ROUNDS  (EFFORT_LEAST ? 40 : 120)

/* The groups of a rank: the world, its row and its column of a grid two ranks wide, and its pair
 * with the opposite rank. */
struct grid {
    struct gpu_side *g;
    int rank, size;
    int sets[GROUPS];
    int n[GROUPS]; /* ranks of the group */
    int ranks[GROUPS][16];
};

static int list(int rank, int size, int group, int *ret)
{
    int n = 0;
    for (int r = 0; r < size; r++)
        if (group == 0 || (group == 1 && r / 2 == rank / 2) || (group == 2 && r % 2 == rank % 2) ||
            (group == 3 && r % (size / 2) == rank % (size / 2)))
            ret[n++] = r;
    return n;
}

static int form(struct grid *t, int group)
{
    char name[32];
    t->n[group] = list(t->rank, t->size, group, t->ranks[group]);
    snprintf(name, sizeof(name), "group %d of %d", group, t->ranks[group][0]);
    if (hvd_set_form(name, t->ranks[group], t->n[group], &t->sets[group]) < 0)
        return FAIL("%s", hvd_error());
    return 0;
}

static int open_grid(struct grid *t, struct gpu_side *g, int rank, int size)
{
    int rc = 0;
    *t = (struct grid){.g = g, .rank = rank, .size = size};
    t->n[0] = list(rank, size, 0, t->ranks[0]);
    for (int i = 1; i < GROUPS && rc == 0; i++)
        rc = form(t, i);
    return rc;
}

static size_t place(int group, int tensor)
{
    return ((size_t)group * TENSORS + (size_t)tensor) * COUNT * 4;
}

static float value(int rank, int group, int tensor, int round)
{
    return (float)((rank + 1) * (group + 2) + tensor + round % 50);
}

static int64_t length(int group, int tensor)
{
    return 1 + 97 * group + 613 * tensor;
}

static int submit(struct grid *t, int group, int tensor, int round, hvd_handle *ret)
{
    const int64_t n = length(group, tensor);
    size_t at = place(group, tensor);
    float *host = (float *)(void *)(t->g->host + at);
    char name[16];
    snprintf(name, sizeof(name), "t%d", tensor);
    for (int64_t i = 0; i < n; i++)
        host[i] = value(t->rank, group, tensor, round);
    if (gpu_side_send(t->g, at, (size_t)n * 4) < 0)
        return FAIL("%s", t->g->err.msg);
    struct hvd_request r = gpu_side_request(t->g, HVD_ALLREDUCE, name, HVD_FLOAT32, 1, &n);
    r.set = t->sets[group];
    r.input = r.output = (uint8_t *)t->g->in.at + at;
    return hvd_submit(&r, 1, ret) < 0 ? FAIL("%s", hvd_error()) : 0;
}

static int await(hvd_handle h)
{
    return hvd_wait(h) < 0 ? FAIL("%s", hvd_error()) : 0;
}

static int check(struct grid *t, int group, int tensor, int round)
{
    const int64_t n = length(group, tensor);
    size_t at = place(group, tensor);
    const float *host = (float *)(void *)(t->g->host + at);
    float want = 0;
    if (gpu_side_read(t->g, (uint8_t *)t->g->in.at + at, (size_t)n * 4) < 0)
        return FAIL("%s", t->g->err.msg);
    /* gpu_side_read() reads to the beginning of host */
    host = (float *)(void *)t->g->host;
    for (int i = 0; i < t->n[group]; i++)
        want += value(t->ranks[group][i], group, tensor, round);
    for (int64_t i = 0; i < n; i++)
        if (host[i] != want)
            return FAIL("round %d, group %d, tensor %d: element %d is %f, not %f", round, group,
                        tensor, (int)i, (double)host[i], (double)want);
    return 0;
}

static int one(struct grid *t, int group, int tensor, int round)
{
    hvd_handle h;
    int rc = submit(t, group, tensor, round, &h);
    rc = rc == 0 ? await(h) : rc;
    return rc == 0 ? check(t, group, tensor, round) : rc;
}

/* ---- programs ---- */

/* Every rank submits in an order of its own, which changes, and waits in another one. */
static int disorder(struct gpu_side *g, int rank, int size)
{
    enum { ALL = GROUPS * TENSORS };
    struct grid t;
    uint64_t seed = (uint64_t)rank * 77 + 5;
    int rc = open_grid(&t, g, rank, size);
    for (int k = 0; k < ROUNDS && rc == 0; k++) {
        hvd_handle h[ALL];
        int order[ALL], wait[ALL];
        rank_shuffle(order, ALL, &seed);
        rank_shuffle(wait, ALL, &seed);
        for (int i = 0; i < ALL && rc == 0; i++)
            rc = submit(&t, order[i] % GROUPS, order[i] / GROUPS, k, &h[order[i]]);
        for (int i = 0; i < ALL && rc == 0; i++)
            rc = await(h[wait[i]]);
        for (int i = 0; i < ALL && rc == 0; i++)
            rc = check(&t, i % GROUPS, i / GROUPS, k);
    }
    return rc;
}

/* Each step waits for the one before it, as in a model that is split over ranks. The program has
 * two kinds of phases, with different orders; the ranks of a pair have one of the groups less in
 * the second. */
static int phases(struct gpu_side *g, int rank, int size)
{
    struct grid t;
    int rc = open_grid(&t, g, rank, size);
    for (int k = 0; k < ROUNDS && rc == 0; k++) {
        bool second = k / 20 % 2 != 0;
        for (int i = 0; i < GROUPS && rc == 0; i++) {
            int group = second ? GROUPS - 1 - i : i;
            if (second && group == 3 && rank % (size / 2) == 0)
                continue;
            for (int tensor = 0; tensor < TENSORS && rc == 0; tensor++)
                rc = one(&t, group, tensor, k);
        }
    }
    return rc;
}

/* Groups come and go while others have operations in flight. */
static int comings(struct gpu_side *g, int rank, int size)
{
    struct grid t;
    int rc = open_grid(&t, g, rank, size);
    for (int k = 0; k < ROUNDS / 4 && rc == 0; k++) {
        int renewed = 1 + k % 3, kept = 1 + (k + 1) % 3;
        hvd_handle h[2];
        rc = submit(&t, 0, 0, k, &h[0]);
        if (rc == 0)
            rc = submit(&t, kept, 1, k, &h[1]);
        if (rc == 0 && hvd_set_remove(t.sets[renewed]) < 0)
            rc = FAIL("%s", hvd_error());
        if (rc == 0)
            rc = form(&t, renewed);
        if (rc == 0)
            rc = one(&t, renewed, 2, k);
        for (int i = 1; i >= 0 && rc == 0; i--)
            rc = await(h[i]);
        if (rc == 0)
            rc = check(&t, 0, 0, k);
        if (rc == 0)
            rc = check(&t, kept, 1, k);
    }
    /* A rank that has shut down is missing where others form a set. */
    return rc == 0 && hvd_barrier("end") < 0 ? FAIL("%s", hvd_error()) : rc;
}

/* A pattern of the world alone, then one with sets, then the world alone again. */
static int steady(struct gpu_side *g, int rank, int size)
{
    struct grid t;
    struct hvd_stats before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    int rc = open_grid(&t, g, rank, size);
    for (int k = 0; k < 2 * ROUNDS && rc == 0; k++) {
        if (k == ROUNDS)
            hvd_stats(&before);
        for (int i = 0; i < GROUPS && rc == 0; i++)
            rc = one(&t, i, 0, k);
    }
    hvd_stats(&after);
    /* Once all is frozen no rank negotiates any more. */
    if (rc == 0 && after.negotiated + after.cached > before.negotiated + before.cached)
        rc = FAIL("%d operations were negotiated in the second half",
                  (int)(after.negotiated + after.cached - before.negotiated - before.cached));
    for (int k = 0; k < ROUNDS / 2 && rc == 0; k++)
        rc = one(&t, 0, 0, k);
    return rc;
}

/* ---- tests ---- */

static void run(int (*body)(struct gpu_side *, int, int))
{
    /* No way through the host's memory is allowed here. */
    gpu_job_run(4, gpu_job_nccl("2.27", NULL), (struct gpu_job){"nccl", NULL, 0, -1, body});
    gpu_job_run_on("aabbcc", gpu_job_nccl("2.27", "FAKE_NCCL_POLLS=3"),
                   (struct gpu_job){"nccl", NULL, 50, -1, body});
}

static void test_disorder(void **state)
{
    run(disorder);
}

static void test_phases(void **state)
{
    run(phases);
}

static void test_comings(void **state)
{
    run(comings);
}

static void test_steady(void **state)
{
    run(steady);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disorder),
        cmocka_unit_test(test_phases),
        cmocka_unit_test(test_comings),
        cmocka_unit_test(test_steady),
    };
    return cmocka_run_group_tests_name("multi/gpu_sets", tests, NULL, NULL);
}
