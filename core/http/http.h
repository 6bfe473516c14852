/* SPDX-License-Identifier: Apache-2.0
 *
 * http: requests to one server: HTTP/2 if the server has it, with many requests per connection,
 * else HTTP/1.1. The only file that uses libcurl. Owned by core/member/client (to the coordinator)
 * and operator/api/api (to the API server), on the owner's loop, one thread.
 */
#ifndef HVD_HTTP_HTTP_H
#define HVD_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/loop.h"
#include "core/base/err.h"

struct http;
struct http_call;

/* One server, and how requests to it are made. NULL is allowed only where a comment says so. */
struct http_site {
    const char *server;      /* URL in front of paths */
    const char *unix_path;   /* NULL: connect to what the URL names */
    const char *host_header; /* header line; NULL: as the URL says */
    const char *connect_to;  /* curl's HOST:PORT:ADDRESS:PORT; NULL: what the URL names */
    const char *proxy;       /* "": none; NULL: as HTTPS_PROXY and NO_PROXY say */
    /* PEM files: the only CA that is trusted (NULL: the system's), the client certificate (NULL:
     * none) */
    const char *ca_path, *cert_path, *key_path;
    bool insecure;       /* the server's certificate is not checked */
    bool one_connection; /* a request prefers to wait for a connection that it can share, instead of
                            opening another */
    const char *user_agent; /* NULL: none is sent */
    size_t answer_max;      /* most bytes of a collected body; a longer one fails the request */
    int connect_ms;         /* limit for making a connection; 0: the request's own */
    int unacknowledged_ms;  /* a connection ends when its peer acknowledges nothing for so long; 0:
                               TCP's own limit */
};

/* The response, or why there is none. body is NUL-terminated and valid during the callback. */
struct http_answer {
    long status;        /* HTTP status; 0: no complete response, see why */
    bool unreached;     /* no byte of the request was sent */
    bool cut;           /* a 2xx response began, then the connection broke or a time-out passed */
    bool late;          /* a time-out passed */
    long retry_after_s; /* Retry-After; -1: none */
    const char *why;
    const char *body; /* empty if the data callback got it */
    size_t len;
};

typedef void http_done_f(void *arg, const struct http_answer *answer);

/* Receives bytes of a 2xx body. A result other than 0 ends the request; done is still called. */
typedef int http_data_f(void *arg, const char *bytes, size_t n);

struct http_request {
    const char *method, *path; /* path with query, encoded; begins with a slash */
    const char *auth;          /* a header line, or NULL */
    const char *content_type;  /* of body */
    const char *body;          /* or NULL */
    int timeout_ms;            /* for the whole request */
    int silent_s;              /* fails when no byte comes for so long; 0: no such limit */
    bool compress;             /* accept gzip */
    http_data_f *data;         /* NULL: the body is collected, up to answer_max */
    http_done_f *done;
    void *arg;
};

/* The caller owns site, which must outlive h. It is read for each request, so a change holds for
 * later requests. Its certificate files are read for each new connection. */
int http_open(struct http **ret, struct loop *loop, const struct http_site *site, struct err *err);

/* Copies what the request points to. Calls done once, never from within this call. */
int http_send(struct http *h, const struct http_request *order, struct http_call **ret,
              struct err *err);

/* The HTTP status of the response if it has begun; 0: it has not. */
long http_status(const struct http_call *call);

/* Ends the request without done. Must not be called after done. */
void http_cancel(struct http_call *call);

/* Drops requests in flight without calling done. Must not be called from a callback. NULL is
 * fine. */
void http_close(struct http *h);

#endif
