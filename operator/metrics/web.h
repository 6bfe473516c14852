/* SPDX-License-Identifier: Apache-2.0
 *
 * web: what can be asked of the operator over HTTP; GET and HEAD only. libmicrohttpd without
 * threads, on the owner's loop: /metrics, /healthz and /readyz as they are asked for, and whatever
 * else through one function that sees who asks.
 */
#ifndef HVD_OPERATOR_METRICS_WEB_H
#define HVD_OPERATOR_METRICS_WEB_H

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/loop.h"
#include "operator/metrics/web_body.h"

struct web;

/* Writes the answer's body; returns its status. */
typedef int web_page_f(void *arg, struct buf *dst);

struct web_page {
    const char *path, *type; /* type: of the content */
    web_page_f *write;
};

struct web_request {
    const char *path; /* decoded; without what stands behind "?" */
    const char *host; /* as the client calls us, "": it does not say */
    const char *etag; /* of what it has already, "": nothing */
    bool local;       /* it comes from this machine, or this pod: 127.0.0.1 or ::1 */
};

struct web_answer {
    int status;
    const char *type;      /* of the content */
    struct web_body *body; /* one reference, which the answer takes; NULL: no memory (503) */
    bool busy;             /* "come again in a second" */
};

struct web_config {
    struct loop *loop;
    const char *address; /* "10.0.0.1:8080", "[::]:8080", ":8080" (every address); port 0 chooses */
    const struct web_page *pages; /* n of them; not copied */
    int n;
    /* All other paths; its answers are for browsers, and get what makes them careful. NULL: 404. */
    void (*other)(void *arg, const struct web_request *request, struct web_answer *ret);
    void *arg;
};

int web_open(struct web **ret, const struct web_config *config, struct err *err);

int web_port(const struct web *w);

/* NULL is fine. */
void web_close(struct web *w);

#endif
