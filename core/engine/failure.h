/* SPDX-License-Identifier: Apache-2.0
 *
 * failure: what the engine does when an operation, a rank or the mesh fails: it is repaired (in an
 * elastic job) or fails for good. Everything but engine_explain() is called with the progress lock
 * held.
 */
#ifndef HVD_ENGINE_FAILURE_H
#define HVD_ENGINE_FAILURE_H

#include <stdint.h>

#include "core/base/err.h"

struct circle;
struct engine;

/* Fails every present and later operation with err, and every message. Only the first call has an
 * effect. */
void engine_fail(struct engine *e, const struct err *err);

/* A circle's mesh or collective has failed with rc in step `what`: finds the cause. An elastic
 * job is repaired: on return the engine is in the next epoch, and mesh, coll and negotiation are
 * new objects. Otherwise, or when the repair fails, the engine has failed. */
void engine_lost(struct circle *c, const char *what, int rc);

/* Like engine_lost(), for a caller that knows that a rank is lost, and why. */
void engine_repair(struct engine *e, const struct err *why);

/* The same for a loss in one circle. */
void circle_lost(struct circle *c, const struct err *why);

/* Fails the present and later collectives of a set, or of the world. None of its batches is left in
 * the lane for GPUs. Messages, other sets and the engine go on. In an elastic job the engine fails
 * with the world, and a set breaks. */
void circle_fail(struct circle *c, const struct err *why);

/* Elastic: the set is broken, so its messages fail, too. Operations that wait and were submitted in
 * this world or later go on waiting (UINT32_MAX: none). */
void circle_break(struct circle *c, uint32_t world, const struct err *why);

/* Tells the peers of all circles why this rank gives up. */
void engine_abort_all(struct engine *e, const char *why);

/* Fails this rank with `why`; nothing is sent to peers. In an elastic job its agent is told,
 * so that the other ranks continue without it. */
void engine_fail_rank(struct engine *e, const struct err *why);

/* Stops the operation in flight, and ends every unfinished operation with why. */
void engine_fail_all(struct engine *e, const struct err *why);

/* Call before NCCL's operations in flight are aborted, when this rank has told of its failure, or
 * every rank learns of it from another one: waits until they should have heard. An aborted NCCL no
 * longer waits for data, and theirs takes that for this rank's contribution; see count_landed() in
 * gpu_lane.c. Returns at once if nothing is in flight, or the abort may have begun. */
void engine_let_others_hear(struct engine *e);

/* Starts to abort all communicators that have work in flight. */
void engine_revoke_gpus(struct engine *e);

/* The reason for a BYE: the rank leaves in order, another rank's end, or this rank's failure. */
enum bye_for { BYE_IN_ORDER, BYE_OTHER_RANK, BYE_THIS_RANK };

/* Tells the agent, once, that this rank takes part in no further operation. why: NULL for
 * BYE_IN_ORDER.
 *
 * - Elastic job: always, because the coordinator waits for this rank in each repair, and ends the
 *   process after 30 s.
 * - Fixed job: BYE_OTHER_RANK makes hvdrun name that rank as the cause. With -ESHUTDOWN this rank
 *   goes on, and says BYE again later. BYE_THIS_RANK sends
 *   nothing: the end of the process without BYE names this rank. */
void engine_send_bye(struct engine *e, enum bye_for whose, const struct err *why);

/* Adds advice for the user when the error is about exhausted descriptors. */
void engine_explain(struct err *err);

#endif
