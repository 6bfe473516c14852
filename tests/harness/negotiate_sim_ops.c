/* SPDX-License-Identifier: Apache-2.0
 *
 * negotiate_sim_ops: negotiation's callbacks on a simulated rank: queues a message, takes a batch,
 * records a failure, drops batches that a thaw cancels. See negotiate_sim.h.
 */
#include "tests/harness/negotiate_sim_private.h"

#include <errno.h>
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
    bool dim0 = own->sig.kind == HVD_ALLGATHER;
    if (dim0 != (t->dim0 != NULL))
        return false;
    for (int i = 0; dim0 && i < n; i++) {
        const struct sim_tensor *other = &r->sim->ranks[i].tensors[name];
        int64_t want = other->neutral ? 0 : sim_dim0(name, other->version, i);
        if (t->dim0[i] != want)
            return false;
    }
    return true;
}

/* Checks what negotiation says about the batch. */
static void check_batch(struct sim_rank *r, const struct negotiate_batch *from)
{
    struct sim *s = r->sim;
    if (from->number < r->next)
        sim_fail(s, "rank %d: batch number %llu after %llu", r->rank,
                 (unsigned long long)from->number, (unsigned long long)r->next);
    r->next = from->number + 1;
    uint64_t bytes = 0;
    for (size_t i = 0; i < from->n; i++) {
        const struct sim_tensor *t = sim_by_id(r, from->tensors[i].id);
        if (!t) {
            sim_fail(s, "rank %d: batch with a tensor that is not in flight", r->rank);
            continue;
        }
        bytes += (uint64_t)t->sig.shape[0] * hvd_dtype_size((enum hvd_dtype)t->sig.dtype);
        if (from->n > 1 && t->sig.kind != HVD_ALLREDUCE)
            sim_fail(s, "fused what must not be");
        if (from->bound != sim_binds(&t->sig))
            sim_fail(s, "rank %d: a batch in the wrong lane", r->rank);
    }
    if (from->n > 1 && bytes > r->config.fusion_bytes)
        sim_fail(s, "a batch of %llu bytes", (unsigned long long)bytes);
}

static void on_batch(void *ctx, const struct negotiate_batch *from)
{
    struct sim_rank *r = ctx;
    enum sim_lane_kind kind = from->bound ? SIM_BOUND : SIM_HOST;
    struct sim_lane *lane = &r->lanes[kind];
    check_batch(r, from);
    struct sim_batch *b = malloc(sizeof(*b) + from->n * sizeof(uint64_t));
    *b = (struct sim_batch){.number = from->number, .frozen = from->frozen, .n = from->n};
    for (size_t i = 0; i < from->n; i++) {
        const struct sim_tensor *t = sim_by_id(r, from->tensors[i].id);
        b->ids[i] = from->tensors[i].id;
        b->wrong = b->wrong || !t || !tables_right(r, (int)(t - r->tensors), &from->tensors[i]);
    }
    *lane->end = b;
    lane->end = &b->next;
    r->sim->progress++;
    if (from->bound)
        sim_start(r, SIM_BOUND, b);
}

static bool on_binds(void *ctx, const struct signature *sig)
{
    const struct sim_rank *r = ctx;
    if (r->rank != 0)
        sim_fail(r->sim, "rank %d is not the root, but decides what is bound", r->rank);
    return sim_binds(sig);
}

static bool on_refuses(void *ctx, const struct signature *sig, struct err *ret_why)
{
    const struct sim_rank *r = ctx;
    if (r->rank != 0)
        sim_fail(r->sim, "rank %d is not the root, but refuses a tensor", r->rank);
    return sig->op == HVD_BXOR && err_set(ret_why, ENOTSUP, "no exclusive or") < 0;
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

static void on_dropped(void *ctx, uint64_t number)
{
    struct sim_rank *r = ctx;
    struct sim *s = r->sim;
    struct sim_lane *lane = &r->lanes[SIM_HOST];
    struct sim_batch **at = &lane->first;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    struct sim_batch *b = *at;
    if (!b || b->next || !b->frozen || number >= r->dropped) {
        sim_fail(s, "rank %d: a thaw drops batch %llu, which it may not", r->rank,
                 (unsigned long long)number);
        return;
    }
    struct sim_log *log = &s->logs[SIM_HOST];
    if (b->started && --log->started[b->place] == 0) {
        free(log->texts[b->place]);
        log->texts[b->place] = NULL;
    }
    lane->started -= b->started;
    r->dropped = number;
    *at = NULL;
    lane->end = at;
    free(b);
}

static void on_thawed(void *ctx)
{
    struct sim_rank *r = ctx;
    r->dropped = UINT64_MAX;
    for (struct sim_batch *b = r->lanes[SIM_HOST].first; b; b = b->next)
        b->frozen = false;
    r->sim->progress++;
}

static void on_stalled(void *ctx, const char *text)
{
    struct sim_rank *r = ctx;
    size_t len = strlen(r->stall);
    snprintf(r->stall + len, sizeof(r->stall) - len, "%s\n", text);
    r->nstalls++;
}

static void on_wanted(void *ctx, const char *name, const struct signature *sig)
{
    struct sim_rank *r = ctx;
    int number = atoi(name + 1);
    if (!r->join || r->nwants == SIM_NAMES || r->tensors[number].state == SIM_UNDER_WAY) {
        sim_fail(r->sim, "rank %d is asked for %s, in vain", r->rank, name);
        return;
    }
    for (int i = 0; i < r->nwants; i++)
        if (r->wants[i].name == number)
            sim_fail(r->sim, "rank %d is asked twice for %s", r->rank, name);
    r->wants[r->nwants++] = (struct sim_want){number, *sig};
    r->sim->progress++;
}

static void on_joined(void *ctx, int last)
{
    struct sim_rank *r = ctx;
    int *at = &r->sim->last[r->joins];
    if (r->join != NEGOTIATE_DRAINED || r->nwants)
        sim_fail(r->sim, "rank %d: all have joined, but it has work", r->rank);
    if (*at && *at != last + 1)
        sim_fail(r->sim, "rank %d: rank %d was the last to join; another: %d", r->rank, last,
                 *at - 1);
    *at = last + 1;
    r->join = NEGOTIATE_ACTIVE;
    r->joined = true;
    r->sim->progress++;
}

static void on_lost(void *ctx, int rank, const struct err *err)
{
    struct sim_rank *r = ctx;
    snprintf(r->lost, sizeof(r->lost), "%s", err->msg);
    r->lost_rank = rank;
    r->lost_code = err->code;
    r->deaf = true;
}

static void on_waiting_in(void *ctx, char *text, size_t size)
{
    struct sim_rank *r = ctx;
    if (r->at < r->nsteps && r->steps[r->at].what == SIM_WAIT)
        snprintf(text, size, "hvd_wait(t%d)", r->steps[r->at].name);
}

static void on_lacks(void *ctx, const char *name)
{
    struct sim_rank *r = ctx;
    size_t len = strlen(r->lacks);
    snprintf(r->lacks + len, sizeof(r->lacks) - len, "%s ", name);
}

const struct negotiate_ops sim_ops = {
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
    .lost = on_lost,
};
