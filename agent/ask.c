/* SPDX-License-Identifier: Apache-2.0
 *
 * ask: see ask.h.
 */
#include "agent/ask.h"

#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/member/client.h"

#define TOKEN_MAX 4096

struct asking {
    const struct job_entry *job;
    json_t **ret;
    struct err *err;
    int timeout_ms;
    int rc;
    bool done;
};

static int refused(const struct asking *a, const struct client_answer *answer)
{
    auto_json json_t *j = NULL;
    const char *text = "";
    if (answer->status == 401)
        return err_set(a->err, EACCES, "job %s: the token in %s/token is not that of this job",
                       a->job->name, a->job->dir);
    if (json_read(answer->body, answer->len, "an answer", &j, NULL) < 0 ||
        json_expect(j, "an answer", NULL, "{s:s}", "error", &text) < 0)
        return err_set(a->err, EPROTO, "job %s: HTTP status %ld", a->job->name, answer->status);
    return err_set(a->err, EINVAL, "job %s: %s", a->job->name, text);
}

static void on_answer(void *arg, const struct client_answer *answer)
{
    struct asking *a = arg;
    a->done = true;
    if (answer->status == 0)
        a->rc = err_set(a->err, ECONNREFUSED, "job %s (hvdrun %d): %s", a->job->name, a->job->pid,
                        answer->text);
    else if (answer->status >= 300)
        a->rc = refused(a, answer);
    else if (answer->len > 0)
        a->rc = json_read(answer->body, answer->len, "the answer", a->ret, a->err);
}

static int exchange(struct asking *a, const char *token, const char *path, const char *body)
{
    char sock[JOBS_DIR_MAX + 16];
    struct loop loop;
    struct client *client = NULL;
    uint64_t deadline = deadline_in_ms((uint64_t)a->timeout_ms);
    int rc = loop_init(&loop);
    if (rc < 0)
        return err_sys(a->err, -rc, "epoll");
    jobs_path(sock, sizeof(sock), a->job->dir, "sock");
    struct client_config config = {
        .loop = &loop, .url = "http://job", .unix_path = sock, .token = token};
    rc = client_open(&client, &config, a->err);
    if (rc == 0) /* the client's own limit is longer, so that this function reports the time-out */
        rc = client_send(client, path, body, a->timeout_ms + 1000, on_answer, a, a->err);
    while (rc == 0 && !a->done && !deadline_passed(deadline))
        loop_once(&loop, deadline_poll_ms(deadline));
    client_close(client);
    loop_fini(&loop);
    if (rc == 0 && !a->done)
        rc = err_set(a->err, ETIMEDOUT, "job %s: its hvdrun (pid %d) has not answered within %d s",
                     a->job->name, a->job->pid, (a->timeout_ms + 999) / 1000);
    return rc < 0 ? rc : a->rc;
}

int ask(const struct job_entry *job, const char *path, const char *body, int timeout_ms,
        json_t **ret, struct err *err)
{
    char file[JOBS_DIR_MAX + 16];
    auto_free char *token = NULL;
    json_t *answer = NULL;
    struct asking a = {.job = job, .ret = &answer, .err = err, .timeout_ms = timeout_ms};
    jobs_path(file, sizeof(file), job->dir, "token");
    int rc = fd_read_file(file, TOKEN_MAX, &token, NULL);
    if (rc < 0)
        return err_sys(err, -rc, "job %s: its token %s", job->name, file);
    token[strcspn(token, "\r\n")] = '\0';
    rc = exchange(&a, token, path, body);
    explicit_bzero(token, strlen(token));
    if (rc == 0)
        *ret = answer;
    else
        json_decref(answer);
    return rc;
}
