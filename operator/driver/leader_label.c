/* SPDX-License-Identifier: Apache-2.0
 *
 * leader_label: see leader_label.h.
 */
#include "operator/driver/leader_label.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/log.h"
#include "operator/api/request.h"
#include "operator/api/retry.h"
#include "operator/driver/bodies.h"

#define TIMEOUT_MS 10000

struct leader_label {
    struct api *api;
    char *path;
    bool want, settled;
    unsigned failures;
    struct api_call *call;
    struct loop_timer pause;
};

static void write_it(struct leader_label *l);

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
        return;
    }
    if (l->failures == 4)
        log_warn("labelling this operator's pod failed 5 times, so agents may not find the leader: "
                 "%ld %s",
                 answer->status, answer->message);
    again(l);
}

static void write_it(struct leader_label *l)
{
    auto_free char *body = bodies_leader(l->want);
    struct api_request q = {.method = "PATCH",
                            .path = l->path,
                            .body = body,
                            .kind = API_MERGE_PATCH,
                            .idempotent = true,
                            .urgent = true,
                            .timeout_ms = TIMEOUT_MS};
    if (!body || api_send(l->api, &q, on_done, l, &l->call, NULL) < 0)
        again(l);
}

void leader_label_set(struct leader_label *l, bool leads)
{
    l->want = leads;
    l->settled = false;
    l->failures = 0;
    api_cancel(l->call);
    l->call = NULL;
    loop_timer_stop(api_loop(l->api), &l->pause);
    write_it(l);
}

bool leader_label_settled(const struct leader_label *l)
{
    return l->settled;
}

int leader_label_open(struct leader_label **ret, struct api *api, const char *namespace,
                      const char *pod, struct err *err)
{
    static const struct resource pods = {"", "v1", "pods"};
    struct buf path = {0};
    struct leader_label *l = calloc(1, sizeof(*l));
    request_path(&path, &pods, namespace, pod, NULL);
    if (!l || !request_text(&path)) {
        buf_fini(&path);
        free(l);
        return err_set(err, ENOMEM, "no memory for the leader's label");
    }
    l->api = api;
    l->path = (char *)path.data;
    leader_label_set(l, false);
    *ret = l;
    return 0;
}

void leader_label_close(struct leader_label *l)
{
    if (!l)
        return;
    api_cancel(l->call);
    loop_timer_stop(api_loop(l->api), &l->pause);
    free(l->path);
    free(l);
}
