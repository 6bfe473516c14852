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
    struct p2p_op ops[OPS];
    bool in_flight[OPS];
    uint8_t data[OPS][ROOM];
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
    if (type % 9 == FRAME_GRANT || type % 9 == FRAME_CREDIT)
        *ret_len = 8;
    return 0;
}

/* ---- this rank ------------------------------------------------------------------------------ */

static void on_done(void *ctx, struct p2p_op *op, const struct err *err)
{
    size_t i = (size_t)(op - w.ops);
    if (!w.in_flight[i] || (err && err->code >= 0) || (!err && !op->sends && op->got > op->bytes))
        abort();
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
                               .bytes = sizes[next() % 6]};
    w.in_flight[i] = true;
    if (p2p_submit(p, &w.ops[i], &err) < 0)
        abort();
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
    struct mesh mesh = {.rank = 0, .size = 3, .host_of = host_of, .shm = (struct shm *)host_of};
    struct err err = {.code = -ECONNRESET};
    struct p2p *p;
    memset(&w.in_flight, 0, sizeof(w.in_flight));
    w.at = data;
    w.end = data + size;
    if (p2p_create(&mesh, on_done, NULL, &p, &err) < 0)
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
