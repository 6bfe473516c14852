/* SPDX-License-Identifier: Apache-2.0
 *
 * messages_departed: see messages_departed.h.
 */
#include "core/engine/messages_departed.h"

#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/p2p/p2p.h"

/* How long after its farewell, and after the last bytes, a rank's messages may still arrive. */
#define DEPARTED_NS (1 * CLOCK_S)
/* The same for what NCCL runs, which cannot be taken back, and may wait on the GPU behind
 * operations with other ranks. */
#define ALOFT_NS (600 * CLOCK_S)

/* NCCL runs a message with a rank that has shut down, and occupies the GPU for ever. */
static void lose_departed(struct circle *c, int peer)
{
    struct engine *e = c->engine;
    struct err err;
    err_set(&err, ESHUTDOWN, "rank %d has shut down while NCCL runs a message with it",
            circle_world_rank(c, peer));
    if (e->boot.elastic) {
        engine_repair(e, &err);
        return;
    }
    engine_abort_all(e, err.msg);
    engine_fail_rank(e, &err);
}

void messages_fail_departed(struct circle *c, int peer)
{
    struct err err = {.code = 0};
    if (messages_nccl_binds(c, peer)) {
        lose_departed(c, peer);
        return;
    }
    err_set(&err, ESHUTDOWN, "rank %d has shut down", circle_world_rank(c, peer));
    p2p_fail(c->messages.p2p, peer, &err);
}

/* How long after a rank's farewell its messages may still arrive. */
static uint64_t patience(const struct circle *c, int peer)
{
    return messages_nccl_binds(c, peer) ? ALOFT_NS : DEPARTED_NS;
}

/* When the rank's farewell came, or its last bytes; 0: it has not left. The order of launches comes
 * down the world's tree, and the farewell of a set may overtake it: of a rank with which messages
 * are announced the world's farewell counts, which is behind the order. */
static uint64_t departed_at(const struct circle *c, int peer)
{
    const struct control *world = &c->engine->circle.control;
    bool early = messages_nccl_has_told(c, peer) && !world->departed[circle_world_rank(c, peer)];
    return early ? 0 : c->control.departed[peer];
}

bool messages_has_left(const struct circle *c, int peer)
{
    uint64_t at = c->control.ndeparted > 0 && peer >= 0 ? departed_at(c, peer) : 0;
    return at > 0 && peer != c->rank && clock_ns() - at >= patience(c, peer);
}

void messages_check_departed(struct circle *c, uint64_t now)
{
    struct engine *e = c->engine;
    struct err err = {.code = 0};
    int others = c->size - 1;
    for (int r = 0; c->messages.p2p && r < c->size; r++) {
        uint64_t at = departed_at(c, r);
        if (at > 0 && p2p_has_news(c->messages.p2p, r))
            c->control.departed[r] = at = now;
        if (at == 0 || r == c->rank || now - at < patience(c, r))
            continue;
        messages_fail_departed(c, r);
        if (e->failed || !circle_works(c))
            return;
        others--;
    }
    if (!c->messages.p2p || others > 0 || c->size == 1)
        return;
    err_set(&err, ESHUTDOWN, "all other ranks have shut down");
    p2p_fail_any(c->messages.p2p, &err);
}

uint64_t messages_departed_due(const struct circle *c, uint64_t now)
{
    uint64_t due = UINT64_MAX;
    for (int r = 0; c->control.ndeparted > 0 && r < c->size; r++) {
        uint64_t at = departed_at(c, r);
        uint64_t end = at + patience(c, r);
        if (at > 0 && now < end && end < due)
            due = end;
    }
    return due;
}
