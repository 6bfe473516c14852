/* SPDX-License-Identifier: Apache-2.0
 *
 * unheard: see unheard.h.
 */
#include "agent/unheard.h"

void unheard_end(struct unheard *s, uint64_t now)
{
    *s = (struct unheard){.looked = now};
}

uint64_t unheard_look(struct unheard *s, uint64_t now)
{
    uint64_t step = s->looked && now > s->looked ? now - s->looked : 0;
    s->ns += step < UNHEARD_STEP ? step : UNHEARD_STEP;
    s->looked = now;
    return s->ns;
}
