/* SPDX-License-Identifier: Apache-2.0
 *
 * commands_list: hvdrun list and hvdrun status. See commands_private.h.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/commands_private.h"
#include "agent/table.h"
#include "core/base/clock.h"
#include "core/member/roster.h"

#define LIST_ASK_MS 1000 /* for each job: an hvdrun that hangs must not delay the list for long */

static int print_json(json_t *j, struct err *err)
{
    auto_free char *text = json_write(j);
    if (!text)
        return err_set(err, ENOMEM, "no memory");
    puts(text);
    return 0;
}

/* ---- list ----------------------------------------------------------------------------------- */

/* Asks a job for its status. Without an answer, s->state says why. */
static void look(const struct job_entry *job, struct status *s)
{
    struct err err = {0};
    if (!job->gone && commands_status(job, LIST_ASK_MS, s, NULL, &err) == 0)
        return;
    *s = (struct status){0};
    snprintf(s->state, sizeof(s->state), "%s",
             job->gone             ? "gone"
             : err.code == -EACCES ? "no access"
                                   : "no answer");
}

static void add_row(struct table *t, const struct job_entry *job, const struct status *s,
                    int64_t now)
{
    char up[48], ranks[48] = "-";
    if (s->n > 0 && s->elastic)
        snprintf(ranks, sizeof(ranks), "%d of %d", s->epoch ? s->size : 0, s->np);
    else if (s->n > 0)
        snprintf(ranks, sizeof(ranks), "%d", s->size);
    table_add(t, "%s", job->name);
    table_add(t, "%s", s->state);
    table_add(t, "%s", ranks);
    table_add(t, "%u", roster_epoch_number((uint32_t)s->epoch));
    table_add(t, "%s", status_duration(now - job->started, up, sizeof(up)));
    table_add(t, "%d", job->pid);
    table_add(t, "%.60s", job->command);
}

/* Returns a new JSON string; s may have been cut inside a UTF-8 character. */
static json_t *text(const char *s)
{
    return json_lossy_string(s, strlen(s));
}

static json_t *to_json(const struct job_entry *job, const struct status *s)
{
    return json_pack("{s:o, s:o, s:i, s:i, s:I, s:i, s:I, s:o, s:o}", "name", text(job->name),
                     "state", text(s->state), "ranks", s->size, "np", s->np, "epoch",
                     (json_int_t)s->epoch, "pid", job->pid, "started", (json_int_t)job->started,
                     "command", text(job->command), "dir", text(job->dir));
}

int command_list(const struct command_line *line, struct err *err)
{
    struct jobs jobs;
    struct table t;
    auto_json json_t *list = json_array();
    int64_t now = commands_now();
    int shown = 0, orphans = 0, rc = jobs_find(&jobs, err);
    if (rc < 0)
        return rc;
    table_init(&t, "NAME|STATE|>RANKS|>EPOCH|>UP|>HVDRUN|COMMAND");
    for (int i = 0; i < jobs.n; i++) {
        struct status s;
        orphans += jobs.list[i].gone;
        look(&jobs.list[i], &s);
        add_row(&t, &jobs.list[i], &s, now);
        json_append(&list, to_json(&jobs.list[i], &s));
        status_fini(&s);
        shown++;
    }
    if (line->json)
        rc = print_json(list, err);
    else if (shown > 0 && table_print(&t, stdout) < 0)
        rc = err_set(err, ENOMEM, "no memory");
    else if (shown == 0)
        printf("no job runs\n");
    if (!line->json && orphans > 0)
        printf("gone: the job's hvdrun was killed; hvdrun attach NAME takes over an elastic job\n");
    if (!line->json && line->verbose && jobs.others > 0)
        printf("%d of other users, which only they can see\n", jobs.others);
    table_fini(&t);
    jobs_fini(&jobs);
    return rc;
}

/* ---- status --------------------------------------------------------------------------------- */

static int status_once(const struct command_line *line, const struct job_entry *job, bool clear,
                       struct err *err)
{
    struct status s = {0};
    auto_json json_t *j = NULL;
    int rc = commands_status(job, COMMANDS_ASK_MS, &s, &j, err);
    if (rc < 0)
        return rc;
    if (clear)
        printf("\033[H\033[J");
    if (line->json)
        rc = print_json(j, err);
    else if (status_print(&s, job->name, job->started, commands_now(), line->verbose, stdout) < 0)
        rc = err_set(err, ENOMEM, "no memory");
    status_fini(&s);
    return rc;
}

int command_status(const struct command_line *line, struct err *err)
{
    struct job_entry job;
    int rc = commands_find(line->words[0], &job, err);
    if (rc == 0)
        rc = status_once(line, &job, line->watch > 0 && isatty(STDOUT_FILENO), err);
    while (rc == 0 && line->watch > 0 && !ferror(stdout)) {
        fflush(stdout);
        usleep((useconds_t)(line->watch * 1e6));
        if (!isatty(STDOUT_FILENO) && !line->json)
            putchar('\n');
        rc = status_once(line, &job, isatty(STDOUT_FILENO), err);
        if (commands_ended(&job, rc)) { /* which --watch waits for */
            printf("%s has ended\n", job.name);
            *err = (struct err){0};
            return 0;
        }
    }
    return rc;
}
