/* SPDX-License-Identifier: Apache-2.0
 *
 * blocked: this rank's part in finding operations that wait for each other (negotiate/cycles.h).
 * What ranks tell goes to rank 0 over the control tree of the world. Called with the progress lock
 * held.
 */
#ifndef HVD_ENGINE_BLOCKED_H
#define HVD_ENGINE_BLOCKED_H

#include <stdint.h>

#include "core/base/buf.h"

struct circle;

/* negotiate_ops.lacks: tells in which other operations the callers of this rank are blocked. */
void blocked_lacks(void *ctx, const char *name);

/* Messages of this rank have waited for long: asks the other rank of each that a caller is blocked
 * in. There is no inquiry about messages. */
void blocked_ask(struct circle *c, uint64_t now);

/* A blocked rank, or a question for one, from links[from] of the world's control tree. -EPROTO. */
int blocked_recv(struct circle *c, int from, struct reader *r);
int blocked_recv_asked(struct circle *c, int from, struct reader *r);

/* c: the world's circle. Reports what was found. Returns when to call it next (UINT64_MAX: never).
 */
uint64_t blocked_tick(struct circle *c, uint64_t now);

#endif
