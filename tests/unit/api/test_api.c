/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/api/api and core/http against a fake API server, over TLS: bodies, headers,
 * retries, refusals, rotated tokens, connections, conflicts.
 *
 * takes: 14 s, waiting
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/member/authority.h"
#include "operator/api/api.h"
#include "tests/harness/kube_server.h"

#define LEASES "/apis/coordination.k8s.io/v1/namespaces/default/leases"

static struct loop loop;
static struct api *api;
static struct access to;
static struct authority authority;
static char dir[64];
static int port;

static const char *put(const char *name, const char *text)
{
    static char path[2][128];
    static int turn;
    char *p = path[turn++ % 2];
    snprintf(p, 128, "%s/%s", dir, name);
    FILE *f = fopen(p, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return p;
}

struct heard {
    int called;
    long status;
    bool cut;
    char reason[64], message[512], body[4096];
};

static void on_done(void *arg, const struct api_answer *a)
{
    struct heard *h = arg;
    h->called++;
    h->status = a->status;
    h->cut = a->cut;
    snprintf(h->reason, sizeof(h->reason), "%s", a->reason);
    snprintf(h->message, sizeof(h->message), "%s", a->message);
    snprintf(h->body, sizeof(h->body), "%s", a->body);
}

static void until(const int *counter, int n)
{
    uint64_t deadline = deadline_in_ms(60000);
    while (*counter < n && !deadline_passed(deadline))
        loop_once(&loop, 50);
    assert_true(*counter >= n);
}

static struct heard ask(struct api_request q)
{
    struct heard h = {0};
    struct err err = {0};
    if (q.timeout_ms == 0)
        q.timeout_ms = 20000;
    assert_int_equal(api_send(api, &q, on_done, &h, NULL, &err), 0);
    assert_int_equal(h.called, 0);
    until(&h.called, 1);
    assert_int_equal(h.called, 1);
    return h;
}

static void test_what_is_sent(void **state)
{
    (void)state;
    struct heard h = ask((struct api_request){
        .method = "PATCH", .path = "/echo/a%2Fb?x=%20y", .body = "{\"a\":1}", .kind = API_APPLY});
    assert_int_equal(h.status, 200);
    assert_non_null(strstr(h.body, "\"method\": \"PATCH\""));
    assert_non_null(strstr(h.body, "\"path\": \"/echo/a%2Fb?x=%20y\""));
    assert_non_null(strstr(h.body, "\"content-type\": \"application/apply-patch+yaml\""));
    assert_non_null(strstr(h.body, "{\\\"a\\\":1}"));
    assert_non_null(strstr(h.body, "\"user-agent\": \"hvd-operator\""));
    assert_non_null(strstr(h.body, "\"accept\": \"application/json\""));
    h = ask((struct api_request){
        .method = "PATCH", .path = "/echo", .body = "{}", .kind = API_MERGE_PATCH});
    assert_non_null(strstr(h.body, "\"content-type\": \"application/merge-patch+json\""));
    h = ask((struct api_request){.method = "DELETE", .path = "/echo", .body = "{}"});
    assert_non_null(strstr(h.body, "\"method\": \"DELETE\""));
    assert_non_null(strstr(h.body, "\"content-type\": \"application/json\""));
    h = ask((struct api_request){.method = "GET", .path = "/echo"});
    assert_null(strstr(h.body, "content-type"));
}

static void test_status(void **state)
{
    (void)state;
    struct heard h = ask((struct api_request){.method = "GET", .path = LEASES "/none"});
    assert_int_equal(h.status, 404);
    assert_string_equal(h.reason, "NotFound");
    assert_string_equal(h.message, "none not found");
}

/* After 5xx and lost responses only idempotent requests are retried; after 429 all, with a pause.
 */
static void test_retries(void **state)
{
    struct api_request get = {.method = "GET", .path = "/echo", .idempotent = true};
    struct api_request post = {.method = "POST", .path = "/echo", .body = "{}"};
    (void)state;
    kube_server_do("fail 500 3 -1");
    assert_int_equal(ask(get).status, 200);
    kube_server_do("fail 500 1 -1");
    struct heard h = ask(post);
    assert_int_equal(h.status, 500);
    assert_string_equal(h.reason, "Injected");
    kube_server_do("drop 1");
    assert_int_equal(ask(get).status, 200);
    kube_server_do("drop 2"); /* curl itself retries once, see api.h */
    h = ask(post);
    assert_int_equal(h.status, 0);
    assert_int_not_equal(h.message[0], '\0');
    uint64_t throttled = api_counts(api)->throttled, before = clock_ns();
    kube_server_do("fail 429 1 1");
    assert_int_equal(ask(post).status, 200);
    assert_true(clock_ns() - before >= CLOCK_S);
    assert_int_equal(api_counts(api)->throttled, throttled + 1);
    /* Retry-After is longer than the time-out. */
    get.timeout_ms = 10000;
    kube_server_do("fail 503 1 30");
    assert_int_equal(ask(get).status, 503);
}

/* Waits until the server has received one more request, so that a command for the next request
 * applies to this one. */
static void until_asked(long before)
{
    uint64_t deadline = deadline_in_ms(20000);
    while (kube_server_count("requests") == before && !deadline_passed(deadline))
        loop_once(&loop, 10);
    assert_int_equal(kube_server_count("requests"), before + 1);
}

static void test_no_answer(void **state)
{
    struct api_request get = {.method = "GET", .path = "/echo", .timeout_ms = 700};
    (void)state;
    kube_server_do("hang 1");
    struct heard h = ask(get);
    assert_int_equal(h.status, 0);
    assert_non_null(strstr(h.message, "imed out"));
    /* What an earlier attempt has met is not forgotten. */
    get.timeout_ms = 3000;
    get.idempotent = true;
    kube_server_do("drop 2"); /* curl itself retries once, see api.h */
    kube_server_do("hang 1");
    h = ask(get);
    assert_int_equal(h.status, 0);
    assert_non_null(strstr(h.message, "imed out"));
    assert_non_null(strstr(h.message, "; before: "));
    /* A request without a response does not delay other requests. */
    struct heard slow = {0};
    get.timeout_ms = 5000;
    get.idempotent = false;
    kube_server_do("hang 1");
    long asked = kube_server_count("requests");
    assert_int_equal(api_send(api, &get, on_done, &slow, NULL, NULL), 0);
    until_asked(asked);
    uint64_t before = clock_ns();
    assert_int_equal(
        ask((struct api_request){.method = "PUT", .path = "/echo", .body = "{}"}).status, 200);
    assert_true(slow.called == 0 || clock_ns() - before >= CLOCK_S);
    until(&slow.called, 1);
}

static struct api_call *to_cancel;

static void on_done_cancel(void *arg, const struct api_answer *a)
{
    (void)a;
    api_cancel(to_cancel); /* cancels another call from within a callback */
    to_cancel = NULL;
    ++*(int *)arg;
}

static void test_cancel(void **state)
{
    struct api_request get = {.method = "GET", .path = "/echo", .timeout_ms = 20000};
    struct api_call *call;
    struct heard h = {0};
    int done = 0;
    (void)state;
    assert_int_equal(api_send(api, &get, on_done, &h, &call, NULL), 0);
    api_cancel(call);
    kube_server_do("hang 1");
    long asked = kube_server_count("requests");
    assert_int_equal(api_send(api, &get, on_done, &h, &to_cancel, NULL), 0);
    until_asked(asked);
    assert_int_equal(api_send(api, &get, on_done_cancel, &done, NULL, NULL), 0);
    until(&done, 1);
    /* Cancels a call during the pause before a retry. */
    kube_server_do("fail 503 1 20");
    get.idempotent = true;
    get.timeout_ms = 60000;
    assert_int_equal(api_send(api, &get, on_done, &h, &call, NULL), 0);
    for (int i = 0; i < 30; i++)
        loop_once(&loop, 10);
    api_cancel(call);
    kube_server_do("fail 503 0 0");
    assert_int_equal(h.called, 0);
}

static void test_token_rotates(void **state)
{
    struct api_request post = {.method = "POST", .path = "/echo", .body = "{}"};
    (void)state;
    put("token", "second");
    kube_server_do("token second");
    uint64_t refused = api_counts(api)->refused;
    assert_int_equal(ask(post).status, 200); /* 401, the file is read again, 200 */
    assert_int_equal(api_counts(api)->refused, refused + 1);
    kube_server_do("token third");
    assert_int_equal(ask(post).status, 401);
    kube_server_do("token second");
    assert_int_equal(ask(post).status, 200);
    kube_server_do("token -");
}

/* Any number of consecutive requests uses two connections: one for reads, one for writes. */
static void test_connections_are_kept(void **state)
{
    (void)state;
    assert_int_equal(ask((struct api_request){.method = "GET", .path = "/echo"}).status, 200);
    assert_int_equal(
        ask((struct api_request){.method = "PUT", .path = "/echo", .body = "{}"}).status, 200);
    long before = kube_server_count("connections");
    for (int i = 0; i < 20; i++) {
        ask((struct api_request){.method = "GET", .path = "/echo"});
        ask((struct api_request){.method = "PUT", .path = "/echo", .body = "{}"});
    }
    assert_int_equal(kube_server_count("connections"), before);
}

/* ---- trust ----------------------------------------------------------------------------------- */

static struct heard ask_as(const struct access *a, int ms)
{
    struct api *other;
    struct api *ours = api;
    struct err err = {0};
    assert_int_equal(api_open(&other, &loop, a, &err), 0);
    api = other;
    struct heard h = ask((struct api_request){.method = "GET", .path = "/echo", .timeout_ms = ms});
    api = ours;
    api_close(other);
    return h;
}

static void test_trust(void **state)
{
    struct access a = to;
    struct authority stranger = {0};
    const char *address = "127.0.0.1";
    char url[64], name[] = "127.0.0.1";
    (void)state;
    assert_int_equal(authority_create(&stranger, "other", &address, 1, NULL), 0);
    a.ca_file = NULL;
    a.ca_pem = stranger.ca_pem;
    struct heard h = ask_as(&a, 5000);
    assert_int_equal(h.status, 0);
    assert_non_null(strstr(h.message, "ertificate"));
    a.ca_pem = authority.ca_pem; /* inline */
    assert_int_equal(ask_as(&a, 30000).status, 200);
    /* The certificate is not for localhost, but for the tls-server-name. */
    snprintf(url, sizeof(url), "https://localhost:%d", port);
    a.server = url;
    assert_int_equal(ask_as(&a, 5000).status, 0);
    a.tls_server_name = name;
    h = ask_as(&a, 30000);
    assert_int_equal(h.status, 200);
    snprintf(url, sizeof(url), "\"host\": \"localhost:%d\"", port);
    assert_non_null(strstr(h.body, url));
    a = to;
    a.ca_file = a.ca_pem = NULL;
    a.insecure = true;
    assert_int_equal(ask_as(&a, 30000).status, 200);
    authority_fini(&stranger);
}

/* A request carries the plugin's token. If the plugin fails, the request fails with its error. */
static void test_plugin(void **state)
{
    char script[512], path[128];
    struct access a = to;
    (void)state;
    snprintf(script, sizeof(script),
             "#!/bin/sh\necho '{\"kind\":\"ExecCredential\",\"apiVersion\":\"v\",\"status\":"
             "{\"token\":\"from-plugin\"}}'\n");
    snprintf(path, sizeof(path), "%s", put("plugin", script));
    char *argv[] = {(char *)"/bin/sh", path, NULL};
    char version[] = "v";
    a.token_file = NULL;
    a.exec.argv = argv;
    a.exec.api_version = version;
    kube_server_do("token from-plugin");
    assert_int_equal(ask_as(&a, 30000).status, 200);
    kube_server_do("token -");
    put("plugin", "echo no >&2; exit 1");
    struct heard h = ask_as(&a, 30000);
    assert_int_equal(h.status, 0);
    assert_non_null(strstr(h.message, "exit code 1: no"));
}

static int setup(void **state)
{
    const char *address = "127.0.0.1";
    char key[128];
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/hvd-api-XXXXXX");
    if (!mkdtemp(dir) || loop_init(&loop) < 0)
        return -1;
    assert_int_equal(authority_create(&authority, "test", &address, 1, NULL), 0);
    snprintf(key, sizeof(key), "%s", put("key", authority.key_pem));
    port = kube_server_start(put("cert", authority.cert_pem), key);
    if (asprintf(&to.server, "https://127.0.0.1:%d", port) < 0)
        return -1;
    to.ca_file = strdup(put("ca", authority.ca_pem));
    to.token_file = strdup(put("token", "first"));
    return api_open(&api, &loop, &to, NULL);
}

static int teardown(void **state)
{
    char command[96];
    (void)state;
    api_close(api);
    access_fini(&to);
    authority_fini(&authority);
    loop_fini(&loop);
    kube_server_stop();
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_sent),
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_retries),
        cmocka_unit_test(test_no_answer),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_token_rotates),
        cmocka_unit_test(test_connections_are_kept),
        cmocka_unit_test(test_trust),
        cmocka_unit_test(test_plugin),
    };
    return cmocka_run_group_tests_name("api/api", tests, setup, teardown);
}
