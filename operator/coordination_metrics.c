/* SPDX-License-Identifier: Apache-2.0
 *
 * coordination_metrics: the plane's counters in Prometheus' text format. See coordination.h.
 */
#include "operator/coordination_private.h"

static void put(struct buf *dst, const char *name, const char *kind, const char *help,
                double number)
{
    metrics_head(dst, name, kind, help);
    metrics_value(dst, name, NULL, NULL, number);
}

void coordination_metrics(const struct coordination *c, struct buf *dst)
{
    static const char *const causes[] = {"planned", "lost"};
    const struct keys *keys = keystore_keys(c->keystore);
    struct plane_counts n = {0};
    int64_t made = 0, until = 0;
    if (c->mirror)
        n = *plane_mirror_counts(c->mirror);
    if (keys)
        authority_span(keys->ca_pem, &made, &until, NULL);
    put(dst, "hvd_plane_connected", "gauge", "1: hvd-plane is connected to this operator.",
        c->link != NULL);
    put(dst, "hvd_certificate_expires_seconds", "gauge",
        "Time since 1970 at which the certificate of hvd-plane expires; 0: this operator does not "
        "lead.",
        c->mirror ? (double)c->until : 0);
    put(dst, "hvd_ca_expires_seconds", "gauge",
        "Time since 1970 at which the certificate authority that new pods trust expires.",
        (double)until);
    put(dst, "hvd_agents", "gauge", "Agents that are connected now.", n.agents);
    put(dst, "hvd_agent_joins_total", "counter", "Agents that joined.", (double)n.joins);
    put(dst, "hvd_agent_rejoins_total", "counter",
        "Agents that joined again after a restart of the operator or a lost connection.",
        (double)n.rejoins);
    put(dst, "hvd_agent_losses_total", "counter", "Agents that were declared lost.",
        (double)n.losses);
    put(dst, "hvd_token_reviews_total", "counter",
        "Token reviews that were sent to the API server.", (double)n.reviews);
    metrics_head(dst, "hvd_agents_refused_total", "counter",
                 "Requests of agents that were refused, by cause.");
    metrics_value(dst, "hvd_agents_refused_total", "cause", "token", (double)n.refused_token);
    metrics_value(dst, "hvd_agents_refused_total", "cause", "pod", (double)n.refused_pod);
    metrics_value(dst, "hvd_agents_refused_total", "cause", "body", (double)n.refused_body);
    metrics_head(dst, "hvd_epochs_total", "counter",
                 "New epochs that followed another one, by cause.");
    metrics_value(dst, "hvd_epochs_total", "cause", "planned", (double)n.epochs_planned);
    metrics_value(dst, "hvd_epochs_total", "cause", "lost", (double)n.epochs_lost);
    metrics_histograms(dst, "hvd_recovery_seconds",
                       "How long training stood still at a new epoch, by cause.", "cause", causes,
                       c->recovery, 2);
}
