/* SPDX-License-Identifier: Apache-2.0
 *
 * messages_nccl: see messages_nccl.h.
 */
#include "core/engine/messages_nccl.h"

#include <stdlib.h>

#include "core/backend/device.h"
#include "core/base/hash.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/launch_order.h"

/* The root of the order keeps each group that it has heard of until the epoch ends. So this rank
 * has at most so many in all circles (it sends to, or receives from, so many ranks by NCCL), and
 * all ranks have.
 */
#define GROUPS_MOST   128
#define GROUPS_OF_ALL ((size_t)1 << 17)

struct flying {
    struct flying *next;
    struct slot *slot;
    int peer;
    uint64_t group;             /* in the order of launches */
    bool told;                  /* it is announced: the other rank may launch it */
    struct nccl_flight *flight; /* NULL: it is not launched */
    bool called, landed;
};

static struct slot *slot_of(const struct p2p_op *op)
{
    return list_entry(op, struct slot, message);
}

static struct messages_nccl *of_circle(struct circle *c)
{
    return &c->messages.nccl;
}

static struct circle *circle_of(struct engine *e, const struct p2p_op *op)
{
    return sets_circle(e, slot_of(op)->set);
}

/* ---- life ----------------------------------------------------------------------------------- */

/* Takes the message at *at out of the list, and frees it. */
static void forget(struct messages_nccl *m, struct flying **at)
{
    struct flying *f = *at;
    *at = f->next;
    if (f->flight) {
        m->launched--;
        m->uncalled -= !f->called;
        m->unlanded -= !f->landed;
    }
    free(f);
}

void messages_nccl_fini(struct messages_nccl *m)
{
    while (m->first)
        forget(m, &m->first);
    free(m->groups);
    *m = (struct messages_nccl){.first = NULL};
}

/* ---- what p2p asks for ---------------------------------------------------------------------- */

/* The same on both ranks, and for no other sender and receiver. */
static uint64_t group_of(const struct circle *c, const struct p2p_op *op)
{
    int peer = op->sends ? op->peer : op->from;
    uint64_t from = (uint64_t)(op->sends ? c->rank : peer),
             to = (uint64_t)(op->sends ? peer : c->rank);
    uint64_t of = c->batches.gpu.group ^ hash_mix(c->mesh->epoch);
    uint64_t h = hash_mix(hash_mix(of) ^ hash_mix(~(from << 32 | to)));
    return h < 2 ? h + 2 : h; /* ORDER_WORLD, and what launch_order makes of it */
}

static size_t groups_of(struct engine *e)
{
    struct circle *c;
    size_t n = 0;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++)
        n += c->messages.nccl.ngroups;
    return n;
}

/* False: there is no room, or no memory. */
static bool add_group(struct circle *c, uint64_t group)
{
    struct messages_nccl *m = of_circle(c);
    size_t most = GROUPS_OF_ALL / (size_t)c->engine->circle.size;
    for (size_t i = 0; i < m->ngroups; i++)
        if (m->groups[i] == group)
            return true;
    size_t n = groups_of(c->engine);
    if (n >= most || n >= GROUPS_MOST)
        return false;
    if (!m->groups && !(m->groups = malloc(GROUPS_MOST * sizeof(*m->groups))))
        return false;
    m->groups[m->ngroups++] = group;
    return true;
}

bool messages_nccl_may_fly(struct engine *e, const struct p2p_op *op, size_t bytes)
{
    size_t least = e->set.nccl_message_bytes;
    struct slot *s = slot_of(op);
    struct circle *c = circle_of(e, op);
    /* In an elastic job a set may end, or get other members, alone, and what NCCL has been given
     * cannot be taken back. */
    if (least == 0 || bytes < least || (s->set != 0 && e->boot.elastic) || !c || !circle_works(c) ||
        atomic_load(&e->drive.closing) || device_way(c->device) != DEVICE_NCCL ||
        !device_is_ready(c->device) || !launch_order_is_open(c) || !add_group(c, group_of(c, op)))
        return false;
    e->messages_gpu.may_fly += !s->may_fly;
    s->may_fly = true;
    launch_order_hold(e, e->messages_gpu.may_fly);
    return true;
}

void messages_nccl_flies_not(struct engine *e, struct slot *s)
{
    if (!s->may_fly)
        return;
    s->may_fly = false;
    e->messages_gpu.may_fly--;
    launch_order_hold(e, e->messages_gpu.may_fly);
}

static int no_memory(struct engine *e)
{
    return err_set(&e->trouble, ENOMEM, "no memory to begin a message by NCCL");
}

void messages_nccl_fly(struct engine *e, struct p2p_op *op)
{
    struct circle *c = circle_of(e, op);
    struct flying *f = calloc(1, sizeof(*f)), **at;
    if (!f) {
        no_memory(e);
        return;
    }
    f->slot = slot_of(op);
    f->peer = op->sends ? op->peer : op->from;
    f->group = group_of(c, op);
    for (at = &of_circle(c)->first; *at; at = &(*at)->next)
        ;
    *at = f;
}

void messages_nccl_drop(struct circle *c, struct p2p_op *op)
{
    struct messages_nccl *m = of_circle(c);
    struct slot *s = slot_of(op);
    struct flying **at = &m->first;
    messages_nccl_flies_not(c->engine, s);
    while (*at && (*at)->slot != s)
        at = &(*at)->next;
    if (!*at)
        return;
    /* Nothing of the group is launched any more: its other rank is gone, or the epoch ends. */
    if ((*at)->told && !(*at)->flight)
        launch_order_drop_pair(c->engine, (*at)->group);
    m->owed = m->owed || (*at)->flight;
    s->flight = NULL;
    forget(m, at);
}

/* ---- launching ------------------------------------------------------------------------------ */

/* Whether it may be announced: the program's work on its memory has ended, so that it holds up
 * nothing on the stream, and those before it in its group are announced. */
static bool may_tell(struct circle *c, const struct flying *f)
{
    for (const struct flying *before = of_circle(c)->first; before != f; before = before->next)
        if (!before->told && before->group == f->group)
            return false;
    return messages_gpu_is_open(c->engine, &f->slot->message);
}

void messages_nccl_announce(struct circle *c)
{
    struct messages_nccl *m = of_circle(c);
    struct engine *e = c->engine;
    for (struct flying *f = m->first; f; f = f->next) {
        const struct p2p_op *op = &f->slot->message;
        if (f->told || e->trouble.code || !may_tell(c, f))
            continue;
        uint64_t bytes = op->sends ? op->bytes : op->expected;
        launch_order_announce_pair(e, f->group, hash_mix(hash_mix(op->tag) ^ bytes));
        f->told = true;
    }
}

/* The message that is to be launched now; NULL: none, or it has to wait. */
static struct flying *next_of(struct circle *c)
{
    uint64_t group;
    if (!device_is_ready(c->device) || !device_has_room(c->device) ||
        !launch_order_next_pair(c, &group))
        return NULL;
    struct flying *f = of_circle(c)->first;
    while (f && !(f->told && !f->flight && f->group == group))
        f = f->next;
    return f;
}

/* The message is an alltoall of hvd's in which a single part is not empty: NCCL gets one ncclSend()
 * or ncclRecv(). */
static int launch(struct circle *c, struct flying *f)
{
    struct engine *e = c->engine;
    struct messages_nccl *m = of_circle(c);
    const struct p2p_op *op = &f->slot->message;
    size_t bytes = op->sends ? op->bytes : op->expected;
    size_t *counts = calloc(2 * (size_t)c->size, sizeof(*counts));
    if (!counts)
        return no_memory(e);
    counts[op->sends ? f->peer : c->size + f->peer] = bytes;
    const struct coll_tensor tensor = {
        .in = op->sends ? op->data : NULL, .out = op->sends ? NULL : op->data, .count = bytes};
    const struct coll_op alltoall = {.kind = HVD_ALLTOALL,
                                     .dtype = HVD_UINT8,
                                     .op = HVD_SUM,
                                     .prescale = 1,
                                     .postscale = 1,
                                     .contributors = 1,
                                     .device = f->slot->device,
                                     .tensors = &tensor,
                                     .n = 1,
                                     .send_counts = counts,
                                     .recv_counts = counts + c->size};
    int rc = device_add_aside(c->device, &alltoall, &f->flight, &e->trouble);
    free(counts);
    if (rc < 0) {
        f->flight = NULL;
        return rc;
    }
    m->launched++;
    m->uncalled++;
    m->unlanded++;
    launch_order_note_pair(e, f->group);
    return 0;
}

/* -EAGAIN: there is no memory for one more; it is tried again in the next turn. */
static int launch_more(struct circle *c, bool *moved)
{
    struct flying *f;
    int rc = 0;
    while (rc == 0 && !c->engine->trouble.code && (f = next_of(c)) != NULL) {
        rc = launch(c, f);
        *moved = *moved || rc == 0;
    }
    if (rc == -EAGAIN)
        c->engine->trouble.code = 0;
    return rc == -EAGAIN ? 0 : rc;
}

/* ---- landing -------------------------------------------------------------------------------- */

/* Streams can wait for it: see struct slot. */
static void call(struct circle *c, struct flying *f)
{
    of_circle(c)->uncalled--;
    f->called = true;
    if (c->engine->boot.elastic)
        return;
    f->slot->flight = f->flight;
    atomic_store(&f->slot->aloft, 1);
    drive_wake_waiters(c->engine);
}

static void end(struct circle *c, struct flying **at)
{
    struct p2p_op *op = &(*at)->slot->message;
    device_release_aside(c->device, (*at)->flight);
    (*at)->slot->flight = NULL; /* a stream need not wait for it any more */
    messages_nccl_flies_not(c->engine, (*at)->slot);
    forget(of_circle(c), at);
    counter_add(&c->engine->counters.messages_nccl, 1);
    p2p_flown(c->messages.p2p, op);
}

/* A message counts like a batch: if its event has passed before a look at the peers' words that
 * finds none of a failure (count_landed() in gpu_lane.c). */
static bool look_at(struct circle *c, bool heard)
{
    struct messages_nccl *m = of_circle(c);
    struct flying **at = &m->first, *f;
    bool moved = false;
    while ((f = *at) != NULL) {
        if (f->flight && !f->called && device_aside_called(f->flight))
            call(c, f);
        if (f->landed && heard) {
            end(c, at);
            moved = true;
            continue;
        }
        if (f->flight && !f->landed && device_aside_landed(f->flight)) {
            m->unlanded--;
            f->landed = moved = true;
        }
        at = &f->next;
    }
    return moved;
}

bool messages_nccl_progress(struct circle *c, bool heard)
{
    struct messages_nccl *m = of_circle(c);
    struct engine *e = c->engine;
    struct err err = {0};
    bool moved = false;
    if (!m->first)
        return false;
    launch_order_announce(e);
    int rc = launch_more(c, &moved);
    if (rc == 0 && m->launched > 0)
        rc = device_progress(c->device, c->mesh, &err);
    if (rc < 0) {
        e->trouble = e->trouble.code ? e->trouble : err;
        engine_lost(c, "a message between GPUs", rc);
        return true;
    }
    if (mesh_is_aborted(c->mesh))
        return moved;
    moved = look_at(c, heard) || moved;
    launch_order_landed(c);
    return moved;
}

bool messages_nccl_has_news(const struct messages_nccl *m)
{
    return m->launched > m->unlanded;
}

bool messages_nccl_binds(const struct circle *c, int peer)
{
    const struct flying *f = c->messages.nccl.first;
    while (f && !(f->peer == peer && (f->flight || launch_order_has_pair(c, f->group))))
        f = f->next;
    return f;
}

bool messages_nccl_has_told(const struct circle *c, int peer)
{
    const struct flying *f = c->messages.nccl.first;
    while (f && !(f->peer == peer && f->told))
        f = f->next;
    return f;
}

bool messages_nccl_owes(const struct circle *c)
{
    const struct flying *f = c->messages.nccl.first;
    while (f && !f->told)
        f = f->next;
    return f;
}

/* ---- the end -------------------------------------------------------------------------------- */

void messages_nccl_drain(struct circle *c)
{
    if (!of_circle(c)->owed)
        return;
    of_circle(c)->owed = false;
    device_revoke(c->device); /* else what is launched might never end */
    device_drain(c->device);
}

void messages_nccl_leave(struct circle *c)
{
    struct messages_nccl *m = of_circle(c);
    struct flying **at = &m->first;
    for (size_t i = 0; i < m->ngroups; i++)
        launch_order_drop_pair(c->engine, m->groups[i]);
    m->ngroups = 0;
    while (*at)
        if ((*at)->flight)
            at = &(*at)->next;
        else
            forget(m, at);
}

bool messages_nccl_waits(const struct circle *c)
{
    const struct flying *f = c->messages.nccl.first;
    while (f && !(f->told && !f->flight))
        f = f->next;
    return f;
}
