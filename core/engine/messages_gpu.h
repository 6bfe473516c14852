/* SPDX-License-Identifier: Apache-2.0
 *
 * messages_gpu: messages whose bytes are in the memory of this rank's GPU (SETS.md, Point to
 * point). Their bytes go through page-locked parts (backend/parts.h), which p2p asks for (struct
 * p2p_stage). A receive that has its bytes *lands*: it ends when the GPU has them. For all circles
 * of an engine; called with the progress lock held.
 *
 * A failure to copy the bytes of a receive fails that receive. A failure to copy the bytes of a
 * send, of which the other rank may know already, and a failure of the GPU, fail this rank.
 */
#ifndef HVD_ENGINE_MESSAGES_GPU_H
#define HVD_ENGINE_MESSAGES_GPU_H

#include <stdbool.h>

#include "core/base/err.h"
#include "core/base/list.h"
#include "core/coll/coll.h"
#include "core/p2p/p2p.h"

struct engine;
struct parts;
struct slot;

struct messages_gpu {
    struct p2p_stage stage;
    struct parts *parts; /* NULL: no message was on a GPU yet */
    struct list landing; /* slots, by slot.message.at */
    bool late;           /* a message waits for the program's work on the GPU */
    size_t may_fly;      /* messages that NCCL may move (slot.may_fly) */
    bool abandoned;      /* the GPU hangs: nothing is freed */
};

void messages_gpu_init(struct engine *e);
void messages_gpu_fini(struct engine *e);

/* Call before a message on that GPU begins: makes the parts at the first call. -ENOMEM. */
int messages_gpu_open(struct engine *e, int ordinal, struct err *err);

/* Whether the program's work that was on its stream at the submission has ended. A failure is set
 * in e->trouble. */
bool messages_gpu_is_open(struct engine *e, struct p2p_op *op);

/* p2p has ended the slot's message with err (NULL: well). Returns whether it lands: then this file
 * ends the slot. If not, no copy of its memory is in progress any more. */
bool messages_gpu_lands(struct engine *e, struct slot *slot, const struct err *err);

/* Moves what can be moved. Returns whether anything was moved. A failure is set in e->trouble. */
bool messages_gpu_progress(struct engine *e);

/* Whether a message of the set lands. */
bool messages_gpu_busy(const struct engine *e, int set);

/* How the driver waits for the GPU. */
enum coll_wait messages_gpu_wait(const struct engine *e);

/* Ends all messages that land, with err, unless they have their bytes. Waits for copies, 15 s at
 * most. set: of this set only; -1: of all circles. */
void messages_gpu_end(struct engine *e, int set, const struct err *err);

#endif
