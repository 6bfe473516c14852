/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages whose memory is a GPU's, on the fake driver: all sizes around the limits, from and to
 * GPUs and hosts in all mixes, to oneself, in the world and in a set; many at once; a device that
 * stands still while other messages and sums go on; what is refused; copies and allocations that
 * fail; a shutdown and a removal of a set with messages in flight. Messages on GPUs in elastic jobs
 * are in test_elastic_messages.c.
 *
 * timeout: 120
 * takes: 4 s
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/gpu_job.h"
#include "tests/harness/effort.h"
#include "tests/harness/rank.h"

#define BULK ((size_t)1 << (EFFORT_LEAST ? 19 : 20))

static const size_t sizes[] = {0, 1, 16384, 16385, BULK, BULK + 1, 3 * BULK + 5};

enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static uint8_t byte_of(int from, int to, int k, size_t i)
{
    return (uint8_t)((size_t)(from * 37 + to * 11 + k * 5) + i * 3 + (i >> 10));
}

static void fill(uint8_t *data, int from, int to, int k, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = byte_of(from, to, k, i);
}

static bool is_whole(const uint8_t *data, int from, int to, int k, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != byte_of(from, to, k, i))
            return false;
    return true;
}

static int expect(int rc, int want, const char *text)
{
    if (rc != want || !strstr(hvd_error(), text))
        return FAIL("%d (%s), not %d (%s)", rc, hvd_error(), want, text);
    return 0;
}

/* A message with memory on the GPU. */
static struct hvd_message on_gpu(const struct gpu_side *g, enum hvd_direction direction, int peer,
                                 int tag, void *data, size_t bytes)
{
    return (struct hvd_message){.direction = direction,
                                .peer = peer,
                                .tag = tag,
                                .device = g->d->ordinal,
                                .data = data,
                                .bytes = (int64_t)bytes,
                                .stream = g->stream};
}

/* ---- all sizes and mixes --------------------------------------------------------------------- */

/* The messages of a round between two ranks; size k has tag k. */
struct letters {
    struct hvd_message sends[SIZES], receives[SIZES];
    struct hvd_arrival arrivals[SIZES];
    uint8_t *host[2]; /* of those that are in host memory */
};

/* Whether an end of message k is on a GPU: all four mixes of ends are tried in four rounds. */
static bool is_on_gpu(int k, int round, bool sends)
{
    return ((k + round) >> !sends & 1) == 0;
}

static void address(struct gpu_side *g, struct letters *l, int to, int from, int set, int round)
{
    size_t at = 0;
    for (int k = 0; k < SIZES; k++, at += sizes[k - 1]) {
        struct hvd_message s = on_gpu(g, HVD_SEND, to, k, (uint8_t *)g->in.at + at, sizes[k]);
        struct hvd_message r = on_gpu(g, HVD_RECV, from, k, (uint8_t *)g->out.at + at, sizes[k]);
        s.set = r.set = set;
        r.ret_arrival = &l->arrivals[k];
        if (!is_on_gpu(k, round, true)) {
            s.device = -1;
            s.data = l->host[0] + at;
        }
        if (!is_on_gpu(k, round, false)) {
            r.device = -1;
            r.data = l->host[1] + at;
        }
        l->sends[k] = s;
        l->receives[k] = r;
    }
}

static int check_letters(struct gpu_side *g, const struct letters *l, int me, int from)
{
    size_t at = 0;
    if (gpu_side_read(g, g->out.at, g->room) < 0)
        return FAIL("%s", g->err.msg);
    for (int k = 0; k < SIZES; k++, at += sizes[k - 1]) {
        const uint8_t *data = (l->receives[k].device < 0 ? l->host[1] : g->host) + at;
        if (l->arrivals[k].peer != from || l->arrivals[k].bytes != (int64_t)sizes[k])
            return FAIL("%d bytes of rank %d", (int)l->arrivals[k].bytes, l->arrivals[k].peer);
        if (!is_whole(data, from, me, k, sizes[k]))
            return FAIL("a message of %zu bytes from %d is damaged, sends on GPU %d, receives %d",
                        sizes[k], from, l->sends[k].device, l->receives[k].device);
    }
    return 0;
}

static int exchange(struct gpu_side *g, struct letters *l, int set, int distance, int round)
{
    int size = 0, me, ranks[8];
    size = set ? hvd_set_ranks(set, ranks, 8) : hvd_size();
    me = set ? hvd_set_rank(set) : hvd_rank();
    int to = (me + distance) % size, from = (me + size - distance) % size;
    hvd_handle h[2][SIZES];
    size_t at = 0;
    for (int k = 0; k < SIZES; k++, at += sizes[k - 1]) {
        fill(g->host + at, me, to, k, sizes[k]);
        fill(l->host[0] + at, me, to, k, sizes[k]);
    }
    address(g, l, to, from, set, round);
    if (gpu_side_send(g, 0, g->room) < 0)
        return FAIL("%s", g->err.msg);
    const struct hvd_message *first = me % 2 ? l->sends : l->receives;
    const struct hvd_message *second = me % 2 ? l->receives : l->sends;
    if (hvd_exchange(first, SIZES, h[0]) < 0 || hvd_exchange(second, SIZES, h[1]) < 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < 2 * SIZES; k++)
        if (hvd_wait(h[k % 2][k / 2]) < 0)
            return FAIL("%s", hvd_error());
    return check_letters(g, l, me, from);
}

static int all_sizes(struct gpu_side *g, int rank, int size)
{
    int ranks[8], set = 0, rc = 0;
    struct letters *l = calloc(1, sizeof(*l));
    l->host[0] = malloc(g->room);
    l->host[1] = malloc(g->room);
    for (int i = 0; i < size; i++)
        ranks[i] = size - 1 - i;
    if (hvd_set_add(ranks, size, &set) < 0)
        return FAIL("%s", hvd_error());
    for (int round = 0; round < 4 && rc == 0; round++)
        for (int d = 0; d < size && rc == 0; d++)
            rc = exchange(g, l, (round + d) % 2 ? set : 0, d, round);
    if (rc == 0 && hvd_set_remove(set) < 0)
        rc = FAIL("%s", hvd_error());
    free(l->host[0]);
    free(l->host[1]);
    free(l);
    return rc;
}

static void test_sizes(void **state)
{
    gpu_job_run(3, gpu_job_fallback, (struct gpu_job){.gpu = -1, .body = all_sizes});
    gpu_job_run_on("aab", NULL, (struct gpu_job){.gpu = -1, .body = all_sizes, .delay_us = 50});
    gpu_job_run(1, NULL, (struct gpu_job){.gpu = 0, .body = all_sizes});
}

/* ---- many at once ---------------------------------------------------------------------------- */

enum { MANY = 50, EACH = 150000 };

/* More messages than there are parts, in both directions, received in the other order. */
static int many(struct gpu_side *g, int rank, int size)
{
    struct hvd_message m[2 * MANY];
    hvd_handle h[2 * MANY];
    const int peer = 1 - rank;
    for (int k = 0; k < MANY; k++)
        fill(g->host + (size_t)k * EACH, rank, peer, k, EACH);
    if (gpu_side_send(g, 0, (size_t)MANY * EACH) < 0)
        return FAIL("%s", g->err.msg);
    for (int i = 0; i < MANY; i++) {
        const int k = MANY - 1 - i;
        m[i] = on_gpu(g, HVD_SEND, peer, i, (uint8_t *)g->in.at + (size_t)i * EACH, EACH);
        m[MANY + i] = on_gpu(g, HVD_RECV, peer, k, (uint8_t *)g->out.at + (size_t)k * EACH, EACH);
    }
    if (hvd_exchange(m, (size_t)2 * MANY, h) < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < 2 * MANY; i++)
        if (hvd_wait(h[i]) < 0)
            return FAIL("%s", hvd_error());
    if (gpu_side_read(g, g->out.at, (size_t)MANY * EACH) < 0)
        return FAIL("%s", g->err.msg);
    for (int k = 0; k < MANY; k++)
        if (!is_whole(g->host + (size_t)k * EACH, peer, rank, k, EACH))
            return FAIL("message %d is damaged", k);
    return 0;
}

static void test_many(void **state)
{
    gpu_job_run(2, NULL, (struct gpu_job){.gpu = -1, .body = many});
    gpu_job_run_on("ab", NULL, (struct gpu_job){.gpu = -1, .body = many});
}

/* ---- a device that stands still -------------------------------------------------------------- */

/* While nothing on the GPU ends, sums and messages of the host go on, also those that were
 * submitted later to the same rank. A stream that waits for a message waits on the host. */
static int stands_still(struct gpu_side *g, int rank, int size)
{
    const int peer = 1 - rank;
    const size_t n = 2 * BULK + 7;
    uint8_t out[100], in[100];
    hvd_handle h[2];
    int rc = 0;
    fill(g->host, rank, peer, 1, n);
    g->fake->stall(true);
    const struct hvd_message m[] = {on_gpu(g, HVD_SEND, peer, 1, g->in.at, n),
                                    on_gpu(g, HVD_RECV, peer, 1, g->out.at, n)};
    if (gpu_side_send(g, 0, n) < 0 || hvd_exchange(m, 2, h) < 0)
        return FAIL("%s %s", g->err.msg, hvd_error());
    for (int i = 0; i < 20 && rc == 0; i++) {
        float x = 1;
        const struct hvd_message s = {
            .direction = HVD_SEND, .peer = peer, .tag = 2, .device = -1, .data = out, .bytes = 100};
        hvd_handle sent;
        fill(out, rank, peer, i, 100);
        if (hvd_exchange(&s, 1, &sent) < 0 || hvd_recv(in, 100, peer, 2, 0, NULL) < 0 ||
            hvd_wait(sent) < 0 || hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM) < 0)
            rc = FAIL("%s", hvd_error());
        if (rc == 0 && (x != 2 || !is_whole(in, peer, rank, i, 100)))
            rc = FAIL("round %d", i);
        if (rc == 0 && (hvd_poll(h[0]) != 0 || hvd_poll(h[1]) != 0))
            rc = FAIL("a message of a device that stands still has ended");
    }
    g->fake->stall(false);
    if (rc == 0 && (hvd_wait_stream(h[1], g->stream) < 0 || hvd_wait(h[0]) < 0 ||
                    hvd_wait(h[1]) < 0 || gpu_side_read(g, g->out.at, n) < 0))
        rc = FAIL("%s %s", g->err.msg, hvd_error());
    return rc == 0 && !is_whole(g->host, peer, rank, 1, n) ? FAIL("it is damaged") : rc;
}

static void test_stands_still(void **state)
{
    gpu_job_run(2, NULL, (struct gpu_job){.gpu = -1, .body = stands_still});
    gpu_job_run_on("ab", NULL, (struct gpu_job){.gpu = -1, .body = stands_still});
}

/* ---- errors ---------------------------------------------------------------------------------- */

static int refused(struct gpu_side *g, int rank, int size)
{
    hvd_handle h[2];
    uint8_t host[10];
    struct hvd_message m[] = {on_gpu(g, HVD_SEND, rank, 1, g->in.at, 10),
                              on_gpu(g, HVD_RECV, rank, 1, host, 10)};
    int rc = expect(hvd_exchange(m, 2, h), -EINVAL, "is in the host's memory, not on GPU");
    m[1].device = -2;
    rc = rc ? rc : expect(hvd_exchange(m, 2, h), -EINVAL, "device is -2");
    m[1] = on_gpu(g, HVD_RECV, rank, 1, g->out.at, 10);
    g->fake->capture(g->stream, 1);
    rc = rc ? rc : expect(hvd_exchange(m, 2, h), -EBUSY, "captured");
    g->fake->capture(g->stream, 0);
    m[1].bytes = 9;
    if (rc == 0 && hvd_exchange(m, 2, h) < 0)
        rc = FAIL("%s", hvd_error());
    rc = rc ? rc : expect(hvd_wait(h[1]), -EMSGSIZE, "there is room for 9");
    return rc == 0 && hvd_wait(h[0]) < 0 ? FAIL("%s", hvd_error()) : rc;
}

static void test_refused(void **state)
{
    gpu_job_run(1, NULL, (struct gpu_job){.gpu = 0, .body = refused});
}

/* Of rank 1 each receive fails, and ends when the whole message has come. Its sender, and what
 * follows it, know nothing of it. */
static int receive_fails(struct gpu_side *g, int rank, int size)
{
    const size_t n = 3 * BULK;
    hvd_handle h;
    uint8_t host[8];
    struct hvd_message m = on_gpu(g, rank ? HVD_RECV : HVD_SEND, 1 - rank, 4, g->in.at, n);
    for (int i = 0; i < 3; i++) {
        m.bytes = i == 1 ? 100 : (int64_t)n;
        if (hvd_exchange(&m, 1, &h) < 0)
            return FAIL("%s", hvd_error());
        int rc = hvd_wait(h);
        if (rank == 1 && expect(rc, -EINVAL, "cuMemcpyHtoDAsync") != 0)
            return 1;
        if (rank == 0 && rc < 0)
            return FAIL("%s", hvd_error());
    }
    if ((rank ? hvd_recv(host, 8, 0, 4, 0, NULL) : hvd_send("so long", 8, 1, 4, 0)) < 0)
        return FAIL("%s", hvd_error());
    return 0;
}

static int receive_fails_in_rank_1(struct gpu_side *g, int rank, int size)
{
    setenv("FAKE_CUDA", rank ? "cuMemcpyHtoDAsync_v2=1" : "", 1);
    return receive_fails(g, rank, size);
}

static void test_receive_fails(void **state)
{
    gpu_job_run(2, NULL, (struct gpu_job){.gpu = -1, .body = receive_fails_in_rank_1});
    gpu_job_run_on("ab", NULL, (struct gpu_job){.gpu = -1, .body = receive_fails_in_rank_1});
}

/* Without memory for the parts each message fails by itself; those of the host go on. */
static int no_locked_memory(struct gpu_side *g, int rank, int size)
{
    hvd_handle h[2];
    uint8_t in[8];
    setenv("FAKE_CUDA", "cuMemHostAlloc=2", 1);
    const struct hvd_message m[] = {on_gpu(g, HVD_SEND, 1 - rank, 1, g->in.at, 10),
                                    on_gpu(g, HVD_RECV, 1 - rank, 1, g->out.at, 10)};
    if (hvd_exchange(m, 2, h) < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < 2; i++)
        if (expect(hvd_wait(h[i]), -ENOMEM, "locked memory of the host") != 0)
            return 1;
    setenv("FAKE_CUDA", "", 1);
    int rc = rank ? hvd_send("so long", 8, 0, 2, 0) : hvd_recv(in, 8, 1, 2, 0, NULL);
    return rc < 0 ? FAIL("%s", hvd_error()) : many(g, rank, size);
}

static void test_no_locked_memory(void **state)
{
    gpu_job_run(2, NULL, (struct gpu_job){.gpu = -1, .body = no_locked_memory});
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* A message in flight keeps a set. Then this rank shuts down in the middle of copies, and fails
 * what is in flight; gpu_job checks that nothing stays on the GPU. */
static int ends(struct gpu_side *g, int rank, int size)
{
    const int ranks[] = {0, 1};
    struct hvd_message m[] = {on_gpu(g, HVD_SEND, 1 - rank, 1, g->in.at, g->room),
                              on_gpu(g, HVD_RECV, 1 - rank, rank, g->out.at, g->room)};
    hvd_handle h[2];
    int set, rc;
    if (hvd_set_add(ranks, 2, &set) < 0)
        return FAIL("%s", hvd_error());
    m[0].set = m[1].set = set;
    g->fake->delay(300);
    if (hvd_exchange(m, 2, h) < 0) /* only that of rank 0 to rank 1 has both ends */
        return FAIL("%s", hvd_error());
    rc = expect(hvd_set_remove(set), -EBUSY, "in flight");
    if (rc == 0 && rank == 0)
        nap_ms(3);
    if (rc == 0 && hvd_shutdown() < 0)
        rc = FAIL("%s", hvd_error());
    return rc == 0 && hvd_init() < 0 ? FAIL("%s", hvd_error()) : rc;
}

static void test_ends(void **state)
{
    gpu_job_run(2, NULL, (struct gpu_job){.gpu = -1, .body = ends});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),         cmocka_unit_test(test_many),
        cmocka_unit_test(test_stands_still),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_receive_fails), cmocka_unit_test(test_no_locked_memory),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests_name("multi/gpu_messages", tests, NULL, NULL);
}
