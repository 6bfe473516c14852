/* SPDX-License-Identifier: Apache-2.0
 *
 * peer_silence: how long a peer has been silent while this process listened. Time in which this
 * process did not listen (it was stopped, or had no processor) does not count: the peer's messages
 * may wait in a socket. Pure; one owner, one thread.
 */
#ifndef HVD_AGENT_PEER_SILENCE_H
#define HVD_AGENT_PEER_SILENCE_H

#include <stdint.h>

#include "core/base/clock.h"

/* At most this much counts between two calls of peer_silence_measure(). The owner calls it more
 * often while it listens. */
#define PEER_SILENCE_STEP (250 * CLOCK_MS)

/* Zero-initialized: the peer has sent nothing yet. */
struct peer_silence {
    uint64_t ns;       /* silence that counts */
    uint64_t measured; /* clock_ns() of the last call; 0: none */
};

/* Call when the peer has sent something: ends its silence. */
void peer_silence_end(struct peer_silence *s, uint64_t now);

/* Call in each iteration of the loop that listens. Returns the length of the silence in ns. */
uint64_t peer_silence_measure(struct peer_silence *s, uint64_t now);

#endif
