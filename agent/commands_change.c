/* SPDX-License-Identifier: Apache-2.0
 *
 * commands_change: hvdrun scale and hvdrun drain: requests a planned change, and with --wait waits
 * until it is in effect. See commands_private.h.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/ask.h"
#include "agent/commands_private.h"
#include "core/base/clock.h"
#include "core/member/roster.h"

#define LOOK_MS 100

/* Sends the POST. *ret_change is the number of the change from the answer. */
static int request(const struct job_entry *job, const char *path, json_t *body, json_t **ret_answer,
                   int64_t *ret_change, struct err *err)
{
    auto_free char *text = json_write(body);
    json_int_t change;
    if (!text)
        return err_set(err, ENOMEM, "no memory");
    int rc = ask(job, path, text, COMMANDS_ASK_MS, ret_answer, err);
    if (rc == 0)
        rc = json_expect(*ret_answer, "the answer", err, "{s:I}", "change", &change);
    if (rc == 0)
        *ret_change = change;
    return rc;
}

static void say_progress(const struct status *s, char *said, size_t size, uint64_t begin)
{
    char text[700];
    int n =
        snprintf(text, sizeof(text), "%s, %d of %d ranks", s->state, s->epoch ? s->size : 0, s->np);
    if (s->waiting_for[0])
        snprintf(text + n, sizeof(text) - (size_t)n, ", waiting for %s", s->waiting_for);
    if (strcmp(text, said) == 0)
        return;
    printf("%6.1f s: %s\n", (double)(clock_ns() - begin) / 1e9, text);
    fflush(stdout);
    snprintf(said, size, "%s", text);
}

/* Waits until the change is in effect, at most seconds. */
static int wait_for(const struct job_entry *job, int64_t change, double seconds, struct err *err)
{
    uint64_t begin = clock_ns(), deadline = begin + (uint64_t)(seconds * 1e9);
    char said[700] = "";
    for (;;) {
        struct status s = {0};
        int rc = commands_status(job, COMMANDS_ASK_MS, &s, NULL, err);
        if (commands_ended(job, rc))
            return err_set(err, ECANCELED, "job %s ended before change %lld was in effect",
                           job->name, (long long)change);
        if (rc < 0)
            return rc;
        bool applied = s.change >= change;
        if (applied)
            printf("change %lld is in effect: epoch %lld, %d rank%s, after %.1f s\n",
                   (long long)change, (long long)roster_epoch_number((uint32_t)s.epoch), s.size,
                   s.size == 1 ? "" : "s", (double)(clock_ns() - begin) / 1e9);
        else
            say_progress(&s, said, sizeof(said), begin);
        status_fini(&s);
        if (applied)
            return 0;
        if (deadline_passed(deadline))
            return err_set(err, ETIMEDOUT,
                           "change %lld is not in effect after %g s (%s); the request stands",
                           (long long)change, seconds, said);
        usleep(LOOK_MS * 1000);
    }
}

/* The part that scale and drain share: sends the request, prints the result, waits. */
static int change(const struct command_line *line, const struct job_entry *job, const char *path,
                  json_t *body, const char *what, struct err *err)
{
    auto_json json_t *answer = NULL, *owned = body;
    int64_t number = 0;
    int rc = request(job, path, owned, &answer, &number, err);
    if (rc < 0)
        return rc;
    if (line->json) {
        auto_free char *text = json_write(answer);
        puts(text ? text : "{}");
    } else {
        printf("change %lld: %s\n", (long long)number, what);
    }
    fflush(stdout);
    return line->wait > 0 ? wait_for(job, number, line->wait, err) : 0;
}

int command_scale(const struct command_line *line, struct err *err)
{
    struct job_entry job;
    struct status s = {0};
    char what[64], *end;
    errno = 0;
    long n = strtol(line->words[1], &end, 10);
    if (errno || end == line->words[1] || *end || n < 1 || n > MEMBER_RANKS_MAX)
        return err_set(err, EINVAL, "\"%.60s\": want a number of ranks from 1 to %d",
                       line->words[1], MEMBER_RANKS_MAX);
    int rc = commands_find(line->words[0], &job, err);
    if (rc == 0)
        rc = commands_status(&job, COMMANDS_ASK_MS, &s, NULL, err);
    if (rc < 0)
        return rc;
    if (s.np == n)
        snprintf(what, sizeof(what), "%ld ranks, as before", n);
    else
        snprintf(what, sizeof(what), "%d -> %ld ranks", s.np, n);
    status_fini(&s);
    return change(line, &job, "/v1/scale", json_pack("{s:i}", "np", (int)n), what, err);
}

int command_drain(const struct command_line *line, struct err *err)
{
    struct job_entry job;
    char what[300];
    const char *target = line->words[1];
    if (!*target)
        return err_set(err, EINVAL, "name the host or the rank that is to leave");
    int rc = commands_find(line->words[0], &job, err);
    if (rc < 0)
        return rc;
    if (target[strspn(target, "0123456789")]) {
        snprintf(what, sizeof(what), "the ranks on %.250s leave", target);
        return change(line, &job, "/v1/drain",
                      json_pack("{s:o}", "host", json_lossy_string(target, strlen(target))), what,
                      err);
    }
    errno = 0;
    long rank = strtol(target, NULL, 10);
    if (errno || rank >= MEMBER_RANKS_MAX)
        return err_set(err, EINVAL, "there is no rank %.60s", target);
    snprintf(what, sizeof(what), "rank %ld leaves", rank);
    return change(line, &job, "/v1/drain", json_pack("{s:i}", "rank", (int)rank), what, err);
}
