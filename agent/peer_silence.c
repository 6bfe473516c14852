/* SPDX-License-Identifier: Apache-2.0
 *
 * peer_silence: see peer_silence.h.
 */
#include "agent/peer_silence.h"

void peer_silence_end(struct peer_silence *s, uint64_t now)
{
    *s = (struct peer_silence){.measured = now};
}

uint64_t peer_silence_measure(struct peer_silence *s, uint64_t now)
{
    uint64_t step = s->measured && now > s->measured ? now - s->measured : 0;
    s->ns += step < PEER_SILENCE_STEP ? step : PEER_SILENCE_STEP;
    s->measured = now;
    return s->ns;
}
