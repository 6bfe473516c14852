/* SPDX-License-Identifier: Apache-2.0
 *
 * lifelines: see lifelines.h.
 */
#include "agent/lifelines.h"

#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/env.h"
#include "core/base/log.h"

static void on_look(void *arg);

/* ---- CPU quota ------------------------------------------------------------------------------- */

/* Compares the throttle counter with that of the last call: it takes two calls to see throttling.
 */
static void look_at_quota(struct lifelines *ls)
{
    struct cgroup_cpu cpu;
    struct err err;
    if (!ls->has_machine) {
        if (machine_open_live(&ls->machine, &err) < 0)
            return;
        ls->has_machine = true;
        cgroup_find(&ls->machine, &ls->cgroup);
    }
    if (cgroup_cpu(&ls->machine, &ls->cgroup, &cpu) < 0 || cpu.throttled < 0)
        return;
    ls->throttled = ls->throttles >= 0 && cpu.throttled > ls->throttles;
    ls->throttles = cpu.throttled;
}

static void forget_quota(struct lifelines *ls)
{
    ls->throttles = -1;
    ls->throttled = false;
}

#define SAY_NS (2 * CLOCK_S) /* shorter silences are normal on a busy machine and not reported */

/* ---- one rank ------------------------------------------------------------------------------- */

static void on_event(void *arg, uint32_t events)
{
    struct rank_lifeline *rl = arg;
    struct lifelines *ls = rl->of;
    enum lifeline_state state = lifeline_state(rl->line);
    (void)events;
    rank_lifeline_stop(rl);
    if (state == LIFELINE_DEAD)
        ls->ops->gone(ls->arg, rl, false, "died");
    else if (state == LIFELINE_BROKEN)
        log_warn("a rank's lifeline page is invalid: the death of this rank will be noticed late");
}

/* Evicts the rank, or reports that it is silent. Returns true if it was evicted. */
static bool doubt(struct lifelines *ls, struct rank_lifeline *rl, uint64_t silence,
                  const struct vitals *v, bool evict)
{
    char state[160], text[320];
    unsigned long long ms = silence / CLOCK_MS;
    vitals_text(v, state, sizeof(state));
    if (evict) {
        snprintf(text, sizeof(text), "was %s and silent for %llu ms: it was ended", state, ms);
        rank_lifeline_stop(rl);
        ls->ops->gone(ls->arg, rl, true, text);
    } else if (!rl->suspect && silence >= SAY_NS) {
        rl->suspect = true;
        snprintf(text, sizeof(text), "is silent for %llu ms: %s", ms, state);
        ls->ops->suspected(ls->arg, rl, text);
    }
    return evict;
}

static bool look(struct lifelines *ls, struct rank_lifeline *rl, uint64_t now)
{
    struct vitals v = {0};
    uint64_t silence = lifeline_silence(rl->line, now);
    if (silence > ls->limits.silent_ns)
        vitals_read(lifeline_pid(rl->line), &v);
    v.throttled = ls->throttled;
    enum vitals_verdict verdict = vitals_judge(silence, &v, &ls->limits);
    if (verdict != VITALS_ALIVE)
        return doubt(ls, rl, silence, &v, verdict == VITALS_EVICT);
    if (rl->suspect)
        ls->ops->suspected(ls->arg, rl, "is no longer silent");
    rl->suspect = false;
    return false;
}

static void on_look(void *arg)
{
    struct lifelines *ls = arg;
    struct list *at;
    uint64_t now = clock_ns();
    bool late = false;
    for (at = ls->all.next; at != &ls->all; at = at->next) {
        struct rank_lifeline *rl = list_entry(at, struct rank_lifeline, node);
        late = late || lifeline_silence(rl->line, now) > ls->limits.silent_ns / 2;
    }
    if (late)
        look_at_quota(ls);
    else
        forget_quota(ls);
    at = ls->all.next;
    while (at != &ls->all) /* an eviction may stop other lifelines, so start again then */
        at = look(ls, list_entry(at, struct rank_lifeline, node), now) ? ls->all.next : at->next;
    if (!list_empty(&ls->all))
        loop_timer_start(ls->loop, &ls->timer, (uint64_t)ls->beat_ms, on_look, ls);
}

int rank_lifeline_start(struct lifelines *ls, struct rank_lifeline *rl, int *ret_fd,
                        struct err *err)
{
    struct lifeline *line;
    int fd;
    rank_lifeline_stop(rl);
    int rc = lifeline_create(&line, ls->beat_ms, &fd, err);
    if (rc < 0)
        return rc;
    rc = loop_fd_start(ls->loop, &rl->lfd, lifeline_event_fd(line), EPOLLIN, on_event, rl);
    if (rc < 0) {
        lifeline_destroy(line);
        close(fd);
        return err_sys(err, -rc, "lifeline");
    }
    rl->line = line;
    rl->of = ls;
    rl->suspect = false;
    list_append(&ls->all, &rl->node);
    if (!ls->timer.on)
        loop_timer_start(ls->loop, &ls->timer, (uint64_t)ls->beat_ms, on_look, ls);
    *ret_fd = fd;
    return 0;
}

void rank_lifeline_stop(struct rank_lifeline *rl)
{
    if (!rl->line)
        return;
    loop_fd_stop(rl->of->loop, &rl->lfd);
    list_remove(&rl->node);
    lifeline_destroy(rl->line);
    rl->line = NULL;
}

/* ---- all ------------------------------------------------------------------------------------ */

int lifelines_init(struct lifelines *ls, struct loop *loop, const struct lifelines_ops *ops,
                   void *arg, struct err *err)
{
    int64_t beat_ms;
    int rc = env_int("HEARTBEAT_MS", LIFELINE_BEAT_MS, LIFELINE_BEAT_MS_MIN, LIFELINE_BEAT_MS_MAX,
                     &beat_ms, err);
    if (rc < 0)
        return rc;
    *ls = (struct lifelines){.loop = loop, .ops = ops, .arg = arg, .beat_ms = (int)beat_ms};
    ls->limits = vitals_limits(ls->beat_ms);
    list_init(&ls->all);
    forget_quota(ls);
    return 0;
}

void lifelines_fini(struct lifelines *ls)
{
    if (!ls->loop)
        return;
    loop_timer_stop(ls->loop, &ls->timer);
    if (ls->has_machine)
        machine_close(&ls->machine);
    ls->loop = NULL;
}
