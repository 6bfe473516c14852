/* SPDX-License-Identifier: Apache-2.0
 *
 * page: the read-only web page about jobs: its files, and the JSON that it loads, /v1/jobs and
 * /v1/jobs/NAMESPACE/NAME (operator/README.md). Shows what the driver's caches and the mirror of
 * the plane have. On the operator's loop.
 *
 * Its cost is bounded: a response is cached for a second, at most a tenth of the time is spent on
 * new ones, and at most 16 MB wait for slow clients. Beyond that clients get 503.
 */
#ifndef HVD_OPERATOR_PAGE_PAGE_H
#define HVD_OPERATOR_PAGE_PAGE_H

#include "operator/driver/driver.h"
#include "operator/link/plane_mirror.h"
#include "operator/metrics/web.h"

struct page;

enum page_access {
    PAGE_LOCAL, /* clients through kubectl port-forward, or in the same pod */
    PAGE_ALL,   /* all clients */
    PAGE_OFF,   /* no client */
};

struct page_config {
    const struct driver *driver;
    struct plane_mirror *(*plane)(void *arg); /* returns NULL: not leading, or no plane */
    void *arg;
    enum page_access access;
};

int page_open(struct page **ret, const struct page_config *config, struct err *err);

/* For web_config.other; arg is the page. */
void page_answer(void *arg, const struct web_request *request, struct web_answer *ret);

/* Call it after web_close(): responses point into the page. NULL is fine. */
void page_close(struct page *page);

#endif
