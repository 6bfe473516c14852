/* SPDX-License-Identifier: Apache-2.0
 *
 * informer: see informer.h. The results of requests are events of the table in watch.c; act()
 * executes the action of a row.
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "operator/api/informer_private.h"
#include "operator/api/object.h"
#include "operator/api/retry.h"
#include "operator/objects/sanitize.h"

#define PAGE          500
#define LIST_MS       120000 /* for one page, or for a list without pages */
#define LIST_SILENT_S 30
/* timeoutSeconds of a watch is random, 5 to 10 minutes. The server sends a bookmark each minute. */
#define WATCH_MIN_S    300
#define WATCH_MORE_S   300
#define WATCH_SILENT_S 100
#define WATCH_LATE_S   30      /* a watch that lasts so much longer than timeoutSeconds is ended */
#define STREAM_MS      60000   /* a streamed list that takes longer is replaced by a paged one */
#define SHORT          CLOCK_S /* a watch that ends sooner without an event has failed */
#define JITTER_MS      1000u
/* Limit of the pause after a request that delivered no item or event: it cost the server little. */
#define PAUSE_MAX_MS 10000u

static void happen(struct informer *inf, enum watch_event event);

/* ---- data ------------------------------------------------------------------------------------ */

static int on_item(void *arg, const char *text, size_t len, struct err *err)
{
    struct informer *inf = arg;
    auto_json json_t *j = NULL;
    const char *replaced;
    int rc = object_read(text, len, "an item of a list", &j, &replaced, err);
    inf->progress = true;
    if (rc == 0 && sanitize_mark(j, replaced) < 0)
        rc = err_set(err, ENOMEM, "an item of a list: no memory");
    return rc < 0 ? rc : informer_put(inf, j, err);
}

static int on_list_data(void *arg, const char *bytes, size_t n)
{
    struct informer *inf = arg;
    return list_parser_feed(&inf->parser, bytes, n, &inf->err);
}

static int take_bookmark(struct informer *inf, const struct event *e)
{
    inf->counts.bookmarks++;
    if (e->initial_end && inf->state == WATCH_STREAMING)
        happen(inf, WATCH_LISTED);
    return 0;
}

static int take_event(struct informer *inf, const struct event *e, struct err *err)
{
    int rc = 0;
    if (e->type == EVENT_ERROR) {
        inf->gone = e->code == 410;
        return err_set(err, EIO, "the watch of %s: %d %s", inf->config.resource.plural, e->code,
                       e->message);
    }
    if (strlen(e->version) >= sizeof(inf->page.version))
        return err_set(err, EINVAL, "a resourceVersion is too long");
    /* A bookmark with the same version is no progress. Otherwise a watch that only sends those and
     * ends would be opened again without a pause. */
    inf->progress |= strcmp(e->version, inf->page.version) != 0;
    inf->counts.events++;
    inf->refused = false;
    inf->problem = (struct problem){0};
    if (e->type == EVENT_DELETED)
        rc = informer_drop(inf, e->object, err);
    else if (e->type != EVENT_BOOKMARK)
        rc = informer_put(inf, e->object, err);
    if (rc < 0)
        return rc;
    snprintf(inf->page.version, sizeof(inf->page.version), "%s", e->version);
    return e->type == EVENT_BOOKMARK ? take_bookmark(inf, e) : 0;
}

static int on_line(void *arg, const char *line, size_t len, struct err *err)
{
    struct informer *inf = arg;
    struct event e;
    int rc = event_parse(line, len, &e, err);
    if (rc < 0)
        return rc;
    rc = take_event(inf, &e, err);
    event_fini(&e);
    return rc;
}

static int on_watch_data(void *arg, const char *bytes, size_t n)
{
    struct informer *inf = arg;
    return lines_feed(&inf->lines, bytes, n, on_line, inf, &inf->err);
}

/* ---- results of requests --------------------------------------------------------------------- */

static void note_failure(struct informer *inf, const struct api_answer *answer)
{
    const char *what = inf->config.resource.plural;
    inf->retry_after_s = answer->retry_after_s;
    inf->refused = answer->status == 403; /* not 401: a new token cures that */
    problem_note(&inf->problem, answer, &inf->err);
    if (inf->err.code != 0)
        return; /* the parser's error is more precise */
    if (answer->status == 0)
        err_set(&inf->err, EIO, "%s: %s", what, answer->message);
    else
        err_set(&inf->err, EIO, "%s: %ld %s", what, answer->status, answer->message);
}

static void on_list_done(void *arg, const struct api_answer *answer)
{
    struct informer *inf = arg;
    struct page page;
    inf->call = NULL;
    bool ok = answer->status == 200 && inf->err.code == 0 &&
              list_parser_finish(&inf->parser, &page, &inf->err) == 0;
    list_parser_fini(&inf->parser);
    if (ok) {
        inf->page = page;
        happen(inf, WATCH_LISTED);
        return;
    }
    note_failure(inf, answer);
    /* The continue token has expired (5 minutes). Continuing would mix two versions of the list. */
    if (answer->status == 410)
        inf->no_pages = true;
    happen(inf, answer->status == 410 ? WATCH_GONE : WATCH_FAILED);
}

/* Returns whether the watch delivered something or lasted for SHORT. Then its end is no failure. */
static bool was_good(const struct informer *inf, const struct api_answer *answer)
{
    bool lived = clock_ns() - inf->opened_at >= SHORT;
    return (answer->status == 200 || answer->cut) && (inf->progress || lived);
}

static enum watch_event watch_end(struct informer *inf, const struct api_answer *answer)
{
    bool refused = answer->status == 400 || answer->status == 422;
    if (inf->gone || answer->status == 410)
        return WATCH_GONE;
    if (inf->state == WATCH_STREAMING && refused)
        return WATCH_UNSUPPORTED;
    if (inf->state == WATCH_FOLLOWING && answer->late)
        return WATCH_SILENT;
    return inf->err.code == 0 && was_good(inf, answer) ? WATCH_ENDED : WATCH_FAILED;
}

/* Only a watch that delivers an event or lasts for SHORT resets the count of failures. So the pause
 * keeps growing if a server answers lists and then fails the watch at once. */
static void on_watch_done(void *arg, const struct api_answer *answer)
{
    struct informer *inf = arg;
    inf->call = NULL;
    loop_timer_stop(api_loop(inf->config.api), &inf->patience);
    lines_fini(&inf->lines);
    if (inf->state == WATCH_FOLLOWING && was_good(inf, answer))
        inf->failures = inf->costly = 0;
    if (was_good(inf, answer))
        inf->problem = (struct problem){0};
    enum watch_event event = watch_end(inf, answer);
    if (event == WATCH_UNSUPPORTED)
        inf->no_streams = true;
    if (event == WATCH_FAILED || event == WATCH_GONE || event == WATCH_SILENT)
        note_failure(inf, answer);
    happen(inf, event);
}

/* STREAM_MS have passed without the end of the streamed list. */
static void on_patience(void *arg)
{
    struct informer *inf = arg;
    api_cancel(inf->call);
    inf->call = NULL;
    lines_fini(&inf->lines);
    inf->no_streams = true;
    happen(inf, WATCH_UNSUPPORTED);
}

static void on_pause(void *arg)
{
    happen(arg, WATCH_TIMER);
}

/* ---- actions --------------------------------------------------------------------------------- */

static void path_of(struct informer *inf, struct buf *path)
{
    const struct informer_config *c = &inf->config;
    request_path(path, &c->resource, c->namespace, NULL, NULL);
    request_query(path, "labelSelector", c->labels);
    request_query(path, "fieldSelector", c->fields);
}

static void send_request(struct informer *inf, struct buf *path, struct api_request *q,
                         api_done_f *done)
{
    inf->err = (struct err){0};
    inf->retry_after_s = -1;
    inf->gone = inf->progress = false;
    inf->opened_at = clock_ns();
    q->method = "GET";
    q->path = request_text(path);
    int rc = q->path ? api_send(inf->config.api, q, done, inf, &inf->call, &inf->err)
                     : err_set(&inf->err, ENOMEM, "no memory for a request");
    if (rc < 0)
        happen(inf, WATCH_FAILED);
}

static void do_list(struct informer *inf, bool first)
{
    struct api_request q = {
        .timeout_ms = LIST_MS, .silent_s = LIST_SILENT_S, .compress = true, .data = on_list_data};
    struct buf path = {0};
    path_of(inf, &path);
    if (!inf->no_pages)
        request_query_number(&path, "limit", inf->config.page);
    if (first) {
        inf->round++;
        inf->counts.lists++;
    } else {
        request_query(&path, "continue", inf->page.next);
    }
    list_parser_init(&inf->parser, on_item, inf);
    send_request(inf, &path, &q, on_list_done);
    buf_fini(&path);
}

static void do_watch(struct informer *inf, bool stream)
{
    long seconds = WATCH_MIN_S + (long)randombytes_uniform(WATCH_MORE_S + 1);
    struct api_request q = {.timeout_ms = (int)(seconds + WATCH_LATE_S) * 1000,
                            .silent_s = WATCH_SILENT_S,
                            .data = on_watch_data};
    struct buf path = {0};
    path_of(inf, &path);
    request_query(&path, "watch", "1");
    request_query(&path, "allowWatchBookmarks", "true");
    request_query_number(&path, "timeoutSeconds", seconds);
    if (stream) {
        request_query(&path, "sendInitialEvents", "true");
        request_query(&path, "resourceVersionMatch", "NotOlderThan");
        inf->round++;
        inf->counts.streams++;
        loop_timer_start(api_loop(inf->config.api), &inf->patience, (uint64_t)inf->config.stream_ms,
                         on_patience, inf);
    } else {
        request_query(&path, "resourceVersion", inf->page.version);
        inf->counts.follows++;
    }
    send_request(inf, &path, &q, on_watch_done);
    buf_fini(&path);
}

static void do_pause(struct informer *inf, unsigned failures, uint64_t most_ms, uint64_t more_ms)
{
    inf->counts.failures++;
    uint64_t ms = retry_backoff_ms(failures, randombytes_random());
    if (ms > most_ms)
        ms = most_ms / 2 + randombytes_uniform((uint32_t)most_ms / 2);
    ms += more_ms;
    uint64_t asked = inf->retry_after_s > 0 ? (uint64_t)inf->retry_after_s * 1000 : 0;
    if (asked > RETRY_MAX_MS)
        asked = RETRY_MAX_MS;
    log_debug("%s; again in %llu ms", err_text(&inf->err),
              (unsigned long long)(asked > ms ? asked : ms));
    loop_timer_start(api_loop(inf->config.api), &inf->pause, asked > ms ? asked : ms, on_pause,
                     inf);
}

static void do_sync(struct informer *inf)
{
    informer_sweep(inf);
    inf->synced = true;
    inf->refused = false;
    inf->no_pages = false;
    inf->err = (struct err){0};
    inf->problem = (struct problem){0};
    loop_timer_stop(api_loop(inf->config.api), &inf->patience);
    if (inf->config.synced)
        inf->config.synced(inf->config.arg);
}

static void act(struct informer *inf, enum watch_action action)
{
    switch (action) {
    case WATCH_DO_STREAM:
        if (inf->no_streams || inf->config.paged)
            happen(inf, WATCH_UNSUPPORTED);
        else
            do_watch(inf, true);
        break;
    case WATCH_DO_LIST:
        do_list(inf, true);
        break;
    case WATCH_DO_SYNC:
        do_sync(inf);
        break;
    case WATCH_DO_SYNC_FOLLOW:
        do_sync(inf);
        do_watch(inf, false);
        break;
    case WATCH_DO_FOLLOW:
        do_watch(inf, false);
        break;
    case WATCH_DO_JITTER:
        inf->counts.gone++;
        do_pause(inf, ++inf->costly, RETRY_MAX_MS, randombytes_uniform(JITTER_MS));
        break;
    case WATCH_DO_PAUSE:
        if (inf->progress)
            do_pause(inf, ++inf->costly, RETRY_MAX_MS, 0);
        else
            do_pause(inf, ++inf->failures, PAUSE_MAX_MS, 0);
        break;
    case WATCH_NOTHING:
    case WATCH_DO_END:
        break;
    }
}

static void happen(struct informer *inf, enum watch_event event)
{
    /* Fetch the next page. Only the last page is an event of the table. */
    if (event == WATCH_LISTED && inf->state == WATCH_LISTING && inf->page.next[0]) {
        do_list(inf, false);
        return;
    }
    const struct watch_row *row = watch_step(inf->state, event);
    if (!row)
        return;
    inf->state = row->next;
    act(inf, row->action);
}

/* ---- life ------------------------------------------------------------------------------------ */

static char *copy(const char *text, bool *ok)
{
    char *p = text && *text ? strdup(text) : NULL;
    *ok &= !text || !*text || p;
    return p;
}

int informer_open(struct informer **ret, const struct informer_config *config, struct err *err)
{
    struct informer *inf = calloc(1, sizeof(*inf));
    bool ok = true;
    if (!inf)
        return err_set(err, ENOMEM, "no memory for a cache");
    inf->config = *config;
    inf->config.namespace = copy(config->namespace, &ok);
    inf->config.labels = copy(config->labels, &ok);
    inf->config.fields = copy(config->fields, &ok);
    inf->config.resource.group = strdup(config->resource.group);
    inf->config.resource.version = strdup(config->resource.version);
    inf->config.resource.plural = strdup(config->resource.plural);
    inf->config.page = config->page > 0 ? config->page : PAGE;
    inf->config.stream_ms = config->stream_ms > 0 ? config->stream_ms : STREAM_MS;
    const struct resource *r = &inf->config.resource;
    if (!ok || !r->group || !r->version || !r->plural) {
        informer_close(inf);
        return err_set(err, ENOMEM, "no memory for a cache");
    }
    *ret = inf;
    happen(inf, WATCH_START);
    return 0;
}

void informer_close(struct informer *inf)
{
    if (!inf)
        return;
    struct loop *loop = api_loop(inf->config.api);
    api_cancel(inf->call);
    loop_timer_stop(loop, &inf->pause);
    loop_timer_stop(loop, &inf->patience);
    list_parser_fini(&inf->parser);
    lines_fini(&inf->lines);
    informer_cache_fini(inf);
    free((char *)inf->config.namespace);
    free((char *)inf->config.labels);
    free((char *)inf->config.fields);
    free((char *)inf->config.resource.group);
    free((char *)inf->config.resource.version);
    free((char *)inf->config.resource.plural);
    free(inf);
}

const void *informer_get(const struct informer *inf, const char *key)
{
    const struct store_entry *e = store_find(&inf->store, key);
    return e ? e->item : NULL;
}

size_t informer_size(const struct informer *inf)
{
    return inf->store.n;
}

void informer_each(const struct informer *inf,
                   void (*cb)(void *arg, const char *key, const void *item), void *arg)
{
    const struct store_entry *e = NULL;
    while ((e = store_next(&inf->store, e)))
        cb(arg, e->key, e->item);
}

bool informer_synced(const struct informer *inf)
{
    return inf->synced;
}

const char *informer_version(const struct informer *inf)
{
    return inf->state == WATCH_FOLLOWING ? inf->page.version : "";
}

bool informer_refused(const struct informer *inf)
{
    return inf->refused;
}

const struct problem *informer_problem(const struct informer *inf)
{
    static const struct problem none;
    bool open = inf->state == WATCH_FOLLOWING && inf->call && api_status(inf->call) == 200;
    return open ? &none : &inf->problem;
}

enum watch_state informer_state(const struct informer *inf)
{
    return inf->state;
}

const struct informer_counts *informer_counts(const struct informer *inf)
{
    return &inf->counts;
}
