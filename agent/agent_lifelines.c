/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_lifelines: lifelines for the ranks of an elastic job: the agent learns of a death before
 * the kernel has freed the process, and evicts a rank that is silent without a good reason. See
 * agent.h and lifelines.h.
 */
#include "agent/agent.h"
#include "core/base/log.h"

static void on_gone(void *arg, struct rank_lifeline *rl, bool evict, const char *text)
{
    struct agent *a = arg;
    struct rank *rank = list_entry(rl, struct rank, lifeline);
    if (!evict)
        rank_read_frames(rank); /* a BYE may be unread in the socket */
    if (rank->hello && !rank->bye && !a->stopping)
        agent_declare_dead(a, rank, evict, text);
}

static void on_suspected(void *arg, struct rank_lifeline *rl, const char *text)
{
    struct agent *a = arg;
    struct rank *rank = list_entry(rl, struct rank, lifeline);
    char name[64];
    agent_name(rank, name, sizeof(name));
    log_warn("%s on %s (pid %d) %s", name, a->config.host, (int)rank->pid, text);
}

static const struct lifelines_ops ops = {on_gone, on_suspected};

int agent_open_lifelines(struct agent *a, struct err *err)
{
    if (!a->welcome.elastic)
        return 0;
    lifeline_raise_priority();
    return lifelines_init(&a->lifelines, &a->loop, &ops, a, err);
}

void agent_give_lifeline(struct agent *a, struct rank *rank)
{
    struct err err;
    int fd;
    if (!a->lifelines.loop ||
        (rank->lifeline.line && lifeline_state(rank->lifeline.line) <= LIFELINE_HELD))
        return;
    if (rank_lifeline_start(&a->lifelines, &rank->lifeline, &fd, &err) < 0) {
        log_warn("member %d: its death would be seen late: %s", rank->assignment.member,
                 err_text(&err));
        return;
    }
    struct ctl_fds *fds = ctl_fds_create(&fd, 1);
    if (fds)
        rank_send(rank, CTL_LIFELINE, NULL, fds);
    ctl_fds_drop(fds);
}
