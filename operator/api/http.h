/* SPDX-License-Identifier: Apache-2.0
 *
 * http: requests to one server over as few connections as possible: HTTP/2 if the server has it,
 * with many requests per connection, else HTTP/1.1. The only file that uses libcurl. Owned by
 * api.c, on its loop, one thread.
 */
#ifndef HVD_OPERATOR_API_HTTP_H
#define HVD_OPERATOR_API_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/loop.h"
#include "operator/api/access.h"

struct http;
struct http_call;

/* The response, or why there is none. body is NUL-terminated and valid during the callback. */
struct http_answer {
    long status;        /* HTTP status; 0: no complete response, see why */
    bool unreached;     /* no byte of the request was sent */
    bool cut;           /* a 2xx response began, then the connection broke or a time-out passed */
    bool late;          /* a time-out passed */
    long retry_after_s; /* Retry-After; -1: none */
    const char *why;
    const char *body; /* unless the data callback got it */
    size_t len;
};

typedef void http_done_f(void *arg, const struct http_answer *answer);

/* Gets bytes of a 2xx body. A result other than 0 ends the request; done is still called. */
typedef int http_data_f(void *arg, const char *bytes, size_t n);

struct http_request {
    const char *method, *path; /* path with query, encoded; begins with a slash */
    const char *auth;          /* a header line, or NULL */
    const char *content_type;  /* of body */
    const char *body;          /* or NULL */
    int timeout_ms;            /* for the whole request */
    int silent_s;              /* fails when no byte comes for so long; 0: no such limit */
    bool compress;             /* accept gzip */
    http_data_f *data;         /* NULL: the body is collected, up to 8 MB */
    http_done_f *done;
    void *arg;
};

/* access_to is not kept. Certificate files that it names are read for each new connection. */
int http_open(struct http **ret, struct loop *loop, const struct access *access_to,
              struct err *err);

/* Sets the client certificate of new connections. */
int http_set_certificate(struct http *h, const char *cert_pem, const char *key_pem,
                         struct err *err);

/* Copies what the request points to. Calls done once, never from within this call. */
int http_send(struct http *h, const struct http_request *order, struct http_call **ret,
              struct err *err);

/* Ends the request without done. Must not be called after done. */
void http_cancel(struct http_call *call);

/* Drops requests in flight without calling done. Must not be called from a callback. NULL is
 * fine. */
void http_close(struct http *h);

#endif
