/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_p2p: any frames of a peer, in any pieces, between submissions of this rank. Each operation
 * ends at most once; at the end all have ended. This file has its own links, which carry the input.
 *
 * Input: u8 what, then as step() says.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/p2p/p2p_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OPS = 12, ROOM = 40000 };

struct link {
    int peer;
};

static struct {
    const uint8_t *at, *end;
    struct link links[3];
    struct mesh mesh;
    struct p2p_op ops[OPS];
    bool in_flight[OPS];
    uint8_t data[OPS][ROOM];
    uint8_t *parts[OPS]; /* of operations that are staged, in P2P_PART bytes */
    bool opened[OPS], flying[OPS];
} w;

static unsigned next(void)
{
    return w.at < w.end ? *w.at++ : 0;
}

/* ---- links ---------------------------------------------------------------------------------- */

struct link *mesh_link(struct mesh *mesh, int peer, enum link_class cls)
{
    return &w.links[peer];
}

struct link *mesh_incoming(struct mesh *mesh, int peer)
{
    return &w.links[peer];
}

bool mesh_has_left(const struct mesh *mesh, int rank)
{
    return false;
}

void xfer_start(struct xfer *x, struct link *link, uint64_t tag, void *data, size_t len)
{
    *x = (struct xfer){.link = link, .tag = tag, .data = data, .len = len};
}

/* Reads every byte that it sends. */
int xfer_send(struct xfer *x, size_t ready)
{
    unsigned sum = 0;
    for (size_t i = 0; i < ready; i += 997)
        sum += x->data[i];
    x->done = x->len;
    return sum < UINT32_MAX && next() % 4 == 3;
}

/* Ids that are no numbers of operations: GRANT_COPIES, GRANT_FLIES. */
static void make_grant(uint8_t *id)
{
    unsigned what = next() % 4;
    if (what < 2)
        return;
    memset(id, 0xff, 8);
    id[0] = what == 2 ? 0xff : 0xfe;
}

static void make_special(struct xfer *x)
{
    enum frame type = (enum frame)(x->tag >> 56);
    if (type == FRAME_GRANT && x->len == 8)
        make_grant(x->data);
    if (type == FRAME_REQUEST && x->len == 24 && next() % 2) {
        memset(x->data + 16, 0, 8);
        x->data[16] = REQUEST_FLIES;
    }
}

int xfer_recv(struct xfer *x)
{
    for (; x->done < x->len; x->done++) {
        if (next() % 128 == 127)
            return 1;
        x->data[x->done] = (uint8_t)(next() % 8);
        if (w.at == w.end) { /* the rest of a long message */
            memset(x->data + x->done, 0, x->len - x->done);
            x->done = x->len;
            return 0;
        }
    }
    make_special(x);
    return 0;
}

int link_peek(struct link *link, uint64_t *ret_tag, uint64_t *ret_len)
{
    static const uint64_t lengths[] = {0, 1, 8, 24, 32, 100, P2P_EAGER, P2P_EAGER + 1};
    if (w.end - w.at < 3)
        return 1;
    unsigned type = next();
    if (type == 255)
        return -104;
    *ret_tag = frame_tag((enum frame)(type % 9), next() % 5);
    *ret_len = lengths[next() % 8];
    if (type % 9 == FRAME_REQUEST)
        *ret_len = 24;
    if (type % 9 == FRAME_GRANT || type % 9 == FRAME_AT)
        *ret_len = 8;
    if (type % 9 == FRAME_CREDIT)
        *ret_len = 16;
    return 0;
}

/* ---- this rank ------------------------------------------------------------------------------ */

static uint8_t **part_of(struct p2p_op *op)
{
    if (!op->staged || !w.in_flight[op - w.ops])
        abort();
    return &w.parts[op - w.ops];
}

static void drop(void *ctx, struct p2p_op *op)
{
    free(*part_of(op));
    *part_of(op) = NULL;
    w.flying[op - w.ops] = false;
}

static bool can_fly(void *ctx, const struct p2p_op *op, size_t bytes)
{
    return op->staged && next() % 2;
}

static void fly(void *ctx, struct p2p_op *op)
{
    if (*part_of(op) || w.flying[op - w.ops] || op->moved > 0)
        abort();
    w.flying[op - w.ops] = true;
}

/* A part of its own length, so that a sanitizer sees each access beyond it. */
static const uint8_t *fetch(void *ctx, struct p2p_op *op)
{
    size_t left = op->bytes - op->moved, n = left < P2P_PART ? left : P2P_PART;
    if (next() % 2)
        return NULL;
    drop(ctx, op);
    return *part_of(op) = calloc(1, n + (n == 0));
}

static void sent(void *ctx, struct p2p_op *op)
{
    if (!*part_of(op))
        abort();
    drop(ctx, op);
}

static bool opens(void *ctx, struct p2p_op *op)
{
    return w.opened[op - w.ops] |= next() % 2;
}

static uint8_t *room(void *ctx, struct p2p_op *op)
{
    if (op->sends || *part_of(op) || !w.opened[op - w.ops])
        abort();
    return next() % 2 ? NULL : (*part_of(op) = malloc(P2P_PART));
}

static void received(void *ctx, struct p2p_op *op, size_t bytes)
{
    if (!*part_of(op) || bytes > P2P_PART || bytes > op->bytes - op->moved)
        abort();
    drop(ctx, op);
}

static const struct p2p_stage stage = {.fetch = fetch,
                                       .sent = sent,
                                       .opens = opens,
                                       .room = room,
                                       .received = received,
                                       .drop = drop,
                                       .can_fly = can_fly,
                                       .fly = fly};

static void on_done(void *ctx, struct p2p_op *op, const struct err *err)
{
    size_t i = (size_t)(op - w.ops);
    if (!w.in_flight[i] || (err && err->code >= 0) || (!err && !op->sends && op->got > op->bytes))
        abort();
    if (op->staged)
        drop(ctx, op);
    if (!err && op->kept && op->got > 0 && op->kept[op->got - 1] > 8)
        abort();
    if (!err)
        free(op->kept);
    if (!err && op->source)
        on_done(ctx, op->source, NULL);
    w.in_flight[i] = false;
}

static void submit(struct p2p *p)
{
    static const size_t sizes[] = {0, 1, 100, P2P_EAGER, P2P_EAGER + 1, ROOM};
    struct err err = {.code = 0};
    unsigned i = next() % OPS, what = next();
    if (w.in_flight[i])
        return;
    bool sends = what & 1;
    w.ops[i] = (struct p2p_op){.sends = sends,
                               .peer = sends || (what & 2) ? (int)(what >> 2 & 3) % 3 : P2P_ANY,
                               .tag = what >> 4 & 3,
                               .data = w.data[i],
                               .bytes = sizes[next() % 6],
                               .staged = next() % 3 == 0};
    if (w.ops[i].staged) /* an address that no access of the host's survives */
        w.ops[i].data = (uint8_t *)16;
    w.opened[i] = false;
    w.in_flight[i] = true;
    if (p2p_submit(p, &w.ops[i], &err) < 0)
        abort();
}

/* The same ranks in another order: rank 0 is this one. */
static void next_epoch(struct p2p *p)
{
    static const int orders[2][3] = {{0, 1, 2}, {0, 2, 1}};
    struct err err = {.code = -EOWNERDEAD};
    p2p_suspend(p);
    submit(p);
    if (next() % 4 == 0)
        p2p_fail(p, 1, &err);
    if (p2p_resume(p, &w.mesh, orders[next() % 2], &err) < 0)
        abort();
}

static void land(struct p2p *p)
{
    unsigned i = next() % OPS;
    if (!w.flying[i])
        return;
    w.flying[i] = false;
    p2p_flown(p, &w.ops[i]);
}

/* false: a peer has failed. */
static bool step(struct p2p *p)
{
    struct err err = {.code = -ESHUTDOWN};
    int peer = -1, rc = 0;
    switch (next() % 8) {
    case 0:
    case 1:
    case 2:
        submit(p);
        return true;
    case 3:
        p2p_fail(p, 1 + (int)(next() % 2), &err);
        return true;
    case 4:
        next_epoch(p);
        return true;
    case 5:
        land(p);
        return true;
    default:
        p2p_progress(p, &peer, &rc);
        if (p2p_oldest(p) && !p2p_is_busy(p))
            abort();
        return rc == 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int host_of[] = {0, 0, 1};
    w.mesh = (struct mesh){.rank = 0, .size = 3, .host_of = host_of, .shm = (struct shm *)host_of};
    struct err err = {.code = -ECONNRESET};
    struct p2p *p;
    memset(&w.in_flight, 0, sizeof(w.in_flight));
    memset(&w.flying, 0, sizeof(w.flying));
    w.at = data;
    w.end = data + size;
    if (p2p_create(&w.mesh, next() & 1, &stage, on_done, NULL, &p, &err) < 0)
        abort();
    while (w.at < w.end && step(p))
        ;
    p2p_fail(p, -1, &err);
    for (int i = 0; i < OPS; i++)
        if (w.in_flight[i])
            abort();
    p2p_destroy(p);
    return 0;
}
