/* SPDX-License-Identifier: Apache-2.0
 *
 * page_route: see page_route.h.
 */
#include "operator/page/page_route.h"

#include <ctype.h>
#include <string.h>

#include "operator/page/page_files.h"

#define JOBS "/v1/jobs"

/* Copies an object's name (letters, digits, dashes, dots) up to the end, or up to a "/" if slash.
 * Returns the rest; NULL: no such name, or too long. */
static const char *take_name(const char *from, bool slash, char *dst, size_t size)
{
    size_t n = 0;
    while (isalnum((unsigned char)from[n]) || from[n] == '-' || from[n] == '.')
        n++;
    if (n == 0 || n >= size || from[n] != (slash ? '/' : '\0'))
        return NULL;
    memcpy(dst, from, n);
    dst[n] = '\0';
    return from + n + slash;
}

struct page_route page_route(const char *path)
{
    struct page_route r = {.what = PAGE_NOTHING};
    size_t n = strlen(JOBS);
    for (int i = 0; i < page_nfiles; i++)
        if (strcmp(page_files[i].path, path) == 0)
            return (struct page_route){.what = PAGE_FILE, .file = i};
    if (strncmp(path, JOBS, n) != 0)
        return r;
    if (!path[n])
        r.what = PAGE_JOBS;
    if (path[n] != '/')
        return r;
    const char *at = take_name(path + n + 1, true, r.namespace_, sizeof(r.namespace_));
    if (at && take_name(at, false, r.name, sizeof(r.name)))
        r.what = PAGE_JOB;
    return r;
}

bool page_is_our_host(const char *host)
{
    static const char *const ours[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        size_t n = strlen(ours[i]);
        if (strncmp(host, ours[i], n) != 0)
            continue;
        if (!host[n] ||
            (host[n] == ':' && strspn(host + n + 1, "0123456789") == strlen(host + n + 1)))
            return true;
    }
    return false;
}
