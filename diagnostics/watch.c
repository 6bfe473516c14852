/* SPDX-License-Identifier: Apache-2.0
 *
 * watch: see watch.h. The limits are our own; those of throttling are the check's.
 */
#include "diagnostics/watch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/registry.h"
#include "diagnostics/watch_sample.h"

#define NEVER INFINITY

static const struct condition {
    const char *id; /* of the check that explains the condition */
    const char *unit;
    sample_f *sample;
    double warn, fail; /* from these values on the condition is a warning, a failure */
    int raise;         /* samples in a row from warn or fail on that raise the condition */
    double clear;      /* below this value the condition is over */
    int calm;          /* samples in a row below clear that end the condition */
    const char *over;  /* the message when it is cleared */
} conditions[] = {
    {"cgroup-oom-kill", "processes", sample_oom_kills, NEVER, 1, 1, 1, 60,
     "no process of this container was OOM-killed for 5 minutes"},
    {"kernel-oom-events", "events", sample_kernel_oom, 1, NEVER, 1, 1, 60,
     "the kernel OOM-killed no process for 5 minutes"},
    {"gpu-xid", "events", sample_xid, NEVER, 1, 1, 1, 120,
     "the GPU driver reported no Xid for 10 minutes"},
    {"cgroup-cpu-throttle", "percent", sample_throttle, 5, 25, 3, 2.5, 6,
     "the CPU quota is enough again"},
    {"cgroup-mem-limit", "percent", sample_memory, 90, 100, 2, 85, 3,
     "there is room below the memory limit again"},
    {"shm-free", "percent", sample_shm, 85, 95, 1, 75, 2, "/dev/shm has room again"},
    {"nic-errors", "errors", sample_nic_errors, 1, NEVER, 2, 1, 24,
     "no interface had errors for 2 minutes"},
    {"nic-flaps", "changes", sample_nic_changes, 1, NEVER, 1, 1, 60,
     "every link was stable for 5 minutes"},
    {"dstate-procs", "processes", sample_stuck, 1, NEVER, 1, 1, 2,
     "no process of the job is stuck in the kernel any more"},
    {"swap-activity", "pages/s", sample_swap, 100, NEVER, 3, 10, 6,
     "this machine has stopped swapping"},
};

#define CONDITIONS (sizeof(conditions) / sizeof(conditions[0]))

struct state {
    const struct check *check;
    enum check_status status; /* CHECK_PASS: not raised */
    double value;
    int warns, fails, calms; /* samples in a row from warn on, from fail on, below clear */
};

struct watch {
    struct sampler sampler;
    struct state states[CONDITIONS];
};

int watch_create(const struct machine *m, struct watch **ret, struct err *err)
{
    struct watch *w = calloc(1, sizeof(*w));
    if (!w)
        return err_set(err, ENOMEM, "no memory for the watch");
    for (size_t i = 0; i < CONDITIONS; i++) {
        int rc = registry_find(conditions[i].id, &w->states[i].check, err);
        if (rc < 0) {
            free(w);
            return rc;
        }
        w->states[i].value = NAN;
    }
    sample_init(&w->sampler, m);
    *ret = w;
    return 0;
}

void watch_destroy(struct watch *w)
{
    if (!w)
        return;
    sample_fini(&w->sampler);
    free(w);
}

int watch_processes(struct watch *w, const pid_t *pids, size_t n)
{
    struct sample_process *list = calloc(n + 1, sizeof(*list));
    if (!list)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        list[i].pid = pids[i];
        for (size_t k = 0; k < w->sampler.nprocesses; k++)
            if (w->sampler.processes[k].pid == pids[i])
                list[i].stuck = w->sampler.processes[k].stuck;
    }
    free(w->sampler.processes);
    w->sampler.processes = list;
    w->sampler.nprocesses = n;
    return 0;
}

/* The condition's status after a sample with this value. */
static enum check_status judge(const struct condition *c, struct state *s, double value)
{
    s->warns = value >= c->warn || value >= c->fail ? s->warns + 1 : 0;
    s->fails = value >= c->fail ? s->fails + 1 : 0;
    s->calms = value < c->clear ? s->calms + 1 : 0;
    if (s->fails >= c->raise)
        return CHECK_FAIL;
    if (s->warns >= c->raise && s->status == CHECK_PASS)
        return CHECK_WARN;
    return s->calms >= c->calm ? CHECK_PASS : s->status;
}

static void look(struct watch *w, size_t i, watch_news_f *news, void *arg)
{
    const struct condition *c = &conditions[i];
    struct state *s = &w->states[i];
    char text[SAMPLE_TEXT] = "";
    s->value = c->sample(&w->sampler, text);
    if (isnan(s->value) || w->sampler.first)
        return;
    enum check_status status = judge(c, s, s->value);
    if (status == s->status)
        return;
    s->status = status;
    bool cleared = status == CHECK_PASS;
    struct watch_news n = {.check = s->check,
                           .status = status,
                           .cleared = cleared,
                           .summary = cleared ? c->over : text};
    news(arg, &n);
}

void watch_look(struct watch *w, uint64_t now, watch_news_f *news, void *arg)
{
    sample_begin(&w->sampler, now);
    for (size_t i = 0; i < CONDITIONS; i++)
        look(w, i, news, arg);
    w->sampler.first = false;
}

bool watch_at(const struct watch *w, size_t i, const char **id, const char **unit, double *value,
              enum check_status *status)
{
    if (i >= CONDITIONS)
        return false;
    *id = conditions[i].id;
    *unit = conditions[i].unit;
    *value = w->states[i].value;
    *status = w->states[i].status;
    return true;
}
