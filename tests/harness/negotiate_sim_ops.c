/* SPDX-License-Identifier: Apache-2.0
 *
 * negotiate_sim_ops: negotiation's callbacks on a simulated rank: queues a message, takes a batch,
 * records a failure, drops batches that a thaw cancels. See negotiate_sim.h.
 */
#include "tests/harness/negotiate_sim_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int on_send(void *ctx, int to, const struct buf *msg)
{
    struct sim_rank *r = ctx;
    struct sim *s = r->sim;
    if (to == NEGOTIATE_PARENT)
        to = r->config.parent;
    struct sim_message *m = malloc(sizeof(*m) + msg->len);
    m->next = NULL;
    m->len = msg->len;
    memcpy(m->data, msg->data, msg->len);
    *s->queue_end[r->rank][to] = m;
    s->queue_end[r->rank][to] = &m->next;
    s->messages++;
    return 0;
}

struct sim_tensor *sim_by_id(struct sim_rank *r, uint64_t id)
{
    for (int i = 0; i < SIM_NAMES; i++)
        if (r->tensors[i].id == id && r->tensors[i].state == SIM_UNDER_WAY)
            return &r->tensors[i];
    return NULL;
}

/* Returns true when the tables match what every rank submits. */
static bool tables_right(const struct sim_rank *r, int name, const struct negotiate_tensor *t)
{
    const struct sim_tensor *own = &r->tensors[name];
    int n = r->sim->n;
    bool dim0 = own->sig.kind == HVD_ALLGATHER || own->sig.kind == HVD_ALLTOALL;
    if (dim0 != (t->dim0 != NULL) || (own->sig.kind == HVD_ALLTOALL) != (t->splits != NULL))
        return false;
    for (int i = 0; dim0 && i < n; i++) {
        int64_t want = sim_dim0(name, own->version, i);
        if (t->dim0[i] != want)
            return false;
        for (int j = 0; t->splits && j < n; j++)
            if (t->splits[i * n + j] != (j == 0 ? want : 0))
                return false;
    }
    return true;
}

static void on_batch(void *ctx, const struct negotiate_tensor *tensors, size_t n, bool frozen)
{
    struct sim_rank *r = ctx;
    uint64_t bytes = 0;
    struct sim_batch *b = malloc(sizeof(*b) + n * sizeof(uint64_t));
    *b = (struct sim_batch){.frozen = frozen, .n = n};
    for (size_t i = 0; i < n; i++) {
        struct sim_tensor *t = sim_by_id(r, tensors[i].id);
        b->ids[i] = tensors[i].id;
        if (!t) {
            sim_fail(r->sim, "rank %d: batch with a tensor that is not in flight", r->rank);
            continue;
        }
        bytes += (uint64_t)t->sig.shape[0] * 4;
        if (n > 1 && t->sig.kind != HVD_ALLREDUCE)
            sim_fail(r->sim, "fused what must not be");
        b->wrong = b->wrong || !tables_right(r, (int)(t - r->tensors), &tensors[i]);
    }
    if (n > 1 && bytes > r->config.fusion_bytes)
        sim_fail(r->sim, "a batch of %llu bytes", (unsigned long long)bytes);
    r->frozen += frozen;
    *r->end = b;
    r->end = &b->next;
    r->sim->progress++;
}

static void on_fail(void *ctx, uint64_t id, const struct err *err)
{
    struct sim_rank *r = ctx;
    struct sim_tensor *t = sim_by_id(r, id);
    if (!t) {
        sim_fail(r->sim, "rank %d: failure of a tensor that is not in flight", r->rank);
        return;
    }
    t->state = SIM_FAILED;
    t->failed++;
    snprintf(t->text, sizeof(t->text), "%s", err->msg);
    r->sim->progress++;
}

static void on_thawed(void *ctx, uint64_t keep, uint64_t dropped)
{
    struct sim_rank *r = ctx;
    struct sim *s = r->sim;
    if (keep + dropped != r->frozen)
        sim_fail(s, "rank %d: thaw keeps %llu and drops %llu of %llu", r->rank,
                 (unsigned long long)keep, (unsigned long long)dropped,
                 (unsigned long long)r->frozen);
    r->frozen = 0;
    size_t n = 0;
    for (struct sim_batch *b = r->first; b; b = b->next)
        n++;
    if (dropped > n) {
        sim_fail(s, "rank %d: thaw drops %llu batches of %zu", r->rank, (unsigned long long)dropped,
                 n);
        return;
    }
    struct sim_batch **at = &r->first;
    for (size_t i = 0; i < n - dropped; i++)
        at = &(*at)->next;
    for (struct sim_batch *b = *at, *next; b; b = next) {
        next = b->next;
        if (!b->frozen)
            sim_fail(s, "rank %d: thaw drops a negotiated batch", r->rank);
        if (b->started && --s->started[r->executed] == 0) {
            free(s->log[r->executed]);
            s->log[r->executed] = NULL;
        }
        free(b);
    }
    *at = NULL;
    r->end = at;
    s->progress++;
}

static void on_stalled(void *ctx, const char *text)
{
    struct sim_rank *r = ctx;
    size_t len = strlen(r->stall);
    snprintf(r->stall + len, sizeof(r->stall) - len, "%s\n", text);
    r->nstalls++;
}

static void on_lost(void *ctx, int rank, const struct err *err)
{
    struct sim_rank *r = ctx;
    snprintf(r->lost, sizeof(r->lost), "%s", err->msg);
    r->lost_rank = rank;
    r->deaf = true;
}

static void on_waiting_in(void *ctx, char *text, size_t size)
{
    struct sim_rank *r = ctx;
    if (r->at < r->nsteps && r->steps[r->at].what == SIM_WAIT)
        snprintf(text, size, "hvd_wait(t%d)", r->steps[r->at].name);
}

const struct negotiate_ops sim_ops = {
    .send = on_send,
    .batch = on_batch,
    .fail = on_fail,
    .thawed = on_thawed,
    .stalled = on_stalled,
    .waiting_in = on_waiting_in,
    .lost = on_lost,
};
