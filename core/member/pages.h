/* SPDX-License-Identifier: Apache-2.0
 *
 * pages: a few pages over plain HTTP (libmicrohttpd) for Prometheus and for kubelet's probes, on
 * the owner's loop, one thread: /metrics, /healthz and so on. A page is a path and a function that
 * fills a buffer; the function must not block. GET and HEAD only, no TLS, no secrets.
 *
 * Any client may connect, so the cost of a client is bounded: at most PAGES_CONNECTIONS connections
 * at a time, each ends after PAGES_SECONDS in any case, and requests are small. Used by `hvd-doctor
 * serve` and the agent.
 */
#ifndef HVD_MEMBER_PAGES_H
#define HVD_MEMBER_PAGES_H

#include <stddef.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/loop.h"

#define PAGES_CONNECTIONS 64
#define PAGES_SECONDS     10

#define PAGES_TEXT       "text/plain; charset=utf-8"
#define PAGES_PROMETHEUS "text/plain; version=0.0.4; charset=utf-8"

/* Appends the body and returns the HTTP status, 200 or 503. */
typedef int page_f(void *arg, struct buf *out);

/* The page for /healthz: always "ok". */
int pages_healthz(void *arg, struct buf *out);

struct page {
    const char *path; /* "/metrics" */
    const char *type; /* content type of the body */
    page_f *fill;
};

struct pages_config {
    struct loop *loop;
    const char *address; /* numeric address to listen on; NULL: all addresses, IPv4 and IPv6 */
    int port;            /* 0 chooses a free port */
    const struct page *pages;
    size_t n;
    void *arg; /* passed to every fill function */
};

struct pages;

/* config's pages and arg are borrowed until pages_close(). */
int pages_open(struct pages **ret, const struct pages_config *config, struct err *err);

/* Parses "[ADDR:]PORT", such as "9090", ":9090", "127.0.0.1:9090", "[::1]:9090", into address (size
 * bytes, "" for all addresses) and port. -EINVAL. */
int pages_parse(const char *text, char *address, size_t size, int *port, struct err *err);

/* Returns the port that p listens on. */
int pages_port(const struct pages *p);

/* NULL is allowed. */
void pages_close(struct pages *p);

#endif
