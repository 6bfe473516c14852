/* SPDX-License-Identifier: Apache-2.0
 *
 * leader_label: see leader_label.h.
 */
#include "operator/driver/leader_label.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/cleanup.h"
#include "core/base/log.h"
#include "core/json/json.h"
#include "operator/api/request.h"
#include "operator/api/retry.h"
#include "operator/driver/bodies.h"
#include "operator/driver/driver.h"
#include "operator/objects/parts.h"

#define TIMEOUT_MS 10000
#define CHECK_MS   30000 /* between two looks at which pods have the label */

struct leader_label {
    struct api *api;
    char *namespace_, *pod;
    char *path, *list; /* of this operator's pod; of the pods with the label */
    bool want, settled, told;
    bool rewritten; /* the label was missing in the last look, and was set again */
    unsigned failures;
    struct api_call *call;
    struct loop_timer pause, check;
    json_t *stale; /* metadata of the other pods that have the label; NULL: none known */
};

static void write_it(struct leader_label *l);
static void look(struct leader_label *l);

/* Returns the path of a pod, or of those with the label, as a new string; NULL: no memory. */
static char *path_of(const char *namespace, const char *pod, const char *selector)
{
    static const struct resource pods = {"", "v1", "pods"};
    struct buf path = {0};
    request_path(&path, &pods, namespace, pod, NULL);
    request_query(&path, "labelSelector", selector);
    if (!request_text(&path))
        buf_fini(&path);
    return (char *)path.data;
}

/* ---- the label of this pod ------------------------------------------------------------------- */

static void on_pause(void *arg)
{
    write_it(arg);
}

static void again(struct leader_label *l)
{
    uint64_t ms = retry_backoff_ms(++l->failures, randombytes_random());
    loop_timer_start(api_loop(l->api), &l->pause, ms, on_pause, l);
}

static void on_done(void *arg, const struct api_answer *answer)
{
    struct leader_label *l = arg;
    l->call = NULL;
    if (answer->status == 200 || answer->status == 404) {
        l->settled = true;
        l->failures = 0;
        if (answer->status == 404)
            log_warn("%s: no such pod, so this operator cannot label it: agents do not find the "
                     "leader. Check POD_NAME and POD_NAMESPACE",
                     l->path);
        else if (l->want)
            look(l);
        return;
    }
    if (l->failures == 4)
        log_warn("labelling this operator's pod failed 5 times, so agents may not find the leader: "
                 "%ld %s",
                 answer->status, answer->message);
    again(l);
}

static int patch(struct leader_label *l, const char *path, char *body, api_done_f *done)
{
    struct api_request q = {.method = "PATCH",
                            .path = path,
                            .body = body,
                            .kind = API_MERGE_PATCH,
                            .idempotent = true,
                            .urgent = true,
                            .timeout_ms = TIMEOUT_MS};
    int rc = body && path ? api_send(l->api, &q, done, l, &l->call, NULL) : -ENOMEM;
    free(body);
    return rc;
}

static void write_it(struct leader_label *l)
{
    if (patch(l, l->path, bodies_leader(l->want, NULL), on_done) < 0)
        again(l);
}

/* ---- the labels of other pods ---------------------------------------------------------------- */

static void forget(struct leader_label *l)
{
    json_decref(TAKE(l->stale));
}

static void on_check(void *arg)
{
    struct leader_label *l = arg;
    l->rewritten = false;
    look(l);
}

static void check_later(struct leader_label *l)
{
    forget(l);
    loop_timer_start(api_loop(l->api), &l->check, CHECK_MS, on_check, l);
}

static void remove_next(struct leader_label *l);

static json_t *last_stale(const struct leader_label *l)
{
    return json_array_get(l->stale, json_array_size(l->stale) - 1);
}

/* Goes on with the next pod, also if this one keeps the label: the next look finds it again. */
static void on_removed(void *arg, const struct api_answer *answer)
{
    struct leader_label *l = arg;
    const char *name = parts_text(last_stale(l), "name");
    l->call = NULL;
    if (answer->status == 200)
        log_info("pod %s had the leader's label, which is removed", name);
    else
        log_info("pod %s has the leader's label, which could not be removed: %ld %s", name,
                 answer->status, answer->message);
    json_array_remove(l->stale, json_array_size(l->stale) - 1);
    remove_next(l);
}

/* Removes the label of the last pod of l->stale, unless that pod has changed since the look: the
 * operator in it may lead by now. */
static void remove_next(struct leader_label *l)
{
    json_t *meta = last_stale(l);
    if (!meta) {
        check_later(l);
        return;
    }
    auto_free char *path = path_of(l->namespace_, parts_text(meta, "name"), NULL);
    char *body = bodies_leader(false, parts_text(meta, "resourceVersion"));
    if (patch(l, path, body, on_removed) < 0)
        check_later(l);
}

/* Returns whether this operator's own pod has the label; keeps the others in l->stale. */
static bool read_pods(struct leader_label *l, const struct api_answer *answer)
{
    auto_json json_t *j = NULL;
    json_t *item;
    size_t i;
    bool own = false;
    if (json_read(answer->body, answer->len, "the operator's pods", &j, NULL) < 0)
        return true;
    l->stale = json_array();
    json_array_foreach(json_object_get(j, "items"), i, item)
    {
        json_t *meta = json_object_get(item, "metadata");
        const char *name = parts_text(meta, "name");
        if (strcmp(name, l->pod) == 0)
            own = true;
        else if (*name && json_array_append(l->stale, meta) < 0)
            return true;
    }
    return own;
}

static void on_listed(void *arg, const struct api_answer *answer)
{
    struct leader_label *l = arg;
    l->call = NULL;
    forget(l);
    if (answer->status != 200) {
        if (!l->told)
            log_warn(
                "the pods with the leader's label cannot be listed (%ld %s): after the loss of "
                "a leader's node agents may dial its pod, until that is deleted",
                answer->status, answer->message);
        l->told = true;
        check_later(l);
        return;
    }
    l->told = false;
    if (read_pods(l, answer)) {
        l->rewritten = false;
        remove_next(l);
    } else if (l->rewritten) {
        check_later(l); /* something removes the label each time */
    } else {
        l->rewritten = true;
        write_it(l);
    }
}

static void look(struct leader_label *l)
{
    struct api_request q = {
        .method = "GET", .path = l->list, .idempotent = true, .timeout_ms = TIMEOUT_MS};
    loop_timer_stop(api_loop(l->api), &l->check);
    if (api_send(l->api, &q, on_listed, l, &l->call, NULL) < 0)
        check_later(l);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void stop(struct leader_label *l)
{
    api_cancel(l->call);
    l->call = NULL;
    loop_timer_stop(api_loop(l->api), &l->pause);
    loop_timer_stop(api_loop(l->api), &l->check);
    forget(l);
}

void leader_label_set(struct leader_label *l, bool leads)
{
    stop(l);
    l->want = leads;
    l->settled = l->rewritten = false;
    l->failures = 0;
    write_it(l);
}

bool leader_label_settled(const struct leader_label *l)
{
    return l->settled;
}

int leader_label_open(struct leader_label **ret, struct api *api, const char *namespace,
                      const char *pod, struct err *err)
{
    struct leader_label *l = calloc(1, sizeof(*l));
    if (!l)
        return err_set(err, ENOMEM, "no memory for the leader's label");
    l->api = api;
    l->namespace_ = strdup(namespace);
    l->pod = strdup(pod);
    l->path = path_of(namespace, pod, NULL);
    l->list = path_of(namespace, NULL, DRIVER_LEADER_LABEL);
    if (!l->namespace_ || !l->pod || !l->path || !l->list) {
        leader_label_close(l);
        return err_set(err, ENOMEM, "no memory for the leader's label");
    }
    leader_label_set(l, false);
    *ret = l;
    return 0;
}

void leader_label_close(struct leader_label *l)
{
    if (!l)
        return;
    stop(l);
    free(l->namespace_);
    free(l->pod);
    free(l->path);
    free(l->list);
    free(l);
}
