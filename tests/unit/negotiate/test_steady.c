/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of negotiate's steady state: no allocation and no message while the schedule is frozen, no
 * allocation while only ids are announced.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/negotiate/negotiate.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS 0
#endif
#endif
#ifndef COUNTS
#define COUNTS 1
#endif

static unsigned long allocations;

#if COUNTS
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
    allocations++;
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    allocations++;
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    allocations++;
    return __libc_realloc(p, n);
}
#endif

enum { TENSORS = 50, QUEUE = 64, MESSAGE = 8192 };

struct node {
    struct negotiate *n;
    struct node *peer;
    struct {
        size_t len;
        uint8_t data[MESSAGE];
    } inbox[QUEUE];
    size_t got, taken; /* messages that came into the inbox, and that were taken out of it */
    uint64_t numbers[TENSORS]; /* batches handed out in this round */
    uint64_t batches, tensors, frozen;
};

static int on_send(void *ctx, int to, const struct buf *msg)
{
    struct node *peer = ((struct node *)ctx)->peer;
    assert_true(msg->len <= MESSAGE && peer->got - peer->taken < QUEUE);
    peer->inbox[peer->got % QUEUE].len = msg->len;
    memcpy(peer->inbox[peer->got++ % QUEUE].data, msg->data, msg->len);
    return 0;
}

static void on_batch(void *ctx, const struct negotiate_batch *batch)
{
    struct node *node = ctx;
    node->numbers[node->batches++] = batch->number;
    node->tensors += batch->n;
    node->frozen += batch->frozen;
}

static bool on_binds(void *ctx, const struct signature *sig)
{
    return sig->device >= 0;
}

static void on_fail(void *ctx, uint64_t id, const struct err *err)
{
    fail_msg("%s", err->msg);
}

static void on_dropped(void *ctx, uint64_t number)
{
    fail_msg("batch %llu was dropped", (unsigned long long)number);
}

static void on_thawed(void *ctx)
{
    fail_msg("the schedule was thawed");
}

static void on_stalled(void *ctx, const char *text)
{
}

static void on_waiting_in(void *ctx, char *text, size_t size)
{
}

static void create(struct node *nodes, uint32_t freeze_after)
{
    static const struct negotiate_ops ops = {
        .send = on_send,
        .batch = on_batch,
        .binds = on_binds,
        .fail = on_fail,
        .dropped = on_dropped,
        .thawed = on_thawed,
        .stalled = on_stalled,
        .waiting_in = on_waiting_in,
    };
    static const int child = 1;
    memset(nodes, 0, 2 * sizeof(*nodes));
    for (int i = 0; i < 2; i++) {
        struct negotiate_config c = {.rank = i,
                                     .size = 2,
                                     .parent = i - 1,
                                     .children = &child,
                                     .nchildren = 1 - i,
                                     .fusion_bytes = 1 << 20,
                                     .cycle_ns = 1000,
                                     .cache_capacity = 1000,
                                     .freeze_after = freeze_after};
        nodes[i].peer = &nodes[1 - i];
        assert_int_equal(negotiate_create(&c, &ops, &nodes[i], &nodes[i].n, NULL), 0);
    }
}

static void pump(struct node *nodes, uint64_t now)
{
    for (int k = 0; k < 6; k++) {
        struct node *node = &nodes[k % 2];
        while (node->taken < node->got) {
            size_t at = node->taken++ % QUEUE;
            int from = k % 2 ? NEGOTIATE_PARENT : 1;
            int rc =
                negotiate_recv(node->n, from, node->inbox[at].data, node->inbox[at].len, now, NULL);
            assert_int_equal(rc, 0);
        }
        negotiate_tick(node->n, now);
    }
}

/* Every rank submits all tensors, each rank in another order, then all of them run. */
static void one_round(struct node *nodes, const char (*names)[16], uint64_t *now)
{
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < TENSORS; k++) {
            int at = i ? TENSORS - 1 - k : k;
            struct signature sig = {.kind = at % 5 ? HVD_ALLREDUCE : HVD_BROADCAST,
                                    .dtype = HVD_FLOAT32,
                                    .op = HVD_SUM,
                                    .ndim = 1,
                                    .device = at % 3 == 0 && at % 5 ? 0 : -1,
                                    .prescale = 1,
                                    .postscale = 1,
                                    .shape = {at + 1}};
            uint64_t id;
            assert_int_equal(negotiate_submit(nodes[i].n, names[at], &sig, *now, &id, NULL), 0);
            negotiate_prioritize(nodes[i].n, id, true, *now);
        }
    *now += 100;
    pump(nodes, *now);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(nodes[i].tensors, TENSORS);
        while (nodes[i].batches) /* newest first: bound ones may end before the others */
            negotiate_done(nodes[i].n, nodes[i].numbers[--nodes[i].batches]);
        nodes[i].tensors = 0;
    }
}

static void run(uint32_t freeze_after)
{
    struct node *nodes = test_calloc(2, sizeof(*nodes));
    char names[TENSORS][16];
    uint64_t now = 1;
    for (int k = 0; k < TENSORS; k++)
        snprintf(names[k], sizeof(names[k]), "grad.%d", k);
    create(nodes, freeze_after);
    for (int k = 0; k < 10; k++)
        one_round(nodes, names, &now);
    unsigned long before = allocations;
    size_t messages = nodes[0].got + nodes[1].got;
    for (int k = 0; k < 1000; k++)
        one_round(nodes, names, &now);
    assert_true(before > 0 || !COUNTS);
    assert_int_equal(allocations, before);
    if (freeze_after) {
        assert_int_equal(nodes[0].got + nodes[1].got, messages);
        assert_true(negotiate_frozen(nodes[1].n));
    } else {
        struct negotiate_stats stats;
        negotiate_get_stats(nodes[1].n, &stats);
        assert_int_equal(stats.negotiated, TENSORS);
        assert_int_equal(stats.cached, 1009 * TENSORS);
    }
    negotiate_destroy(nodes[0].n);
    negotiate_destroy(nodes[1].n);
    test_free(nodes);
}

static void test_frozen(void **state)
{
    run(3);
}

static void test_cached(void **state)
{
    run(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_cached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
