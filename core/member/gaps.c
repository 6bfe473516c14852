/* SPDX-License-Identifier: Apache-2.0
 *
 * gaps: see gaps.h.
 */
#include "core/member/gaps.h"

#include "core/base/clock.h"

#define ENOUGH 20 /* gaps needed before a limit is known */

void gaps_heard(struct gaps *s, uint64_t now)
{
    uint64_t gap = s->heard && now > s->heard ? now - s->heard : 0;
    s->heard = now;
    if (gap > s->longest[0])
        s->longest[0] = gap;
    if (++s->n < GAPS_WINDOW)
        return;
    s->longest[1] = s->longest[0];
    s->longest[0] = 0;
    s->n = 0;
}

void gaps_forgive(struct gaps *s, uint64_t now)
{
    if (s->heard)
        s->heard = now;
}

static uint64_t longer(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t gaps_limit(const struct gaps *s, int beat_ms)
{
    uint64_t least = longer(GAPS_LEAST_MS, GAPS_LEAST_BEATS * (uint64_t)beat_ms) * CLOCK_MS;
    if (s->longest[1] == 0 && s->n < ENOUGH)
        return UINT64_MAX;
    return longer(4 * longer(s->longest[0], s->longest[1]), least);
}
