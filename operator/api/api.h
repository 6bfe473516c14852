/* SPDX-License-Identifier: Apache-2.0
 *
 * api: calls to the API server: credentials, two connections, retries. On the owner's loop, one
 * thread. Reads and watches share a connection, writes and the lease have another: a watch that
 * stalls never delays a renewal.
 *
 * libcurl sends a request again by itself, once, when a connection that it had kept turns out to be
 * closed and not a byte of an answer came. So also without idempotent a 409 (AlreadyExists,
 * Conflict) may be the answer to our own request: names are deterministic, and whoever gets it
 * looks at the uid.
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
    API_MERGE_PATCH,     /* RFC 7386 */
    API_STRATEGIC_PATCH, /* lists of Kubernetes' own objects are merged by their keys */
    API_APPLY,           /* server-side apply; the path says fieldManager and force */
};

struct api_request {
    const char *method, *path; /* of request.h */
    const char *body;          /* JSON, or NULL */
    enum api_body kind;
    bool idempotent; /* may be sent again when it is not known whether it was done */
    bool urgent;     /* a GET on the connection of writes: the lease's */
    int timeout_ms;  /* for all attempts together; > 0 */
    int silent_s;    /* 0: as timeout_ms */
    bool compress;
    /* With data there are no attempts beyond the first, except for a credential that was refused.
     */
    int (*data)(void *arg, const char *bytes, size_t n);
};

/* How a call ended. All text is valid during the call only. */
struct api_answer {
    long status;        /* 0: there was none, message says why */
    long retry_after_s; /* -1: not said */
    bool cut;           /* a 2xx answer began to come, then the connection broke */
    bool late;          /* its time was over, or nothing came for silent_s */
    const char *reason; /* of a Status: "AlreadyExists", "Conflict", or "" */
    const char *message;
    const char *body;
    size_t len;
};

typedef void api_done_f(void *arg, const struct api_answer *answer);

/* Since api_open(), for metrics. */
struct api_counts {
    uint64_t requests; /* attempts that were sent */
    uint64_t retries, throttled, refused;
};

/* access_to is copied by nobody and must outlive it. */
int api_open(struct api **ret, struct loop *loop, const struct access *access_to, struct err *err);

/* What request points to is copied. done is called once, never from within this call. ret_call may
 * be NULL. */
int api_send(struct api *api, const struct api_request *request, api_done_f *done, void *arg,
             struct api_call **ret_call, struct err *err);

/* done is not called. Not after done; NULL is fine. */
void api_cancel(struct api_call *call);

/* Told of each attempt's end: status 0 is no answer. For metrics; NULL: nobody. */
typedef void api_observe_f(void *arg, const char *method, long status);
void api_observe(struct api *api, api_observe_f *observe, void *arg);

const struct api_counts *api_counts(const struct api *api);

struct loop *api_loop(const struct api *api);

/* Calls under way are dropped; not from a callback. NULL is fine. */
void api_close(struct api *api);

#endif
