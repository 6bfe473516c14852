/* SPDX-License-Identifier: Apache-2.0
 *
 * web: the operator's HTTP server: /metrics, /healthz, /readyz, and all other paths through one
 * handler that gets the client's address and headers. GET and HEAD only. libmicrohttpd without
 * threads, on the owner's loop.
 */
#ifndef HVD_OPERATOR_METRICS_WEB_H
#define HVD_OPERATOR_METRICS_WEB_H

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/loop.h"
#include "operator/metrics/web_body.h"

struct web;

/* Writes the response's body and returns its status. */
typedef int web_page_f(void *arg, struct buf *dst);

struct web_page {
    const char *path, *type; /* type: Content-Type */
    web_page_f *write;
};

struct web_request {
    const char *path; /* decoded; without the query */
    const char *host; /* the Host header, "": none */
    const char *etag; /* the If-None-Match header, "": none */
    bool local;       /* the client's address is 127.0.0.1 or ::1 */
};

struct web_answer {
    int status;
    const char *type;      /* Content-Type */
    struct web_body *body; /* one reference, owned by the response; NULL: no memory (503) */
    bool busy;             /* adds Retry-After: 1 */
};

struct web_config {
    struct loop *loop;
    const char *address; /* "10.0.0.1:8080", "[::]:8080", ":8080" (all); port 0: any free one */
    const struct web_page *pages; /* [n], borrowed */
    int n;
    /* Handles all other paths. Its responses are for browsers and get security headers. NULL:
     * 404. */
    void (*other)(void *arg, const struct web_request *request, struct web_answer *ret);
    void *arg;
};

int web_open(struct web **ret, const struct web_config *config, struct err *err);

int web_port(const struct web *w);

/* NULL is fine. */
void web_close(struct web *w);

#endif
