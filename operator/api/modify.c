/* SPDX-License-Identifier: Apache-2.0
 *
 * modify: see modify.h.
 */
#include "operator/api/modify.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "operator/api/retry.h"

#define TRIES_MAX  10
#define TIMEOUT_MS 30000

struct modify {
    struct api *api;
    char *path;
    unsigned conflicts;
    struct api_call *call;
    struct loop_timer pause;
    modify_change_f *change;
    modify_done_f *done;
    void *arg;
};

static void on_read(void *arg, const struct api_answer *answer);

static void finish(struct modify *m, int rc, const struct err *err)
{
    modify_done_f *done = m->done;
    void *arg = m->arg;
    modify_cancel(m);
    done(arg, rc, err);
}

static int read_it(struct modify *m, struct err *err)
{
    struct api_request q = {.method = "GET",
                            .path = m->path,
                            .idempotent = true,
                            .urgent = true,
                            .timeout_ms = TIMEOUT_MS};
    return api_send(m->api, &q, on_read, m, &m->call, err);
}

static void on_pause(void *arg)
{
    struct modify *m = arg;
    struct err err = {0};
    int rc = read_it(m, &err);
    if (rc < 0)
        finish(m, rc, &err);
}

static void refused(struct modify *m, const struct api_answer *answer)
{
    struct err err;
    int rc = err_set(&err, answer->status == 404 ? ENOENT : EIO, "%s: %ld %s", m->path,
                     answer->status, answer->message);
    finish(m, rc, &err);
}

static void on_written(void *arg, const struct api_answer *answer)
{
    struct modify *m = arg;
    struct err err = {0};
    m->call = NULL;
    if (answer->status == 200) {
        finish(m, 0, &err);
    } else if (answer->status != 409) {
        refused(m, answer);
    } else if (++m->conflicts >= TRIES_MAX) {
        int rc = err_set(&err, ESTALE, "%s: %u writes in a row met another's", m->path, TRIES_MAX);
        finish(m, rc, &err);
    } else {
        uint64_t ms = retry_backoff_ms(m->conflicts, randombytes_random());
        loop_timer_start(api_loop(m->api), &m->pause, ms, on_pause, m);
    }
}

static void on_read(void *arg, const struct api_answer *answer)
{
    struct modify *m = arg;
    struct err err = {0};
    auto_json json_t *object = NULL;
    auto_free char *body = NULL;
    m->call = NULL;
    if (answer->status != 200) {
        refused(m, answer);
        return;
    }
    int rc = json_read(answer->body, answer->len, "an object", &object, &err);
    if (rc == 0)
        rc = m->change(m->arg, object, &err);
    if (rc <= 0) {
        finish(m, rc, &err);
        return;
    }
    body = json_write(object);
    /* Its resourceVersion makes a second one harmless, but then the answer is 409 and wrong. */
    struct api_request q = {
        .method = "PUT", .path = m->path, .body = body, .timeout_ms = TIMEOUT_MS};
    rc = body ? api_send(m->api, &q, on_written, m, &m->call, &err)
              : err_set(&err, ENOMEM, "no memory for %s", m->path);
    if (rc < 0)
        finish(m, rc, &err);
}

int modify_start(struct api *api, const char *path, modify_change_f *change, modify_done_f *done,
                 void *arg, struct modify **ret, struct err *err)
{
    struct modify *m = calloc(1, sizeof(*m));
    if (!m)
        return err_set(err, ENOMEM, "no memory");
    *m = (struct modify){.api = api, .change = change, .done = done, .arg = arg};
    m->path = strdup(path);
    int rc = m->path ? read_it(m, err) : err_set(err, ENOMEM, "no memory");
    if (rc < 0) {
        modify_cancel(m);
        return rc;
    }
    if (ret)
        *ret = m;
    return 0;
}

void modify_cancel(struct modify *m)
{
    if (!m)
        return;
    api_cancel(m->call);
    loop_timer_stop(api_loop(m->api), &m->pause);
    free(m->path);
    free(m);
}
