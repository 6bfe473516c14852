/* SPDX-License-Identifier: Apache-2.0
 *
 * http: requests to one server over as few connections as can be: HTTP/2 with many requests on one
 * where the server has it, else HTTP/1.1. The only file with libcurl. Owned by api.c, on its loop,
 * one thread.
 */
#ifndef HVD_OPERATOR_API_HTTP_H
#define HVD_OPERATOR_API_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/loop.h"
#include "operator/api/access.h"

struct http;
struct http_call;

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

struct http_request {
    const char *method, *path; /* path with query, encoded; begins with a slash */
    const char *auth;          /* a header line, or NULL */
    const char *content_type;  /* of body, which may be NULL */
    const char *body;
    int timeout_ms;    /* for all of it */
    int silent_s;      /* ended when no byte comes for so long */
    bool compress;     /* large answers: gzip */
    http_data_f *data; /* NULL: the body is kept, up to 8 MB */
    http_done_f *done;
    void *arg;
};

/* access_to is not kept: a file that it names is read whenever a connection is made. */
int http_open(struct http **ret, struct loop *loop, const struct access *access_to,
              struct err *err);

/* Another client certificate, for connections to come. */
int http_set_certificate(struct http *h, const char *cert_pem, const char *key_pem,
                         struct err *err);

/* What order points to is copied. done is called once, never from within this call. */
int http_send(struct http *h, const struct http_request *order, struct http_call **ret,
              struct err *err);

/* done is not called. Not after done. */
void http_cancel(struct http_call *call);

/* Requests under way are dropped without a call; not from a callback. NULL is fine. */
void http_close(struct http *h);

#endif
