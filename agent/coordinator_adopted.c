/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_adopted: the agents of a job that another hvdrun began. They are no children of this
 * process, and their output arrives over the network. See coordinator_agents.h.
 */
#include <errno.h>

#include "agent/coordinator_agents.h"
#include "core/base/clock.h"

/* Allocates the agents, which run already. Only lost ones count as ended. */
int coordinator_agents_adopt(struct coordinator_agents *as, struct err *err)
{
    int rc = coordinator_agents_make(as, err);
    for (int i = 0; i < as->core->roster.agents.n && rc == 0; i++) {
        struct launched *l = &as->list[i];
        l->host = &as->core->job->hosts.list[i];
        l->owner = as;
        l->attached = l->added = true;
        l->ended = as->core->roster.agents.list[i].lost;
        as->ended += l->ended;
    }
    return rc;
}

static void end_agent(struct coordinator_agents *as, struct launched *l)
{
    loop_fd_stop(&as->core->loop, &l->pid_lfd);
    if (l->ended)
        return;
    l->ended = true;
    as->ended++;
}

static void on_agent_end(void *arg, uint32_t events)
{
    struct launched *l = arg;
    struct coordinator_agents *as = l->owner;
    (void)events;
    end_agent(as, l);
    launch_reap_left(l);
    roster_agent_lost(&as->core->roster, (int)(l - as->list), "hvd-agent ended", clock_ns());
    coordinator_changed(as->core);
}

/* Watches an agent of this machine as a process. Agents of other hosts are watched by their
 * silence. */
static void watch_process(struct coordinator_agents *as, struct launched *l, int pid)
{
    if (!l->host->local || l->pid > 0 || pid <= 1)
        return;
    l->pid = pid;
    if (loop_pid_start(&as->core->loop, &l->pid_lfd, pid, on_agent_end, l) == -ESRCH)
        on_agent_end(l, 0);
}

void coordinator_agents_check_adopted(struct coordinator_agents *as)
{
    for (int i = 0; i < as->core->roster.agents.n; i++) {
        const struct roster_agent *a = &as->core->roster.agents.list[i];
        struct launched *l = &as->list[i];
        if (!l->attached || l->ended)
            continue;
        if (a->joined && !a->lost)
            watch_process(as, l, a->pid);
        if (a->lost && !as->core->roster.rebuilding)
            end_agent(as, l);
    }
}

int coordinator_agents_take_output(struct coordinator_agents *as, int agent,
                                   const struct printed_body *body)
{
    struct launched *l = &as->list[agent];
    struct frame frame;
    size_t pos = 0;
    long n;
    if (body->seq <= l->out_seq)
        return 0;
    if (printer_full(&as->core->printer))
        return -EAGAIN;
    l->out_seq = body->seq;
    printer_grow(&as->core->printer, as->core->roster.members.n);
    explain_grow(&as->core->explain, as->core->roster.members.n);
    if (body->lost > 0)
        coordinator_say(as->core, 0,
                        "host %s: %llu bytes of output came while no hvdrun was there and "
                        "were not kept",
                        l->host->name, (unsigned long long)body->lost);
    while ((n = frame_get(body->frames.data + pos, body->frames.len - pos, &frame)) > 0) {
        printer_put(&as->core->printer, &frame);
        explain_feed(&as->core->explain, &frame);
        pos += (size_t)n;
    }
    if (body->end && l->attached)
        end_agent(as, l);
    coordinator_changed(as->core);
    return 0;
}
