/* SPDX-License-Identifier: Apache-2.0
 *
 * page_jobs: all jobs as JSON: {"leads", "version", "total", "phases": {PHASE: n}, "jobs": [...]}.
 * Written row by row, so that a thousand jobs never exist as one JSON tree.
 */
#include "core/include/hvd.h"
#include "operator/page/page_private.h"

#define MESSAGE_MAX 300

struct listing {
    struct buf *dst;
    bool finished; /* second round: finished jobs */
    int rows;
    int phases[JOB_PHASES];
};

static json_t *row_of(const struct hvdjob *job)
{
    const struct hvdjob_status *s = &job->status;
    json_t *j =
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:I}", "namespace",
                  job->namespace_, "name", job->name, "phase", job_phase_name(s->phase), "workers",
                  job->workers, "ready", s->ready, "min", job->elastic ? job->min : job->workers,
                  "max", job->elastic ? job->max : job->workers, "epoch", s->epoch, "restarts",
                  s->restarts, "created", (json_int_t)job->created);
    json_put(&j, "message", page_text(s->message, MESSAGE_MAX));
    return j;
}

static void count(void *arg, const struct hvdjob *job)
{
    struct listing *l = arg;
    l->phases[job->status.phase]++;
}

static void put_row(void *arg, const struct hvdjob *job)
{
    struct listing *l = arg;
    if (job_phase_finished(job->status.phase) != l->finished || l->rows >= PAGE_JOBS_MAX)
        return;
    if (l->rows++ > 0)
        buf_put_u8(l->dst, ',');
    page_put(row_of(job), l->dst);
}

static json_t *phases_of(const struct listing *l, int *ret_total)
{
    json_t *j = json_object();
    for (int i = 0; i < JOB_PHASES; i++) {
        *ret_total += l->phases[i];
        if (l->phases[i])
            json_put(&j, job_phase_name((enum job_phase)i), json_integer(l->phases[i]));
    }
    return j;
}

void page_put_jobs(const struct driver *d, struct buf *dst)
{
    static const char list[] = ",\"jobs\":[", end[] = "]}";
    struct listing l = {.dst = dst};
    int total = 0;
    driver_jobs(d, count, &l);
    json_t *phases = phases_of(&l, &total);
    page_put(json_pack("{s:b, s:s, s:i, s:o}", "leads", driver_leads(d), "version", HVD_VERSION,
                       "total", total, "phases", phases),
             dst);
    if (dst->len > 0)
        dst->len--; /* drops the closing brace: the list follows */
    buf_put(dst, list, strlen(list));
    for (int round = 0; round < 2; round++) {
        l.finished = round;
        driver_jobs(d, put_row, &l);
    }
    buf_put(dst, end, strlen(end));
}
