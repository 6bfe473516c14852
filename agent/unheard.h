/* SPDX-License-Identifier: Apache-2.0
 *
 * unheard: how long a peer has been silent while this process listened. Time in which this process
 * did not listen (it was stopped, or had no processor) does not count: the peer's messages may wait
 * in a socket. Pure; one owner, one thread.
 */
#ifndef HVD_AGENT_UNHEARD_H
#define HVD_AGENT_UNHEARD_H

#include <stdint.h>

#include "core/base/clock.h"

/* At most this much counts between two calls of unheard_look(). The owner calls it more often while
 * it listens. */
#define UNHEARD_STEP (250 * CLOCK_MS)

/* Zero-initialized: nothing was heard yet. */
struct unheard {
    uint64_t ns;     /* silence that counts */
    uint64_t looked; /* clock_ns() of the last call; 0: none */
};

/* The peer has sent something. */
void unheard_end(struct unheard *s, uint64_t now);

/* Call in each iteration of the loop that listens. Returns the length of the silence in ns. */
uint64_t unheard_look(struct unheard *s, uint64_t now);

#endif
