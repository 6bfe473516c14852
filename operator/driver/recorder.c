/* SPDX-License-Identifier: Apache-2.0
 *
 * recorder: see recorder.h. A ring of the last 256 events finds repetitions. Events are for people:
 * they are sent a second later, or when no other request waits for a slot, and 4 at a time, so that
 * they do not delay the creation of pods.
 */
#include "operator/driver/recorder.h"

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
#define INSTANCE    128 /* the API's limit for reportingInstance, in bytes */
#define IN_FLIGHT   4
#define LATER_MS    1000
#define WAITING_MAX 512 /* Events that may wait; further ones are dropped */
#define TIMEOUT_MS  15000
#define SAME_FOR    (600 * CLOCK_S)
#define COUNT_EVERY (10 * CLOCK_S) /* least time between two writes of a count */

static const struct resource resource = {"events.k8s.io", "v1", "events"};

struct record {
    bool used;
    uint64_t what; /* hash of the object's uid, reason and note */
    uint64_t first, written;
    int count;
    char name[NAMES_MAX];
};

/* An Event that waits or is in flight. */
struct writing {
    struct recorder *recorder;
    bool again; /* a patch of the count; else a new Event */
    char *path, *text;
    uint64_t since;        /* clock_ns() at which it was recorded */
    struct api_call *call; /* NULL: it waits */
    struct list node;      /* in recorder.waiting, then in recorder.writing */
};

struct recorder {
    struct api *api;
    const struct inflight *inflight;
    char instance[INSTANCE + 1];
    struct record ring[RING];
    unsigned next;
    struct list waiting, writing;
    unsigned nwaiting, in_flight;
    struct loop_timer later;
};

int recorder_open(struct recorder **ret, struct api *api, const struct inflight *inflight,
                  const char *instance, struct err *err)
{
    struct recorder *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ENOMEM, "no memory for events");
    s->api = api;
    s->inflight = inflight;
    snprintf(s->instance, sizeof(s->instance), "%s", instance);
    list_init(&s->waiting);
    list_init(&s->writing);
    *ret = s;
    return 0;
}

static void writing_free(struct writing *w)
{
    if (w->call)
        w->recorder->in_flight--;
    else
        w->recorder->nwaiting--;
    list_remove(&w->node);
    free(w->path);
    free(w->text);
    free(w);
}

static void go_on(void *arg);

static void on_done(void *arg, const struct api_answer *answer)
{
    struct writing *w = arg;
    struct recorder *s = w->recorder;
    if (answer->status < 200 || answer->status >= 300)
        log_debug("the API server refused an Event, which is dropped: %ld %s", answer->status,
                  answer->message);
    writing_free(w);
    go_on(s);
}

static void send_some(struct recorder *s)
{
    while (s->in_flight < IN_FLIGHT && s->nwaiting > 0) {
        struct writing *w = list_first(&s->waiting, struct writing, node);
        struct api_request q = {.method = w->again ? "PATCH" : "POST",
                                .path = w->path,
                                .body = w->text,
                                .kind = w->again ? API_MERGE_PATCH : API_JSON,
                                .idempotent = true, /* the name is unique */
                                .timeout_ms = TIMEOUT_MS};
        if (api_send(s->api, &q, on_done, w, &w->call, NULL) < 0) {
            writing_free(w);
            continue;
        }
        list_remove(&w->node);
        list_append(&s->writing, &w->node);
        s->nwaiting--;
        s->in_flight++;
    }
}

/* Runs after LATER_MS, again while other requests wait for a slot, and after each Event. */
static void go_on(void *arg)
{
    struct recorder *s = arg;
    if (s->nwaiting == 0)
        return;
    const struct writing *oldest = list_first(&s->waiting, struct writing, node);
    if (s->inflight && inflight_yields(s->inflight, oldest->since))
        loop_timer_start(api_loop(s->api), &s->later, LATER_MS, go_on, s);
    else
        send_some(s);
}

static void send_event(struct recorder *s, const struct recorder_about *about, const char *name,
                       json_t *body)
{
    struct buf path = {0};
    struct writing *w = s->nwaiting < WAITING_MAX ? calloc(1, sizeof(*w)) : NULL;
    if (!w) {
        log_debug("%s %s/%s: an Event was dropped: %d Events are waiting already, or "
                  "there is no memory",
                  about->kind, about->namespace, about->name, WAITING_MAX);
        return;
    }
    request_path(&path, &resource, about->namespace, name, NULL);
    *w = (struct writing){
        .recorder = s, .again = name, .since = clock_ns(), .text = json_write(body)};
    w->path = (char *)request_text(&path);
    list_append(&s->waiting, &w->node);
    s->nwaiting++;
    if (!w->path)
        buf_fini(&path);
    if (!w->path || !w->text)
        writing_free(w);
    else if (!s->later.on)
        loop_timer_start(api_loop(s->api), &s->later, LATER_MS, go_on, s);
}

static void create_event(struct recorder *s, const struct recorder_about *about, bool warning,
                         const char *reason, const char *note, struct record *r)
{
    char at[STAMP_MAX];
    size_t n = strlen(note);
    stamp_text((int64_t)clock_wall_us(), at);
    auto_json json_t *body = json_pack(
        "{s:s, s:s, s:{s:s, s:s}, s:s, s:s, s:s, s:s, s:s, s:s, s:{s:s, s:s, s:s, s:s, s:s}, s:o}",
        "apiVersion", "events.k8s.io/v1", "kind", "Event", "metadata", "name", r->name, "namespace",
        about->namespace, "eventTime", at, "reportingController", "hvd.dev/hvd-operator",
        "reportingInstance", s->instance, "action", "Reconcile", "reason", reason, "type",
        warning ? "Warning" : "Normal", "regarding", "apiVersion", about->api, "kind", about->kind,
        "name", about->name, "namespace", about->namespace, "uid", about->uid, "note",
        json_lossy_string(note, n < NOTE_MAX ? n : NOTE_MAX));
    if (body)
        send_event(s, about, NULL, body);
}

static void patch_count(struct recorder *s, const struct recorder_about *about, struct record *r)
{
    char at[STAMP_MAX];
    stamp_text((int64_t)clock_wall_us(), at);
    auto_json json_t *body =
        json_pack("{s:{s:i, s:s}}", "series", "count", r->count, "lastObservedTime", at);
    if (body)
        send_event(s, about, r->name, body);
}

static struct record *find(struct recorder *s, uint64_t what, uint64_t now)
{
    for (unsigned i = 0; i < RING; i++)
        if (s->ring[i].used && s->ring[i].what == what && now - s->ring[i].first < SAME_FOR)
            return &s->ring[i];
    return NULL;
}

void recorder_event(struct recorder *s, const struct recorder_about *about, bool warning,
                    const char *reason, const char *note)
{
    uint64_t now = clock_ns();
    uint64_t what =
        hash_mix(hash_str(about->uid) ^ hash_mix(hash_str(reason)) ^ hash_str(note) << 1);
    struct record *r = find(s, what, now);
    if (r) {
        r->count++;
        if (now - r->written < COUNT_EVERY)
            return;
        r->written = now;
        patch_count(s, about, r);
        return;
    }
    r = &s->ring[s->next++ % RING];
    *r = (struct record){.used = true, .what = what, .first = now, .written = now, .count = 1};
    snprintf(r->name, sizeof(r->name), "%.48s.%08" PRIx32 "%08" PRIx32, about->name,
             (uint32_t)randombytes_random(), (uint32_t)randombytes_random());
    create_event(s, about, warning, reason, note, r);
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

void recorder_stop(struct recorder *s)
{
    loop_timer_stop(api_loop(s->api), &s->later);
    drop_all(&s->waiting);
    drop_all(&s->writing);
}

void recorder_close(struct recorder *s)
{
    if (!s)
        return;
    recorder_stop(s);
    free(s);
}
