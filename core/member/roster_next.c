/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_next: see roster_next.h.
 */
#include "core/member/roster_next.h"

#include <stdio.h>
#include <string.h>

void roster_next_add_cause(struct roster_next *next, uint64_t now, const char *text)
{
    size_t n = strlen(next->cause);
    roster_next_since(&next->cause_at, now);
    snprintf(next->cause + n, sizeof(next->cause) - n, "%s%s", n ? "; " : "", text);
}

void roster_next_published(struct roster_next *next)
{
    next->cause[0] = '\0';
    next->cause_at = next->waiting_since = next->joiner_ready = 0;
}
