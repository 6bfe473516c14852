/* SPDX-License-Identifier: Apache-2.0
 *
 * agent: see agent.h.
 */
#include "agent/agent.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/jobs.h"
#include "agent/priority.h"
#include "agent/reap.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/log.h"

#define TICK_MS         100
#define LEAVE_MS        3000 /* limit for the last report at the end */
#define REST_GRACE_MS   500
#define POD_PROGRESS_MS 5000

void agent_fail(struct agent *a, enum agent_end end, const struct err *err)
{
    if (a->rc == 0) {
        a->rc = err->code ? err->code : -EIO;
        a->err = *err;
        a->end = end;
    }
    a->link.abandoned = true;
    agent_ranks_stop(&a->ranks, AGENT_STOP_GRACE_MS);
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Returns whether the agent may end: all ranks have ended, no rank is still to start, and the last
 * reports and output are delivered. */
static bool is_done(struct agent *a)
{
    bool to_come = !a->ranks.cwd || agent_ranks_starting(&a->ranks) ||
                   (a->ranks.welcome.elastic && !agent_pod_has_ended(&a->pod));
    if (!a->ranks.stopping && !a->drain.active && !a->doctor.refused && to_come)
        return false; /* further ranks will be started */
    if (!agent_ranks_all_closed(&a->ranks))
        return false;
    if (!a->leave_at)
        a->leave_at = deadline_in_ms(LEAVE_MS);
    /* A slow reader does not count as late: while hvdrun lives, it gets all output. */
    bool late = deadline_passed(a->leave_at);
    bool reported = a->link.abandoned || late ||
                    (outbox_empty(&a->outbox) && !agent_doctor_awaited(&a->doctor));
    if (!reported)
        return false;
    bool delivered =
        a->config.pod ? agent_pod_printed(&a->pod, late) : agent_output_delivered(&a->output, late);
    return delivered || (a->link.abandoned && late);
}

static void post_progress(struct agent *a)
{
    /* An operator serves thousands of pods, so an agent in a pod reports progress less often. */
    if (a->config.pod && clock_ns() - a->progress_at < POD_PROGRESS_MS * CLOCK_MS)
        return;
    a->progress_at = clock_ns();
    for (int i = 0; i < a->ranks.n; i++) {
        struct rank *rank = a->ranks.list[i];
        if (rank->progress_new && !rank->reaped) {
            rank_count_limits(rank);
            outbox_report(&a->outbox, &rank->progress);
        }
        rank->progress_new = false;
    }
}

static void on_tick(void *arg)
{
    struct agent *a = arg;
    if (is_done(a)) {
        loop_stop(&a->loop);
        return;
    }
    struct err err;
    if (agent_link_check(&a->link, &err) < 0)
        agent_fail(a, AGENT_END_AWAY, &err);
    uint32_t away = agent_link_away(&a->link);
    if (away)
        agent_relay_tell_away(&a->relay, away);
    agent_output_check(&a->output);
    post_progress(a);
    agent_polls_events(&a->polls);
    agent_polls_roster(&a->polls);
    loop_timer_start(&a->loop, &a->tick, TICK_MS, on_tick, a);
}

void agent_wake(struct agent *a)
{
    loop_timer_start(&a->loop, &a->tick, 0, on_tick, a);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void on_signal(void *arg, uint32_t events)
{
    struct agent *a = arg;
    int signo;
    (void)events;
    while ((signo = loop_signal_next(&a->signals)) > 0) {
        if (signo == SIGCHLD) {
            agent_ranks_reap(&a->ranks, &a->doctor.preflight.pid);
            continue;
        }
        if (signo == SIGTERM) {
            a->pod.terminated = true;
            agent_drain_start(&a->drain);
            continue;
        }
        log_info("signal %d: ending the ranks", signo);
        agent_ranks_stop(&a->ranks, AGENT_STOP_GRACE_MS);
    }
}

static int open_all(struct agent *a, struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    int rc = loop_signals_start(&a->loop, &a->signals, &set, on_signal, a);
    if (rc < 0)
        return err_sys(err, -rc, "signalfd");
    return agent_open_parts(a, err);
}

/* Removes the directory with the Unix socket of an hvdrun that was killed. An hvdrun that lives, or
 * is taking the job over, holds the directory's lock and removes the directory itself. */
static void remove_socket(const struct agent *a)
{
    char *path = a->config.unix_path;
    char *slash = path ? strrchr(path, '/') : NULL;
    auto_close int lock = -1;
    if (!slash)
        return;
    *slash = '\0';
    if (jobs_lock(path, &lock, NULL) == 0)
        jobs_remove(path);
    *slash = '/';
}

static void close_all(struct agent *a)
{
    agent_ranks_drop(&a->ranks);
    agent_doctor_fini(&a->doctor);
    agent_pages_close(&a->pages);
    reap_rest(REST_GRACE_MS);
    if (a->link.abandoned)
        remove_socket(a);
    loop_timer_stop(&a->loop, &a->tick);
    loop_timer_stop(&a->loop, &a->join_retry);
    loop_fd_stop(&a->loop, &a->signals);
    agent_drain_fini(&a->drain);
    agent_relay_fini(&a->relay);
    outbox_fini(&a->outbox);
    agent_output_fini(&a->output);
    agent_pod_fini(&a->pod);
    agent_link_close(&a->link);
    agent_ranks_fini(&a->ranks);
    loop_fini(&a->loop);
    free(a->rejoin_text);
    config_fini(&a->config);
}

int agent_run(struct agent *a, struct agent_config *config, struct err *err)
{
    *a = (struct agent){.config = *config, .end = AGENT_END_INTERNAL};
    *config = (struct agent_config){0};
    int rc = loop_init(&a->loop);
    if (rc < 0) {
        config_fini(&a->config);
        return err_sys(err, -rc, "epoll");
    }
    reap_adopt();
    priority_raise();
    rc = open_all(a, err);
    if (rc == 0) {
        agent_link_answered(&a->link);
        agent_join(a);
        on_tick(a);
        rc = loop_run(&a->loop);
    }
    if (rc == 0 && a->rc < 0 && !a->pod.worker_code) { /* else a rank's failure came first */
        rc = a->rc;
        if (err)
            *err = a->err;
    }
    if (rc == 0)
        rc = agent_pod_code(&a->pod, a->doctor.refused);
    close_all(a);
    return rc;
}
