/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_health: what the driver reads from the API server, and whether all of it is there.
 */
#include "operator/driver/driver_private.h"

/* Also true where RBAC forbids to list them (403): the operator works without nodes. */
static bool is_there_or_hidden(const struct informer *inf)
{
    return !inf || informer_refused(inf) || informer_synced(inf);
}

bool driver_ready(const struct driver *d)
{
    return discovery_text(d->discovery) && informer_synced(d->jobs) && informer_synced(d->pods) &&
           is_there_or_hidden(d->nodes) && is_there_or_hidden(d->others) &&
           is_there_or_hidden(d->daemonsets) && is_there_or_hidden(d->namespaces) &&
           is_there_or_hidden(d->quotas);
}

int driver_sources(const struct driver *d, struct health_source *ret, int max)
{
    const struct {
        const char *what;
        const struct informer *informer;
        enum health_need need;
    } caches[] = {
        {"hvdjobs", d->jobs, HEALTH_ALWAYS},
        {"pods of jobs", d->pods, HEALTH_ALWAYS},
        {"nodes", d->nodes, HEALTH_OPTIONAL},
        {"pods of others", d->others, HEALTH_OPTIONAL},
        {"daemonsets", d->daemonsets, HEALTH_OPTIONAL},
        {"namespaces", d->namespaces, HEALTH_OPTIONAL},
        {"resourcequotas", d->quotas, HEALTH_OPTIONAL},
        {"poddisruptionbudgets", d->budgets, HEALTH_PARTLY},
        {"podgroups", d->groups[0].informer, HEALTH_PARTLY},
        {"podgroups", d->groups[1].informer, HEALTH_PARTLY},
        {"podgroups", d->groups[2].informer, HEALTH_PARTLY},
    };
    int n = 0;
    if (n < max)
        ret[n++] = (struct health_source){.what = "API groups",
                                          .there = discovery_text(d->discovery),
                                          .problem = discovery_problem(d->discovery)};
    for (size_t i = 0; i < sizeof(caches) / sizeof(caches[0]) && n < max; i++)
        if (caches[i].informer)
            ret[n++] = (struct health_source){.what = caches[i].what,
                                              .need = caches[i].need,
                                              /* Nothing waits for the first list of the others. */
                                              .there = caches[i].need == HEALTH_PARTLY ||
                                                       informer_synced(caches[i].informer),
                                              .problem = informer_problem(caches[i].informer)};
    return n;
}
