/* SPDX-License-Identifier: Apache-2.0
 *
 * messages_departed: the ends of messages whose other rank has shut down. Called with the progress
 * lock held.
 */
#ifndef HVD_ENGINE_MESSAGES_DEPARTED_H
#define HVD_ENGINE_MESSAGES_DEPARTED_H

#include <stdbool.h>
#include <stdint.h>

struct circle;

/* Ends the messages with a rank that has shut down. */
void messages_fail_departed(struct circle *c, int peer);

/* Ends the messages with ranks that have shut down, when what they have sent has come. If all other
 * ranks have, also receives from any rank. */
void messages_check_departed(struct circle *c, uint64_t now);

/* Whether the rank has shut down so long ago that messages with it fail. */
bool messages_has_left(const struct circle *c, int peer);

/* When to call messages_check_departed() next. */
uint64_t messages_departed_due(const struct circle *c, uint64_t now);

#endif
