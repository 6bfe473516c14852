/* SPDX-License-Identifier: Apache-2.0
 *
 * meet: a blocking rendezvous (negotiate/rendezvous.h) of this rank with others, over the control
 * tree of the world. Its wait is that of an operation: stall reports show it, and it ends with the
 * engine.
 */
#ifndef HVD_ENGINE_MEET_H
#define HVD_ENGINE_MEET_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/negotiate/rendezvous.h"

struct circle;
struct engine;
struct slot;

/* The caller that has entered a rendezvous. The world's circle calls `end`, as rendezvous_ops.end,
 * under the progress lock. */
struct meeting {
    void (*end)(struct circle *world, struct meeting *self, const struct rendezvous_end *end);
};

struct meet {
    struct rendezvous_point point;
    const char *what; /* "hvd_set_form tp", for stall reports */
    struct buf mine;  /* what this rank enters with */
    uint64_t limit;   /* ns */
    uint32_t epoch;   /* in which the ranks are numbered */
    /* All have entered: copies what is needed. Under the progress lock. */
    void (*take)(void *ctx, const struct rendezvous_end *end);
    void *ctx;
};

/* Any thread, without the progress lock; blocks for the limit at most. -EAGAIN: the world has
 * entered another epoch meanwhile. -EBUSY: a thread of this rank is in a meet of the same name.
 * Others as rendezvous_end, and those with which the engine fails. */
int meet_run(struct engine *e, struct meet *m, struct err *err);

/* (lock) Enters the world's rendezvous for a caller that does not block. */
int meet_enter(struct circle *world, const struct rendezvous_point *point, const struct buf *mine,
               uint64_t limit, struct meeting *self, struct err *err);

/* (lock) Negotiation's place is taken by the rendezvous: the driver has found the slot in the
 * inbox. */
void meet_submit(struct circle *c, struct slot *slot, uint64_t now);

/* rendezvous_ops.end */
void meet_end(void *ctx, void *caller, const struct rendezvous_end *end);

#endif
