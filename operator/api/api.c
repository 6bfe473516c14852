/* SPDX-License-Identifier: Apache-2.0
 *
 * api: see api.h. At any time a call is either an attempt (http.c), a pause before the next
 * (timer), or waits for a credential (waits).
 */
#include "operator/api/api.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/words.h"
#include "core/http/http.h"
#include "core/json/json.h"
#include "operator/api/credentials.h"
#include "operator/api/retry.h"
#include "operator/api/target.h"

#define ATTEMPT_MS 15000
#define REFUSALS   2 /* further credentials that are tried after a 401 */

enum lane { READS, WRITES, LANES };

struct api {
    struct loop *loop;
    struct target target;
    struct http *lanes[LANES];
    struct credentials *credentials;
    struct api_counts counts;
    struct list calls;
    struct loop_timer ready; /* continues the calls that wait for a credential */
    struct err problem;      /* why there is no credential */
    api_observe_f *observe;
    void *observe_arg;
};

struct api_call {
    struct api *api;
    struct api_request request; /* the texts in it are owned */
    enum lane lane;
    uint64_t deadline;
    unsigned failures, refusals, serial;
    bool waits;
    struct http_call *http;
    struct loop_timer timer;
    struct err err; /* why the call could not be sent */
    char why[256];  /* why the attempt before has failed, if no time limit ended it; or empty */
    api_done_f *done;
    void *arg;
    struct list node;
};

struct text {
    char text[600];
};

static void attempt(struct api_call *call);

static void call_free(struct api_call *call)
{
    loop_timer_stop(call->api->loop, &call->timer);
    list_remove(&call->node);
    free((char *)call->request.method);
    free((char *)call->request.path);
    free((char *)call->request.body);
    free(call);
}

static void finish(struct api_call *call, const struct api_answer *answer)
{
    api_done_f *done = call->done;
    void *arg = call->arg;
    call_free(call);
    done(arg, answer);
}

static void on_pause_over(void *arg)
{
    attempt(arg);
}

static void on_failure(void *arg)
{
    struct api_call *call = arg;
    struct err err = call->err;
    finish(call, &(struct api_answer){
                     .retry_after_s = -1, .reason = "", .message = err_text(&err), .body = ""});
}

/* Fails the call from the loop, because the caller of api_send() does not have ret_call yet. */
static void fail_later(struct api_call *call)
{
    loop_timer_start(call->api->loop, &call->timer, 0, on_failure, call);
}

/* ---- responses ------------------------------------------------------------------------------- */

/* Takes reason and message from a metav1.Status in the body, if there is one. The texts live as
 * long as *ret_status. */
static void read_status(const struct http_answer *from, struct api_answer *answer,
                        json_t **ret_status)
{
    long asked = -1;
    int seconds = -1;
    if (from->len == 0 || json_read(from->body, from->len, "a Status", ret_status, NULL) < 0)
        return;
    const char *reason = "", *message = answer->message;
    if (json_expect(*ret_status, "a Status", NULL, "{s?s, s?s}", "reason", &reason, "message",
                    &message) < 0)
        return;
    if (json_expect(*ret_status, "a Status", NULL, "{s?{s?i}}", "details", "retryAfterSeconds",
                    &seconds) == 0)
        asked = seconds;
    answer->reason = reason;
    answer->message = message;
    if (answer->retry_after_s < 0 && asked > 0)
        answer->retry_after_s = asked;
}

/* Returns whether the call is retried, now or after a pause. */
static bool again(struct api_call *call, const struct http_answer *from,
                  const struct api_answer *answer)
{
    struct api *api = call->api;
    struct retry_outcome outcome = {.status = from->status,
                                    .unreached = from->unreached,
                                    .retry_after_s = answer->retry_after_s};
    uint64_t ms;
    if (from->status == 401 && call->refusals < REFUSALS &&
        credentials_refused(api->credentials, call->serial)) {
        call->refusals++;
        attempt(call);
        return true;
    }
    if (call->request.data)
        return false;
    call->failures++;
    if (!retry_again(&outcome, call->request.idempotent, call->failures, randombytes_random(), &ms))
        return false;
    if (clock_ns() + ms * CLOCK_MS >= call->deadline)
        return false;
    api->counts.retries++;
    loop_timer_start(api->loop, &call->timer, ms, on_pause_over, call);
    return true;
}

/* Why there is no response; "": there is one. The last attempt may have had little time: then an
 * earlier one knows more. */
static const char *reason(struct api_call *call, const struct http_answer *from, struct text *text)
{
    if (from->status != 0 || !from->late) {
        const char *why = from->status != 0 ? "" : from->why;
        snprintf(call->why, sizeof(call->why), "%s", why);
        return why;
    }
    if (!call->why[0])
        return from->why;
    snprintf(text->text, sizeof(text->text), "%s; before: %s", from->why, call->why);
    return text->text;
}

static void on_done(void *arg, const struct http_answer *from)
{
    struct api_call *call = arg;
    struct text text;
    auto_json json_t *status = NULL;
    struct api_answer answer = {.status = from->status,
                                .retry_after_s = from->retry_after_s,
                                .cut = from->cut,
                                .late = from->late,
                                .reason = "",
                                .message = reason(call, from, &text),
                                .body = from->body,
                                .len = from->len};
    call->http = NULL;
    if (call->api->observe)
        call->api->observe(call->api->observe_arg, call->request.method, from->status);
    call->api->counts.throttled += from->status == 429;
    call->api->counts.refused += from->status == 401;
    if (from->status >= 300)
        read_status(from, &answer, &status);
    if (!again(call, from, &answer))
        finish(call, &answer);
}

static int on_data(void *arg, const char *bytes, size_t n)
{
    struct api_call *call = arg;
    return call->request.data(call->arg, bytes, n);
}

/* ---- attempts -------------------------------------------------------------------------------- */

static const char *content_type(enum api_body kind)
{
    static const char *const types[] = {
        [API_JSON] = "application/json",
        [API_MERGE_PATCH] = "application/merge-patch+json",
        [API_APPLY] = "application/apply-patch+yaml", /* JSON is valid YAML */
    };
    return types[kind];
}

static void attempt(struct api_call *call)
{
    struct api *api = call->api;
    const struct api_request *q = &call->request;
    const char *auth = NULL;
    int rc = credentials_header(api->credentials, &auth, &call->err);
    call->waits = rc == 1;
    if (call->waits)
        return;
    int ms = deadline_poll_ms(call->deadline);
    if (!q->data && ms > ATTEMPT_MS)
        ms = ATTEMPT_MS;
    if (rc == 0 && ms == 0)
        rc = err_set(&call->err, ETIMEDOUT, "no time left for %s %s%s%s", q->method, q->path,
                     call->why[0] ? "; before: " : "", call->why);
    struct http_request order = {.method = q->method,
                                 .path = q->path,
                                 .auth = auth,
                                 .content_type = content_type(q->kind),
                                 .body = q->body,
                                 .timeout_ms = ms,
                                 .silent_s = q->silent_s > 0 ? q->silent_s : (ms + 999) / 1000,
                                 .compress = q->compress,
                                 .data = q->data ? on_data : NULL,
                                 .done = on_done,
                                 .arg = call};
    call->serial = credentials_serial(api->credentials);
    if (rc == 0)
        rc = http_send(api->lanes[call->lane], &order, &call->http, &call->err);
    if (rc < 0)
        fail_later(call);
    else
        api->counts.requests++;
}

static void on_ready(void *arg)
{
    struct api *api = arg;
    struct err problem = api->problem;
    list_for_each(pos, tmp, &api->calls)
    {
        struct api_call *call = list_entry(pos, struct api_call, node);
        if (!call->waits)
            continue;
        call->waits = false;
        if (problem.code == 0) {
            attempt(call);
        } else {
            call->err = problem;
            fail_later(call);
        }
    }
}

/* Called by credentials.c, possibly in the middle of a call's attempt. */
static void on_credentials(void *arg, const char *cert, const char *key, const struct err *err)
{
    struct api *api = arg;
    api->problem = err ? *err : (struct err){0};
    if (cert && key && api->problem.code == 0)
        target_set_certificate(&api->target, cert, key, &api->problem);
    loop_timer_start(api->loop, &api->ready, 0, on_ready, api);
}

int api_send(struct api *api, const struct api_request *request, api_done_f *done, void *arg,
             struct api_call **ret_call, struct err *err)
{
    struct api_call *call = calloc(1, sizeof(*call));
    bool ok = true;
    if (!call)
        return err_set(err, ENOMEM, "no memory for a call");
    *call = (struct api_call){.api = api, .request = *request, .done = done, .arg = arg};
    list_append(&api->calls, &call->node);
    call->request.method = words_copy(request->method, &ok);
    call->request.path = words_copy(request->path, &ok);
    call->request.body = words_copy(request->body, &ok);
    if (!ok) {
        call_free(call);
        return err_set(err, ENOMEM, "no memory for a call");
    }
    bool read = strcmp(request->method, "GET") == 0 && !request->urgent;
    call->lane = read ? READS : WRITES;
    call->deadline = deadline_in_ms((uint64_t)request->timeout_ms);
    attempt(call);
    if (ret_call)
        *ret_call = call;
    return 0;
}

long api_status(const struct api_call *call)
{
    return call->http ? http_status(call->http) : 0;
}

void api_cancel(struct api_call *call)
{
    if (!call)
        return;
    if (call->http)
        http_cancel(call->http);
    call_free(call);
}

/* ---- life ------------------------------------------------------------------------------------ */

int api_open(struct api **ret, struct loop *loop, const struct access *access_to, struct err *err)
{
    struct api *api = calloc(1, sizeof(*api));
    if (!api || sodium_init() < 0) {
        free(api);
        return err_set(err, ENOMEM, "no memory for an API client");
    }
    api->loop = loop;
    list_init(&api->calls);
    int rc = target_init(&api->target, access_to, err);
    if (rc == 0)
        rc = credentials_open(&api->credentials, loop, access_to, on_credentials, api, err);
    for (int i = 0; rc == 0 && i < LANES; i++)
        rc = http_open(&api->lanes[i], loop, &api->target.site, err);
    if (rc < 0) {
        api_close(api);
        return rc;
    }
    *ret = api;
    return 0;
}

void api_observe(struct api *api, api_observe_f *observe, void *arg)
{
    api->observe = observe;
    api->observe_arg = arg;
}

const struct api_counts *api_counts(const struct api *api)
{
    return &api->counts;
}

struct loop *api_loop(const struct api *api)
{
    return api->loop;
}

void api_close(struct api *api)
{
    if (!api)
        return;
    list_for_each(pos, tmp, &api->calls)
    {
        api_cancel(list_entry(pos, struct api_call, node));
    }
    credentials_close(api->credentials);
    loop_timer_stop(api->loop, &api->ready);
    for (int i = 0; i < LANES; i++)
        http_close(api->lanes[i]);
    target_fini(&api->target);
    free(api);
}
