/* SPDX-License-Identifier: Apache-2.0
 *
 * retry: see retry.h.
 */
#include "operator/api/retry.h"

#define DOUBLINGS_MAX 14 /* 5 ms << 14 is more than a minute */

uint64_t retry_backoff_ms(unsigned failures, uint32_t random)
{
    unsigned doublings = failures > 0 ? failures - 1 : 0;
    uint64_t ms = doublings >= DOUBLINGS_MAX ? RETRY_MAX_MS : (uint64_t)RETRY_FIRST_MS << doublings;
    if (ms > RETRY_MAX_MS)
        ms = RETRY_MAX_MS;
    return ms - ms / 2 * random / UINT32_MAX;
}

bool retry_again(const struct retry_outcome *outcome, bool idempotent, unsigned failures,
                 uint32_t random, uint64_t *ret_ms)
{
    bool not_done = outcome->status == 429 || (outcome->status == 0 && outcome->unreached);
    bool perhaps_done = outcome->status == 0 || outcome->status >= 500;
    if (!not_done && !(perhaps_done && idempotent))
        return false;
    uint64_t ms = retry_backoff_ms(failures, random);
    if (outcome->status != 0 && outcome->retry_after_s >= 0) {
        uint64_t asked = (uint64_t)outcome->retry_after_s * 1000;
        if (asked > RETRY_MAX_MS)
            asked = RETRY_MAX_MS;
        ms = asked > ms ? asked : ms;
    }
    *ret_ms = ms;
    return true;
}
