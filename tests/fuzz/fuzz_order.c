/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_order: any bytes as messages for order on the root, an inner node and a leaf, between calls
 * of the engine. What it lets this rank launch must have been announced, in the order of its group.
 *
 * Input: u8 node, then steps: u8 what, u8 length, bytes. If the first byte of a message asks for
 * it, the message gets the generation that the node expects, which random bytes would rarely hit.
 */
#include <stdlib.h>
#include <string.h>

#include "core/negotiate/order_impl.h"

enum { GROUPS = 4, SIZE = 6 };

static const int sizes[GROUPS] = {SIZE, 2, 3, 2}; /* group 0 is the world */

struct world {
    struct order *o;
    uint64_t ready[GROUPS], launched[GROUPS];
    bool dropped[GROUPS];
};

static int on_send(void *ctx, int to, const struct buf *msg)
{
    if (msg->failed || msg->len < 9)
        abort();
    return 0;
}

static void ready(struct world *w, uint8_t how)
{
    int g = how % GROUPS;
    uint64_t key = 1 + how / GROUPS % 2;
    if (w->dropped[g])
        return;
    w->ready[g]++;
    if (how & 0x80)
        order_ready_early(w->o, (uint64_t)g, sizes[g], key);
    else
        order_ready(w->o, (uint64_t)g, sizes[g], key);
}

static void launch(struct world *w, uint8_t most)
{
    uint64_t g;
    for (int i = 0; i <= most % 8 && order_next(w->o, &g); i++) {
        if (g >= GROUPS || w->dropped[g] || w->launched[g] >= w->ready[g])
            abort();
        w->launched[g]++;
        order_launched(w->o, g);
    }
}

static void drop(struct world *w, uint8_t group)
{
    int g = group % GROUPS;
    if (g == 0)
        return;
    w->dropped[g] = true;
    order_drop(w->o, (uint64_t)g);
}

static bool message(struct world *w, int from, const uint8_t *bytes, size_t len)
{
    static uint8_t msg[512];
    struct err err = {.code = 0};
    if (len == 0)
        return true;
    size_t n = 0;
    uint8_t type = bytes[0] & 0x7f;
    msg[n++] = type;
    if (bytes[0] & 0x80) {
        uint64_t generation = w->o->generation + (type == ORDER_PATTERN || type == ORDER_THAW);
        memcpy(msg + n, &generation, 8);
        n += 8;
    }
    memcpy(msg + n, bytes + 1, len - 1);
    return order_recv(w->o, from, msg, n + len - 1, &err) == 0;
}

/* false: the node cannot go on. */
static bool step(struct world *w, const int *peers, uint8_t what, const uint8_t *bytes, size_t len)
{
    switch (what % 8) {
    case 0:
    case 1:
    case 2:
        return message(w, peers[what % 8], bytes, len);
    case 3:
        for (size_t i = 0; i < len; i++)
            ready(w, bytes[i]);
        return order_failed(w->o) == 0;
    case 4:
        launch(w, (uint8_t)len);
        return true;
    case 5:
        order_drained(w->o);
        return order_failed(w->o) == 0;
    case 6:
        drop(w, (uint8_t)len);
        return order_failed(w->o) == 0;
    default:
        order_tick(w->o);
        return order_failed(w->o) == 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct order_ops ops = {.send = on_send};
    static const struct {
        int rank, parent, children[2], n, peers[3];
    } nodes[] = {{0, -1, {1, 3}, 2, {1, 3, NEGOTIATE_PARENT}},
                 {3, 0, {4, 5}, 2, {4, 5, NEGOTIATE_PARENT}},
                 {5, 3, {0}, 0, {NEGOTIATE_PARENT, 4, NEGOTIATE_PARENT}}};
    struct world w = {.o = NULL};
    if (size == 0)
        return 0;
    int node = data[0] % 3;
    const struct order_config config = {.rank = nodes[node].rank,
                                        .size = SIZE,
                                        .parent = nodes[node].parent,
                                        .children = nodes[node].children,
                                        .nchildren = nodes[node].n,
                                        .freeze_after = 2};
    if (order_create(&config, &ops, &w, &w.o, NULL) < 0)
        return 0;
    for (size_t at = 1; at + 2 <= size;) {
        uint8_t what = data[at];
        size_t len = data[at + 1], left = size - at - 2;
        len = len < left ? len : left;
        if (!step(&w, nodes[node].peers, what, data + at + 2, len))
            break; /* undefined from here on: the engine would end */
        at += 2 + (what % 8 < 4 ? len : 0);
    }
    order_destroy(w.o);
    return 0;
}
