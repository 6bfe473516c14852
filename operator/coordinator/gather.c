/* SPDX-License-Identifier: Apache-2.0
 *
 * gather: see gather.h.
 */
#include "operator/coordinator/gather.h"

#include "core/base/clock.h"

void gather_update(struct gather *g, int agents, bool behind, uint64_t now)
{
    g->agents = agents > g->agents ? agents : g->agents;
    g->behind = behind;
    if (behind)
        g->last = now;
}

uint64_t gather_end(const struct gather *g, uint64_t begun)
{
    uint64_t ms = (uint64_t)g->base_ms + (uint64_t)g->agents * GATHER_AGENT_MS;
    uint64_t end = begun + ms * CLOCK_MS, pause = g->last + GATHER_PAUSE_MS * CLOCK_MS;
    uint64_t most = begun + GATHER_MAX_MS * CLOCK_MS;
    end = pause > end ? pause : end;
    return end < most ? end : most;
}
