/* SPDX-License-Identifier: Apache-2.0
 *
 * client: see client.h. curl's multi interface: it tells which sockets and which time-out it waits
 * for, our loop waits.
 */
#include "core/member/client.h"

#include <curl/curl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/buf.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"

#define ANSWER_MAX (64u << 20)
#define TOKEN_MAX  16384
#define TOKEN_S    60
#define PATIENT_MS 1000

struct client {
    struct loop *loop;
    CURLM *multi;
    struct loop_timer timer;
    struct list calls, sockets;
    char *url, *unix_path;
    char *token, *token_file;
    uint64_t token_read; /* clock */
    int jitter_ms;
    uint64_t failing;    /* clock: since when nothing is reached; 0: it is */
    uint64_t hold_until; /* clock: requests wait; 0: they do not */
    struct loop_timer hold;
    int ca_fd; /* a memfd: this curl's GnuTLS back end wants a file name */
};

struct call {
    struct client *client;
    CURL *easy;
    struct buf body;
    bool waits; /* for client.hold_until */
    struct curl_slist *headers;
    char reason[CURL_ERROR_SIZE];
    char *post;
    client_done_f *done;
    void *arg;
    struct list node;
};

struct sock {
    struct client *client;
    struct loop_fd lfd;
    struct list node;
};

static void call_destroy(struct call *call)
{
    list_remove(&call->node);
    if (call->easy) {
        if (!call->waits)
            curl_multi_remove_handle(call->client->multi, call->easy);
        curl_easy_cleanup(call->easy);
    }
    curl_slist_free_all(call->headers);
    buf_fini(&call->body);
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

/* True: it is another one now. One that cannot be read stays what it was. */
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

/* ---- patience ------------------------------------------------------------------------------- */

static int begin(struct call *call)
{
    if (curl_multi_add_handle(call->client->multi, call->easy) != CURLM_OK)
        return -ENOMEM;
    call->waits = false;
    return 0;
}

static void on_hold(void *arg)
{
    struct client *c = arg;
    c->hold_until = 0;
    list_for_each(pos, tmp, &c->calls)
    {
        struct call *call = list_entry(pos, struct call, node);
        if (!call->waits || begin(call) == 0)
            continue;
        /* No memory: a little later. */
        c->hold_until = deadline_in_ms(100);
        loop_timer_start(c->loop, &c->hold, 100, on_hold, c);
        return;
    }
}

/* Whether the coordinator is there. */
static void learn(struct client *c, bool reached)
{
    uint64_t now = clock_ns();
    if (reached) {
        c->failing = 0;
        return;
    }
    if (!c->failing)
        c->failing = now;
    if (!c->jitter_ms || c->hold_until || now - c->failing < PATIENT_MS * CLOCK_MS)
        return;
    uint64_t ms = randombytes_uniform((uint32_t)c->jitter_ms) + 1;
    c->hold_until = now + ms * CLOCK_MS;
    loop_timer_start(c->loop, &c->hold, ms, on_hold, c);
}

/* Hands out what is done. A callback may send again. */
static void finish_calls(struct client *c)
{
    int left;
    CURLMsg *msg;
    while ((msg = curl_multi_info_read(c->multi, &left))) {
        if (msg->msg != CURLMSG_DONE)
            continue;
        struct call *call = NULL;
        CURLcode code = msg->data.result;
        struct client_answer answer = {0};
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&call);
        if (code == CURLE_OK)
            curl_easy_getinfo(msg->easy_handle, CURLINFO_RESPONSE_CODE, &answer.status);
        buf_put_u8(&call->body, 0);
        learn(c, answer.status != 0);
        bool renewed = answer.status == 401 && renew_token(c);
        if (renewed) {
            answer.status = 0;
            snprintf(call->reason, sizeof(call->reason), "the token was renewed");
        }
        answer.text = call->reason[0] ? call->reason : curl_easy_strerror(code);
        answer.body = call->body.failed ? "" : (const char *)call->body.data;
        answer.len = call->body.failed ? 0 : call->body.len - 1;
        call->done(call->arg, &answer);
        call_destroy(call);
    }
}

static void on_socket(void *arg, uint32_t events)
{
    struct sock *sock = arg;
    struct client *c = sock->client;
    int running, what = 0;
    what |= events & EPOLLIN ? CURL_CSELECT_IN : 0;
    what |= events & EPOLLOUT ? CURL_CSELECT_OUT : 0;
    what |= events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0;
    curl_multi_socket_action(c->multi, sock->lfd.fd, what, &running);
    finish_calls(c);
}

static void on_timer(void *arg)
{
    struct client *c = arg;
    int running;
    curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    finish_calls(c);
}

static int want_timer(CURLM *multi, long ms, void *arg)
{
    struct client *c = arg;
    (void)multi;
    if (ms < 0)
        loop_timer_stop(c->loop, &c->timer);
    else
        loop_timer_start(c->loop, &c->timer, (uint64_t)ms, on_timer, c);
    return 0;
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *sock_arg)
{
    struct client *c = arg;
    struct sock *sock = sock_arg;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (sock) {
            loop_fd_stop(c->loop, &sock->lfd);
            list_remove(&sock->node);
            free(sock);
            curl_multi_assign(c->multi, fd, NULL);
        }
        return 0;
    }
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    if (sock)
        return loop_fd_set(c->loop, &sock->lfd, events) < 0 ? -1 : 0;
    sock = calloc(1, sizeof(*sock));
    if (!sock)
        return -1;
    sock->client = c;
    list_append(&c->sockets, &sock->node);
    curl_multi_assign(c->multi, fd, sock);
    return loop_fd_start(c->loop, &sock->lfd, fd, events, on_socket, sock) < 0 ? -1 : 0;
}

/* ---- life ----------------------------------------------------------------------------------- */

static int store_ca(struct client *c, const char *pem, struct err *err)
{
    c->ca_fd = memfd_create("hvd-ca", MFD_CLOEXEC);
    if (c->ca_fd < 0)
        return err_sys(err, errno, "memfd for the CA");
    int rc = fd_write_full(c->ca_fd, pem, strlen(pem), deadline_in_ms(1000));
    return rc < 0 ? err_sys(err, -rc, "memfd for the CA") : 0;
}

static int add_header(struct call *call, const char *line)
{
    struct curl_slist *longer = curl_slist_append(call->headers, line);
    if (!longer)
        return -ENOMEM;
    call->headers = longer;
    return 0;
}

static int add_headers(struct call *call)
{
    struct client *c = call->client;
    char *auth = NULL; /* tokens of Kubernetes have a kilobyte and more */
    if (c->token_file && clock_ns() - c->token_read >= TOKEN_S * CLOCK_S)
        renew_token(c);
    if (asprintf(&auth, "Authorization: Bearer %s", c->token) < 0)
        return -ENOMEM;
    int rc = add_header(call, auth);
    sodium_memzero(auth, strlen(auth));
    free(auth);
    rc = rc < 0 ? rc : add_header(call, "Content-Type: application/json");
    return rc < 0 ? rc : add_header(call, "Expect:");
}

int client_open(struct client **ret, const struct client_config *config, struct err *err)
{
    struct client *c = calloc(1, sizeof(*c));
    if (!c || curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
        free(c);
        return err_set(err, ENOMEM, "libcurl did not start");
    }
    c->loop = config->loop;
    c->ca_fd = -1;
    list_init(&c->calls);
    list_init(&c->sockets);
    int rc = 0;
    c->jitter_ms = config->jitter_ms;
    c->token_read = clock_ns();
    c->token = strdup(config->token);
    c->token_file = config->token_file ? strdup(config->token_file) : NULL;
    c->url = strdup(config->url);
    c->unix_path = config->unix_path ? strdup(config->unix_path) : NULL;
    c->multi = curl_multi_init();
    if (!c->token || !c->url || !c->multi || (config->unix_path && !c->unix_path) ||
        (config->token_file && !c->token_file))
        rc = err_set(err, ENOMEM, "no memory for an HTTP client");
    if (rc == 0 && config->ca_pem)
        rc = store_ca(c, config->ca_pem, err);
    if (rc < 0) {
        client_close(c);
        return rc;
    }
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, want_timer);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    *ret = c;
    return 0;
}

static size_t on_body(char *data, size_t one, size_t n, void *arg)
{
    struct call *call = arg;
    if (call->body.len + one * n > ANSWER_MAX)
        return 0;
    buf_put(&call->body, data, one * n);
    return call->body.failed ? 0 : one * n;
}

static int set_options(struct call *call, const char *path, int timeout_ms)
{
    struct client *c = call->client;
    CURL *e = call->easy;
    char ca[64];
    auto_free char *url = NULL;
    if (asprintf(&url, "%s%s", c->url, path) < 0) {
        url = NULL;
        return -ENOMEM;
    }
    CURLcode rc = curl_easy_setopt(e, CURLOPT_URL, url);
    if (c->unix_path)
        rc |= curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, c->unix_path);
    if (c->ca_fd >= 0) {
        snprintf(ca, sizeof(ca), "/proc/self/fd/%d", c->ca_fd);
        rc |= curl_easy_setopt(e, CURLOPT_CAINFO, ca);
        rc |= curl_easy_setopt(e, CURLOPT_CAPATH, NULL);
    }
    if (call->post) {
        rc |= curl_easy_setopt(e, CURLOPT_POSTFIELDS, call->post);
        rc |= curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(call->post));
    }
    rc |= curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    rc |= curl_easy_setopt(e, CURLOPT_PROXY, ""); /* the coordinator is never behind one */
    rc |= curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    rc |= curl_easy_setopt(e, CURLOPT_HTTPHEADER, call->headers);
    rc |= curl_easy_setopt(e, CURLOPT_ERRORBUFFER, call->reason);
    rc |= curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    rc |= curl_easy_setopt(e, CURLOPT_WRITEDATA, call);
    rc |= curl_easy_setopt(e, CURLOPT_PRIVATE, call);
    rc |= curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    return rc == CURLE_OK ? 0 : -ENOMEM;
}

int client_send(struct client *c, const char *path, const char *body, int timeout_ms,
                client_done_f *done, void *arg, struct err *err)
{
    struct call *call = calloc(1, sizeof(*call));
    if (!call)
        return err_set(err, ENOMEM, "no memory for a request");
    *call = (struct call){.client = c, .done = done, .arg = arg};
    list_append(&c->calls, &call->node);
    call->post = body ? strdup(body) : NULL;
    call->easy = curl_easy_init();
    call->waits = true; /* curl does not have it yet */
    int rc = !call->easy || (body && !call->post) ? -ENOMEM : add_headers(call);
    rc = rc < 0 ? rc : set_options(call, path, timeout_ms);
    if (rc == 0 && !c->hold_until)
        rc = begin(call);
    if (rc < 0) {
        call_destroy(call);
        return err_set(err, ENOMEM, "no memory for a request");
    }
    return 0;
}

void client_close(struct client *c)
{
    if (!c)
        return;
    list_for_each(pos, tmp, &c->calls)
    {
        call_destroy(list_entry(pos, struct call, node));
    }
    if (c->multi)
        curl_multi_cleanup(c->multi);
    list_for_each(pos, tmp, &c->sockets)
    {
        struct sock *sock = list_entry(pos, struct sock, node);
        loop_fd_stop(c->loop, &sock->lfd);
        list_remove(&sock->node);
        free(sock);
    }
    loop_timer_stop(c->loop, &c->timer);
    loop_timer_stop(c->loop, &c->hold);
    forget_token(c);
    free(c->token_file);
    if (c->ca_fd >= 0)
        close(c->ca_fd);
    free(c->url);
    free(c->unix_path);
    free(c);
    curl_global_cleanup();
}
