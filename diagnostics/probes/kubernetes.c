/* SPDX-License-Identifier: Apache-2.0
 *
 * kubernetes: what the cluster's API answers to this pod's service account: its version, the served
 * versions of HvdJob, and whether hvd-operator's requests would be allowed.
 *
 * Runs in a child of its own; only reads (a SelfSubjectAccessReview changes nothing), at
 * most 16 small requests over one connection. The answer never contains the token. Answer
 * "kubernetes": token url namespace version.{status text git ms} group.{status text}
 * served.<i>.name access.<i>.{verb resource group status allowed reason}. status is the HTTP
 * status; 0: there was no answer, text says why. The answer is empty outside a pod.
 */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/loop.h"
#include "core/json/json.h"
#include "core/member/client.h"
#include "diagnostics/probe.h"

#define ACCOUNT    "var/run/secrets/kubernetes.io/serviceaccount/"
#define REVIEWS    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#define GROUP      "hvd.dev"
#define TOTAL_MS   6000
#define REQUEST_MS 3000

/* The rights that the check k8s-rbac asks about: those without which hvd-operator cannot work.
 * k8s/overlays/namespaced/rights.yaml and k8s/operator/own-role.yaml grant them; name: of this one
 * object only, NULL: of all. */
static const struct right {
    const char *group, *resource, *subresource, *verb, *name;
} rights[] = {
    {GROUP, "hvdjobs", "", "list", NULL},
    {GROUP, "hvdjobs", "", "watch", NULL},
    {GROUP, "hvdjobs", "status", "patch", NULL},
    {GROUP, "hvdjobs", "finalizers", "update", NULL},
    {"", "pods", "", "list", NULL},
    {"", "pods", "", "watch", NULL},
    {"", "pods", "", "create", NULL},
    {"", "pods", "", "patch", NULL},
    {"", "pods", "", "delete", NULL},
    {"", "secrets", "", "create", NULL},
    {"policy", "poddisruptionbudgets", "", "create", NULL},
    {"events.k8s.io", "events", "", "create", NULL},
    {"coordination.k8s.io", "leases", "", "create", NULL},
    {"coordination.k8s.io", "leases", "", "update", "hvd-operator"},
};

struct api {
    struct loop loop;
    struct client *client;
    uint64_t deadline;
    /* of the request in flight */
    bool done;
    long status;
    char text[256];
    json_t *body; /* NULL: no body, or not JSON */
};

static void on_answer(void *arg, const struct client_answer *answer)
{
    struct api *api = arg;
    api->done = true;
    api->status = answer->status;
    snprintf(api->text, sizeof(api->text), "%s", answer->text);
    if (json_read(answer->body, answer->len, "the API's answer", &api->body, NULL) < 0)
        api->body = NULL;
}

/* Makes one request and waits for its end; api has the status, text and body. */
static void request(struct api *api, const char *path, const char *body)
{
    struct err err = {0};
    uint64_t now = clock_ns();
    int ms = now < api->deadline ? (int)((api->deadline - now) / CLOCK_MS) : 0;
    json_decref(TAKE(api->body));
    api->done = false;
    api->status = 0;
    snprintf(api->text, sizeof(api->text), "no time left for the request");
    if (ms > REQUEST_MS)
        ms = REQUEST_MS;
    if (ms <= 0)
        return;
    if (client_send(api->client, path, body, ms, on_answer, api, &err) < 0) {
        snprintf(api->text, sizeof(api->text), "%.255s", err.msg);
        return;
    }
    /* The client's own time-out may expire shortly after the deadline. */
    snprintf(api->text, sizeof(api->text), "timed out: no answer in %d ms", ms);
    while (!api->done && !deadline_passed(api->deadline))
        loop_once(&api->loop, deadline_poll_ms(api->deadline));
}

static void put_status(struct buf *out, const struct api *api, const char *what)
{
    char key[64];
    snprintf(key, sizeof(key), "%s.status", what);
    answer_put(out, key, "%ld", api->status);
    snprintf(key, sizeof(key), "%s.text", what);
    if (api->status == 0)
        answer_put(out, key, "%s", api->text);
}

static void ask_version(struct buf *out, struct api *api)
{
    uint64_t start = clock_ns();
    request(api, "/version", NULL);
    answer_put(out, "version.ms", "%d", (int)((clock_ns() - start) / CLOCK_MS));
    put_status(out, api, "version");
    const char *git = json_string_value(json_object_get(api->body, "gitVersion"));
    if (git)
        answer_put(out, "version.git", "%.100s", git);
}

static void ask_served(struct buf *out, struct api *api)
{
    json_t *version;
    size_t i;
    request(api, "/apis/" GROUP, NULL);
    put_status(out, api, "group");
    json_array_foreach(json_object_get(api->body, "versions"), i, version)
    {
        const char *name = json_string_value(json_object_get(version, "version"));
        if (name)
            answer_put_at(out, "served", (int)i, "name", "%.60s", name);
    }
}

static void ask_right(struct buf *out, struct api *api, int i, const char *space)
{
    const struct right *right = &rights[i];
    auto_json json_t *review = json_pack(
        "{s:s, s:s, s:{s:{s:s, s:s, s:s, s:s, s:s, s:s*}}}", "apiVersion",
        "authorization.k8s.io/v1", "kind", "SelfSubjectAccessReview", "spec", "resourceAttributes",
        "group", right->group, "resource", right->resource, "subresource", right->subresource,
        "verb", right->verb, "namespace", space, "name", right->name);
    auto_free char *body = json_write(review);
    if (!body)
        return;
    request(api, REVIEWS, body);
    json_t *status = json_object_get(api->body, "status");
    const char *reason = json_string_value(json_object_get(status, "reason"));
    answer_put_at(out, "access", i, "verb", "%s", right->verb);
    answer_put_at(out, "access", i, "resource", "%s%s%s", right->resource,
                  *right->subresource ? "/" : "", right->subresource);
    answer_put_at(out, "access", i, "group", "%s", right->group);
    answer_put_at(out, "access", i, "status", "%ld", api->status);
    answer_put_at(out, "access", i, "allowed", "%d",
                  json_is_true(json_object_get(status, "allowed")));
    if (reason && *reason)
        answer_put_at(out, "access", i, "reason", "%.200s", reason);
}

static void ask_all(struct buf *out, struct api *api, const char *space)
{
    ask_version(out, api);
    /* Without an answer, or with a refused token, the other requests would fail the same way. */
    if (api->status == 0 || api->status == 401)
        return;
    ask_served(out, api);
    for (size_t i = 0; i < sizeof(rights) / sizeof(*rights); i++)
        ask_right(out, api, (int)i, space);
}

/* Writes the URL; an IPv6 address needs brackets. */
static void put_url(struct buf *out, const char *host, const char *port, char *dst, size_t size)
{
    bool v6 = strchr(host, ':') != NULL;
    snprintf(dst, size, "https://%s%.200s%s:%.10s", v6 ? "[" : "", host, v6 ? "]" : "",
             port && *port ? port : "443");
    answer_put(out, "url", "%s", dst);
}

static int talk(struct buf *out, const struct machine *m, const struct setting *s,
                const char *token, const char *host)
{
    auto_free char *ca = NULL;
    char url[256], space[128];
    struct err err = {0};
    struct api api = {.deadline = deadline_in_ms(s->timeout_ms * 3 / 4 < TOTAL_MS
                                                     ? (uint64_t)s->timeout_ms * 3 / 4
                                                     : TOTAL_MS)};
    put_url(out, host, machine_env(m, "KUBERNETES_SERVICE_PORT"), url, sizeof(url));
    if (machine_line(m, space, sizeof(space), ACCOUNT "namespace") < 0)
        snprintf(space, sizeof(space), "default");
    answer_put(out, "namespace", "%s", space);
    int rc = machine_read(m, ACCOUNT "ca.crt", &ca, NULL);
    if (rc < 0) {
        answer_put(out, "version.status", "0");
        answer_put(out, "version.text", "/" ACCOUNT "ca.crt: %s", strerror(-rc));
        return 0;
    }
    rc = loop_init(&api.loop);
    if (rc < 0)
        return rc;
    const struct client_config config = {
        .loop = &api.loop, .url = url, .ca_pem = ca, .token = token};
    rc = client_open(&api.client, &config, &err);
    if (rc == 0)
        ask_all(out, &api, space);
    json_decref(api.body);
    client_close(api.client);
    loop_fini(&api.loop);
    return rc;
}

static int run_kubernetes(struct buf *out, const struct machine *m, const struct setting *s)
{
    const char *host = machine_env(m, "KUBERNETES_SERVICE_HOST");
    char token[16384];
    if (!host || !*host)
        return 0;
    int rc = machine_line(m, token, sizeof(token), ACCOUNT "token");
    answer_put(out, "token", "%s", rc < 0 ? strerror(-rc) : *token ? "ok" : "empty");
    if (rc == 0 && *token)
        rc = talk(out, m, s, token, host);
    else
        rc = 0;
    sodium_memzero(token, sizeof(token));
    return rc;
}

static const struct probe probes[] = {{.name = "kubernetes", .level = 1, .run = run_kubernetes}};

const struct probe_table probes_kubernetes = {probes, sizeof(probes) / sizeof(probes[0])};
