/* SPDX-License-Identifier: Apache-2.0
 *
 * jobs: do the jobs that run here make progress? From the answer "jobs" of probes/jobs.c.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "diagnostics/registry.h"

#define STALL_MS 300000 /* longer than most evaluations and checkpoints take */

struct stall {
    int active;      /* ranks that are members of the current epoch */
    int still;       /* active ranks that finished no batch for STALL_MS */
    int64_t longest; /* longest time without a finished batch, in ms */
    int last;        /* index of the stalled rank with the fewest batches, -1: none */
    int64_t ahead;   /* how many batches more the other ranks of its job have finished */
};

static bool same_job(const struct answer *a, int i, int k)
{
    return strcmp(answer_str_at(a, "rank", i, "job", ""), answer_str_at(a, "rank", k, "job", "")) ==
           0;
}

static bool is_active(const struct answer *a, int i)
{
    return strcmp(answer_str_at(a, "rank", i, "state", ""), "active") == 0;
}

static void look_at(struct stall *s, const struct answer *a, int i, int n)
{
    int64_t idle = answer_int_at(a, "rank", i, "idle_ms", 0);
    int64_t own = answer_int_at(a, "rank", i, "batches", 0);
    s->active++;
    if (idle < STALL_MS)
        return;
    s->still++;
    s->longest = idle > s->longest ? idle : s->longest;
    for (int k = 0; k < n; k++) {
        int64_t ahead = answer_int_at(a, "rank", k, "batches", 0) - own;
        if (!is_active(a, k) || !same_job(a, i, k) || ahead < s->ahead)
            continue;
        s->ahead = ahead;
        s->last = i;
    }
}

static void check_progress(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "jobs");
    struct stall s = {.last = -1};
    if (!result_needs(r, a, "hvdrun's jobs of this user"))
        return;
    int n = answer_count(a, "rank");
    for (int i = 0; i < n; i++)
        if (is_active(a, i))
            look_at(&s, a, i, n);
    result_observed(r, "%d of %d make no progress", s.still, s.active);
    result_expected(r, "a batch in %d s", STALL_MS / 1000);
    if (s.active == 0)
        result_skip(r,
                    "no job of this user that hvdrun started on this machine has ranks that train");
    else if (s.still == 0)
        result_pass(r, "%d rank%s", s.active, s.active == 1 ? " gets on" : "s get on");
    else if (s.ahead > 0)
        result_warn(r,
                    "%d of %d ranks have finished nothing for %" PRId64 " s: rank %s on %s of job "
                    "%s is %" PRId64 " batches behind",
                    s.still, s.active, s.longest / 1000,
                    answer_str_at(a, "rank", s.last, "rank", "?"),
                    answer_str_at(a, "rank", s.last, "host", "?"),
                    answer_str_at(a, "rank", s.last, "job", "?"), s.ahead);
    else
        result_warn(r,
                    "%d of %d ranks have finished nothing for %" PRId64 " s, all after the same "
                    "batch: a long step, or a hang outside hvd",
                    s.still, s.active, s.longest / 1000);
}

static const struct check rows[] = {
    {.id = "rank-progress-stall",
     .code = "HVD9701",
     .group = GROUP_WORKERS,
     .level = 1,
     .needs = "a job that runs, started by hvdrun on this machine by this user",
     .probes = {"jobs"},
     .run = check_progress,
     .title = "ranks of running jobs make progress",
     .why = "A rank that hangs makes all ranks wait; the job costs as much as one that trains.",
     .fix = {"docker exec NAME py-spy dump --pid 1 shows where the rank is that is behind",
             "kubectl exec POD -- py-spy dump --pid 1 shows where the rank is that is behind",
             "py-spy dump --pid PID (or gdb -p) on the rank that is behind; "
             "HVD_STALL_CHECK_TIME_SECONDS=30 lets hvd name what each rank waits for"},
     .action = ACTION_JOB,
     .explain = "Asks hvdrun over its private socket (GET /v1/status) when each rank last finished "
                "a batch. More than 300 s without one warns (own threshold); the rank with the "
                "fewest batches is named. The engine itself names missing ranks after "
                "HVD_STALL_CHECK_TIME_SECONDS.",
     .refs = {"https://github.com/benfred/py-spy"}},
};

const struct check_table checks_jobs = {rows, sizeof(rows) / sizeof(rows[0])};
