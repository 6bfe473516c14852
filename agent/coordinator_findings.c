/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_findings: see coordinator_findings.h.
 */
#include "agent/coordinator_findings.h"

#include <string.h>

#define AT_A_FAILURE 8 /* most findings of one weight() that are printed for a failed rank */

static void say(struct coordinator_core *c, int level, const char *host, const struct finding *f)
{
    coordinator_say(c, level, "doctor on %s: %s: %s (%s)", host, finding_status_name(f->status),
                    f->summary, f->id);
    if (f->fix[0])
        coordinator_say(c, level, "  fix: %s", f->fix);
}

void coordinator_say_findings(struct coordinator_core *c)
{
    const struct roster *r = &c->roster;
    for (int a = 0; a < r->agents.n; a++) {
        struct findings *list = &r->agents.list[a].findings;
        for (int i = 0; i < list->n; i++) {
            struct finding *f = &list->list[i];
            if (!f->told)
                say(c, f->status == FINDING_FAIL ? 0 : 1, r->agents.list[a].host, f);
            f->told = true;
        }
    }
}

void coordinator_say_cause(struct coordinator_core *c)
{
    struct explanation why;
    if (!explain_failure(&c->explain, &why))
        return;
    coordinator_say(c, 0, "likely cause: %s", why.cause);
    coordinator_say(c, 0, "  %s: %s", why.where, why.line);
    if (why.fix[0])
        coordinator_say(c, 0, "  fix: %s", why.fix);
}

/* Returns the weight of a finding; for a failed rank the heaviest are printed first: failures, and
 * of equally severe findings those that appeared while the job ran (watch). */
static int weight(const struct finding *f)
{
    return 2 * (f->status == FINDING_FAIL) + (strcmp(f->source, "watch") == 0);
}

static int say_weight(struct coordinator_core *c, const struct findings *list, int w)
{
    int n = 0;
    for (int i = 0; i < list->n && n < AT_A_FAILURE; i++) {
        const struct finding *f = &list->list[i];
        if (weight(f) != w)
            continue;
        coordinator_say(c, 0, "  %s: %s (%s)%s%s", finding_status_name(f->status), f->summary,
                        f->id, f->fix[0] ? "; fix: " : "", f->fix);
        n++;
    }
    return n;
}

void coordinator_say_host(struct coordinator_core *c, int rank)
{
    const struct roster_agent *a = &c->roster.agents.list[c->roster.members.list[rank].agent];
    int said = 0, grave = 0, least = c->job->verbose ? 0 : 1;
    for (int i = 0; i < a->findings.n; i++)
        grave += weight(&a->findings.list[i]) >= least;
    if (grave)
        coordinator_say(c, 0, "the doctor found on %s, where rank %d ran:", a->host, rank);
    for (int w = 3; w >= least; w--)
        said += say_weight(c, &a->findings, w);
    if (grave && a->findings.n > said)
        coordinator_say(c, 0, "  and %d more: run hvd-doctor on that host to see all",
                        a->findings.n - said);
}
