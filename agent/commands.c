/* SPDX-License-Identifier: Apache-2.0
 *
 * commands: see commands.h. This file has the table of commands and parses their arguments.
 */
#include "agent/commands_private.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/ask.h"

#define SECONDS_MAX 86400.0

/* options: a letter for each option that the command takes: j: --json, v: -v, w: --watch, t:
 * --wait. */
static const struct command {
    const char *name, *args, *options, *help;
    int min, max; /* number of arguments */
    command_f *run;
} commands[] = {
    {"list", "", "jv", "jobs of this user on this machine", 0, 0, command_list},
    {"status", "[JOB]", "jvw", "members, last change, recovery, throughput", 0, 1, command_status},
    {"scale", "JOB N", "jt", "train with N ranks from the next step boundary on", 2, 2,
     command_scale},
    {"drain", "JOB HOST|RANK", "jt",
     "train without a host, or a rank (a number), from the next step boundary on", 2, 2,
     command_drain},
    {"attach", "JOB", "v", "take over an elastic job whose hvdrun was killed", 1, 1,
     command_attach},
};

#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct command *find(const char *word)
{
    for (size_t i = 0; i < NCOMMANDS; i++)
        if (strcmp(commands[i].name, word) == 0)
            return &commands[i];
    return NULL;
}

bool commands_is(const char *word)
{
    return find(word) != NULL;
}

int64_t commands_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- words ---------------------------------------------------------------------------------- */

static void usage(const struct command *c, FILE *out)
{
    fprintf(out, "usage: hvdrun %s%s%s%s%s%s%s\n", c->name, *c->args ? " " : "", c->args,
            strchr(c->options, 'j') ? " [--json]" : "", strchr(c->options, 'v') ? " [-v]" : "",
            strchr(c->options, 'w') ? " [--watch[=SECONDS]]" : "",
            strchr(c->options, 't') ? " [--wait SECONDS]" : "");
}

static void help(const struct command *c)
{
    usage(c, stdout);
    printf("\n%s.\n\n", c->help);
    if (strchr(c->options, 'j'))
        printf("  --json               as JSON, for programs\n");
    if (strchr(c->options, 'v'))
        printf("  -v, --verbose        %s\n",
               c->run == command_list     ? "how many jobs other users have, too"
               : c->run == command_attach ? "say what happens"
                                          : "a line for each member, those that have ended too");
    if (strchr(c->options, 'w'))
        printf("  --watch[=SECONDS]    print again every SECONDS (1), until the job has ended\n");
    if (strchr(c->options, 't'))
        printf("  --wait SECONDS       print progress until the change is in effect\n");
}

/* Parses the seconds of an option. */
static int take_seconds(const char *option, const char *value, double *ret, struct err *err)
{
    char *end;
    double n = strtod(value, &end);
    if (end == value || *end || !(n >= 0.1 && n <= SECONDS_MAX))
        return err_set(err, EINVAL, "%s: \"%.40s\": want seconds from 0.1 to %.0f", option, value,
                       SECONDS_MAX);
    *ret = n;
    return 0;
}

/* Parses one option. next: the word after it, or NULL. Returns 1 if next was used, too. */
static int take_option(const struct command *c, const char *word, const char *next,
                       struct command_line *line, struct err *err)
{
    if (strcmp(word, "--json") == 0 && strchr(c->options, 'j'))
        line->json = true;
    else if ((strcmp(word, "-v") == 0 || strcmp(word, "--verbose") == 0) && strchr(c->options, 'v'))
        line->verbose = true;
    else if (strcmp(word, "--watch") == 0 && strchr(c->options, 'w'))
        line->watch = 1;
    else if (strncmp(word, "--watch=", 8) == 0 && strchr(c->options, 'w'))
        return take_seconds("--watch", word + 8, &line->watch, err);
    else if (strncmp(word, "--wait=", 7) == 0 && strchr(c->options, 't'))
        return take_seconds("--wait", word + 7, &line->wait, err);
    else if (strcmp(word, "--wait") == 0 && strchr(c->options, 't') && next)
        return take_seconds("--wait", next, &line->wait, err) < 0 ? -EINVAL : 1;
    else if (strcmp(word, "--wait") == 0 && strchr(c->options, 't'))
        return err_set(err, EINVAL, "--wait needs SECONDS");
    else
        return err_set(err, EINVAL, "unknown option %.60s", word);
    return 0;
}

static int take_words(const struct command *c, int argc, char **argv, struct command_line *line,
                      struct err *err)
{
    bool options = true;
    for (int i = 1; i < argc; i++) {
        if (options && strcmp(argv[i], "--") == 0) {
            options = false;
        } else if (options && argv[i][0] == '-' && argv[i][1] &&
                   !isdigit((unsigned char)argv[i][1])) { /* -1 is a bad number, not an option */
            int rc = take_option(c, argv[i], i + 1 < argc ? argv[i + 1] : NULL, line, err);
            if (rc < 0)
                return rc;
            i += rc;
        } else if (line->nwords == c->max) {
            return err_set(err, EINVAL, "one word too many: \"%.60s\"", argv[i]);
        } else {
            line->words[line->nwords++] = argv[i];
        }
    }
    if (line->nwords < c->min)
        return err_set(err, EINVAL, "want %s", c->args);
    return 0;
}

int commands_run(int argc, char **argv)
{
    const struct command *c = find(argv[0]);
    struct command_line line = {0};
    struct err err = {0};
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
            help(c);
            return 0;
        }
    }
    int rc = take_words(c, argc, argv, &line, &err);
    if (rc < 0) {
        fprintf(stderr, "hvdrun %s: %s\n", c->name, err_text(&err));
        usage(c, stderr);
        return 2;
    }
    rc = c->run(&line, &err);
    if (rc < 0)
        fprintf(stderr, "hvdrun %s: %s\n", c->name, err_text(&err));
    if (fflush(stdout) != 0 && rc == 0) {
        perror("hvdrun");
        return 1;
    }
    return rc < 0 ? 1 : rc;
}

void commands_help(void)
{
    printf("commands, for a job that runs (hvdrun COMMAND --help says more):\n");
    for (size_t i = 0; i < NCOMMANDS; i++) {
        int n =
            printf("  %s%s%s", commands[i].name, *commands[i].args ? " " : "", commands[i].args);
        printf("%*s%s\n", n < 32 ? 32 - n : 1, "", commands[i].help);
    }
}

/* ---- the job -------------------------------------------------------------------------------- */

/* Lists the names of running jobs as "a, b". */
static void list_names(const struct jobs *jobs, char *dst, size_t size)
{
    size_t n = 0;
    dst[0] = '\0';
    for (int i = 0; i < jobs->n && n < size; i++)
        if (!jobs->list[i].gone)
            n += (size_t)snprintf(dst + n, size - n, "%s%s", n ? ", " : "", jobs->list[i].name);
    if (n == 0)
        n = (size_t)snprintf(dst, size, "none");
    if (jobs->others > 0 && n < size)
        snprintf(dst + n, size - n, "; other users have %d, which are theirs alone", jobs->others);
}

bool commands_ended(const struct job_entry *job, int rc)
{
    return rc == -ECONNREFUSED || (rc < 0 && access(job->dir, F_OK) < 0);
}

int commands_find(const char *name, struct job_entry *ret, struct err *err)
{
    struct jobs jobs;
    const struct job_entry *found = NULL, *gone = NULL;
    char names[600];
    int running = 0, rc = jobs_find(&jobs, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < jobs.n; i++) {
        running += !jobs.list[i].gone;
        if (!name && !jobs.list[i].gone)
            found = &jobs.list[i];
        if (name && jobs.list[i].gone && strcmp(jobs.list[i].name, name) == 0)
            gone = &jobs.list[i];
    }
    if (name)
        found = jobs_get(&jobs, name);
    list_names(&jobs, names, sizeof(names));
    if (!name && running > 1)
        rc = err_set(err, ENOENT, "which job? There are %s", names);
    else if (!found && gone)
        rc = err_set(
            err, ENOENT,
            "job %s: its hvdrun (pid %d) is gone; if it is an elastic job, hvdrun attach %s "
            "takes it over; other jobs here: %s",
            name, gone->pid, name, names);
    else if (!found && name)
        rc = err_set(err, ENOENT, "no job \"%.200s\"; jobs here: %s", name, names);
    else if (!found)
        rc = err_set(err, ENOENT, "no job runs here%s", names + strlen("none"));
    else
        *ret = *found;
    jobs_fini(&jobs);
    return rc;
}

int commands_status(const struct job_entry *job, int timeout_ms, struct status *ret,
                    json_t **ret_json, struct err *err)
{
    auto_json json_t *j = NULL;
    int rc = ask(job, "/v1/status", NULL, timeout_ms, &j, err);
    if (rc == 0)
        rc = status_read(j, ret, err);
    if (rc == 0 && ret_json)
        *ret_json = TAKE(j);
    return rc;
}
