/* SPDX-License-Identifier: Apache-2.0
 *
 * exact: allreduces of the same numbers must give the same bits on every worker and every time. See
 * workers.h. This finds machines whose memory, processor or network card silently corrupts bytes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/include/hvd.h"
#include "diagnostics/answer.h"
#include "diagnostics/workers/workers.h"

#define COUNT   (1 << 20) /* floats: 4 MiB */
#define TEST_MS 3000
#define SEEDS   4
#define ROUNDS  1000

static void fill(float *data, int rank, int seed)
{
    uint32_t x = 2463534242u ^ (uint32_t)(rank * 7919 + seed * 104729 + 1);
    for (int i = 0; i < COUNT; i++) {
        x ^= x << 13; /* xorshift32, Marsaglia 2003 */
        x ^= x >> 17;
        x ^= x << 5;
        data[i] = (float)(int32_t)x * 0x1p-31f;
    }
}

struct exact {
    int rank, size;
    float *in, *out;
    uint64_t first[SEEDS]; /* hash of the sum in the first round of each input */
    int rounds;
    int64_t *all; /* [size], hashes of the last round */
    char differ[128];
};

static void compare(struct exact *e, int seed)
{
    for (int r = 1; r < e->size && !e->differ[0]; r++)
        if (e->all[r] != e->all[0])
            snprintf(e->differ, sizeof(e->differ), "worker %d has other bits than worker 0", r);
    if (e->rounds < SEEDS)
        e->first[seed] = (uint64_t)e->all[e->rank];
    else if ((uint64_t)e->all[e->rank] != e->first[seed] && !e->differ[0])
        snprintf(e->differ, sizeof(e->differ),
                 "worker %d: a repeated sum of the same numbers has other bits", e->rank);
}

/* Makes one sum. *ret_more: rank 0's clock leaves time for another one. */
static int one_round(struct exact *e, int64_t more, bool *ret_more, struct err *err)
{
    struct buf mine = {0}, all = {0};
    int seed = e->rounds % SEEDS;
    fill(e->in, e->rank, seed);
    int rc = hvd_allreduce("doctor.sum", e->in, e->out, COUNT, HVD_FLOAT32, HVD_SUM);
    if (rc < 0)
        return err_set(err, -rc, "%s", hvd_error());
    buf_put_u64(&mine, hash_bytes(e->out, COUNT * sizeof(float)));
    rc = workers_gather("doctor.bits", &mine, &all, err);
    if (rc == 0 && all.len == (size_t)e->size * 8) {
        struct reader r = reader_over(all.data, all.len);
        for (int i = 0; i < e->size; i++)
            e->all[i] = (int64_t)reader_u64(&r);
        compare(e, seed);
        e->rounds++;
        rc = hvd_broadcast("doctor.more", &more, 1, HVD_INT64, 0);
        *ret_more = more != 0;
        if (rc < 0)
            err_set(err, -rc, "%s", hvd_error());
    }
    buf_fini(&mine);
    buf_fini(&all);
    return rc;
}

int workers_exact(int rank, int size, struct buf *out, struct err *err)
{
    struct exact e = {.rank = rank, .size = size};
    uint64_t deadline = deadline_in_ms(TEST_MS);
    bool more = true;
    int rc = 0;
    e.in = malloc(COUNT * sizeof(float));
    e.out = malloc(COUNT * sizeof(float));
    e.all = calloc((size_t)size, sizeof(*e.all));
    if (!e.in || !e.out || !e.all)
        rc = err_set(err, ENOMEM, "no memory for a sum");
    while (rc == 0 && more)
        rc = one_round(&e, e.rounds < ROUNDS && (e.rounds < SEEDS || !deadline_passed(deadline)),
                       &more, err);
    if (rank == 0) {
        answer_put(out, "exact.rounds", "%d", e.rounds);
        answer_put(out, "exact.bytes", "%zu", COUNT * sizeof(float));
    }
    if (e.differ[0])
        answer_put_at(out, "worker", rank, "differ", "%s", e.differ);
    free(e.in);
    free(e.out);
    free(e.all);
    return rc;
}
