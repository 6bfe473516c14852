/* SPDX-License-Identifier: Apache-2.0
 *
 * web: what can be asked of the operator over HTTP: /metrics, /healthz, /readyz; GET and HEAD only.
 * libmicrohttpd without threads, on the owner's loop.
 */
#ifndef HVD_OPERATOR_METRICS_WEB_H
#define HVD_OPERATOR_METRICS_WEB_H

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/loop.h"

struct web;

/* Writes the answer's body; returns its status. */
typedef int web_page_f(void *arg, struct buf *dst);

struct web_page {
    const char *path, *type; /* type: of the content */
    web_page_f *write;
};

struct web_config {
    struct loop *loop;
    const char *address; /* "10.0.0.1:8080", "[::]:8080", ":8080" (every address); port 0 chooses */
    const struct web_page *pages; /* n of them; not copied */
    int n;
    void *arg;
};

int web_open(struct web **ret, const struct web_config *config, struct err *err);

int web_port(const struct web *w);

/* NULL is fine. */
void web_close(struct web *w);

#endif
