/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_negotiate: any bytes as messages for negotiate on the root, an inner node and a leaf,
 * between submissions, ticks and finished batches. Each operation that it hands out must have been
 * submitted once.
 *
 * Input: u8 node, then steps: u8 what, u8 length, bytes. If the first byte of a message asks for
 * it, the message gets the node's generation, which random bytes would rarely hit.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/negotiate/negotiate_impl.h"

enum { NAMES = 8 };

struct world {
    struct negotiate *n;
    int rank;
    uint64_t ids[NAMES];
    bool under_way[NAMES];
    struct {
        uint64_t ids[NAMES], number;
        size_t n;
        bool bound;
    } queue[NAMES]; /* batches: each has at least one name */
    size_t queued;
    uint64_t next; /* smallest number of the next batch */
    uint64_t now;
    struct signature wanted[NAMES]; /* of names for which ops.wanted was called */
    bool is_wanted[NAMES];
};

static int on_send(void *ctx, int to, const struct buf *msg)
{
    if (msg->failed || msg->len < 9)
        abort();
    return 0;
}

static int find(const struct world *w, uint64_t id)
{
    for (int i = 0; i < NAMES; i++)
        if (w->under_way[i] && w->ids[i] == id)
            return i;
    return -1;
}

static void on_batch(void *ctx, const struct negotiate_batch *batch)
{
    struct world *w = ctx;
    if (batch->n == 0 || batch->n > NAMES || w->queued == NAMES || batch->number < w->next)
        abort();
    for (size_t i = 0; i < batch->n; i++) {
        if (find(w, batch->tensors[i].id) < 0)
            abort();
        w->queue[w->queued].ids[i] = batch->tensors[i].id;
    }
    w->queue[w->queued].number = batch->number;
    w->queue[w->queued].bound = batch->bound;
    w->queue[w->queued++].n = batch->n;
    w->next = batch->number + 1;
}

static bool on_binds(void *ctx, const struct signature *sig)
{
    return sig->device >= 0;
}

static bool on_refuses(void *ctx, const struct signature *sig, struct err *ret_why)
{
    return sig->op == HVD_BXOR && err_set(ret_why, ENOTSUP, "no exclusive or") < 0;
}

static void on_fail(void *ctx, uint64_t id, const struct err *err)
{
    struct world *w = ctx;
    int i = find(w, id);
    if (i < 0 || err->code >= 0)
        abort();
    w->under_way[i] = false;
}

static void forget(struct world *w, size_t at)
{
    memmove(&w->queue[at], &w->queue[at + 1], (--w->queued - at) * sizeof(w->queue[0]));
}

static void on_dropped(void *ctx, uint64_t number)
{
    struct world *w = ctx;
    for (size_t i = 0; i < w->queued; i++) {
        if (w->queue[i].number != number)
            continue;
        if (w->queue[i].bound)
            abort();
        forget(w, i);
        return;
    }
    abort();
}

static void on_thawed(void *ctx)
{
}

static void on_stalled(void *ctx, const char *text)
{
}

/* No name is asked for that is in flight, or was asked for and not submitted. */
static void on_wanted(void *ctx, const char *name, const struct signature *sig)
{
    struct world *w = ctx;
    int i = name[0] == 't' && name[1] && !name[2] ? name[1] - '0' : -1;
    if (i < 0 || i >= NAMES)
        return;
    if (w->under_way[i] || w->is_wanted[i])
        abort();
    w->is_wanted[i] = true;
    w->wanted[i] = *sig;
}

static void on_joined(void *ctx, int last)
{
    struct world *w = ctx;
    if (last < 0 || last > 5)
        abort();
    memset(w->is_wanted, 0, sizeof(w->is_wanted));
}

static void on_waiting_in(void *ctx, char *text, size_t size)
{
    snprintf(text, size, "hvd_wait(t)");
}

/* What this rank has submitted is not missing here. */
static void on_lacks(void *ctx, const char *name)
{
    const struct world *w = ctx;
    int i = name[0] == 't' && name[1] && !name[2] ? name[1] - '0' : -1;
    if (i >= 0 && i < NAMES && w->under_way[i])
        abort();
}

/* The oldest batch, or another one, is done. */
static void done(struct world *w, size_t at)
{
    if (w->queued == 0)
        return;
    at %= w->queued;
    for (size_t i = 0; i < w->queue[at].n; i++)
        w->under_way[find(w, w->queue[at].ids[i])] = false;
    uint64_t number = w->queue[at].number;
    forget(w, at);
    negotiate_done(w->n, number);
}

static void submit(struct world *w, const uint8_t *bytes, size_t len)
{
    int i = len ? bytes[0] % NAMES : 0;
    uint8_t kind = len > 1 ? bytes[1] % HVD_REDUCE : 0;
    int64_t rows = len > 2 ? bytes[2] % 4 : 1;
    char name[4] = {'t', (char)('0' + i), 0};
    struct signature sig = {.kind = kind,
                            .dtype = HVD_FLOAT32,
                            .op = HVD_SUM,
                            .ndim = kind == HVD_BARRIER ? 0 : 1,
                            .device = len > 3 && bytes[3] % 2 ? 0 : -1,
                            .prescale = 1,
                            .postscale = 1,
                            .shape = {kind == HVD_ALLTOALL ? 0 : rows}};
    uint64_t id;
    if (w->under_way[i])
        return;
    w->under_way[i] = true;
    w->is_wanted[i] = false;
    struct negotiate_next next;
    if (negotiate_try_next(w->n, name, &sig, &next)) {
        if (next.number < w->next || w->queued == NAMES)
            abort();
        w->ids[i] = w->queue[w->queued].ids[0] = next.id;
        w->queue[w->queued].number = next.number;
        w->queue[w->queued].bound = false;
        w->queue[w->queued++].n = 1;
        w->next = next.number + 1;
        return;
    }
    /* The batch may come before the call returns, with the id that *ret_id has then. */
    if (negotiate_submit(w->n, name, &sig, w->now, &w->ids[i], NULL) < 0)
        w->under_way[i] = false;
    else if (find(w, w->ids[i]) < 0)
        abort();
    id = w->ids[i];
    negotiate_prioritize(w->n, id, true, w->now);
}

static void submit_wanted(struct world *w)
{
    for (int i = 0; i < NAMES; i++) {
        char name[4] = {'t', (char)('0' + i), 0};
        if (!w->is_wanted[i])
            continue;
        if (!negotiate_wants(w->n, name))
            abort();
        w->is_wanted[i] = false;
        w->under_way[i] = true;
        if (negotiate_submit(w->n, name, &w->wanted[i], w->now, &w->ids[i], NULL) < 0)
            w->under_way[i] = false;
    }
}

static void join(struct world *w, size_t how)
{
    if (how % 4 == 3) {
        submit_wanted(w);
        return;
    }
    if (how % 4 == NEGOTIATE_ACTIVE)
        memset(w->is_wanted, 0, sizeof(w->is_wanted));
    negotiate_join(w->n, (enum negotiate_join)(how % 4));
}

static bool message(struct world *w, int from, const uint8_t *bytes, size_t len)
{
    static uint8_t msg[512];
    if (len == 0)
        return true;
    size_t n = 0;
    msg[n++] = bytes[0] & 0x7f;
    if (bytes[0] & 0x80) {
        uint64_t generation = w->n->generation;
        memcpy(msg + n, &generation, 8);
        n += 8;
    }
    memcpy(msg + n, bytes + 1, len - 1);
    return negotiate_recv(w->n, from, msg, n + len - 1, w->now, NULL) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct negotiate_ops ops = {
        .send = on_send,
        .batch = on_batch,
        .binds = on_binds,
        .refuses = on_refuses,
        .fail = on_fail,
        .dropped = on_dropped,
        .thawed = on_thawed,
        .stalled = on_stalled,
        .waiting_in = on_waiting_in,
        .lacks = on_lacks,
        .wanted = on_wanted,
        .joined = on_joined,
    };
    static const int root_children[] = {1, 3}, inner_children[] = {4, 5};
    struct world w = {.now = 1};
    if (size == 0)
        return 0;
    struct negotiate_config c = {.size = 6,
                                 .fusion_bytes = 64,
                                 .cycle_ns = 10,
                                 .cache_capacity = 4,
                                 .freeze_after = 2,
                                 .stall_ns = 1000,
                                 .stall_shutdown_ns = 3000};
    int role = data[0] % 3;
    c.rank = role == 0 ? 0 : role == 1 ? 3 : 5;
    c.parent = role == 0 ? -1 : role == 1 ? 0 : 3;
    c.children = role == 0 ? root_children : inner_children;
    c.nchildren = role == 2 ? 0 : 2;
    if (negotiate_create(&c, &ops, &w, &w.n, NULL) < 0)
        return 0;
    size_t at = 1;
    while (at + 2 <= size) {
        uint8_t what = data[at] % 8;
        size_t len = data[at + 1];
        at += 2;
        if (len > size - at)
            len = size - at;
        bool ok = true;
        if (what < 2)
            ok = message(&w, c.nchildren ? c.children[what] : NEGOTIATE_PARENT, data + at, len);
        else if (what == 2)
            ok = message(&w, NEGOTIATE_PARENT, data + at, len);
        else if (what == 3)
            submit(&w, data + at, len);
        else if (what == 4)
            negotiate_tick(w.n, w.now += len);
        else if (what == 5)
            done(&w, len);
        else if (what == 7 && len == 255)
            negotiate_end(w.n);
        else if (what == 7)
            join(&w, len);
        else
            negotiate_tick(w.n, w.now += len < 128 ? 1000 : 2000000000);
        if (!ok)
            break; /* undefined from here on: the engine would end */
        if (what < 4)
            at += len;
    }
    negotiate_destroy(w.n);
    return 0;
}
