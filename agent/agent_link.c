/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_link: see agent_link.h.
 */
#include "agent/agent_link.h"

#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/log.h"

#define SILENT_MS    10000 /* silence of the coordinator after which it is logged */
#define AWAY_MS      2500  /* longer than a poll for the roster waits */
#define AWAY_STEP_MS 1000

int agent_link_open(struct agent_link *link, struct loop *loop, const struct agent_config *config,
                    struct err *err)
{
    *link = (struct agent_link){.loop = loop, .config = config};
    struct client_config client = {.loop = loop,
                                   .url = config->url,
                                   .unix_path = config->unix_path,
                                   .ca_pem = config->ca_pem,
                                   .token = config->token,
                                   .token_file = config->token_file,
                                   .jitter_ms = config->jitter_ms};
    return client_open(&link->client, &client, err);
}

void agent_link_close(struct agent_link *link)
{
    client_close(link->client);
    link->client = NULL;
}

const char *agent_link_peer(const struct agent_link *link)
{
    return link->config->pod ? "the operator" : "hvdrun";
}

bool agent_link_ready(const struct agent_link *link)
{
    return link->joined && !link->rejoining && !link->abandoned;
}

void agent_link_answered(struct agent_link *link)
{
    if (link->silence_reported)
        log_info("%s answers again", agent_link_peer(link));
    peer_silence_end(&link->silence, clock_ns());
    peer_silence_end(&link->unserved, clock_ns());
    link->unanswered[0] = '\0';
    link->silence_reported = false;
}

void agent_link_unanswered(struct agent_link *link, const struct client_answer *answer)
{
    if (answer->status != 0)
        peer_silence_end(&link->silence, clock_ns());
    if (answer->status == 0)
        snprintf(link->unanswered, sizeof(link->unanswered), "%s", answer->text);
    else
        snprintf(link->unanswered, sizeof(link->unanswered), "HTTP %ld %.200s", answer->status,
                 answer->body);
    log_debug("no answer from %s: %s", agent_link_peer(link), link->unanswered);
}

uint32_t agent_link_away(struct agent_link *link)
{
    uint64_t away = peer_silence_measure(&link->unserved, clock_ns());
    if (away < AWAY_MS * CLOCK_MS) {
        link->away_told = 0;
        return 0;
    }
    uint64_t more = away - link->away_told;
    if (more < AWAY_STEP_MS * CLOCK_MS || more / CLOCK_MS > UINT32_MAX)
        return 0;
    link->away_told = away;
    return (uint32_t)(more / CLOCK_MS);
}

int agent_link_check(struct agent_link *link, struct err *err)
{
    uint64_t silent = peer_silence_measure(&link->silence, clock_ns());
    int limit_s = link->config->lost_seconds;
    const char *why = *link->unanswered ? link->unanswered : "no answer at all";
    if (link->abandoned)
        return 0;
    if (limit_s && silent >= (uint64_t)limit_s * CLOCK_S)
        return err_set(err, ETIMEDOUT, "%s has not answered for %d s (%s): ending the ranks",
                       agent_link_peer(link), limit_s, why);
    if (silent >= SILENT_MS * CLOCK_MS && !link->silence_reported) {
        if (limit_s)
            log_warn("%s has not answered for %d s (%s); after %d s the ranks are ended",
                     agent_link_peer(link), SILENT_MS / 1000, why, limit_s);
        else
            log_warn("%s has not answered for %d s (%s); ranks that train go on without it",
                     agent_link_peer(link), SILENT_MS / 1000, why);
        link->silence_reported = true;
    }
    return 0;
}
