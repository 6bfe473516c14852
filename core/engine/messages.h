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

struct circle;
struct engine;
struct slot;

/* Submits a message and waits for its end. Any thread, without the progress lock. */
int messages_run(struct engine *e, const struct hvd_message *m, struct err *err);

/* Messages are in the inbox: begins them, if no other thread drives. */
void messages_submitted(struct engine *e, int set);

/* The driver has found a message in the inbox. */
void messages_begin(struct circle *c, struct slot *slot);

/* Moves what can be moved. Returns whether anything was moved. */
bool messages_progress(struct circle *c);

/* Whether a message has not ended; whether one is on its way, so that both ranks are at work. */
bool messages_busy(const struct circle *c);
bool messages_move(const struct circle *c);

/* Ends the messages with ranks that have shut down, when what they have sent has come. If all other
 * ranks have, also receives from any rank. */
void messages_check_departed(struct circle *c, uint64_t now);

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
