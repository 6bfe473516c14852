/* SPDX-License-Identifier: Apache-2.0
 *
 * unheard: for how long a peer has said nothing while this process listened. Time in which this
 * process did not listen (it was stopped, had no processor, or did something else) does not count:
 * the peer's words may wait in a socket. Pure; one owner, one thread.
 */
#ifndef HVD_AGENT_UNHEARD_H
#define HVD_AGENT_UNHEARD_H

#include <stdint.h>

#include "core/base/clock.h"

/* Between two looks no more than this counts. The owner looks more often while it listens. */
#define UNHEARD_STEP (250 * CLOCK_MS)

/* Zero-initialized: nothing was heard, and nobody has looked. */
struct unheard {
    uint64_t ns;     /* of silence that count */
    uint64_t looked; /* clock of the last look or word; 0: none */
};

/* The peer has said something. */
void unheard_end(struct unheard *s, uint64_t now);

/* Called in each turn of the loop that listens. How long the silence is now, in ns. */
uint64_t unheard_look(struct unheard *s, uint64_t now);

#endif
