/* SPDX-License-Identifier: Apache-2.0
 *
 * api: calls to the API server, with credentials and retries. On the owner's loop, one thread.
 * Reads and watches share one connection, writes and the lease another, so a stalled watch never
 * delays a lease renewal.
 *
 * libcurl itself repeats a request once if a kept-alive connection turns out to be closed and no
 * byte of a response came. So a 409 (AlreadyExists, Conflict) may be caused by the same call, even
 * without `idempotent`. Names are deterministic: the caller compares the uid.
 */
#ifndef HVD_OPERATOR_API_API_H
#define HVD_OPERATOR_API_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/loop.h"
#include "operator/api/access.h"

struct api;
struct api_call;

enum api_body {
    API_JSON,
    API_MERGE_PATCH, /* RFC 7386 */
    API_APPLY,       /* server-side apply; the path has fieldManager and force */
};

struct api_request {
    const char *method, *path; /* path: made by request.h */
    const char *body;          /* JSON, or NULL */
    enum api_body kind;
    bool idempotent; /* may be repeated if it is unknown whether the server executed it */
    bool urgent;     /* send a GET on the connection for writes, as the election does */
    int timeout_ms;  /* limit of all attempts together; > 0 */
    int silent_s;    /* the call fails when no byte comes for so long; 0: no such limit */
    bool compress;
    /* Gets the body as it arrives. With data a call is not retried, except after 401. */
    int (*data)(void *arg, const char *bytes, size_t n);
};

/* The response to a call, or why there is none. All texts are valid only during the callback. */
struct api_answer {
    long status;        /* HTTP status; 0: no response, message says why */
    long retry_after_s; /* Retry-After; -1: none */
    bool cut;           /* a 2xx response began, then the connection broke */
    bool late;          /* a time limit ended it: timeout_ms or silent_s */
    const char *reason; /* reason of a metav1.Status: "AlreadyExists", "Conflict", or "" */
    const char *message;
    const char *body;
    size_t len;
};

typedef void api_done_f(void *arg, const struct api_answer *answer);

/* Since api_open(), for metrics. */
struct api_counts {
    uint64_t requests; /* attempts */
    uint64_t retries, throttled, refused;
};

/* access_to is borrowed and must outlive the api. */
int api_open(struct api **ret, struct loop *loop, const struct access *access_to, struct err *err);

/* Copies what request points to. Calls done once, never from within api_send(). ret_call may be
 * NULL; it is valid until done. */
int api_send(struct api *api, const struct api_request *request, api_done_f *done, void *arg,
             struct api_call **ret_call, struct err *err);

/* The HTTP status of the response if it has begun; 0: it has not. */
long api_status(const struct api_call *call);

/* Ends the call without done. Must not be called after done. NULL is fine. */
void api_cancel(struct api_call *call);

/* Sets a callback for the end of each attempt (status 0: no response). For metrics. NULL: none. */
typedef void api_observe_f(void *arg, const char *method, long status);
void api_observe(struct api *api, api_observe_f *observe, void *arg);

const struct api_counts *api_counts(const struct api *api);

struct loop *api_loop(const struct api *api);

/* Drops calls in flight. Must not be called from a callback. NULL is fine. */
void api_close(struct api *api);

#endif
