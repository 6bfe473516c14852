/* SPDX-License-Identifier: Apache-2.0
 *
 * client: see client.h. What it adds to core/http: the token, the job's CA, and random pauses while
 * the coordinator is unreachable.
 */
#include "core/member/client.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/http/http.h"

#define ANSWER_MAX (64u << 20)
#define TOKEN_MAX  16384
#define TOKEN_S    60
#define PATIENT_MS 1000
#define BUSY_MS    200 /* the longest wait after the first 503; twice as long after each next one */
#define BUSY_TIMES 4   /* but not more often */
#define HURRY_MS   2000 /* the longest wait in a hurry; below the operator's 3.5 s */
#define HURRY_S    60

struct client {
    struct loop *loop;
    struct http *http;
    struct http_site site;
    struct list calls;
    char *url, *unix_path;
    char *token, *token_file;
    uint64_t token_read; /* clock */
    bool accepted;       /* the coordinator has accepted a token of token_file */
    int jitter_ms;
    uint64_t failing;    /* clock: since when the coordinator is unreachable; 0: it is reachable */
    int busy;            /* number of 503 in a row */
    uint64_t hurry;      /* clock: until when there is a hurry; 0: there is none */
    uint64_t hold_until; /* clock: until when requests wait; 0: they do not */
    struct loop_timer hold;
    int ca_fd;   /* a memfd, because curl's GnuTLS back end wants a file name */
    char ca[64]; /* file name of the memfd */
};

struct call {
    struct client *client;
    bool waits; /* waits until client.hold_until */
    char *path, *post;
    int timeout_ms;
    uint64_t begun; /* clock */
    client_done_f *done;
    void *arg;
    struct list node;
};

static void call_destroy(struct call *call)
{
    list_remove(&call->node);
    free(call->path);
    free(call->post);
    free(call);
}

/* ---- token ---------------------------------------------------------------------------------- */

int client_read_token(const char *path, char **ret, struct err *err)
{
    size_t len = 0;
    int rc = fd_read_file(path, TOKEN_MAX, ret, &len);
    if (rc < 0)
        return err_sys(err, -rc, "token file %s", path);
    while (len > 0 && strchr(" \t\r\n", (*ret)[len - 1]))
        (*ret)[--len] = '\0';
    if (len > 0 && strcspn(*ret, "\r\n") == len)
        return 0;
    sodium_memzero(*ret, len);
    free(*ret);
    *ret = NULL;
    return err_set(err, EINVAL, "token file %s: want one line", path);
}

static void forget_token(struct client *c)
{
    if (c->token)
        sodium_memzero(c->token, strlen(c->token));
    free(c->token);
    c->token = NULL;
}

/* Reads the token file again. Returns true when the token has changed. An unreadable file leaves
 * the token as it was. */
static bool renew_token(struct client *c)
{
    char *fresh = NULL;
    c->token_read = clock_ns();
    if (!c->token_file || client_read_token(c->token_file, &fresh, NULL) < 0)
        return false;
    bool other = strcmp(fresh, c->token) != 0;
    forget_token(c);
    c->token = fresh;
    return other;
}

/* ---- pauses while unreachable --------------------------------------------------------------- */

static int begin(struct call *call);

static void on_hold(void *arg)
{
    struct client *c = arg;
    c->hold_until = 0;
    list_for_each(pos, tmp, &c->calls)
    {
        struct call *call = list_entry(pos, struct call, node);
        if (!call->waits || begin(call) == 0)
            continue;
        /* No memory: try again in 100 ms. */
        c->hold_until = deadline_in_ms(100);
        loop_timer_start(c->loop, &c->hold, 100, on_hold, c);
        return;
    }
}

/* Lets requests wait for a random time of up to `most` ms. */
static void hold(struct client *c, int most)
{
    if (most > c->jitter_ms)
        most = c->jitter_ms;
    if (most > HURRY_MS && c->hurry && !deadline_passed(c->hurry))
        most = HURRY_MS;
    if (most <= 0)
        return;
    uint64_t ms = randombytes_uniform((uint32_t)most) + 1;
    c->hold_until = deadline_in_ms(ms);
    loop_timer_start(c->loop, &c->hold, ms, on_hold, c);
}

void client_hurry(struct client *c)
{
    c->hurry = deadline_in_ms(HURRY_S * 1000);
    if (c->hold_until > deadline_in_ms(HURRY_MS))
        hold(c, HURRY_MS);
}

/* Records whether the coordinator was reached, and starts a random pause when it has been
 * unreachable for a second, or is busy: it has said so, or was late for the first time. */
static void learn(struct client *c, long status, uint64_t begun)
{
    uint64_t now = clock_ns();
    bool away = c->failing && now - c->failing >= PATIENT_MS * CLOCK_MS;
    bool busy = status == 503 || (status == 0 && now - begun >= PATIENT_MS * CLOCK_MS);
    if (status != 0)
        c->failing = 0;
    else if (!c->failing)
        c->failing = now;
    c->busy = busy ? c->busy + 1 : status ? 0 : c->busy;
    if (c->hold_until)
        return;
    if (status == 0 && away)
        hold(c, c->jitter_ms);
    else if (busy)
        hold(c, BUSY_MS << (c->busy < BUSY_TIMES ? c->busy - 1 : BUSY_TIMES - 1));
}

/* ---- requests ------------------------------------------------------------------------------- */

static void on_answer(void *arg, const struct http_answer *from)
{
    struct call *call = arg;
    struct client *c = call->client;
    struct client_answer answer = {
        .status = from->status, .text = from->why, .body = from->body, .len = from->len};
    c->accepted |= answer.status == 200 || answer.status == 204;
    if (answer.status == 401 && (renew_token(c) || (c->token_file && c->accepted))) {
        answer.status = 0;
        answer.text = "the token was not accepted: it is renewed, or the kubelet will renew it";
    }
    learn(c, answer.status, call->begun);
    client_done_f *done = call->done;
    arg = call->arg;
    call_destroy(call);
    done(arg, &answer);
}

static int begin(struct call *call)
{
    struct client *c = call->client;
    struct http_call *sent;
    char *auth = NULL; /* not a fixed buffer: tokens of Kubernetes exceed one kilobyte */
    if (c->token_file && clock_ns() - c->token_read >= TOKEN_S * CLOCK_S)
        renew_token(c);
    if (asprintf(&auth, "Authorization: Bearer %s", c->token) < 0)
        return -ENOMEM;
    struct http_request order = {.method = call->post ? "POST" : "GET",
                                 .path = call->path,
                                 .auth = auth,
                                 .content_type = "application/json",
                                 .body = call->post,
                                 .timeout_ms = call->timeout_ms,
                                 .done = on_answer,
                                 .arg = call};
    call->begun = clock_ns();
    int rc = http_send(c->http, &order, &sent, NULL);
    sodium_memzero(auth, strlen(auth));
    free(auth);
    call->waits = rc < 0;
    return rc;
}

int client_send(struct client *c, const char *path, const char *body, int timeout_ms,
                client_done_f *done, void *arg, struct err *err)
{
    struct call *call = calloc(1, sizeof(*call));
    if (!call)
        return err_set(err, ENOMEM, "no memory for a request");
    *call = (struct call){
        .client = c, .waits = true, .timeout_ms = timeout_ms, .done = done, .arg = arg};
    list_append(&c->calls, &call->node);
    call->path = strdup(path);
    call->post = body ? strdup(body) : NULL;
    int rc = !call->path || (body && !call->post) ? -ENOMEM : 0;
    if (rc == 0 && !c->hold_until)
        rc = begin(call);
    if (rc < 0) {
        call_destroy(call);
        return err_set(err, ENOMEM, "no memory for a request");
    }
    return 0;
}

/* ---- life ----------------------------------------------------------------------------------- */

static int store_ca(struct client *c, const char *pem, struct err *err)
{
    c->ca_fd = memfd_create("hvd-ca", MFD_CLOEXEC);
    if (c->ca_fd < 0)
        return err_sys(err, errno, "memfd for the CA");
    int rc = fd_write_full(c->ca_fd, pem, strlen(pem), deadline_in_ms(1000));
    snprintf(c->ca, sizeof(c->ca), "/proc/self/fd/%d", c->ca_fd);
    return rc < 0 ? err_sys(err, -rc, "memfd for the CA") : 0;
}

int client_open(struct client **ret, const struct client_config *config, struct err *err)
{
    struct client *c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(err, ENOMEM, "no memory for an HTTP client");
    c->loop = config->loop;
    c->ca_fd = -1;
    list_init(&c->calls);
    int rc = 0;
    c->jitter_ms = config->jitter_ms;
    c->token_read = clock_ns();
    c->token = strdup(config->token);
    c->token_file = config->token_file ? strdup(config->token_file) : NULL;
    c->url = strdup(config->url);
    c->unix_path = config->unix_path ? strdup(config->unix_path) : NULL;
    if (!c->token || !c->url || (config->unix_path && !c->unix_path) ||
        (config->token_file && !c->token_file))
        rc = err_set(err, ENOMEM, "no memory for an HTTP client");
    if (rc == 0 && config->ca_pem)
        rc = store_ca(c, config->ca_pem, err);
    c->site = (struct http_site){.server = c->url,
                                 .unix_path = c->unix_path,
                                 .proxy = "", /* the coordinator is never behind a proxy */
                                 .ca_path = config->ca_pem ? c->ca : NULL,
                                 .answer_max = ANSWER_MAX};
    if (rc == 0)
        rc = http_open(&c->http, c->loop, &c->site, err);
    if (rc < 0) {
        client_close(c);
        return rc;
    }
    *ret = c;
    return 0;
}

void client_close(struct client *c)
{
    if (!c)
        return;
    http_close(c->http);
    list_for_each(pos, tmp, &c->calls)
    {
        call_destroy(list_entry(pos, struct call, node));
    }
    loop_timer_stop(c->loop, &c->hold);
    forget_token(c);
    free(c->token_file);
    if (c->ca_fd >= 0)
        close(c->ca_fd);
    free(c->url);
    free(c->unix_path);
    free(c);
}
