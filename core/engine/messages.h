/* SPDX-License-Identifier: Apache-2.0
 *
 * messages: sends and receives between two ranks (hvd_messages.h) in the engine. A message is in a
 * slot of the queue, or in one on its caller's stack, and belongs to the circle's p2p until it
 * ends. Everything but messages_run() and messages_submitted() is called with the progress lock
 * held.
 */
#ifndef HVD_ENGINE_MESSAGES_H
#define HVD_ENGINE_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#include <hvd.h>

#include "core/base/err.h"
#include "core/engine/messages_nccl.h"

struct circle;
struct engine;
struct p2p;
struct slot;

/* The messages of a circle. In an elastic job they go on in its next epoch (REPAIR.md, Messages).
 */
struct messages {
    struct p2p *p2p; /* NULL: there was none yet */
    struct messages_nccl nccl;
    /* Elastic: the ranks of the last mesh in which p2p went on, by their numbers there. */
    uint32_t epoch;
    uint32_t *members; /* [size] */
    int size;
    /* The number of the oldest one that has not ended, since when it is that, and when it was
     * reported last. */
    uint64_t oldest, since, told;
};

/* Ends a message; its slot belongs to the waiter from here on. err NULL: success. */
void messages_finish(struct engine *e, struct slot *slot, const struct err *err);

/* Submits a message and waits for its end. Any thread, without the progress lock. */
int messages_run(struct engine *e, const struct hvd_message *m, struct err *err);

/* Messages are in the inbox: begins them, if no other thread drives. */
void messages_submitted(struct engine *e, int set);

/* The driver has found a message in the inbox. In a circle that is lost it begins later
 * (resubmit_circle()). */
void messages_begin(struct circle *c, struct slot *slot);

/* The circle's epoch ends: its mesh is not used any more. Messages with ranks that have shut down
 * end. Twice is the same as once. */
void messages_suspend(struct circle *c);

/* The circle has another mesh, and messages go on in it. Messages with ranks that are not in that
 * mesh end with -EOWNERDEAD. */
int messages_resume(struct circle *c, struct err *err);

/* Moves what can be moved. Returns whether anything was moved. */
bool messages_progress(struct circle *c);

/* Whether a message of this rank has not ended. */
bool messages_in_flight(const struct circle *c);

/* Whether messages_progress() has something to do; whether a message is on its way, so that both
 * ranks are at work. */
bool messages_busy(const struct circle *c);
bool messages_move(const struct circle *c);

/* Calls f for the slot of every message that has not ended. */
void messages_each(struct circle *c, void (*f)(void *ctx, struct slot *slot), void *ctx);

/* Reports a message that has waited for long. Returns when the circle needs its next turn for
 * messages (UINT64_MAX: never). */
uint64_t messages_tick(struct circle *c, uint64_t now);

/* Ends all messages with err. */
void messages_fail(struct circle *c, const struct err *err);

void messages_fini(struct circle *c);

/* "message from rank 2, tag 5", the rank's number being that in the set. */
void messages_text(const struct slot *slot, char *text, size_t size);

#endif
