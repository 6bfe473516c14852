/* SPDX-License-Identifier: Apache-2.0
 *
 * gaps: how long an agent may be silent before it counts as lost: four times the longest gap
 * between its last 500 to 1000 messages (about their 99.9th percentile), but not less than
 * three heartbeats or 300 ms. An agent that has much to tell sends its messages close together, so
 * these gaps alone can be shorter than a heartbeat. Pure; one owner, one thread.
 */
#ifndef HVD_MEMBER_GAPS_H
#define HVD_MEMBER_GAPS_H

#include <stdint.h>

#define GAPS_LEAST_MS    300
#define GAPS_LEAST_BEATS 3
#define GAPS_WINDOW      500 /* gaps per window; the present and the previous window count */

struct gaps {
    uint64_t heard;      /* clock time of the agent's last message, 0: none yet */
    uint64_t longest[2]; /* longest gap of this window and of the previous one, ns */
    int n;               /* gaps in this window */
};

void gaps_heard(struct gaps *s, uint64_t now);

/* The coordinator itself was not listening: ignores the gap until now. */
void gaps_forgive(struct gaps *s, uint64_t now);

/* Nanoseconds of silence after which an agent with this heartbeat counts as lost. UINT64_MAX: too
 * few gaps are known. */
uint64_t gaps_limit(const struct gaps *s, int beat_ms);

#endif
