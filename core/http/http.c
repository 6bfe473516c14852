/* SPDX-License-Identifier: Apache-2.0
 *
 * http: see http.h. curl's multi interface reports the sockets and the time-out that it waits for;
 * core/base/loop waits for them.
 */
#include "core/http/http.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/log.h"

#define KEEPALIVE_S 15L
/* curl's buffer of each request in flight. Small, because there are many; most objects have a few
 * KB. */
#define RECEIVE_BYTES (8L << 10)
#define SEND_BYTES    (16L << 10)

/* A connection pool. After a time-out the pool is retired: new requests go to a new pool, and the
 * old one is freed with its last call. Otherwise curl would put further HTTP/2 requests onto the
 * same connection, and a proxy that acknowledges bytes without forwarding them would stall all
 * requests for ever. */
struct pool {
    struct http *http;
    CURLM *multi;
    struct loop_timer timer;
    struct list calls, sockets;
    bool busy; /* inside finish_calls() */
    struct list node;
};

struct http {
    struct loop *loop;
    const struct http_site *site;
    struct list pools;
    struct pool *pool; /* for new requests */
};

struct http_call {
    struct pool *pool;
    CURL *easy;
    struct curl_slist *headers, *connect_to;
    struct buf body;
    char reason[CURL_ERROR_SIZE];
    char *sent;
    bool inside;    /* its data or done callback runs: curl does not allow to remove the call now */
    bool cancelled; /* by http_cancel(); if inside, finish_calls() destroys the call later */
    http_data_f *data;
    http_done_f *done;
    void *arg;
    struct list node;
};

struct sock {
    struct pool *pool;
    struct loop_fd lfd;
    struct list node;
};

static void pool_close(struct pool *p);

/* Frees retired pools without calls. */
static void close_retired(struct http *h)
{
    list_for_each(pos, tmp, &h->pools)
    {
        struct pool *p = list_entry(pos, struct pool, node);
        if (p != h->pool && !p->busy && list_empty(&p->calls))
            pool_close(p);
    }
}

static void call_destroy(struct http_call *call)
{
    list_remove(&call->node);
    if (call->easy) {
        curl_multi_remove_handle(call->pool->multi, call->easy);
        curl_easy_cleanup(call->easy);
    }
    curl_slist_free_all(call->headers);
    curl_slist_free_all(call->connect_to);
    buf_fini(&call->body);
    free(call->sent);
    free(call);
}

static void retire(struct http *h);

/* ---- completion ------------------------------------------------------------------------------ */

/* curl says that it could not connect, the system says why: "Connection refused". */
static void add_cause(struct http_call *call, CURLcode code)
{
    long cause = 0;
    size_t len = strlen(call->reason);
    if (code != CURLE_COULDNT_CONNECT || len == 0 ||
        curl_easy_getinfo(call->easy, CURLINFO_OS_ERRNO, &cause) != CURLE_OK || cause == 0)
        return;
    snprintf(call->reason + len, sizeof(call->reason) - len, " (%s)", strerror((int)cause));
}

static void report(struct http_call *call, CURLcode code)
{
    struct http_answer answer = {.retry_after_s = -1, .late = code == CURLE_OPERATION_TIMEDOUT};
    long status = 0;
    curl_off_t wait = 0, pretransfer = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(call->easy, CURLINFO_RETRY_AFTER, &wait);
    curl_easy_getinfo(call->easy, CURLINFO_PRETRANSFER_TIME_T, &pretransfer);
    if (code == CURLE_OK)
        answer.status = status;
    else
        answer.cut = status >= 200 && status < 300;
    if (wait > 0)
        answer.retry_after_s = (long)wait;
    long version = CURL_HTTP_VERSION_NONE;
    curl_easy_getinfo(call->easy, CURLINFO_HTTP_VERSION, &version);
    log_debug("http: status %ld over HTTP/%s", status,
              version == CURL_HTTP_VERSION_2_0 ? "2" : "1.1");
    answer.unreached = code != CURLE_OK && pretransfer == 0;
    add_cause(call, code);
    answer.why = call->reason[0] ? call->reason : curl_easy_strerror(code);
    buf_put_u8(&call->body, 0);
    answer.body = call->body.failed ? "" : (const char *)call->body.data;
    answer.len = call->body.failed ? 0 : call->body.len - 1;
    call->inside = true;
    call->done(call->arg, &answer);
}

/* Calls done for completed requests. The callbacks may send and cancel requests. */
static void finish_calls(struct pool *p)
{
    int left;
    CURLMsg *msg;
    p->busy = true;
    while ((msg = curl_multi_info_read(p->multi, &left))) {
        struct http_call *call = NULL;
        CURLcode code = msg->data.result;
        if (msg->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&call);
        if (code == CURLE_OPERATION_TIMEDOUT && p == p->http->pool)
            retire(p->http);
        if (!call->cancelled)
            report(call, code);
        call_destroy(call);
    }
    p->busy = false;
    close_retired(p->http);
}

static void on_socket(void *arg, uint32_t events)
{
    struct sock *sock = arg;
    struct pool *p = sock->pool;
    int running, what = 0;
    what |= events & EPOLLIN ? CURL_CSELECT_IN : 0;
    what |= events & EPOLLOUT ? CURL_CSELECT_OUT : 0;
    what |= events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0;
    curl_multi_socket_action(p->multi, sock->lfd.fd, what, &running);
    finish_calls(p);
}

static void on_timer(void *arg)
{
    struct pool *p = arg;
    int running;
    curl_multi_socket_action(p->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    finish_calls(p);
}

static int want_timer(CURLM *multi, long ms, void *arg)
{
    struct pool *p = arg;
    (void)multi;
    if (ms < 0)
        loop_timer_stop(p->http->loop, &p->timer);
    else
        loop_timer_start(p->http->loop, &p->timer, (uint64_t)ms, on_timer, p);
    return 0;
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *sock_arg)
{
    struct pool *p = arg;
    struct loop *loop = p->http->loop;
    struct sock *sock = sock_arg;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (sock) {
            loop_fd_stop(loop, &sock->lfd);
            list_remove(&sock->node);
            free(sock);
            curl_multi_assign(p->multi, fd, NULL);
        }
        return 0;
    }
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    if (sock)
        return loop_fd_set(loop, &sock->lfd, events) < 0 ? -1 : 0;
    sock = calloc(1, sizeof(*sock));
    if (!sock)
        return -1;
    sock->pool = p;
    list_append(&p->sockets, &sock->node);
    curl_multi_assign(p->multi, fd, sock);
    return loop_fd_start(loop, &sock->lfd, fd, events, on_socket, sock) < 0 ? -1 : 0;
}

/* Sets the time after which TCP gives up on a server that acknowledges nothing. */
static int tune_socket(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    const struct http_site *site = arg;
    unsigned ms = (unsigned)site->unacknowledged_ms;
    (void)purpose;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
    return CURL_SOCKOPT_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* NULL: no memory. */
static struct pool *pool_open(struct http *h)
{
    struct pool *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->http = h;
    list_init(&p->calls);
    list_init(&p->sockets);
    list_append(&h->pools, &p->node);
    p->multi = curl_multi_init();
    if (!p->multi) {
        pool_close(p);
        return NULL;
    }
    curl_multi_setopt(p->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    curl_multi_setopt(p->multi, CURLMOPT_SOCKETDATA, p);
    curl_multi_setopt(p->multi, CURLMOPT_TIMERFUNCTION, want_timer);
    curl_multi_setopt(p->multi, CURLMOPT_TIMERDATA, p);
    curl_multi_setopt(p->multi, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
    return p;
}

static void pool_close(struct pool *p)
{
    struct loop *loop = p->http->loop;
    list_for_each(pos, tmp, &p->calls)
    {
        call_destroy(list_entry(pos, struct http_call, node));
    }
    if (p->multi)
        curl_multi_cleanup(p->multi);
    list_for_each(pos, tmp, &p->sockets)
    {
        struct sock *sock = list_entry(pos, struct sock, node);
        loop_fd_stop(loop, &sock->lfd);
        list_remove(&sock->node);
        free(sock);
    }
    loop_timer_stop(loop, &p->timer);
    list_remove(&p->node);
    free(p);
}

static void retire(struct http *h)
{
    struct pool *next = pool_open(h);
    if (next) /* without memory the old pool stays in use */
        h->pool = next;
}

int http_open(struct http **ret, struct loop *loop, const struct http_site *site, struct err *err)
{
    struct http *h = calloc(1, sizeof(*h));
    if (!h || curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
        free(h);
        return err_set(err, ENOMEM, "libcurl did not start");
    }
    h->loop = loop;
    h->site = site;
    list_init(&h->pools);
    h->pool = pool_open(h);
    if (!h->pool) {
        http_close(h);
        return err_set(err, ENOMEM, "no memory for an HTTP client");
    }
    *ret = h;
    return 0;
}

long http_status(const struct http_call *call)
{
    long status = 0;
    return curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK ? status : 0;
}

void http_cancel(struct http_call *call)
{
    call->cancelled = true;
    if (!call->inside)
        call_destroy(call);
}

void http_close(struct http *h)
{
    if (!h)
        return;
    list_for_each(pos, tmp, &h->pools)
    {
        pool_close(list_entry(pos, struct pool, node));
    }
    free(h);
    curl_global_cleanup();
}

/* ---- sending --------------------------------------------------------------------------------- */

static size_t on_body(char *bytes, size_t one, size_t n, void *arg)
{
    struct http_call *call = arg;
    long status = 0;
    n *= one;
    if (call->cancelled)
        return 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    if (call->data && status >= 200 && status < 300) {
        call->inside = true;
        int rc = call->data(call->arg, bytes, n);
        call->inside = false;
        return rc == 0 && !call->cancelled ? n : 0;
    }
    if (call->body.len + n > call->pool->http->site->answer_max)
        return 0;
    buf_put(&call->body, bytes, n);
    return call->body.failed ? 0 : n;
}

static int add(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = line ? curl_slist_append(*list, line) : *list;
    if (line && !longer)
        return -ENOMEM;
    *list = longer;
    return 0;
}

static int set_headers(struct http_call *call, const struct http_request *o)
{
    char type[96];
    snprintf(type, sizeof(type), "Content-Type: %s", o->content_type ? o->content_type : "");
    if (add(&call->headers, "Accept: application/json") < 0 || add(&call->headers, o->auth) < 0 ||
        add(&call->headers, o->body ? type : NULL) < 0 || add(&call->headers, "Expect:") < 0 ||
        add(&call->headers, call->pool->http->site->host_header) < 0 ||
        add(&call->connect_to, call->pool->http->site->connect_to) < 0)
        return -ENOMEM;
    return 0;
}

static CURLcode set_tls(CURL *e, const struct http_site *t)
{
    CURLcode rc = CURLE_OK;
    if (t->ca_path) {
        rc |= curl_easy_setopt(e, CURLOPT_CAINFO, t->ca_path);
        rc |= curl_easy_setopt(e, CURLOPT_CAPATH, NULL);
    }
    if (t->cert_path && t->key_path) {
        rc |= curl_easy_setopt(e, CURLOPT_SSLCERT, t->cert_path);
        rc |= curl_easy_setopt(e, CURLOPT_SSLKEY, t->key_path);
    }
    rc |= curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, t->insecure ? 0L : 1L);
    rc |= curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, t->insecure ? 0L : 2L);
    return rc;
}

static CURLcode set_patience(CURL *e, const struct http_site *t, const struct http_request *o)
{
    CURLcode rc = curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)o->timeout_ms);
    if (t->connect_ms)
        rc |= curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)t->connect_ms);
    rc |= curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
    rc |= curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)o->silent_s);
    if (!t->unacknowledged_ms)
        return rc;
    rc |= curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    rc |= curl_easy_setopt(e, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_S);
    rc |= curl_easy_setopt(e, CURLOPT_TCP_KEEPINTVL, KEEPALIVE_S);
    rc |= curl_easy_setopt(e, CURLOPT_SOCKOPTFUNCTION, tune_socket);
    rc |= curl_easy_setopt(e, CURLOPT_SOCKOPTDATA, t);
    return rc;
}

static int set_options(struct http_call *call, const struct http_request *o)
{
    const struct http_site *t = call->pool->http->site;
    CURL *e = call->easy;
    auto_free char *url = NULL;
    if (asprintf(&url, "%s%s", t->server, o->path) < 0) {
        url = NULL;
        return -ENOMEM;
    }
    CURLcode rc = curl_easy_setopt(e, CURLOPT_URL, url);
    rc |= set_tls(e, t);
    rc |= set_patience(e, t, o);
    if (t->unix_path)
        rc |= curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, t->unix_path);
    if (call->sent) {
        rc |= curl_easy_setopt(e, CURLOPT_POSTFIELDS, call->sent);
        rc |= curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(call->sent));
    }
    rc |= curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, o->method);
    rc |= curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    rc |= curl_easy_setopt(e, CURLOPT_PIPEWAIT, t->one_connection ? 1L : 0L);
    rc |= curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
    rc |= curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    if (t->proxy) /* else curl uses HTTPS_PROXY and NO_PROXY */
        rc |= curl_easy_setopt(e, CURLOPT_PROXY, t->proxy);
    if (o->compress)
        rc |= curl_easy_setopt(e, CURLOPT_ACCEPT_ENCODING, "gzip");
    rc |= curl_easy_setopt(e, CURLOPT_BUFFERSIZE, RECEIVE_BYTES);
    rc |= curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, SEND_BYTES);
    rc |= curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    rc |= curl_easy_setopt(e, CURLOPT_USERAGENT, t->user_agent);
    rc |= curl_easy_setopt(e, CURLOPT_HTTPHEADER, call->headers);
    rc |= curl_easy_setopt(e, CURLOPT_CONNECT_TO, call->connect_to);
    rc |= curl_easy_setopt(e, CURLOPT_ERRORBUFFER, call->reason);
    rc |= curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    rc |= curl_easy_setopt(e, CURLOPT_WRITEDATA, call);
    rc |= curl_easy_setopt(e, CURLOPT_PRIVATE, call);
    return rc == CURLE_OK ? 0 : -ENOMEM;
}

int http_send(struct http *h, const struct http_request *order, struct http_call **ret,
              struct err *err)
{
    struct http_call *call = calloc(1, sizeof(*call));
    if (!call)
        return err_set(err, ENOMEM, "no memory for a request");
    *call = (struct http_call){
        .pool = h->pool, .data = order->data, .done = order->done, .arg = order->arg};
    list_append(&h->pool->calls, &call->node);
    call->sent = order->body ? strdup(order->body) : NULL;
    call->easy = curl_easy_init();
    if (!call->easy || (order->body && !call->sent) || set_headers(call, order) < 0 ||
        set_options(call, order) < 0 ||
        curl_multi_add_handle(h->pool->multi, call->easy) != CURLM_OK) {
        call_destroy(call);
        return err_set(err, ENOMEM, "no memory for a request");
    }
    *ret = call;
    return 0;
}
