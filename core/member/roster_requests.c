/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_requests: users' requests to change the size of an elastic job. See roster.h.
 */
#include <stdio.h>
#include <string.h>

#include "core/member/roster_leave.h"
#include "core/member/roster_target.h"

static int check_change(const struct roster *r, struct err *err)
{
    if (!r->is_elastic)
        return err_set(err, EOPNOTSUPP,
                       "this job has a fixed size: only one that was started with --min-np or "
                       "--max-np can change");
    if (r->stopping || r->closing || roster_is_finished(r))
        return err_set(err, ERANGE, "the job is ending");
    if (r->rebuilding)
        return err_set(
            err, ERANGE,
            "the new coordinator is still rebuilding its roster from the agents: try again");
    return 0;
}

static int check_size(const struct roster *r, int np, struct err *err)
{
    if (np < r->elastic.min)
        return err_set(err, ERANGE, "%d ranks would be less than the job's minimum of %d", np,
                       r->elastic.min);
    if (np > r->elastic.max)
        return err_set(err, ERANGE, "%d ranks would be more than the job's maximum of %d", np,
                       r->elastic.max);
    int slots = roster_agents_count_slots(&r->agents);
    if (np > r->target && np > slots)
        return err_set(err, ERANGE, "%d ranks: the hosts have room for %d", np, slots);
    return 0;
}

int roster_scale(struct roster *r, int np, uint64_t now, uint32_t *ret_change, struct err *err)
{
    char text[96];
    int rc = check_change(r, err);
    if (rc == 0)
        rc = check_size(r, np, err);
    if (rc < 0)
        return rc;
    if (np == r->target) {
        *ret_change = r->changes.requested;
        return 0;
    }
    snprintf(text, sizeof(text), "scaled from %d to %d ranks", r->target, np);
    roster_changes_add_plan(&r->changes, text);
    r->target = np;
    *ret_change = roster_apply_change(r, now);
    return 0;
}

int roster_drain_rank(struct roster *r, int rank, uint64_t now, uint32_t *ret_change,
                      struct err *err)
{
    char text[96];
    int rc = check_change(r, err), member = 0;
    if (rc < 0)
        return rc;
    while (member < r->members.n &&
           (r->members.list[member].rank != rank || !member_survives(&r->members.list[member])))
        member++;
    if (rank < 0 || member == r->members.n)
        return err_set(err, ENOENT, "no rank %d: the job has ranks 0 to %d", rank, r->size - 1);
    if (r->members.list[member].leaving) {
        *ret_change = r->changes.requested;
        return 0;
    }
    rc = check_size(r, r->target - 1, err);
    if (rc < 0)
        return rc;
    snprintf(text, sizeof(text), "rank %d was drained", rank);
    roster_changes_add_plan(&r->changes, text);
    r->target--;
    roster_ask_to_leave(r, member, text);
    *ret_change = roster_apply_change(r, now);
    return 0;
}

static bool is_host(const struct roster_agent *a, const char *host)
{
    return strcmp(a->host, host) == 0;
}

/* Lists the agents' hosts for an error text. */
static void list_hosts(const struct roster *r, char *dst, size_t size)
{
    size_t n = 0;
    dst[0] = '\0';
    for (int a = 0; a < r->agents.n && n + 1 < size; a++) {
        snprintf(dst + n, size - n, "%s%s", a ? ", " : "", r->agents.list[a].host);
        n = strlen(dst);
    }
}

/* Number of wanted members on that host; -1: no such host. */
static int count_on_host(const struct roster *r, const char *host)
{
    int n = -1;
    for (int a = 0; a < r->agents.n; a++) {
        if (!is_host(&r->agents.list[a], host))
            continue;
        n = n < 0 ? 0 : n;
        for (int i = 0; i < r->members.n; i++)
            n += r->members.list[i].agent == a && member_is_wanted(&r->members.list[i]);
    }
    return n;
}

static bool is_drained(const struct roster *r, const char *host)
{
    for (int a = 0; a < r->agents.n; a++)
        if (is_host(&r->agents.list[a], host) && !r->agents.list[a].lost &&
            !r->agents.list[a].draining)
            return false;
    return true;
}

int roster_drain_host(struct roster *r, const char *host, uint64_t now, uint32_t *ret_change,
                      struct err *err)
{
    char text[MEMBER_NAME_MAX + 32], list[512];
    int rc = check_change(r, err), n = count_on_host(r, host);
    if (rc < 0)
        return rc;
    list_hosts(r, list, sizeof(list));
    if (n < 0)
        return err_set(err, ENOENT, "no host \"%.100s\": the job's hosts are %s", host, list);
    rc = r->hosted ? 0 : check_size(r, r->target - n, err);
    if (rc < 0)
        return rc;
    /* The cluster reported the end of the pod before its drain request came. */
    if (r->hosted && is_drained(r, host)) {
        *ret_change = r->changes.requested;
        return 0;
    }
    snprintf(text, sizeof(text), "host %s was drained", host);
    roster_changes_add_plan(&r->changes, text);
    r->target -= r->hosted ? 0 : n;
    for (int i = 0; i < r->members.n; i++)
        if (is_host(&r->agents.list[r->members.list[i].agent], host) &&
            member_is_wanted(&r->members.list[i]))
            roster_ask_to_leave(r, i, text);
    for (int a = 0; a < r->agents.n; a++)
        r->agents.list[a].draining |= is_host(&r->agents.list[a], host);
    *ret_change = roster_apply_change(r, now);
    return 0;
}
