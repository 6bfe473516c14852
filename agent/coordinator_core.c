/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_core: see coordinator_core.h.
 */
#include "agent/coordinator_core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"

#define KILL_AFTER_MS 3500 /* from a stop with STOP_GRACE_MS until agents are killed */

struct roster_elastic coordinator_limits(const struct job *job)
{
    return (struct roster_elastic){.min = job->min_np,
                                   .max = job->max_np,
                                   .reset_limit = job->reset_limit,
                                   .start_limit = (uint64_t)job->start_timeout * CLOCK_S,
                                   .backoff_first = (uint64_t)job->cooldown_min * CLOCK_S,
                                   .backoff_max = (uint64_t)job->cooldown_max * CLOCK_S,
                                   .keep_places = job->keep_places};
}

void coordinator_say(struct coordinator_core *c, int level, const char *fmt, ...)
{
    char line[4096] = "hvdrun: ";
    va_list ap;
    if (level > c->job->verbose)
        return;
    va_start(ap, fmt);
    vsnprintf(line + 8, sizeof(line) - 9, fmt, ap);
    va_end(ap);
    size_t n = strlen(line);
    line[n++] = '\n';
    printer_say(&c->printer, line, n);
}

void coordinator_changed(struct coordinator_core *c)
{
    c->service.changed(c->service.arg);
}

void coordinator_stop(struct coordinator_core *c, const char *reason, int grace_ms)
{
    if (!c->roster.stopping)
        coordinator_say(c, 1, "ending all ranks: %s", reason);
    c->kill_at = deadline_in_ms((uint64_t)grace_ms + KILL_AFTER_MS - STOP_GRACE_MS);
    roster_stop(&c->roster, reason, grace_ms);
    coordinator_changed(c);
}

void coordinator_fail(struct coordinator_core *c, const char *fmt, ...)
{
    va_list ap;
    if (c->reason[0] || c->roster.stopping)
        return;
    va_start(ap, fmt);
    vsnprintf(c->reason, sizeof(c->reason), fmt, ap);
    va_end(ap);
    coordinator_stop(c, c->reason, STOP_GRACE_MS);
}
