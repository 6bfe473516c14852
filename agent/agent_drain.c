/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_drain: SIGTERM says that this host will go away (spot instance, evicted pod). In an elastic
 * job its ranks leave at the next step boundary, instead of being ended in the middle of a step.
 * See agent.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "agent/agent.h"
#include "core/base/log.h"

#define ASK_MS   4000
#define DRAIN_MS 25000 /* SIGKILL usually follows SIGTERM after 30 s */
#define GRACE_MS 2000
#define RETRY_MS 500

static int drain_ms(const struct agent *a)
{
    return a->config.drain_seconds ? 1000 * a->config.drain_seconds : DRAIN_MS;
}

static void ask(struct agent *a);

static void on_retry(void *arg)
{
    struct agent *a = arg;
    if (!a->stopping)
        ask(a);
}

static void on_late(void *arg)
{
    struct agent *a = arg;
    log_warn("the ranks have reached no step boundary within %d s: ending them",
             drain_ms(a) / 1000);
    agent_stop_ranks(a, GRACE_MS);
}

static void on_answer(void *arg, const struct client_answer *answer)
{
    struct agent *a = arg;
    if (answer->status == 200 || a->stopping)
        return;
    /* The operator restarts, or another one takes over and must first learn what this agent knows:
     * ask again later. */
    if (a->config.pod && (answer->status == 0 || answer->status == 503 || answer->status == 404)) {
        loop_timer_start(&a->loop, &a->drain_retry, RETRY_MS, on_retry, a);
        return;
    }
    log_warn("the ranks cannot leave at a boundary, they are ended: %.300s",
             answer->status ? answer->body : answer->text);
    agent_stop_ranks(a, GRACE_MS);
}

static void ask(struct agent *a)
{
    struct drain_body body = {.rank = -1};
    snprintf(body.host, sizeof(body.host), "%s", a->config.host);
    char *text = drain_write(&body);
    if (!text || client_send(a->client, "/v1/drain", text, ASK_MS, on_answer, a, NULL) < 0)
        agent_stop_ranks(a, GRACE_MS);
    free(text);
}

void agent_drain(struct agent *a)
{
    if (!a->welcome.elastic || a->abandoned || a->stopping || a->draining) {
        agent_stop_ranks(a, GRACE_MS);
        return;
    }
    a->draining = true;
    log_info("SIGTERM: the ranks here leave at their next boundary");
    loop_timer_start(&a->loop, &a->drain_timer, (uint64_t)drain_ms(a), on_late, a);
    ask(a);
}
