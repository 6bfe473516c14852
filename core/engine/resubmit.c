/* SPDX-License-Identifier: Apache-2.0
 *
 * resubmit: see resubmit.h.
 */
#include "core/engine/resubmit.h"

#include <stdlib.h>

#include "core/backend/device.h"
#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "core/engine/launch.h"
#include "core/engine/turn.h"
#include "core/negotiate/signature.h"

struct unfinished {
    int set;
    struct slot **list;
    size_t n, cap;
};

static void collect(void *ctx, struct slot *slot)
{
    struct unfinished *p = ctx;
    bool flies = slot->is_message && slot->state == SLOT_BATCHED;
    if (slot->set == p->set && slot->state != SLOT_INBOX && !flies && p->n < p->cap)
        p->list[p->n++] = slot;
}

static int by_handle(const void *a, const void *b)
{
    const struct slot *x = *(struct slot *const *)a, *y = *(struct slot *const *)b;
    hvd_handle hx = atomic_load(&x->handle), hy = atomic_load(&y->handle);
    return hx < hy ? -1 : hx > hy;
}

/* Ungroups the remaining members of a group of which a part is done. The outcome is the same on
 * every rank. */
static void ungroup_rest(struct unfinished *p)
{
    for (size_t i = 0, n; i < p->n; i += n) {
        const struct signature first = p->list[i]->facts.sig;
        for (n = 1; i + n < p->n && first.group_size > 0; n++)
            if (p->list[i + n]->facts.sig.group_hash != first.group_hash)
                break;
        for (size_t k = i; k < i + n && n < first.group_size; k++)
            signature_ungroup(&p->list[k]->facts.sig);
    }
}

static void submit_again(struct circle *c)
{
    struct engine *e = c->engine;
    uint64_t now = clock_ns();
    struct unfinished p = {.set = c->set, .cap = atomic_load(&e->queue->in_flight)};
    p.list = p.cap ? calloc(p.cap, sizeof(struct slot *)) : NULL;
    if (p.cap && !p.list) {
        err_set(&e->trouble, ENOMEM, "no memory to submit %zu operations again", p.cap);
        return;
    }
    queue_each(e->queue, collect, &p);
    if (p.n > 0)
        qsort(p.list, p.n, sizeof(struct slot *), by_handle);
    ungroup_rest(&p);
    for (size_t i = 0; i < p.n; i++) {
        p.list[i]->has_id = false;
        turn_submit(c, p.list[i], now);
    }
    free(p.list);
}

void resubmit_circle(struct circle *c)
{
    batches_dissolve(c);
    submit_again(c);
}

void resubmit_world(struct engine *e)
{
    batches_dissolve(&e->circle);
    if (e->repair.boundary)
        engine_end_world(e);
    submit_again(&e->circle);
    if (e->fast_busy && !atomic_load(&e->fast.done)) {
        e->fast.has_id = false;
        turn_submit(&e->circle, &e->fast, clock_ns());
    }
}
