/* SPDX-License-Identifier: Apache-2.0
 *
 * http: requests to one server: over HTTP/2, where the server has it many on one connection, else
 * over HTTP/1.1. The only file with libcurl. Owned by core/member/client (to the coordinator) and
 * operator/api/api (to the API server), on the owner's loop, one thread.
 */
#ifndef HVD_HTTP_HTTP_H
#define HVD_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/loop.h"
#include "core/base/err.h"

struct http;
struct http_call;

/* One server, and how requests to it are made. Texts may be NULL where it says so. */
struct http_site {
    const char *server;      /* URL in front of paths */
    const char *unix_path;   /* NULL: connect to what the URL names */
    const char *host_header; /* header line; NULL: as the URL says */
    const char *connect_to;  /* curl's HOST:PORT:ADDRESS:PORT; NULL: what the URL names */
    const char *proxy;       /* "": none; NULL: as HTTPS_PROXY and NO_PROXY say */
    /* PEM files: the only CA that is trusted (NULL: the system's), the client certificate (NULL:
     * none) */
    const char *ca_path, *cert_path, *key_path;
    bool insecure;          /* the server's certificate is not checked */
    bool one_connection;    /* a request waits for a connection that can take it beside others */
    const char *user_agent; /* NULL: none is sent */
    size_t answer_max;      /* bytes of a body that is kept */
    int connect_ms;         /* limit for making a connection; 0: the request's own */
    int unacknowledged_ms;  /* a connection ends when its peer acknowledges nothing for so long; 0:
                               TCP's own limit */
};

/* How a request ended. body is NUL-terminated and valid during the call. */
struct http_answer {
    long status;        /* HTTP's; 0: there was no whole answer, why says so */
    bool unreached;     /* not one byte of the request has left */
    bool cut;           /* a 2xx answer began to come, then the connection or a time-out ended it */
    bool late;          /* it was a time-out that ended it */
    long retry_after_s; /* -1: not said */
    const char *why;
    const char *body; /* what data did not take */
    size_t len;
};

typedef void http_done_f(void *arg, const struct http_answer *answer);

/* Bytes of a body whose status is 2xx. Not 0: no more of it; done is still called. */
typedef int http_data_f(void *arg, const char *bytes, size_t n);

struct http_order {
    const char *method, *path; /* path with query, encoded; begins with a slash */
    const char *auth;          /* a header line, or NULL */
    const char *content_type;  /* of body, which may be NULL */
    const char *body;
    int timeout_ms;    /* for all of it */
    int silent_s;      /* ended when no byte comes for so long; 0: never */
    bool compress;     /* large answers: gzip */
    http_data_f *data; /* NULL: the body is kept, up to answer_max */
    http_done_f *done;
    void *arg;
};

/* site is kept and stays the caller's: it is read for each request, so what is changed in it holds
 * for later ones. Its files are read whenever a connection is made. */
int http_open(struct http **ret, struct loop *loop, const struct http_site *site, struct err *err);

/* What order points to is copied. done is called once, never from within this call. */
int http_send(struct http *h, const struct http_order *order, struct http_call **ret,
              struct err *err);

/* done is not called. Not after done. */
void http_cancel(struct http_call *call);

/* Requests under way are dropped without a call; not from a callback. NULL is fine. */
void http_close(struct http *h);

#endif
