/* SPDX-License-Identifier: Apache-2.0
 *
 * watch: see watch.h. The limits are our own unless a row says otherwise; those of throttling are
 * the check's.
 */
#include "diagnostics/watch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/registry.h"
#include "diagnostics/watch_looks.h"

#define NEVER INFINITY

static const struct condition {
    const char *id; /* of the check that explains it */
    const char *unit;
    looks_f *look;
    double warn, fail; /* from this value on */
    int raise;         /* looks in a row */
    double clear;      /* below this value */
    int calm;          /* looks in a row */
    const char *over;  /* what to say then */
} conditions[] = {
    {"cgroup-oom-kill", "processes", looks_oom_kills, NEVER, 1, 1, 1, 60,
     "no process of this container was killed for want of memory for 5 minutes"},
    {"kernel-oom-events", "events", looks_kernel_oom, 1, NEVER, 1, 1, 60,
     "the kernel killed nothing for want of memory for 5 minutes"},
    {"gpu-xid", "events", looks_xid, NEVER, 1, 1, 1, 120,
     "the GPU driver reported nothing for 10 minutes"},
    {"cgroup-cpu-throttle", "percent", looks_throttle, 5, 25, 3, 2.5, 6,
     "the CPU quota is enough again"},
    {"cgroup-mem-limit", "percent", looks_memory, 90, 100, 2, 85, 3,
     "there is room below the memory limit again"},
    {"shm-free", "percent", looks_shm, 85, 95, 1, 75, 2, "/dev/shm has room again"},
    {"nic-errors", "errors", looks_nic_errors, 1, NEVER, 2, 1, 24,
     "no interface had errors for 2 minutes"},
    {"nic-flaps", "changes", looks_nic_changes, 1, NEVER, 1, 1, 60,
     "every link was stable for 5 minutes"},
    {"dstate-procs", "processes", looks_stuck, 1, NEVER, 1, 1, 2,
     "no process of the job is stuck in the kernel any more"},
    {"swap-activity", "pages/s", looks_swap, 100, NEVER, 3, 10, 6, "the swapping has stopped"},
};

#define CONDITIONS (sizeof(conditions) / sizeof(conditions[0]))

struct state {
    const struct check *check;
    enum check_status status; /* pass: not up */
    double value;
    int warns, fails, calms; /* looks in a row at or beyond that limit */
};

struct watch {
    struct looks looks;
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
    looks_init(&w->looks, m);
    *ret = w;
    return 0;
}

void watch_destroy(struct watch *w)
{
    if (!w)
        return;
    looks_fini(&w->looks);
    free(w);
}

int watch_processes(struct watch *w, const pid_t *pids, size_t n)
{
    struct looks_process *list = calloc(n + 1, sizeof(*list));
    if (!list)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        list[i].pid = pids[i];
        for (size_t k = 0; k < w->looks.nprocesses; k++)
            if (w->looks.processes[k].pid == pids[i])
                list[i].stuck = w->looks.processes[k].stuck;
    }
    free(w->looks.processes);
    w->looks.processes = list;
    w->looks.nprocesses = n;
    return 0;
}

/* The status that a condition has after this value. */
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
    char text[LOOKS_TEXT] = "";
    s->value = c->look(&w->looks, text);
    if (isnan(s->value) || w->looks.first)
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
    looks_begin(&w->looks, now);
    for (size_t i = 0; i < CONDITIONS; i++)
        look(w, i, news, arg);
    w->looks.first = false;
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
