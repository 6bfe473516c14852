/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_agents: see roster_agents.h.
 */
#include "core/member/roster_agents.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void agent_fini(struct roster_agent *a)
{
    findings_fini(&a->findings);
    if (a->told)
        rejoin_fini(a->told);
    free(a->told);
    free(a->slots);
    free(a->uid);
    free(a->host);
    free(a->self);
}

int roster_agents_add(struct roster_agents *agents, const struct roster_host *host)
{
    int slots = host->slots > host->nranks ? host->slots : host->nranks;
    struct roster_agent *grown =
        realloc(agents->list, ((size_t)agents->n + 1) * sizeof(*agents->list));
    if (!grown)
        return -ENOMEM;
    agents->list = grown;
    struct roster_agent *a = &agents->list[agents->n];
    *a = (struct roster_agent){.uid = strdup(host->uid), .host = strdup(host->host)};
    if (!a->uid || !a->host || roster_agent_set_slots(a, slots) < 0) {
        agent_fini(a);
        return -ENOMEM;
    }
    return agents->n++;
}

void roster_agents_fini(struct roster_agents *agents)
{
    for (int i = 0; i < agents->n; i++)
        agent_fini(&agents->list[i]);
    free(agents->list);
    *agents = (struct roster_agents){0};
}

int roster_agents_find(const struct roster_agents *agents, const char *uid)
{
    for (int i = 0; i < agents->n; i++)
        if (strcmp(agents->list[i].uid, uid) == 0)
            return i;
    return -ENOENT;
}

/* ---- slots ---------------------------------------------------------------------------------- */

int roster_agent_set_slots(struct roster_agent *a, int slots)
{
    if (slots > a->room) {
        struct roster_slot *grown = realloc(a->slots, (size_t)slots * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        a->slots = grown;
        for (; a->room < slots; a->room++)
            a->slots[a->room] = (struct roster_slot){.member = -1};
    }
    a->nslots = slots;
    return 0;
}

int roster_agents_count_slots(const struct roster_agents *agents)
{
    int n = 0;
    for (int i = 0; i < agents->n; i++)
        if (!agents->list[i].lost && !agents->list[i].draining)
            n += agents->list[i].nslots;
    return n;
}

/* Number of free slots where members can be started now. *ret_first: the first one. */
static int count_free(const struct roster_agent *a, const struct roster_members *ms, int *ret_first)
{
    int n = 0;
    if (!a->joined || a->lost || a->draining)
        return 0;
    for (int i = 0; i < a->nslots; i++) {
        if (a->slots[i].member >= 0 && !ms->list[a->slots[i].member].reaped)
            continue;
        if (n++ == 0)
            *ret_first = i;
    }
    return n;
}

int roster_agents_free_slots(const struct roster_agents *agents, const struct roster_members *ms)
{
    int n = 0, first;
    for (int i = 0; i < agents->n; i++)
        n += count_free(&agents->list[i], ms, &first);
    return n;
}

int roster_agents_choose(const struct roster_agents *agents, const struct roster_members *ms,
                         int preferred, int *ret_slot)
{
    int best = -1, most = 0, first = 0;
    if (preferred >= 0 && count_free(&agents->list[preferred], ms, ret_slot) > 0)
        return preferred;
    for (int i = 0; i < agents->n; i++) {
        int n = count_free(&agents->list[i], ms, &first);
        if (n <= most)
            continue;
        most = n;
        best = i;
        *ret_slot = first;
    }
    return best;
}
