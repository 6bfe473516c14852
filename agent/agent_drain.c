/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_drain: see agent_drain.h.
 */
#include "agent/agent_drain.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/log.h"

#define ASK_MS   4000
#define DRAIN_MS 25000 /* SIGKILL usually follows SIGTERM after 30 s */
#define GRACE_MS 2000
#define RETRY_MS 500

void agent_drain_init(struct agent_drain *d, struct agent_link *link, struct agent_ranks *ranks)
{
    *d = (struct agent_drain){.link = link, .ranks = ranks};
}

void agent_drain_fini(struct agent_drain *d)
{
    if (!d->link)
        return;
    loop_timer_stop(d->link->loop, &d->timer);
    loop_timer_stop(d->link->loop, &d->retry);
}

static int drain_ms(const struct agent_drain *d)
{
    return d->link->config->drain_seconds ? 1000 * d->link->config->drain_seconds : DRAIN_MS;
}

static void ask(struct agent_drain *d);

static void on_retry(void *arg)
{
    struct agent_drain *d = arg;
    if (!d->ranks->stopping)
        ask(d);
}

static void on_late(void *arg)
{
    struct agent_drain *d = arg;
    log_warn("the ranks have reached no step boundary within %d s: ending them",
             drain_ms(d) / 1000);
    agent_ranks_stop(d->ranks, GRACE_MS);
}

static void on_answer(void *arg, const struct client_answer *answer)
{
    struct agent_drain *d = arg;
    if (answer->status == 200 || d->ranks->stopping)
        return;
    /* The operator restarts, or another one takes over and must first learn what this agent knows:
     * ask again later. */
    if (d->link->config->pod &&
        (answer->status == 0 || answer->status == 503 || answer->status == 404)) {
        loop_timer_start(d->link->loop, &d->retry, RETRY_MS, on_retry, d);
        return;
    }
    log_warn("the ranks cannot leave at a step boundary and are ended now: %.300s",
             answer->status ? answer->body : answer->text);
    agent_ranks_stop(d->ranks, GRACE_MS);
}

static void ask(struct agent_drain *d)
{
    struct drain_body body = {.rank = -1};
    snprintf(body.host, sizeof(body.host), "%s", d->link->config->host);
    char *text = drain_write(&body);
    if (!text || client_send(d->link->client, "/v1/drain", text, ASK_MS, on_answer, d, NULL) < 0)
        agent_ranks_stop(d->ranks, GRACE_MS);
    free(text);
}

void agent_drain_start(struct agent_drain *d)
{
    if (!d->ranks->welcome.elastic || d->link->abandoned || d->ranks->stopping || d->active) {
        agent_ranks_stop(d->ranks, GRACE_MS);
        return;
    }
    d->active = true;
    log_info("SIGTERM: the ranks of this agent leave at their next step boundary");
    loop_timer_start(d->link->loop, &d->timer, (uint64_t)drain_ms(d), on_late, d);
    ask(d);
}
