/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_rendezvous: any bytes as messages for rendezvous on rank 0, an inner node and a leaf,
 * between calls of this rank, ticks and farewells. A caller is told an end at most once, with the
 * bytes of all ranks of its list.
 *
 * Input: u8 node, then steps: u8 what, u8 length, bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/negotiate/negotiate.h"
#include "core/negotiate/rendezvous.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIZE = 6, CALLERS = 4 };

struct caller {
    bool waits;
    int n; /* ranks of its list */
};

struct world {
    struct rendezvous *v;
    struct caller callers[CALLERS];
    uint64_t now;
};

static int on_send(void *ctx, int to, const struct buf *msg)
{
    if (msg->failed || msg->len < 8)
        abort();
    return 0;
}

static void on_end(void *ctx, void *caller, const struct rendezvous_end *end)
{
    struct caller *c = caller;
    if (!c->waits || (!end->err.code && end->n != c->n))
        abort();
    c->waits = false;
    unsigned sum = 0; /* reads every byte */
    for (int i = 0; !end->err.code && i < end->n; i++)
        for (size_t k = 0; k < end->of[i].len; k++)
            sum += end->of[i].data[k];
    if (sum == UINT32_MAX)
        abort();
}

static void enter(struct world *w, int rank, int number)
{
    static const char *const names[CALLERS] = {"a", "b", "a", "c"};
    const int lists[CALLERS][3] = {{rank, 5, 0}, {0, rank, 1}, {rank}, {rank, 4, 3}};
    const int sizes[CALLERS] = {2, 2, 1, 1};
    struct caller *c = &w->callers[number];
    struct err err = {.code = 0};
    const struct rendezvous_point point = {
        .name = names[number], .round = 1, .ranks = lists[number], .n = sizes[number]};
    if (c->waits || (rank == 5 && number == 0) || (rank == 0 && number == 1))
        return;
    c->waits = true;
    c->n = point.n;
    if (rendezvous_enter(w->v, &point, "bytes", 5, 3 * CLOCK_S, w->now, c, &err) < 0)
        c->waits = false;
}

/* false: the node cannot go on. */
static bool step(struct world *w, int rank, const int *peers, uint8_t what, const uint8_t *bytes,
                 size_t len)
{
    struct err err = {.code = 0};
    int number = what >> 3 & 3;
    switch (what & 7) {
    case 0:
    case 1:
        enter(w, rank, number);
        return true;
    case 2:
        w->now += CLOCK_S;
        rendezvous_tick(w->v, w->now);
        return true;
    case 3:
        if ((what >> 3) < SIZE && (what >> 3) != rank)
            rendezvous_departed(w->v, what >> 3);
        return true;
    default:
        return rendezvous_recv(w->v, peers[number], bytes, len, w->now, &err) == 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct rendezvous_ops ops = {.send = on_send, .end = on_end};
    static const struct {
        int rank, parent, children[3], n, peers[4];
    } nodes[] = {{0, -1, {1, 2, 3}, 3, {1, 2, 3, NEGOTIATE_PARENT}},
                 {3, 0, {4, 5}, 2, {NEGOTIATE_PARENT, 4, 5, NEGOTIATE_PARENT}},
                 {5, 3, {0}, 0, {NEGOTIATE_PARENT, NEGOTIATE_PARENT, 4, 0}}};
    struct world w = {.now = 1};
    struct err err = {.code = 0};
    if (size < 1)
        return 0;
    int node = data[0] % 3, rank = nodes[node].rank;
    if (rendezvous_create(SIZE, rank, nodes[node].parent, nodes[node].children, nodes[node].n, 0,
                          &ops, &w, &w.v, &err) < 0)
        abort();
    for (size_t at = 1; at + 2 <= size;) {
        size_t len = data[at + 1];
        len = len < size - at - 2 ? len : size - at - 2;
        if (!step(&w, rank, nodes[node].peers, data[at], data + at + 2, len))
            break;
        at += 2 + len;
    }
    rendezvous_destroy(w.v);
    return 0;
}
