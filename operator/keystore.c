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
    char version[64]; /* resourceVersion of the Secret */
    bool there;
    unsigned failures;
    char problem[384];  /* "": none */
    char rotation[384]; /* the same, of the last replacement of the CA */
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

/* Takes over *keys. */
static void take(struct keystore *k, struct keys *keys)
{
    struct keys before = k->keys;
    k->keys = *keys;
    *keys = (struct keys){0};
    k->there = true;
    k->problem[0] = '\0';
    k->ready(k->arg, &k->keys);
    keys_fini(&before);
}

static void send_call(struct keystore *k, const char *method, const char *body, api_done_f *done)
{
    struct buf path = {0};
    bool create = strcmp(method, "POST") == 0;
    request_path(&path, &secrets, k->namespace, create ? NULL : KEYSTORE_SECRET, NULL);
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

/* The Secret with these keys as text; version NULL: a new one. NULL: no memory. */
static char *write_secret(const struct keystore *k, const struct keys *keys, const char *version)
{
    auto_json json_t *j = json_pack(
        "{s:s, s:s, s:s, s:{s:s, s:s, s:{s:s}}, s:o}", "apiVersion", "v1", "kind", "Secret", "type",
        "Opaque", "metadata", "name", KEYSTORE_SECRET, "namespace", k->namespace, "labels",
        "app.kubernetes.io/name", "hvd-operator", "data", keys_pack(keys));
    if (j && version &&
        json_object_set_new(json_object_get(j, "metadata"), "resourceVersion",
                            json_string(version)) < 0)
        return NULL;
    return json_write(j);
}

static void wipe(char *text)
{
    if (text)
        sodium_memzero(text, strlen(text));
    free(text);
}

static void make_it(struct keystore *k)
{
    struct keys keys;
    struct err err = {0};
    if (keys_make(&keys, &err) < 0) {
        again(k, "creating it", err_text(&err));
        return;
    }
    char *body = write_secret(k, &keys, NULL);
    keys_fini(&keys);
    if (body)
        send_call(k, "POST", body, on_made);
    else
        again(k, "creating it", "no memory");
    wipe(body);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_secret(struct keystore *k, const struct api_answer *answer, struct keys *ret,
                       struct err *err)
{
    auto_json json_t *j = NULL;
    json_t *data = NULL;
    const char *version = "";
    int rc = json_read(answer->body, answer->len, "a Secret", &j, err);
    rc = rc < 0 ? rc
                : json_expect(j, "a Secret", err, "{s:o, s:{s:s}}", "data", &data, "metadata",
                              "resourceVersion", &version);
    if (rc == 0)
        snprintf(k->version, sizeof(k->version), "%s", version);
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
    else if (read_secret(k, answer, &keys, &err) < 0)
        again(k, "reading it", err_text(&err));
    else
        take(k, &keys);
}

static void read_it(struct keystore *k)
{
    send_call(k, "GET", NULL, on_read);
}

void keystore_reload(struct keystore *k)
{
    api_cancel(k->call);
    k->call = NULL;
    loop_timer_stop(api_loop(k->api), &k->pause);
    k->there = false;
    read_it(k);
}

/* ---- rotating -------------------------------------------------------------------------------- */

static void note_rotation(struct keystore *k, const char *why)
{
    snprintf(k->rotation, sizeof(k->rotation), "Secret %.64s/%s: %.280s", k->namespace,
             KEYSTORE_SECRET, why);
    log_warn("%s; its certificate authority is not replaced, and is tried again later",
             k->rotation);
}

static void on_rotated(void *arg, const struct api_answer *answer)
{
    struct keystore *k = arg;
    k->call = NULL;
    k->rotation[0] = '\0';
    if (answer->status == 200)
        log_info("Secret %s/%s has a new certificate authority", k->namespace, KEYSTORE_SECRET);
    else
        note_rotation(k, answer->message);
    /* The stored Secret is read again: the response may have been lost, or another operator may
     * have written the Secret. */
    read_it(k);
}

void keystore_rotate(struct keystore *k, int64_t needed_s)
{
    struct err err = {0};
    struct keys next = {0};
    if (!k->there || k->call || k->pause.on)
        return;
    char *body = keys_rotate(&k->keys, needed_s, &next, &err) < 0
                     ? NULL
                     : write_secret(k, &next, k->version);
    keys_fini(&next);
    if (body)
        send_call(k, "PUT", body, on_rotated);
    else
        note_rotation(k, err.code ? err_text(&err) : "no memory");
    wipe(body);
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

const char *keystore_rotation_problem(const struct keystore *k)
{
    return k->rotation;
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
    keys_fini(&k->keys);
    free(k->namespace);
    free(k);
}
