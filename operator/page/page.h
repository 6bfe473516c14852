/* SPDX-License-Identifier: Apache-2.0
 *
 * page: a web page about jobs, to be read only: / and its files, and what it asks for as JSON,
 * /v1/jobs and /v1/jobs/NAMESPACE/NAME (operator/README.md). It shows what the driver's caches and
 * the plane have, and asks nobody. On the operator's loop.
 *
 * Bounded: answers are kept for a second for whoever asks for the same, a tenth of the time goes
 * into them at most, and so many bytes wait for slow clients at a time; then it is "busy".
 */
#ifndef HVD_OPERATOR_PAGE_PAGE_H
#define HVD_OPERATOR_PAGE_PAGE_H

#include "operator/coordinator/plane.h"
#include "operator/driver/driver.h"
#include "operator/metrics/web.h"

struct page;

enum page_access {
    PAGE_LOCAL, /* who comes through kubectl port-forward (or from the same pod) */
    PAGE_ALL,   /* whoever reaches the port */
    PAGE_OFF,
};

struct page_config {
    const struct driver *driver;
    const struct plane *(*plane)(void *arg); /* NULL: it does not lead, or pods have no agents */
    void *arg;
    enum page_access access;
};

int page_open(struct page **ret, const struct page_config *config, struct err *err);

/* arg is the page: web_config.other. */
void page_answer(void *arg, const struct web_request *request, struct web_answer *ret);

/* After web_close(): clients are sent what is the page's. NULL is fine. */
void page_close(struct page *page);

#endif
