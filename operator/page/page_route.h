/* SPDX-License-Identifier: Apache-2.0
 *
 * page_route: parses the path and the Host header of a request. Pure; the input is untrusted.
 */
#ifndef HVD_OPERATOR_PAGE_PAGE_ROUTE_H
#define HVD_OPERATOR_PAGE_PAGE_ROUTE_H

#include <stdbool.h>

enum page_what { PAGE_NOTHING, PAGE_FILE, PAGE_JOBS, PAGE_JOB };

struct page_route {
    enum page_what what;
    int file;                       /* index of page_files */
    char namespace_[64], name[256]; /* namespace and name of a job */
};

struct page_route page_route(const char *path);

/* True for "localhost:8080", "127.0.0.1", "[::1]:80". Defends against DNS rebinding: a browser that
 * a foreign page leads here sends that page's host name. */
bool page_is_our_host(const char *host);

#endif
