/* SPDX-License-Identifier: Apache-2.0
 *
 * keystore: see keystore.h. If two operators create the Secret at the same time, one gets
 * AlreadyExists and reads the other's.
 */
#include "operator/keystore.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/json/json.h"
#include "operator/api/request.h"
#include "operator/api/retry.h"

#define TIMEOUT_MS 10000

static const struct resource secrets = {"", "v1", "secrets"};

struct keystore {
    struct api *api;
    char *namespace;
    struct keys keys;
    bool there;
    unsigned failures;
    char problem[384]; /* "": none */
    struct api_call *call;
    struct loop_timer pause;
    void (*ready)(void *arg, const struct keys *keys);
    void *arg;
};

static void read_it(struct keystore *k);

static void on_pause(void *arg)
{
    read_it(arg);
}

static void again(struct keystore *k, const char *what, const char *why)
{
    uint64_t ms = retry_backoff_ms(++k->failures, randombytes_random());
    snprintf(k->problem, sizeof(k->problem), "Secret %.64s/%s, %s: %.200s", k->namespace,
             KEYSTORE_SECRET, what, why);
    if (k->failures == 8)
        log_warn("%s. Without its keys this operator starts no pods; it keeps trying", k->problem);
    loop_timer_start(api_loop(k->api), &k->pause, ms, on_pause, k);
}

static void take(struct keystore *k, const struct keys *keys)
{
    k->keys = *keys;
    k->there = true;
    k->problem[0] = '\0';
    k->ready(k->arg, &k->keys);
}

static void send_call(struct keystore *k, const char *method, const char *body, api_done_f *done)
{
    struct buf path = {0};
    request_path(&path, &secrets, k->namespace, body ? NULL : KEYSTORE_SECRET, NULL);
    struct api_request q = {
        .method = method, .path = request_text(&path), .body = body, .timeout_ms = TIMEOUT_MS};
    if (!q.path || api_send(k->api, &q, done, k, &k->call, NULL) < 0)
        again(k, method, "no memory");
    buf_fini(&path);
}

/* ---- making ---------------------------------------------------------------------------------- */

static void on_made(void *arg, const struct api_answer *answer)
{
    struct keystore *k = arg;
    k->call = NULL;
    /* Read it back, also after AlreadyExists: another operator may have created it. */
    if (answer->status == 201)
        read_it(k);
    else
        again(k, "creating it", answer->message);
}

static void make_it(struct keystore *k)
{
    struct keys keys;
    struct err err = {0};
    if (keys_make(&keys, &err) < 0) {
        again(k, "creating it", err_text(&err));
        return;
    }
    auto_json json_t *j = json_pack(
        "{s:s, s:s, s:s, s:{s:s, s:s, s:{s:s}}, s:o}", "apiVersion", "v1", "kind", "Secret", "type",
        "Opaque", "metadata", "name", KEYSTORE_SECRET, "namespace", k->namespace, "labels",
        "app.kubernetes.io/name", "hvd-operator", "data", keys_pack(&keys));
    char *body = json_write(j);
    keys_fini(&keys);
    if (body) {
        send_call(k, "POST", body, on_made);
        sodium_memzero(body, strlen(body));
    } else {
        again(k, "creating it", "no memory");
    }
    free(body);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_secret(const struct api_answer *answer, struct keys *ret, struct err *err)
{
    auto_json json_t *j = NULL;
    json_t *data = NULL;
    int rc = json_read(answer->body, answer->len, "a Secret", &j, err);
    rc = rc < 0 ? rc : json_expect(j, "a Secret", err, "{s:o}", "data", &data);
    return rc < 0 ? rc : keys_unpack(data, ret, err);
}

static void on_read(void *arg, const struct api_answer *answer)
{
    struct keystore *k = arg;
    struct keys keys;
    struct err err = {0};
    k->call = NULL;
    if (answer->status == 404)
        make_it(k);
    else if (answer->status != 200)
        again(k, "reading it", answer->message);
    else if (read_secret(answer, &keys, &err) < 0)
        again(k, "reading it", err_text(&err));
    else
        take(k, &keys);
}

static void read_it(struct keystore *k)
{
    send_call(k, "GET", NULL, on_read);
}

/* ---- life ------------------------------------------------------------------------------------ */

int keystore_open(struct keystore **ret, struct api *api, const char *namespace,
                  void (*ready)(void *arg, const struct keys *keys), void *arg, struct err *err)
{
    struct keystore *k = calloc(1, sizeof(*k));
    if (!k || !(k->namespace = strdup(namespace))) {
        free(k);
        return err_set(err, ENOMEM, "no memory for keys");
    }
    k->api = api;
    k->ready = ready;
    k->arg = arg;
    *ret = k;
    read_it(k);
    return 0;
}

const char *keystore_problem(const struct keystore *k)
{
    return k->problem;
}

const struct keys *keystore_keys(const struct keystore *k)
{
    return k->there ? &k->keys : NULL;
}

void keystore_close(struct keystore *k)
{
    if (!k)
        return;
    api_cancel(k->call);
    loop_timer_stop(api_loop(k->api), &k->pause);
    if (k->there)
        keys_fini(&k->keys);
    free(k->namespace);
    free(k);
}
