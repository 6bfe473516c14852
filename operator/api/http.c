/* SPDX-License-Identifier: Apache-2.0
 *
 * http: see http.h. curl's multi interface tells which sockets and which time-out it waits for, our
 * loop waits.
 */
#include "operator/api/http.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/buf.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"

#define ANSWER_MAX (8u << 20)
#define CONNECT_MS 10000L
#define UNANSWERED_MS                                                                              \
    20000u /* what was sent and is not acknowledged: the connection is given up                    \
            */
#define KEEPALIVE_S 15L
/* Of each request that is under way; objects of some KB fit. */
#define RECEIVE_BYTES (8L << 10)
#define SEND_BYTES    (16L << 10)

/* A file that curl may read: a path of somebody's, or a memfd with a text. */
struct file {
    char *path;
    int fd;
};

struct http {
    struct loop *loop;
    CURLM *multi;
    struct loop_timer timer;
    struct list calls, sockets;
    char *server, *host_header, *connect_to, *proxy;
    struct file ca, cert, key;
    bool insecure;
};

struct http_call {
    struct http *http;
    CURL *easy;
    struct curl_slist *headers, *connect_to;
    struct buf body;
    char reason[CURL_ERROR_SIZE];
    char *sent;
    bool inside;    /* a callback of it runs: curl allows no end now */
    bool cancelled; /* meanwhile */
    bool began;
    http_data_f *data;
    http_done_f *done;
    void *arg;
    struct list node;
};

struct sock {
    struct http *http;
    struct loop_fd lfd;
    struct list node;
};

static void call_destroy(struct http_call *call)
{
    list_remove(&call->node);
    if (call->easy) {
        curl_multi_remove_handle(call->http->multi, call->easy);
        curl_easy_cleanup(call->easy);
    }
    curl_slist_free_all(call->headers);
    curl_slist_free_all(call->connect_to);
    buf_fini(&call->body);
    free(call->sent);
    free(call);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void report(struct http_call *call, CURLcode code)
{
    struct http_answer answer = {.retry_after_s = -1, .cut = call->began && code != CURLE_OK};
    long status = 0;
    curl_off_t wait = 0, pretransfer = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(call->easy, CURLINFO_RETRY_AFTER, &wait);
    curl_easy_getinfo(call->easy, CURLINFO_PRETRANSFER_TIME_T, &pretransfer);
    if (code == CURLE_OK)
        answer.status = status;
    if (wait > 0)
        answer.retry_after_s = (long)wait;
    long version = CURL_HTTP_VERSION_NONE;
    curl_easy_getinfo(call->easy, CURLINFO_HTTP_VERSION, &version);
    log_debug("http: status %ld over HTTP/%s", status,
              version == CURL_HTTP_VERSION_2_0 ? "2" : "1.1");
    answer.unreached = code != CURLE_OK && pretransfer == 0;
    answer.why = call->reason[0] ? call->reason : curl_easy_strerror(code);
    buf_put_u8(&call->body, 0);
    answer.body = call->body.failed ? "" : (const char *)call->body.data;
    answer.len = call->body.failed ? 0 : call->body.len - 1;
    call->inside = true;
    call->done(call->arg, &answer);
}

/* Hands out what is done. A callback may send and cancel. */
static void finish_calls(struct http *h)
{
    int left;
    CURLMsg *msg;
    while ((msg = curl_multi_info_read(h->multi, &left))) {
        struct http_call *call = NULL;
        CURLcode code = msg->data.result;
        if (msg->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&call);
        if (!call->cancelled)
            report(call, code);
        call_destroy(call);
    }
}

static void on_socket(void *arg, uint32_t events)
{
    struct sock *sock = arg;
    struct http *h = sock->http;
    int running, what = 0;
    what |= events & EPOLLIN ? CURL_CSELECT_IN : 0;
    what |= events & EPOLLOUT ? CURL_CSELECT_OUT : 0;
    what |= events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0;
    curl_multi_socket_action(h->multi, sock->lfd.fd, what, &running);
    finish_calls(h);
}

static void on_timer(void *arg)
{
    struct http *h = arg;
    int running;
    curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    finish_calls(h);
}

static int want_timer(CURLM *multi, long ms, void *arg)
{
    struct http *h = arg;
    (void)multi;
    if (ms < 0)
        loop_timer_stop(h->loop, &h->timer);
    else
        loop_timer_start(h->loop, &h->timer, (uint64_t)ms, on_timer, h);
    return 0;
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *sock_arg)
{
    struct http *h = arg;
    struct sock *sock = sock_arg;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (sock) {
            loop_fd_stop(h->loop, &sock->lfd);
            list_remove(&sock->node);
            free(sock);
            curl_multi_assign(h->multi, fd, NULL);
        }
        return 0;
    }
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    if (sock)
        return loop_fd_set(h->loop, &sock->lfd, events) < 0 ? -1 : 0;
    sock = calloc(1, sizeof(*sock));
    if (!sock)
        return -1;
    sock->http = h;
    list_append(&h->sockets, &sock->node);
    curl_multi_assign(h->multi, fd, sock);
    return loop_fd_start(h->loop, &sock->lfd, fd, events, on_socket, sock) < 0 ? -1 : 0;
}

/* A server that vanished without a word is found out by what it does not acknowledge. */
static int tune_socket(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    unsigned ms = UNANSWERED_MS;
    (void)arg;
    (void)purpose;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
    return CURL_SOCKOPT_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void file_fini(struct file *f)
{
    free(f->path);
    if (f->fd >= 0)
        close(f->fd);
    *f = (struct file){.fd = -1};
}

/* text in a memfd: this curl's GnuTLS back end wants a file name. Neither: no file. */
static int file_init(struct file *f, const char *path, const char *text, struct err *err)
{
    *f = (struct file){.fd = -1};
    if (text) {
        f->fd = memfd_create("hvd-tls", MFD_CLOEXEC);
        if (f->fd < 0)
            return err_sys(err, errno, "memfd for a certificate");
        int rc = fd_write_full(f->fd, text, strlen(text), deadline_in_ms(1000));
        if (rc < 0)
            return err_sys(err, -rc, "memfd for a certificate");
        if (asprintf(&f->path, "/proc/self/fd/%d", f->fd) < 0)
            f->path = NULL;
    } else if (path) {
        f->path = strdup(path);
    }
    return (text || path) && !f->path ? err_set(err, ENOMEM, "no memory") : 0;
}

/* curl checks the name in the URL: so the URL has tls-server-name, and the address goes beside it.
 */
static int set_names(struct http *h, const struct access *a, struct err *err)
{
    const char *scheme = strstr(a->server, "://");
    const char *at = scheme ? scheme + 3 : a->server, *name = a->tls_server_name;
    size_t n = strcspn(at, "/");
    bool named = name && strncmp(a->server, "https", 5) == 0;
    bool ok = true;
    if (!named) {
        h->server = strdup(a->server);
        ok = h->server;
    } else {
        const char *end = at[0] == '[' ? memchr(at, ']', n) : at;
        const char *colon = end ? memchr(end, ':', n - (size_t)(end - at)) : NULL;
        int host = (int)(colon ? (size_t)(colon - at) : n);
        const char *port = colon ? colon + 1 : "443";
        int digits = (int)(colon ? n - (size_t)(port - at) : 3);
        ok = asprintf(&h->server, "https://%s:%.*s%s", name, digits, port, at + n) >= 0 &&
             asprintf(&h->connect_to, "::%.*s:%.*s", host, at, digits, port) >= 0 &&
             asprintf(&h->host_header, "Host: %.*s", (int)n, at) >= 0;
    }
    return ok ? 0 : err_set(err, ENOMEM, "no memory");
}

int http_open(struct http **ret, struct loop *loop, const struct access *access_to, struct err *err)
{
    struct http *h = calloc(1, sizeof(*h));
    if (!h || curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
        free(h);
        return err_set(err, ENOMEM, "libcurl did not start");
    }
    h->loop = loop;
    h->insecure = access_to->insecure;
    h->ca.fd = h->cert.fd = h->key.fd = -1;
    list_init(&h->calls);
    list_init(&h->sockets);
    h->multi = curl_multi_init();
    h->proxy = access_to->proxy_url ? strdup(access_to->proxy_url) : NULL;
    int rc = h->multi && (h->proxy || !access_to->proxy_url)
                 ? 0
                 : err_set(err, ENOMEM, "no memory for an HTTP client");
    if (rc == 0)
        rc = set_names(h, access_to, err);
    if (rc == 0)
        rc = file_init(&h->ca, access_to->ca_file, access_to->ca_pem, err);
    if (rc == 0)
        rc = file_init(&h->cert, access_to->cert_file, access_to->cert_pem, err);
    if (rc == 0)
        rc = file_init(&h->key, access_to->key_file, access_to->key_pem, err);
    if (rc < 0) {
        http_close(h);
        return rc;
    }
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, want_timer);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
    *ret = h;
    return 0;
}

int http_set_certificate(struct http *h, const char *cert_pem, const char *key_pem, struct err *err)
{
    struct file cert = {.fd = -1}, key = {.fd = -1};
    int rc = file_init(&cert, NULL, cert_pem, err);
    if (rc == 0)
        rc = file_init(&key, NULL, key_pem, err);
    if (rc < 0) {
        file_fini(&cert);
        file_fini(&key);
        return rc;
    }
    /* Both are open at once, so the paths differ, and curl does not take an old connection. */
    file_fini(&h->cert);
    file_fini(&h->key);
    h->cert = cert;
    h->key = key;
    return 0;
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
    list_for_each(pos, tmp, &h->calls)
    {
        call_destroy(list_entry(pos, struct http_call, node));
    }
    if (h->multi)
        curl_multi_cleanup(h->multi);
    list_for_each(pos, tmp, &h->sockets)
    {
        struct sock *sock = list_entry(pos, struct sock, node);
        loop_fd_stop(h->loop, &sock->lfd);
        list_remove(&sock->node);
        free(sock);
    }
    loop_timer_stop(h->loop, &h->timer);
    file_fini(&h->ca);
    file_fini(&h->cert);
    file_fini(&h->key);
    free(h->server);
    free(h->host_header);
    free(h->connect_to);
    free(h->proxy);
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
        call->began = true;
        call->inside = true;
        int rc = call->data(call->arg, bytes, n);
        call->inside = false;
        return rc == 0 && !call->cancelled ? n : 0;
    }
    if (call->body.len + n > ANSWER_MAX)
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

static int set_headers(struct http_call *call, const struct http_order *o)
{
    char type[96];
    snprintf(type, sizeof(type), "Content-Type: %s", o->content_type ? o->content_type : "");
    if (add(&call->headers, "Accept: application/json") < 0 || add(&call->headers, o->auth) < 0 ||
        add(&call->headers, o->body ? type : NULL) < 0 || add(&call->headers, "Expect:") < 0 ||
        add(&call->headers, call->http->host_header) < 0 ||
        add(&call->connect_to, call->http->connect_to) < 0)
        return -ENOMEM;
    return 0;
}

static CURLcode set_tls(CURL *e, const struct http *h)
{
    CURLcode rc = CURLE_OK;
    if (h->ca.path) {
        rc |= curl_easy_setopt(e, CURLOPT_CAINFO, h->ca.path);
        rc |= curl_easy_setopt(e, CURLOPT_CAPATH, NULL);
    }
    if (h->cert.path && h->key.path) {
        rc |= curl_easy_setopt(e, CURLOPT_SSLCERT, h->cert.path);
        rc |= curl_easy_setopt(e, CURLOPT_SSLKEY, h->key.path);
    }
    rc |= curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, h->insecure ? 0L : 1L);
    rc |= curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, h->insecure ? 0L : 2L);
    return rc;
}

static CURLcode set_patience(CURL *e, const struct http_order *o)
{
    CURLcode rc = curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)o->timeout_ms);
    rc |= curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    rc |= curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
    rc |= curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)o->silent_s);
    rc |= curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    rc |= curl_easy_setopt(e, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_S);
    rc |= curl_easy_setopt(e, CURLOPT_TCP_KEEPINTVL, KEEPALIVE_S);
    rc |= curl_easy_setopt(e, CURLOPT_SOCKOPTFUNCTION, tune_socket);
    return rc;
}

static int set_options(struct http_call *call, const struct http_order *o)
{
    struct http *h = call->http;
    CURL *e = call->easy;
    auto_free char *url = NULL;
    if (asprintf(&url, "%s%s", h->server, o->path) < 0) {
        url = NULL;
        return -ENOMEM;
    }
    CURLcode rc = curl_easy_setopt(e, CURLOPT_URL, url);
    rc |= set_tls(e, h);
    rc |= set_patience(e, o);
    if (call->sent) {
        rc |= curl_easy_setopt(e, CURLOPT_POSTFIELDS, call->sent);
        rc |= curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(call->sent));
    }
    rc |= curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, o->method);
    rc |= curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    rc |= curl_easy_setopt(e, CURLOPT_PIPEWAIT, 1L);
    rc |= curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
    rc |= curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    if (h->proxy) /* else as HTTPS_PROXY and NO_PROXY say */
        rc |= curl_easy_setopt(e, CURLOPT_PROXY, h->proxy);
    if (o->compress)
        rc |= curl_easy_setopt(e, CURLOPT_ACCEPT_ENCODING, "gzip");
    rc |= curl_easy_setopt(e, CURLOPT_BUFFERSIZE, RECEIVE_BYTES);
    rc |= curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, SEND_BYTES);
    rc |= curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    rc |= curl_easy_setopt(e, CURLOPT_USERAGENT, "hvd-operator");
    rc |= curl_easy_setopt(e, CURLOPT_HTTPHEADER, call->headers);
    rc |= curl_easy_setopt(e, CURLOPT_CONNECT_TO, call->connect_to);
    rc |= curl_easy_setopt(e, CURLOPT_ERRORBUFFER, call->reason);
    rc |= curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    rc |= curl_easy_setopt(e, CURLOPT_WRITEDATA, call);
    rc |= curl_easy_setopt(e, CURLOPT_PRIVATE, call);
    return rc == CURLE_OK ? 0 : -ENOMEM;
}

int http_send(struct http *h, const struct http_order *order, struct http_call **ret,
              struct err *err)
{
    struct http_call *call = calloc(1, sizeof(*call));
    if (!call)
        return err_set(err, ENOMEM, "no memory for a request");
    *call =
        (struct http_call){.http = h, .data = order->data, .done = order->done, .arg = order->arg};
    list_append(&h->calls, &call->node);
    call->sent = order->body ? strdup(order->body) : NULL;
    call->easy = curl_easy_init();
    if (!call->easy || (order->body && !call->sent) || set_headers(call, order) < 0 ||
        set_options(call, order) < 0 || curl_multi_add_handle(h->multi, call->easy) != CURLM_OK) {
        call_destroy(call);
        return err_set(err, ENOMEM, "no memory for a request");
    }
    *ret = call;
    return 0;
}
