/* SPDX-License-Identifier: Apache-2.0
 *
 * discovery: see discovery.h.
 */
#include "operator/driver/discovery.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/log.h"
#include "core/json/json.h"
#include "operator/api/retry.h"

#define TIMEOUT_MS   10000
#define EVERY_MS     300000
#define PAUSE_MAX_MS 10000u /* limit of the pause after a failure: the request is a small one */

struct discovery {
    struct api *api;
    struct api_call *call;
    struct loop_timer timer;
    unsigned failures;
    struct problem problem;
    char *text;
    void (*changed)(void *arg);
    void *arg;
};

static void ask(struct discovery *s);

static void on_timer(void *arg)
{
    ask(arg);
}

static void add_versions(struct buf *dst, json_t *group)
{
    json_t *version;
    size_t i;
    json_array_foreach(json_object_get(group, "versions"), i, version)
    {
        const char *name = json_string_value(json_object_get(version, "groupVersion"));
        if (!name)
            continue;
        if (dst->len > 0)
            buf_put_u8(dst, ' ');
        buf_put(dst, name, strlen(name));
    }
}

/* The groupVersions of an APIGroupList, with blanks between them. NULL: err says why. */
static char *read_groups(const struct api_answer *answer, struct err *err)
{
    auto_json json_t *j = NULL;
    struct buf text = {0};
    json_t *groups = NULL, *group;
    size_t i;
    int rc = json_read(answer->body, answer->len, "the API groups", &j, err);
    if (rc == 0)
        rc = json_expect(j, "the API groups", err, "{s:o}", "groups", &groups);
    if (rc < 0)
        return NULL;
    json_array_foreach(groups, i, group) add_versions(&text, group);
    buf_put_u8(&text, 0);
    if (text.failed) {
        buf_fini(&text);
        err_set(err, ENOMEM, "no memory for the API groups");
        return NULL;
    }
    return (char *)text.data;
}

static void again(struct discovery *s, uint64_t ms)
{
    loop_timer_start(api_loop(s->api), &s->timer, ms, on_timer, s);
}

static void again_later(struct discovery *s)
{
    uint64_t ms = retry_backoff_ms(++s->failures, randombytes_random());
    again(s, ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS);
}

static void on_answer(void *arg, const struct api_answer *answer)
{
    struct discovery *s = arg;
    struct err err = {0};
    s->call = NULL;
    char *text = answer->status == 200 ? read_groups(answer, &err) : NULL;
    if (!text) {
        problem_note(&s->problem, answer, &err);
        log_debug("the API groups: %s", s->problem.text);
        again_later(s);
        return;
    }
    s->failures = 0;
    s->problem = (struct problem){0};
    again(s, EVERY_MS);
    if (s->text && strcmp(s->text, text) == 0) {
        free(text);
        return;
    }
    free(s->text);
    s->text = text;
    s->changed(s->arg);
}

static void ask(struct discovery *s)
{
    struct err err = {0};
    struct api_request q = {
        .method = "GET", .path = "/apis", .idempotent = true, .timeout_ms = TIMEOUT_MS};
    if (api_send(s->api, &q, on_answer, s, &s->call, &err) < 0)
        again_later(s);
}

int discovery_open(struct discovery **ret, struct api *api, void (*changed)(void *arg), void *arg,
                   struct err *err)
{
    struct discovery *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ENOMEM, "no memory");
    *s = (struct discovery){.api = api, .changed = changed, .arg = arg};
    *ret = s;
    ask(s);
    return 0;
}

const char *discovery_text(const struct discovery *s)
{
    return s->text;
}

const struct problem *discovery_problem(const struct discovery *s)
{
    return &s->problem;
}

void discovery_close(struct discovery *s)
{
    if (!s)
        return;
    api_cancel(s->call);
    loop_timer_stop(api_loop(s->api), &s->timer);
    free(s->text);
    free(s);
}
