/* SPDX-License-Identifier: Apache-2.0
 *
 * owed: what a thaw leaves to do for bound batches.
 *
 * A bound batch that one rank was handed cannot be dropped. After a thaw, a rank that was not
 * handed it owes it: it hands the batch out as soon as its tensors are submitted. They are not
 * announced. The order of bound batches is the same on all ranks, so bound batches of the log wait
 * behind the owed ones, in one queue. All other batches do not wait. The root proposes no plan
 * before all ranks have said that their queues are empty.
 *
 * The rank cannot run an owed batch if its program submits a tensor of it with another signature,
 * or if a caller waits for a tensor that comes later, so that the program never submits it. Then
 * every rank ends with the reason.
 *
 * Part of negotiate, see negotiate_impl.h.
 */
#include "core/negotiate/owed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/negotiate/negotiate_impl.h"
#include "core/negotiate/signature.h"

/* How long a caller waits, and its rank submits nothing, before the job ends. Another thread may
 * still submit what is lacking. */
#define CONFLICT_NS (1 * CLOCK_S)

void owed_init(struct owed *o)
{
    list_init(&o->queue);
}

static struct owed_batch *first(const struct owed *o)
{
    return list_empty(&o->queue) ? NULL : list_first(&o->queue, struct owed_batch, at);
}

static void pop(struct owed *o)
{
    struct owed_batch *b = first(o);
    list_remove(&b->at);
    free(b);
    o->stall_told = o->waits = 0;
}

void owed_fini(struct owed *o)
{
    while (o->queue.next && first(o))
        pop(o);
}

const struct tensor *owed_missing(const struct negotiate *n)
{
    const struct owed_batch *b = first(&n->owed);
    for (uint32_t i = 0; b && i < b->n; i++)
        if (b->tensors[i]->state == TENSOR_IDLE)
            return b->tensors[i];
    return NULL;
}

/* ---- what this rank cannot run ----------------------------------------------------------------
 */

/* The request as texts about mismatches have it (claim.c). */
static void request_text(const struct signature *sig, bool kind, bool world, char *text,
                         size_t size)
{
    char what[200], epoch[32] = "";
    signature_text(sig, what, sizeof(what));
    if (world)
        snprintf(epoch, sizeof(epoch), " in epoch %u", sig->world);
    kind = kind && sig->kind != HVD_BARRIER; /* signature_text() gave its kind already */
    snprintf(text, size, "%s%s%s%s", kind ? hvd_kind_name(signature_asked(sig)) : "",
             kind ? " " : "", what, epoch);
}

/* e was submitted otherwise than the plan has it. */
static void differs(struct negotiate *n, const struct tensor *e)
{
    char here[300], there[300];
    bool kind = e->want.kind != e->cached.kind, world = e->want.world != e->cached.world;
    request_text(&e->want, kind, world, here, sizeof(here));
    request_text(&e->cached, false, world, there, sizeof(there));
    snprintf(n->owed.why, sizeof(n->owed.why),
             "ranks do not agree: %s '%s': rank %d: %s; other ranks: %s, and they have begun it on "
             "their GPUs. NCCL cannot take that back; submit the same on every rank",
             hvd_kind_name(signature_asked(&e->cached)), e->name,
             rank_name(n->config.names, n->config.rank), here, there);
}

/* A caller waits for `waited`, and the first batch lacks `missing`. */
static void never_comes(struct negotiate *n, const struct tensor *waited,
                        const struct tensor *missing)
{
    const struct owed_batch *b = first(&n->owed);
    bool together = false;
    for (uint32_t i = 0; i < b->n; i++)
        together = together || b->tensors[i] == waited;
    snprintf(n->owed.why, sizeof(n->owed.why),
             "rank %d waits for '%s', which %s '%s' on the other ranks: they have begun %s on "
             "their GPUs, and NCCL cannot take that back; submit tensors in the same order on "
             "every rank",
             rank_name(n->config.names, n->config.rank), waited->name,
             together ? "runs together with" : "comes after", missing->name,
             together ? "both" : "it");
}

static void tell(struct negotiate *n, const char *why)
{
    if (n->root) {
        if (!n->failed)
            stall_end_all(n, n->config.size, -EINVAL, why);
        return;
    }
    negotiate_begin(n, &n->up, UP_CONFLICT);
    buf_put_str(&n->up, why);
    if (n->up.failed)
        n->failed = -ENOMEM;
    else
        n->ops.send(n->ctx, NEGOTIATE_PARENT, &n->up);
}

int owed_recv_conflict(struct negotiate *n, struct reader *r)
{
    char why[sizeof(n->owed.why)];
    reader_str(r, why, sizeof(why));
    if (!reader_ok(r) || !why[0])
        return -EPROTO;
    tell(n, why);
    return 0;
}

/* ---- the queue ------------------------------------------------------------------------------ */

int owed_add(struct negotiate *n, struct tensor **tensors, uint32_t count, bool planned)
{
    struct owed_batch *b = malloc(sizeof(*b) + count * sizeof(struct tensor *));
    if (!b)
        return -ENOMEM;
    b->n = count;
    b->planned = planned;
    for (uint32_t i = 0; i < count; i++) {
        struct tensor *e = b->tensors[i] = tensors[i];
        e->owed = true;
        if (e->state != TENSOR_SUBMITTED)
            continue;
        list_remove(&e->mine);
        n->nsubmitted--;
        e->state = TENSOR_OWED;
    }
    if (list_empty(&n->owed.queue))
        n->owed.since = n->now;
    list_append(&n->owed.queue, &b->at);
    return 0;
}

void owed_ask(struct negotiate *n)
{
    list_for_each(at, next, &n->owed.queue)
    {
        const struct owed_batch *b = list_entry(at, struct owed_batch, at);
        for (uint32_t i = 0; i < b->n; i++)
            join_ask(n, b->tensors[i], &b->tensors[i]->cached);
    }
}

static bool complete(const struct owed_batch *b)
{
    for (uint32_t i = 0; i < b->n; i++)
        if (b->tensors[i]->state != TENSOR_OWED)
            return false;
    return true;
}

static void hand_out(struct negotiate *n)
{
    struct owed *o = &n->owed;
    for (struct owed_batch *b = first(o); b && !o->why[0] && complete(b); b = first(o)) {
        for (uint32_t i = 0; i < b->n; i++)
            b->tensors[i]->owed = false;
        if (follow_hand_out(n, b->tensors, b->n,
                            (struct running_batch){.bound = true, .owed = b->planned}) < 0) {
            n->failed = -ENOMEM;
            return;
        }
        pop(o);
        o->since = n->now;
    }
}

/* No tensor is owed twice: a rank submits a name again only after its batch is done, and no batch
 * is done before every rank was handed it. */
int owed_begin(struct negotiate *n, uint64_t keep, uint64_t bind)
{
    struct owed *o = &n->owed;
    uint32_t count;
    bool bound;
    plan_at(&n->plan, bind - 1, &count, &bound);
    if (o->open || bind < n->plan.bound_to || (bind > 0 && !bound))
        return -EPROTO;
    for (uint64_t index = n->plan.walked; index < bind; index++) {
        struct tensor **tensors = plan_at(&n->plan, index, &count, &bound);
        for (uint32_t i = 0; bound && i < count; i++)
            if (tensors[i]->owed)
                return -EPROTO;
        if (bound && owed_add(n, tensors, count, true) < 0)
            return -ENOMEM;
        for (uint32_t i = 0; bound && i < count && !o->why[0]; i++)
            if (tensors[i]->state == TENSOR_OWED &&
                !signature_equal(&tensors[i]->want, &tensors[i]->cached))
                differs(n, tensors[i]);
        n->stats.owed += bound;
    }
    owed_ask(n);
    o->open = bind > keep;
    o->nsettled = 0;
    for (int i = 0; i < n->nchildren; i++)
        n->children[i].settled = false;
    return 0;
}

void owed_submitted(struct negotiate *n, struct tensor *e)
{
    if (!signature_equal(&e->want, &e->cached) && !n->owed.why[0])
        differs(n, e);
    hand_out(n);
}

bool negotiate_owes(const struct negotiate *n)
{
    return !list_empty(&n->owed.queue);
}

int owed_recv_settled(struct negotiate *n, int child, const struct reader *r)
{
    struct child *c = &n->children[child];
    if (!n->owed.open || c->settled || !reader_ok(r))
        return -EPROTO;
    c->settled = true;
    n->owed.nsettled++;
    return 0;
}

/* Once no rank at or below this node owes a batch, the parent is told. */
static void settle(struct negotiate *n)
{
    struct owed *o = &n->owed;
    if (!o->open || first(o) || o->nsettled < n->nchildren)
        return;
    if (!n->root) {
        negotiate_begin(n, &n->up, UP_SETTLED);
        if (n->up.failed) {
            n->failed = -ENOMEM;
            return;
        }
        n->ops.send(n->ctx, NEGOTIATE_PARENT, &n->up);
    }
    o->open = false;
}

/* A tensor that a caller on this rank waits for and that cannot run before the first batch. */
static const struct tensor *waiting_behind(const struct negotiate *n)
{
    list_for_each(at, next, &n->owed.queue)
    {
        const struct owed_batch *b = list_entry(at, struct owed_batch, at);
        for (uint32_t i = 0; i < b->n; i++)
            if (b->tensors[i]->state == TENSOR_OWED && b->tensors[i]->waited)
                return b->tensors[i];
    }
    list_for_each(at, next, &n->submitted)
    {
        const struct tensor *e = list_entry(at, struct tensor, mine);
        if (e->waited && e->bound && e->want.device == e->cached.device &&
            e->want.dtype == e->cached.dtype)
            return e;
    }
    return NULL;
}

static uint64_t look_for_conflict(struct negotiate *n, uint64_t now)
{
    struct owed *o = &n->owed;
    const struct tensor *missing = owed_missing(n);
    const struct tensor *waited = missing ? waiting_behind(n) : NULL;
    if (!waited) {
        o->waits = 0;
        return UINT64_MAX;
    }
    o->waits = o->waits ? o->waits : now;
    uint64_t quiet = n->stall.last_call > o->waits ? n->stall.last_call : o->waits;
    if (now < quiet + CONFLICT_NS)
        return quiet + CONFLICT_NS;
    never_comes(n, waited, missing);
    return UINT64_MAX;
}

uint64_t owed_tick(struct negotiate *n, uint64_t now)
{
    struct owed *o = &n->owed;
    uint64_t due = UINT64_MAX;
    hand_out(n);
    settle(n);
    if (!o->why[0])
        due = look_for_conflict(n, now);
    if (o->why[0] && !o->why_sent) {
        o->why_sent = true;
        tell(n, o->why);
    }
    return due;
}
