/* SPDX-License-Identifier: Apache-2.0
 *
 * leader: see leader.h.
 */
#include "operator/api/leader.h"

#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"

void leader_init(struct leader *l, const struct leader_config *config)
{
    *l = (struct leader){.config = *config, .highest = -1};
}

static bool ours(const struct leader *l)
{
    return strcmp(l->seen.holder, l->config.identity) == 0;
}

/* Remembers the lease. Its duration starts again only if it has changed. */
static void note(struct leader *l, const struct lease *seen, uint64_t now)
{
    if (!l->have || strcmp(l->seen.version, seen->version) != 0)
        l->seen_at = now;
    l->seen = *seen;
    l->have = true;
    if (seen->transitions > l->highest)
        l->highest = seen->transitions;
}

bool leader_leads(const struct leader *l, uint64_t now)
{
    return l->leading && now < leader_until(l);
}

uint64_t leader_until(const struct leader *l)
{
    return l->renewed_at + l->config.renew_ms * CLOCK_MS;
}

int64_t leader_term(const struct leader *l)
{
    return l->seen.transitions;
}

enum leader_action leader_turn(struct leader *l, uint64_t now)
{
    if (l->leading && now >= leader_until(l))
        l->leading = false;
    if (l->leaving)
        return LEADER_WAIT;
    l->conflicts = 0;
    /* The leader knows the lease's version, so a renewal needs no read. */
    return l->leading ? LEADER_WRITE : LEADER_READ;
}

enum leader_action leader_saw(struct leader *l, const struct lease *seen, uint64_t now)
{
    bool own = seen && strcmp(seen->holder, l->config.identity) == 0;
    l->releasing = l->releasing && own;
    if (l->leaving && !own)
        return LEADER_WAIT;
    if (!seen) {
        l->have = false;
        l->leading = false;
        return LEADER_CREATE;
    }
    note(l, seen, now);
    if (l->leaving || l->releasing)
        return LEADER_WRITE;
    if (!own)
        l->leading = false;
    uint64_t duration = (uint64_t)seen->duration_s * CLOCK_S;
    /* The lease has this process's identity although it does not lead: the response to a write was
     * lost. It counts as free, because the identity is unique. */
    uint64_t free_at = l->seen_at + (seen->holder[0] && !own ? duration : 0);
    if (l->yields)
        free_at += l->config.duration_ms * CLOCK_MS;
    return now >= free_at ? LEADER_WRITE : LEADER_WAIT;
}

struct lease leader_desired(struct leader *l, uint64_t now, int64_t wall_us)
{
    struct lease wish = l->have ? l->seen : (struct lease){0};
    l->sent_at = now;
    l->unsure = true;
    wish.renewed_us = wall_us;
    wish.duration_s = (int64_t)(l->config.duration_ms + 999) / 1000;
    if (l->leaving || l->releasing) {
        l->taking = false;
        wish.holder[0] = '\0';
        wish.duration_s = 1;
        return wish;
    }
    l->leading = leader_leads(l, now);
    l->taking = !l->leading;
    if (l->taking) {
        wish.acquired_us = wall_us;
        wish.transitions = l->highest + 1;
    }
    snprintf(wish.holder, sizeof(wish.holder), "%s", l->config.identity);
    return wish;
}

enum leader_action leader_wrote(struct leader *l, enum leader_result result,
                                const struct lease *answer, uint64_t now)
{
    if (result == LEADER_DONE)
        l->unsure = false;
    if (l->leaving) /* the conflict may be with a renewal whose answer was not waited for */
        return result == LEADER_CONFLICT && l->conflicts++ == 0 ? LEADER_READ : LEADER_WAIT;
    if (!l->taking && !leader_leads(l, now))
        l->leading = false; /* the response came too late: leading again needs a new term */
    if (result == LEADER_DONE) {
        bool valid = l->taking || l->leading;
        l->releasing = false;
        note(l, answer, now);
        l->renewed_at = l->sent_at;
        l->leading = valid && ours(l) && now < leader_until(l);
        return l->leading || !ours(l) ? LEADER_WAIT : LEADER_WRITE;
    }
    /* Somebody wrote the lease; it may have been this process, if a response was lost. Read it at
     * once after the first conflict of a turn, later ones wait for the next turn. */
    return result == LEADER_CONFLICT && l->conflicts++ == 0 ? LEADER_READ : LEADER_WAIT;
}

enum leader_action leader_release(struct leader *l, uint64_t now)
{
    l->releasing = leader_leads(l, now);
    l->leading = false;
    return l->releasing ? LEADER_WRITE : LEADER_WAIT;
}

enum leader_action leader_leave(struct leader *l, uint64_t now)
{
    bool held = leader_leads(l, now);
    l->leading = false;
    l->leaving = true;
    l->conflicts = 0;
    return held ? LEADER_WRITE : l->unsure ? LEADER_READ : LEADER_WAIT;
}
