/* SPDX-License-Identifier: Apache-2.0
 *
 * page: see page.h.
 */
#include "operator/page/page.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "operator/page/page_files.h"
#include "operator/page/page_private.h"
#include "operator/page/page_route.h"

#define KEPT      8 /* cached responses */
#define KEEP_MS   1000
#define SHARE     10          /* at most 1/SHARE of the time is spent on responses */
#define SPARE_MAX 100         /* ms of unused time that can accumulate */
#define ALIVE_MAX (16u << 20) /* bytes of responses in memory */
#define ROUTE_MAX 352         /* bytes of a path, see page_route.h */

struct kept {
    char path[ROUTE_MAX];
    struct web_body *body; /* NULL: free */
    uint64_t made;         /* clock_ns() */
};

struct page {
    struct page_config config;
    struct web_body *files[PAGE_FILES_MAX];
    struct kept kept[KEPT];
    int64_t spare; /* ns that may be spent now; negative: overdrawn by a long response */
    uint64_t counted;
    size_t alive; /* bytes of responses that are cached or being sent */
};

/* ---- answers --------------------------------------------------------------------------------- */

static void say(struct web_answer *ret, int status, const char *text)
{
    *ret = (struct web_answer){
        .status = status, .type = "text/plain", .body = web_body_over(text, strlen(text))};
}

static void say_busy(struct web_answer *ret)
{
    say(ret, 503, "the page has too many requests: try again in a second\n");
    ret->busy = true;
}

static void give(struct web_answer *ret, struct web_body *body, const char *type)
{
    *ret = (struct web_answer){.status = 200, .type = type, .body = web_body_ref(body)};
}

/* ---- the cache ------------------------------------------------------------------------------- */

/* Returns the slot with this path; else a free one, or the oldest. */
static struct kept *kept_for(struct page *page, const char *path)
{
    struct kept *oldest = &page->kept[0];
    for (int i = 0; i < KEPT; i++) {
        struct kept *k = &page->kept[i];
        if (k->body && strcmp(k->path, path) == 0)
            return k;
        if (!k->body || (oldest->body && k->made < oldest->made))
            oldest = k;
    }
    return oldest;
}

static bool is_fresh(const struct kept *k, const char *path, uint64_t now)
{
    return k->body && strcmp(k->path, path) == 0 && now - k->made < KEEP_MS * CLOCK_MS;
}

static void keep(struct kept *k, const char *path, struct web_body *body, uint64_t now)
{
    web_body_unref(k->body);
    snprintf(k->path, sizeof(k->path), "%s", path);
    k->body = web_body_ref(body);
    k->made = now;
}

static void forget_old(struct page *page, uint64_t now)
{
    for (int i = 0; i < KEPT; i++) {
        struct kept *k = &page->kept[i];
        if (!k->body || now - k->made < KEEP_MS * CLOCK_MS)
            continue;
        web_body_unref(k->body);
        k->body = NULL;
    }
}

/* ---- new responses --------------------------------------------------------------------------- */

static bool may_make(struct page *page, uint64_t now)
{
    int64_t most = SPARE_MAX * (int64_t)CLOCK_MS;
    page->spare += (int64_t)((now - page->counted) / SHARE);
    page->spare = page->spare < most ? page->spare : most;
    page->counted = now;
    return page->spare > 0 && page->alive < ALIVE_MAX;
}

/* Makes the JSON of the route. NULL: no memory. *ret_complete: false if the plane will soon have
 * reported more. */
static struct web_body *make(struct page *page, const struct page_route *route,
                             const struct hvdjob *job, uint64_t now, bool *ret_complete)
{
    const struct page_config *c = &page->config;
    struct buf text = {0};
    *ret_complete = true;
    if (route->what == PAGE_JOBS)
        page_put_jobs(c->driver, &text);
    else
        *ret_complete = page_put_job(c->driver, c->plane(c->arg), job, &text);
    page->spare -= (int64_t)(clock_ns() - now);
    return web_body_take(&text, &page->alive);
}

static void answer_json(struct page *page, const struct page_route *route, const char *path,
                        struct web_answer *ret)
{
    uint64_t now = clock_ns();
    const struct hvdjob *job = NULL;
    if (route->what == PAGE_JOB)
        job = driver_job(page->config.driver, route->namespace_, route->name);
    if (route->what == PAGE_JOB && !job) {
        say(ret, 404, "no such job\n");
        return;
    }
    struct kept *k = kept_for(page, path);
    if (!is_fresh(k, path, now)) {
        forget_old(page, now);
        if (!may_make(page, now)) {
            say_busy(ret);
            return;
        }
        bool complete;
        struct web_body *body = make(page, route, job, now, &complete);
        if (!body)
            return;
        if (complete)
            keep(k, path, body, now);
        give(ret, body, "application/json");
        web_body_unref(body);
        return;
    }
    give(ret, k->body, "application/json");
}

/* Why the client may not read the page; NULL: it may. */
static const char *refuse(const struct page *page, const struct web_request *request)
{
    if (page->config.access == PAGE_LOCAL && !request->local)
        return "this page is served only through kubectl port-forward. To serve it to everyone who "
               "reaches this port, start hvd-operator with --page all\n";
    if (page->config.access == PAGE_LOCAL && !page_is_our_host(request->host))
        return "this page is served only under the names localhost, 127.0.0.1 and [::1]\n";
    return NULL;
}

void page_answer(void *arg, const struct web_request *request, struct web_answer *ret)
{
    struct page *page = arg;
    const struct page_route route = page_route(request->path);
    const char *why = refuse(page, request);
    if (page->config.access == PAGE_OFF || route.what == PAGE_NOTHING)
        say(ret, 404, "no such page\n");
    else if (why)
        say(ret, 403, why);
    else if (route.what == PAGE_FILE)
        give(ret, page->files[route.file], page_files[route.file].type);
    else
        answer_json(page, &route, request->path, ret);
}

/* ---- life ------------------------------------------------------------------------------------ */

int page_open(struct page **ret, const struct page_config *config, struct err *err)
{
    struct page *page = calloc(1, sizeof(*page));
    bool ok = page != NULL;
    for (int i = 0; ok && i < page_nfiles; i++) {
        const struct page_file *f = &page_files[i];
        page->files[i] = web_body_over(f->begin, (size_t)(f->end - f->begin));
        ok = page->files[i] != NULL;
    }
    if (!ok) {
        page_close(page);
        return err_set(err, ENOMEM, "no memory for the page");
    }
    page->config = *config;
    page->counted = clock_ns();
    page->spare = SPARE_MAX * (int64_t)CLOCK_MS;
    *ret = page;
    return 0;
}

void page_close(struct page *page)
{
    if (!page)
        return;
    for (int i = 0; i < PAGE_FILES_MAX; i++)
        web_body_unref(page->files[i]);
    for (int i = 0; i < KEPT; i++)
        web_body_unref(page->kept[i].body);
    free(page);
}
