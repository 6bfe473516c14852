/* SPDX-License-Identifier: Apache-2.0
 *
 * messages_gpu: see messages_gpu.h.
 */
#include "core/engine/messages_gpu.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/backend/parts.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/engine/engine.h"

#define STOP_MS 15000  /* limit for copies in progress to end */
#define NAP_NS  100000 /* between two looks at them */
#define AHEAD   2      /* parts of a send that are copied before the first of them is sent */

/* NOLINTNEXTLINE(misc-redundant-expression) */
_Static_assert(PARTS_BYTES == P2P_PART, "p2p asks for whole parts");

static struct slot *slot_of(struct p2p_op *op)
{
    return list_entry(op, struct slot, message);
}

static size_t min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- the program's work on the memory -------------------------------------------------------- */

static int enter(struct engine *e, struct cuda_visit *ret, struct err *err)
{
    return cuda_enter(e->messages_gpu.parts->gpu->device, ret, err);
}

bool messages_gpu_is_open(struct engine *e, struct p2p_op *op)
{
    struct slot *s = slot_of(op);
    auto_visit visit = {0};
    if (s->opened || !s->ready)
        return true;
    int rc = enter(e, &visit, &e->trouble);
    if (rc == 0)
        rc = cuda_event_done(e->messages_gpu.parts->gpu->device, s->ready, &e->trouble);
    e->messages_gpu.late |= rc == 1;
    s->opened = rc == 0;
    return s->opened;
}

/* ---- what p2p asks for ----------------------------------------------------------------------- */

/* Begins to copy the part at that position of a send, if it has not begun and a part is free. */
static void begin_part(struct engine *e, struct p2p_op *op, size_t at)
{
    struct parts *parts = e->messages_gpu.parts;
    auto_visit visit = {0};
    if (at >= op->bytes || parts_find(parts, PARTS_OUT, op, at))
        return;
    struct part *part = parts_take(parts, PARTS_OUT, op);
    if (!part)
        return;
    if (enter(e, &visit, &e->trouble) < 0)
        parts_give(parts, part);
    else
        parts_copy(parts, part, op->data, at, min(op->bytes - at, PARTS_BYTES), &e->trouble);
}

static const uint8_t *fetch(void *ctx, struct p2p_op *op)
{
    struct engine *e = ctx;
    messages_nccl_flies_not(e, slot_of(op)); /* the receiver wants it by this way */
    if (e->trouble.code || !messages_gpu_is_open(e, op))
        return NULL;
    for (size_t i = 0; i < AHEAD && !e->trouble.code; i++)
        begin_part(e, op, op->moved + i * PARTS_BYTES);
    const struct part *part = parts_find(e->messages_gpu.parts, PARTS_OUT, op, op->moved);
    return part && part->state == PART_HOST ? part->data : NULL;
}

static void sent(void *ctx, struct p2p_op *op)
{
    struct parts *parts = ((struct engine *)ctx)->messages_gpu.parts;
    parts_give(parts, parts_find(parts, PARTS_OUT, op, op->moved));
}

static bool opens(void *ctx, struct p2p_op *op)
{
    return messages_gpu_is_open(ctx, op);
}

static uint8_t *room(void *ctx, struct p2p_op *op)
{
    struct parts *parts = ((struct engine *)ctx)->messages_gpu.parts;
    struct part *part = parts_take(parts, PARTS_IN, op);
    return part ? part->data : NULL;
}

static void fail_copy(struct slot *s, const struct err *err)
{
    s->status = err->code;
    s->text = strdup(err->msg);
}

/* Returns whether a copy has failed; *ret_err is why. */
static bool take_failure(struct slot *s, struct err *ret_err)
{
    if (s->status == 0)
        return false;
    err_set(ret_err, -s->status, "%s", s->text ? s->text : strerror(-s->status));
    free(s->text);
    s->text = NULL;
    return true;
}

/* After a failure the rest of the message is dropped. */
static void received(void *ctx, struct p2p_op *op, size_t bytes)
{
    struct engine *e = ctx;
    struct parts *parts = e->messages_gpu.parts;
    struct part *part = parts_find(parts, PARTS_IN, op, SIZE_MAX);
    struct slot *s = slot_of(op);
    struct err err = {0};
    auto_visit visit = {0};
    if (s->status < 0 || enter(e, &visit, &err) < 0)
        parts_give(parts, part);
    else
        parts_copy(parts, part, op->data, op->moved, bytes, &err);
    if (err.code)
        fail_copy(s, &err);
}

static void drop(void *ctx, struct p2p_op *op)
{
    struct engine *e = ctx;
    struct circle *c = sets_circle(e, slot_of(op)->set);
    parts_give_all(e->messages_gpu.parts, op);
    if (c)
        messages_nccl_drop(c, op);
}

static bool can_fly(void *ctx, const struct p2p_op *op, size_t bytes)
{
    return messages_nccl_may_fly(ctx, op, bytes);
}

static void fly(void *ctx, struct p2p_op *op)
{
    messages_nccl_fly(ctx, op);
}

/* ---- life ------------------------------------------------------------------------------------ */

void messages_gpu_init(struct engine *e)
{
    struct messages_gpu *m = &e->messages_gpu;
    m->stage = (struct p2p_stage){.ctx = e,
                                  .fetch = fetch,
                                  .sent = sent,
                                  .opens = opens,
                                  .room = room,
                                  .received = received,
                                  .drop = drop,
                                  .can_fly = can_fly,
                                  .fly = fly};
    list_init(&m->landing);
}

void messages_gpu_fini(struct engine *e)
{
    struct messages_gpu *m = &e->messages_gpu;
    auto_visit visit = {0};
    if (!m->parts)
        return;
    /* Nothing on a lost device can be freed; the calls return its error. */
    enter(e, &visit, NULL);
    if (m->abandoned)
        free(m->parts);
    else
        parts_close(m->parts);
    m->parts = NULL;
}

int messages_gpu_open(struct engine *e, int ordinal, struct err *err)
{
    struct messages_gpu *m = &e->messages_gpu;
    struct gpu *gpu;
    auto_visit visit = {0};
    if (m->parts)
        return 0;
    int rc = device_gpu(e->backends.device, ordinal, &gpu, err);
    if (rc == 0)
        rc = cuda_enter(gpu->device, &visit, err);
    if (rc == 0)
        rc = parts_open(gpu, &m->parts, err);
    if (rc == 0 && e->set.nccl_message_bytes > 0)
        log_info("messages of GPU %d go through the host's memory, and from %llu bytes on by NCCL "
                 "where a collective has set it up",
                 ordinal, (unsigned long long)e->set.nccl_message_bytes);
    return rc < 0 ? err_prefix(err, "a message on GPU %d", ordinal) : 0;
}

/* ---- landing --------------------------------------------------------------------------------- */

/* Copies the next part of bytes that are in this process. false: that is not possible yet. */
static bool copy_part(struct engine *e, struct p2p_op *op)
{
    struct p2p_op *source = op->source;
    size_t n = min(op->got - op->moved, PARTS_BYTES);
    const uint8_t *from = !source          ? op->kept + op->moved
                          : source->staged ? fetch(e, source)
                                           : source->data + source->moved;
    uint8_t *to = !from ? NULL : op->staged ? room(e, op) : op->data + op->moved;
    if (!to)
        return false;
    memcpy(to, from, n);
    if (op->staged)
        received(e, op, n);
    if (source && source->staged)
        sent(e, source);
    if (source)
        source->moved += n;
    op->moved += n;
    return true;
}

static bool copies(const struct engine *e, const struct p2p_op *op)
{
    const struct parts *parts = e->messages_gpu.parts;
    return parts_copies(parts, op) || (op->source && parts_copies(parts, op->source));
}

static void finish(struct engine *e, struct p2p_op *op, const struct err *err)
{
    struct p2p_op *source = op->source;
    struct slot *s = slot_of(op);
    struct err failed = {0};
    list_remove(&op->at);
    parts_give_all(e->messages_gpu.parts, op);
    if (source) {
        parts_give_all(e->messages_gpu.parts, source);
        messages_finish(e, slot_of(source), err);
    }
    free(op->kept);
    op->kept = NULL;
    bool has_failed = take_failure(s, &failed);
    messages_finish(e, s, !err && has_failed ? &failed : err);
}

/* Whether the slot's message is complete; copies what can be copied. */
static bool land(struct engine *e, struct p2p_op *op)
{
    if ((op->kept || op->source) && op->moved < op->got && messages_gpu_is_open(e, op))
        while (op->moved < op->got && copy_part(e, op))
            ;
    bool whole = op->sends || op->moved == op->got;
    return whole && !copies(e, op) && !e->trouble.code;
}

static void drain(struct engine *e, const struct p2p_op *op)
{
    struct messages_gpu *m = &e->messages_gpu;
    const struct timespec nap = {.tv_nsec = NAP_NS};
    uint64_t deadline = deadline_in_ms(STOP_MS);
    struct err err = {0};
    auto_visit visit = {0};
    if (!copies(e, op) || enter(e, &visit, &err) < 0)
        return;
    while (copies(e, op) && parts_progress(m->parts, &err) >= 0 && !m->abandoned) {
        m->abandoned = deadline_passed(deadline);
        nanosleep(&nap, NULL);
    }
    if (m->abandoned)
        log_warn("a message that has failed is still being copied on GPU %d after %d s: its tensor "
                 "may still change",
                 m->parts->gpu->device->ordinal, STOP_MS / 1000);
}

bool messages_gpu_lands(struct engine *e, struct slot *slot, const struct err *err)
{
    struct p2p_op *op = &slot->message;
    struct messages_gpu *m = &e->messages_gpu;
    if (!m->parts)
        return false;
    parts_give_all(m->parts, op);
    if (err) {
        struct err unsaid;
        take_failure(slot, &unsaid);
        drain(e, op);
        return false;
    }
    list_append(&m->landing, &op->at);
    return true;
}

bool messages_gpu_progress(struct engine *e)
{
    struct messages_gpu *m = &e->messages_gpu;
    auto_visit visit = {0};
    bool moved = false;
    if (!m->parts || e->trouble.code)
        return false;
    m->late = false;
    if (m->parts->copying > 0 && enter(e, &visit, &e->trouble) == 0)
        moved = parts_progress(m->parts, &e->trouble) != 0;
    cuda_leave(&visit);
    list_for_each(at, next, &m->landing)
    {
        struct p2p_op *op = list_entry(at, struct p2p_op, at);
        if (e->trouble.code || !land(e, op))
            continue;
        finish(e, op, NULL);
        moved = true;
    }
    return moved;
}

bool messages_gpu_busy(const struct engine *e, int set)
{
    list_for_each(at, next, &e->messages_gpu.landing)
    {
        if (slot_of(list_entry(at, struct p2p_op, at))->set == set)
            return true;
    }
    return false;
}

enum coll_wait messages_gpu_wait(const struct engine *e)
{
    const struct messages_gpu *m = &e->messages_gpu;
    if (m->parts && m->parts->copying > 0)
        return COLL_ASKS;
    return m->late ? COLL_NAPS : COLL_WAKES;
}

void messages_gpu_end(struct engine *e, int set, const struct err *err)
{
    list_for_each(at, next, &e->messages_gpu.landing)
    {
        struct p2p_op *op = list_entry(at, struct p2p_op, at);
        if (set >= 0 && slot_of(op)->set != set)
            continue;
        drain(e, op);
        bool whole = op->sends || op->moved == op->got;
        finish(e, op, whole && !copies(e, op) && !e->trouble.code ? NULL : err);
    }
}
