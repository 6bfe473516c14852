/* SPDX-License-Identifier: Apache-2.0
 *
 * order: each allocation of a root and of a leaf fails once, from their creation to a pattern, a
 * thaw that leaves operations, and a second pattern.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/negotiate/order_impl.h"
#include "tests/harness/fail_alloc.h"

enum { MESSAGES = 64, BYTES = 512, FIRST = 7, SECOND = 8 };

struct node {
    struct node *peer;
    struct order *o;
    uint8_t in[MESSAGES][BYTES];
    size_t len[MESSAGES];
    int first, n;
};

static int on_send(void *ctx, int to, const struct buf *msg)
{
    struct node *peer = ((struct node *)ctx)->peer;
    int at = (peer->first + peer->n++) % MESSAGES;
    if (msg->len > BYTES || peer->n > MESSAGES)
        abort();
    memcpy(peer->in[at], msg->data, msg->len);
    peer->len[at] = msg->len;
    return 0;
}

/* Messages, launches and the end of operations, until nothing more happens. */
static int settle(struct node *nodes)
{
    for (int round = 0; round < 8; round++)
        for (int r = 0; r < 2; r++) {
            struct node *n = &nodes[r];
            uint64_t group;
            struct err err;
            for (; n->n; n->n--, n->first = (n->first + 1) % MESSAGES) {
                int rc = order_recv(n->o, r ? NEGOTIATE_PARENT : 1, n->in[n->first],
                                    n->len[n->first], &err);
                if (rc < 0)
                    return rc;
            }
            while (order_next(n->o, &group))
                order_launched(n->o, group);
            order_drained(n->o);
            order_tick(n->o);
            if (order_failed(n->o))
                return order_failed(n->o);
        }
    return 0;
}

/* Both ranks announce an operation of each group. */
static int step(struct node *nodes)
{
    for (int r = 0; r < 2; r++)
        for (uint64_t g = FIRST; g <= SECOND; g++)
            if (order_ready(nodes[r].o, g, 2, g) < 0)
                return order_failed(nodes[r].o);
    return settle(nodes);
}

/* Rank 0 is ahead when rank 1 leaves the pattern. */
static int leave(struct node *nodes)
{
    uint64_t group;
    for (uint64_t g = FIRST; g <= SECOND; g++)
        if (order_ready(nodes[0].o, g, 2, g) < 0)
            return order_failed(nodes[0].o);
    while (order_next(nodes[0].o, &group))
        order_launched(nodes[0].o, group);
    if (order_ready(nodes[1].o, SECOND, 2, SECOND) < 0 ||
        order_ready(nodes[1].o, FIRST, 2, FIRST) < 0)
        return order_failed(nodes[1].o);
    return settle(nodes);
}

static int run(struct node *nodes)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < 8; i++)
        rc = step(nodes);
    if (rc == 0 && !nodes[0].o->frozen)
        return -1;
    if (rc == 0)
        rc = leave(nodes);
    for (int i = 0; rc == 0 && i < 12; i++)
        rc = step(nodes);
    if (rc < 0)
        return rc;
    for (int r = 0; r < 2; r++) {
        struct order_stats stats;
        order_get_stats(nodes[r].o, &stats);
        if (!nodes[r].o->frozen || stats.thaws != 2 || stats.logged + stats.frozen != 42)
            return -1;
        order_drop(nodes[r].o, FIRST);
    }
    return settle(nodes);
}

static int once(void)
{
    static const struct order_ops ops = {.send = on_send};
    static const int child = 1;
    static struct node nodes[2];
    int rc = 0;
    memset(nodes, 0, sizeof(nodes));
    for (int r = 0; rc == 0 && r < 2; r++) {
        struct order_config config = {.rank = r,
                                      .size = 2,
                                      .parent = r - 1,
                                      .children = &child,
                                      .nchildren = 1 - r,
                                      .freeze_after = 2};
        struct err err;
        nodes[r].peer = &nodes[1 - r];
        rc = order_create(&config, &ops, &nodes[r], &nodes[r].o, &err);
    }
    if (rc == 0)
        rc = run(nodes);
    for (int r = 0; r < 2; r++)
        order_destroy(nodes[r].o);
    return rc;
}

static void test_alloc(void **state)
{
    fail_alloc.own = true;
    assert_int_equal(fail_alloc_walk("order", once), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alloc)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
