/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_changes: see roster_changes.h.
 */
#include "core/member/roster_changes.h"

#include <stdio.h>
#include <string.h>

void roster_changes_add_plan(struct roster_changes *c, const char *text)
{
    size_t n = strlen(c->plan);
    snprintf(c->plan + n, sizeof(c->plan) - n, "%s%s", n ? "; " : "", text);
}

uint32_t roster_changes_announce(struct roster_changes *c)
{
    if (c->requested == c->announced)
        c->requested++;
    c->plan[0] = '\0';
    return c->announced = c->requested;
}

void roster_changes_apply_all(struct roster_changes *c)
{
    c->applied = c->announced = c->requested;
}
