/* SPDX-License-Identifier: Apache-2.0
 *
 * page_route: what a browser asks for, and by which name it calls us. Pure; strangers' bytes.
 */
#ifndef HVD_OPERATOR_PAGE_PAGE_ROUTE_H
#define HVD_OPERATOR_PAGE_PAGE_ROUTE_H

#include <stdbool.h>

enum page_what { PAGE_NOTHING, PAGE_FILE, PAGE_JOBS, PAGE_JOB };

struct page_route {
    enum page_what what;
    int file;                       /* index of page_files */
    char namespace_[64], name[256]; /* of a job */
};

struct page_route page_route(const char *path);

/* "localhost:8080", "127.0.0.1", "[::1]:80": a browser that was led here by somebody else's page
 * under a name of theirs says another one. */
bool page_is_our_host(const char *host);

#endif
