/* SPDX-License-Identifier: Apache-2.0
 *
 * said: see said.h. A ring of what was said last is all the memory there is. Events are for people:
 * they go a moment later and a few at a time, so that they do not stand in the way of what pods
 * wait for.
 */
#include "operator/driver/said.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/json/json.h"
#include "operator/api/request.h"
#include "operator/objects/stamp.h"

#define RING        256
#define NAMES_MAX   80
#define NOTE_MAX    1024
#define INSTANCE    128 /* bytes that reportingInstance may have */
#define UNDER_WAY   4
#define LATER_MS    200
#define WAITING_MAX 512 /* more are dropped */
#define TIMEOUT_MS  15000
#define SAME_FOR    (600 * CLOCK_S)
#define COUNT_EVERY (10 * CLOCK_S) /* a series is written so often */

static const struct resource resource = {"events.k8s.io", "v1", "events"};

struct record {
    bool used;
    uint64_t what; /* hash of the job's uid, reason and note */
    uint64_t first, written;
    int count;
    char name[NAMES_MAX];
};

/* An Event on its way. */
struct writing {
    struct said *said;
    bool again; /* it is a change of one that there is */
    char *path, *text;
    struct api_call *call; /* NULL: it waits */
    struct list node;      /* of said.waiting, then of said.writing */
};

struct said {
    struct api *api;
    char instance[INSTANCE + 1];
    struct record ring[RING];
    unsigned next;
    struct list waiting, writing;
    unsigned nwaiting, under_way;
    struct loop_timer later;
};

int said_open(struct said **ret, struct api *api, const char *instance, struct err *err)
{
    struct said *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ENOMEM, "no memory for events");
    s->api = api;
    snprintf(s->instance, sizeof(s->instance), "%s", instance);
    list_init(&s->waiting);
    list_init(&s->writing);
    *ret = s;
    return 0;
}

static void writing_free(struct writing *w)
{
    if (w->call)
        w->said->under_way--;
    else
        w->said->nwaiting--;
    list_remove(&w->node);
    free(w->path);
    free(w->text);
    free(w);
}

static void send_some(struct said *s);

static void on_done(void *arg, const struct api_answer *answer)
{
    struct writing *w = arg;
    struct said *s = w->said;
    if (answer->status < 200 || answer->status >= 300)
        log_debug("an Event was not taken: %ld %s", answer->status, answer->message);
    writing_free(w);
    send_some(s);
}

static void send_some(struct said *s)
{
    while (s->under_way < UNDER_WAY && s->nwaiting > 0) {
        struct writing *w = list_first(&s->waiting, struct writing, node);
        struct api_request q = {.method = w->again ? "PATCH" : "POST",
                                .path = w->path,
                                .body = w->text,
                                .kind = w->again ? API_MERGE_PATCH : API_JSON,
                                .idempotent = true, /* it has a name of its own */
                                .timeout_ms = TIMEOUT_MS};
        if (api_send(s->api, &q, on_done, w, &w->call, NULL) < 0) {
            writing_free(w);
            continue;
        }
        list_remove(&w->node);
        list_append(&s->writing, &w->node);
        s->nwaiting--;
        s->under_way++;
    }
}

static void on_later(void *arg)
{
    send_some(arg);
}

static void send_event(struct said *s, const struct hvdjob *job, const char *name, json_t *body)
{
    struct buf path = {0};
    struct writing *w = s->nwaiting < WAITING_MAX ? calloc(1, sizeof(*w)) : NULL;
    if (!w) {
        log_debug("too many Events wait: one less");
        return;
    }
    request_path(&path, &resource, job->namespace_, name, NULL);
    *w = (struct writing){.said = s, .again = name, .text = json_write(body)};
    w->path = (char *)request_text(&path);
    list_append(&s->waiting, &w->node);
    s->nwaiting++;
    if (!w->path)
        buf_fini(&path);
    if (!w->path || !w->text)
        writing_free(w);
    else if (!s->later.on)
        loop_timer_start(api_loop(s->api), &s->later, LATER_MS, on_later, s);
}

static void say_first(struct said *s, const struct hvdjob *job, bool warning, const char *reason,
                      const char *note, struct record *r)
{
    char at[STAMP_MAX];
    size_t n = strlen(note);
    stamp_text((int64_t)clock_wall_us(), at);
    auto_json json_t *body = json_pack(
        "{s:s, s:s, s:{s:s, s:s}, s:s, s:s, s:s, s:s, s:s, s:s, s:{s:s, s:s, s:s, s:s, s:s}, s:o}",
        "apiVersion", "events.k8s.io/v1", "kind", "Event", "metadata", "name", r->name, "namespace",
        job->namespace_, "eventTime", at, "reportingController", "hvd.dev/hvd-operator",
        "reportingInstance", s->instance, "action", "Reconcile", "reason", reason, "type",
        warning ? "Warning" : "Normal", "regarding", "apiVersion", HVDJOB_API, "kind", HVDJOB_KIND,
        "name", job->name, "namespace", job->namespace_, "uid", job->uid, "note",
        json_lossy_string(note, n < NOTE_MAX ? n : NOTE_MAX));
    if (body)
        send_event(s, job, NULL, body);
}

static void say_again(struct said *s, const struct hvdjob *job, struct record *r)
{
    char at[STAMP_MAX];
    stamp_text((int64_t)clock_wall_us(), at);
    auto_json json_t *body =
        json_pack("{s:{s:i, s:s}}", "series", "count", r->count, "lastObservedTime", at);
    if (body)
        send_event(s, job, r->name, body);
}

static struct record *find(struct said *s, uint64_t what, uint64_t now)
{
    for (unsigned i = 0; i < RING; i++)
        if (s->ring[i].used && s->ring[i].what == what && now - s->ring[i].first < SAME_FOR)
            return &s->ring[i];
    return NULL;
}

void said_event(struct said *s, const struct hvdjob *job, bool warning, const char *reason,
                const char *note)
{
    uint64_t now = clock_ns();
    uint64_t what = hash_mix(hash_str(job->uid) ^ hash_mix(hash_str(reason)) ^ hash_str(note) << 1);
    struct record *r = find(s, what, now);
    if (r) {
        r->count++;
        if (now - r->written < COUNT_EVERY)
            return;
        r->written = now;
        say_again(s, job, r);
        return;
    }
    r = &s->ring[s->next++ % RING];
    *r = (struct record){.used = true, .what = what, .first = now, .written = now, .count = 1};
    snprintf(r->name, sizeof(r->name), "%.48s.%08" PRIx32 "%08" PRIx32, job->name,
             (uint32_t)randombytes_random(), (uint32_t)randombytes_random());
    say_first(s, job, warning, reason, note, r);
}

static void drop_all(struct list *list)
{
    list_for_each(pos, tmp, list)
    {
        struct writing *w = list_entry(pos, struct writing, node);
        api_cancel(w->call);
        writing_free(w);
    }
}

void said_stop(struct said *s)
{
    loop_timer_stop(api_loop(s->api), &s->later);
    drop_all(&s->waiting);
    drop_all(&s->writing);
}

void said_close(struct said *s)
{
    if (!s)
        return;
    said_stop(s);
    free(s);
}
